"""Calls whose arguments are keys and values: `name(key="value")`, `call:name{key:1}`; one, or a list of them.

Rules
* A call opens when the bracket behind its name is read and the name is declared. From there on its arguments go out as
  the JSON object that they say (`keyed_values`), piece by piece. They end at the bracket that closes them.
* A marker outside a string ends a call early, inside a string it is content; a marker that came as a token always
  ends it. Then the JSON stays as unfinished as what the model wrote.
* What cannot be read as a call before that bracket is text, in order and complete, and so is a call of a name that is
  not declared, with all that follows it in a list.
* Separators in a list show nothing. What else stands behind a call is read outside.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection
from functools import partial

from msgspec import Struct

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment
from antiphon.text.dialects.json_values import Reading
from antiphon.text.dialects.keyed_values import KeyedValues
from antiphon.text.dialects.machine import State
from antiphon.text.dialects.states import Body, Outside, Tags

# Characters from the marker to the bracket behind the name. The longest declared name (`namespace__name`) has 130, and
# what templates write round it has a few; all are held back from the client, so this bounds how long it sees nothing.
HEAD_LIMIT = 512

NAME = r"(?P<name>[A-Za-z0-9_.-]+)"
SPACE = r"\s*"

_SEPARATORS = re.compile(r"[\s,]*")
_NAME_START = re.compile(r"[A-Za-z0-9_.-]")


class Head(Struct, frozen=True):
    """What stands from the marker to the bracket behind the name."""

    whole: re.Pattern[str]  # its group `name` is the name
    half: re.Pattern[str]  # matches as much of a text as a head may begin with


class Form(Struct, frozen=True, kw_only=True):
    """How a family writes calls."""

    first: Head
    further: Head | None = None  # of the calls behind the first one in a list, which a square bracket closes
    closing: str  # the bracket that closes the arguments
    delimiter: str = ""  # of strings in which nothing is escaped
    ends: tuple[str, ...] = ()  # markers that end a call, beside its tags


class Step(enum.Enum):
    """What comes next."""

    HEAD = enum.auto()
    ARGUMENTS = enum.auto()
    BETWEEN = enum.auto()  # behind a call in a list
    END = enum.auto()  # the text outside goes on


class KeyedCalls:
    """The state between the call tags."""

    __slots__ = ("_ends", "_form", "_head", "_opening", "_outside", "_raw", "_step", "_tools", "_values")

    reasoning = False
    calling = True

    def __init__(
        self, outside: Outside, tags: Tags, tools: Collection[str], control: Collection[str], *, form: Form
    ) -> None:
        self._outside = outside
        self._tools = tools
        self._form = form
        self._ends = {tags.opening, tags.closing, *form.ends}.difference([""])
        self._values = KeyedValues(form.delimiter, self._ends, control)
        self._step = Step.END
        self._head = form.first
        self._opening = ""  # the marker before the head
        self._raw = ""  # of the head, so far

    def enter(self, opening: str, out: list[Fragment]) -> State:
        if opening and opening == self._form.delimiter:
            return self._outside.literal(opening, out)  # It opens a string, and strings are in calls only.
        self._expect(self._form.first, opening)
        return self

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        return self._read(text, at, out, literal=False)

    def literal(self, text: str, out: list[Fragment]) -> State:
        at, state = self._read(text, 0, out, literal=True)
        return state if state is self else state.literal(text[at:], out)

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        if marker == self._form.delimiter and self._step is Step.ARGUMENTS:
            said = self._values.delimit()
            if said is None:
                return None
            out.append(Arguments(said))
            return self
        if marker not in self._ends:
            return None
        self._leave(out)
        return self._outside.marker(marker, out) or self._outside.literal(marker, out)

    def finish(self, left: str, out: list[Fragment]) -> None:
        self.literal(left, out)
        if self._step is Step.HEAD:
            self._outside.literal(self._opening + self._raw, out)
        elif self._step is Step.ARGUMENTS:
            self._say(self._values.rest(), out)

    def _read(self, text: str, at: int, out: list[Fragment], *, literal: bool) -> tuple[int, State]:
        while at < len(text) and self._step is not Step.END:
            if self._step is Step.HEAD:
                at = self._read_head(text, at, out)
            elif self._step is Step.BETWEEN:
                at = self._read_between(text, at)
            else:
                at = self._read_arguments(text, at, out, literal=literal)
                if self._values.reading is Reading.HALF:
                    break
        return at, self._outside if self._step is Step.END else self

    def _expect(self, head: Head, opening: str) -> None:
        self._step = Step.HEAD
        self._head = head
        self._opening = opening
        self._raw = ""

    def _read_head(self, text: str, at: int, out: list[Fragment]) -> int:
        begun = len(self._raw)
        raw = self._raw + text[at : at + HEAD_LIMIT + 1]
        whole = self._head.whole.match(raw)
        if whole is not None and whole.end() <= HEAD_LIMIT:
            end = whole.end()
            self._take_name(whole["name"], raw[:end], out)
        else:
            end = min(self._head.half.match(raw).end(), HEAD_LIMIT)  # type: ignore[union-attr]
            self._raw = raw[:end]
            if end < len(raw):
                self._leave(out)
        return at + end - begun

    def _take_name(self, name: str, raw: str, out: list[Fragment]) -> None:
        self._raw = raw
        if name not in self._tools:
            self._leave(out)
            return
        self._step = Step.ARGUMENTS
        self._values.begin()
        self._outside.flow.restart()
        out += [Call(name=name), Arguments("{")]

    def _read_arguments(self, text: str, at: int, out: list[Fragment], *, literal: bool) -> int:
        at, said = self._values.read(text, at, literal=literal)
        if self._values.reading is Reading.DONE:
            said += "}"
        self._say(said, out)
        if self._values.reading is Reading.MARKER:
            self._leave(out)
        elif self._values.reading is Reading.DONE:
            out.append(CallDone())
            self._step = Step.BETWEEN if self._form.further is not None else Step.END
            at += text.startswith(self._form.closing, at)
        return at

    def _read_between(self, text: str, at: int) -> int:
        at = _SEPARATORS.match(text, at).end()  # type: ignore[union-attr]
        if self._form.further is not None and _NAME_START.match(text, at):
            self._expect(self._form.further, "")
        elif at < len(text):
            self._step = Step.END
            at += text[at] == "]"
        return at

    def _leave(self, out: list[Fragment]) -> None:
        """Nothing more belongs to the calls."""
        if self._step is Step.HEAD:
            self._outside.literal(self._opening + self._raw, out)
        elif self._step is Step.ARGUMENTS:
            self._say(self._values.rest(), out)
            out.append(CallDone())
        self._step = Step.END

    def _say(self, arguments: str, out: list[Fragment]) -> None:
        if arguments:
            out.append(Arguments(arguments))


def keyed_calls(form: Form) -> Callable[[Outside, Tags, Collection[str], Collection[str]], Body]:
    """What makes the state for calls of one form."""
    return partial(KeyedCalls, form=form)
