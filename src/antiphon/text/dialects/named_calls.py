"""Calls with the name in front: `name<separator>{...}`, between tags or behind one.

Rules
* The head of a call is what stands before its arguments. It ends at the separator, or where that was forgotten at a
  brace, a code fence or a tag, since no name holds one. The form's pattern finds the name in it.
* A call opens when its name is known and declared. Its arguments are the JSON value behind the head, and go out as the
  model writes them; they end by JSON nesting. A tag outside a string ends them early, inside a string it is content.
* Arguments given as a JSON string are decoded while they stream. Without arguments they are `{}`.
* Whitespace and the beginning of a code fence before the value show nothing, nor does the end of that fence.
* A head in which no declared name is found is text, and so is the value behind it: it is followed to its end, so that
  nothing in its strings is taken for a tag.
* What else stands behind the value is read outside.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection
from functools import partial

from msgspec import Struct

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment
from antiphon.text.dialects.fence import FENCE, FenceEnd, skip_space
from antiphon.text.dialects.flow import WHITESPACE
from antiphon.text.dialects.json_calls import JsonCalls
from antiphon.text.dialects.json_values import Reading, StringDecoder, ValueReader
from antiphon.text.dialects.machine import State
from antiphon.text.dialects.states import Body, Outside, Tags
from antiphon.text.markers import Markers

# Characters of a head. Above the longest declared name (`namespace__name`: 130 characters) with what the forms write
# round it; a longer one names no tool of ours.
HEAD_LIMIT = 1024

_LANGUAGE = re.compile("[a-z]*+")  # of a code fence
_NO_MARKERS = Markers(())


class Form(Struct, frozen=True, kw_only=True):
    """How the head of a call is written."""

    name: re.Pattern[str]
    """Matches a whole head, without the separator and the whitespace round it; its group is the name."""
    separator: str = ""
    """Between the head and the arguments, unless these begin in a code fence. Looked for as text: a control token that
    spells it is read as its spelling."""
    ends: tuple[str, ...] = ()
    """Markers that end a call besides its tags: that of the end of all calls."""
    or_listed: bool = False
    """What begins with a bracket behind the tag is JSON objects instead."""


class Part(enum.Enum):
    """What is being read."""

    HEAD = enum.auto()
    GAP = enum.auto()  # behind the head or the beginning of a code fence
    LANGUAGE = enum.auto()  # of the code fence
    VALUE = enum.auto()


class NamedCalls:
    """The state between the call tags."""

    __slots__ = (
        "_decoder",
        "_ends",
        "_fenced",
        "_following",
        "_form",
        "_head",
        "_listed",
        "_markers",
        "_open",
        "_opening",
        "_outside",
        "_part",
        "_said",
        "_tools",
        "_value",
    )

    reasoning = False
    calling = True

    def __init__(
        self, outside: Outside, tags: Tags, tools: Collection[str], control: Collection[str], *, form: Form
    ) -> None:
        self._outside = outside
        self._tools = tools
        self._form = form
        self._listed = JsonCalls(outside, tags, tools, control) if form.or_listed else None
        self._ends = {tags.opening, tags.closing, *form.ends}
        spelled = self._ends.difference(control, [""])
        self._markers = {
            Part.HEAD: Markers({*spelled, form.separator, "{", FENCE}.difference([""])),
            Part.GAP: Markers({*spelled, FENCE}),
            Part.LANGUAGE: _NO_MARKERS,
            Part.VALUE: Markers(spelled),
        }
        self._following: State = self  # who reads on
        self._part = Part.HEAD
        self._opening = ""
        self._head = ""
        self._open = False  # a call is; else everything is text
        self._said = False  # whether it has shown arguments
        self._fenced = False  # a code fence has begun
        self._value = ValueReader()
        self._decoder: StringDecoder | None = None  # of arguments that are a string

    def enter(self, opening: str, out: list[Fragment]) -> State:
        self._following = self
        self._part = Part.HEAD
        self._opening = opening
        self._head = ""
        self._open = self._said = self._fenced = False
        return self

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        part: Part | None = None
        left = at
        while at < len(text) and self._following is self and (at > left or self._part is not part):
            part, left = self._part, at
            at = self._read_part(text, at, out, self._markers[part])
        return at, self._following

    def literal(self, text: str, out: list[Fragment]) -> State:
        at = 0
        while at < len(text) and self._following is self:
            at = self._read_part(text, at, out, _NO_MARKERS)
        return self if self._following is self else self._following.literal(text[at:], out)

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        """A tag that came as a token ends the call even in a string: no string can hold a token."""
        if marker not in self._ends:
            return None
        if self._part is Part.HEAD:
            self._close_head("", out)
        self._leave(out)
        return self._outside.marker(marker, out) or self._outside.literal(marker, out)

    def finish(self, left: str, out: list[Fragment]) -> None:
        """A half fence or tag before the arguments of an open call shows nothing."""
        if self._part is Part.HEAD:
            self._head += left
            self._refuse(out)
        elif self._part is Part.VALUE or not self._open:
            self.literal(left, out)

    def _read_part(self, text: str, at: int, out: list[Fragment], markers: Markers) -> int:
        """Reads one part as far as it can; gives the index of what is left."""
        match self._part:
            case Part.HEAD:
                return self._read_head(text, at, out, markers)
            case Part.GAP:
                return self._read_gap(text, at, out, markers)
            case Part.LANGUAGE:
                return self._read_language(text, at, out)
            case _:
                return self._read_value(text, at, out, markers)

    def _read_head(self, text: str, at: int, out: list[Fragment], markers: Markers) -> int:
        if self._listed is not None and self._begins_list(text, at, markers):
            self._following = self._listed.enter(self._opening, out)
            self._listed.literal(self._head, out)
            return at
        found = markers.find(text, at)
        end = markers.half(text, at) if found is None else found.start
        room = HEAD_LIMIT - len(self._head)
        self._head += text[at : min(end, at + room)]
        if end - at > room:
            self._refuse(out)
            self._leave(out)
            return at + room
        if found is None:
            return end
        separator = self._form.separator if found.marker == self._form.separator else ""
        self._close_head(separator, out)
        return end + len(separator)

    def _begins_list(self, text: str, at: int, markers: Markers) -> bool:
        """Whether JSON comes instead of a head."""
        start = skip_space(text, at)
        if self._head.strip(WHITESPACE) or text[start : start + 1] not in ("[", "{"):
            return False
        return text[start] == "{" or not (markers.stands_at(text, start) or markers.half_at(text, start))

    def _close_head(self, separator: str, out: list[Fragment]) -> None:
        self._part = Part.GAP
        head = self._form.name.fullmatch(self._head.strip(WHITESPACE))
        if head is None or head[1] not in self._tools:
            self._refuse(out)
            self._keep(separator, out)
            return
        self._open = True
        self._outside.flow.restart()
        out.append(Call(name=head[1]))

    def _refuse(self, out: list[Fragment]) -> None:
        """It is no call."""
        self._outside.flow.add(self._opening + self._head, out)

    def _read_gap(self, text: str, at: int, out: list[Fragment], markers: Markers) -> int:
        start = skip_space(text, at)
        self._keep(text[at:start], out)
        stands = markers.stands_at(text, start)
        if start == len(text) or (markers.half_at(text, start) and not stands):
            return start
        if not stands:
            self._part = Part.VALUE
            self._value = ValueReader()
            self._decoder = StringDecoder() if self._open and text[start] == '"' else None
            return start
        if self._fenced or not text.startswith(FENCE, start):
            self._leave(out)
            return start
        self._fenced = True
        self._part = Part.LANGUAGE
        self._keep(FENCE, out)
        return start + len(FENCE)

    def _read_language(self, text: str, at: int, out: list[Fragment]) -> int:
        end = _LANGUAGE.match(text, at).end()  # type: ignore[union-attr]
        self._keep(text[at:end], out)
        if end < len(text):
            self._part = Part.GAP
        return end

    def _read_value(self, text: str, at: int, out: list[Fragment], markers: Markers) -> int:
        end = self._value.read(text, at, len(text), markers)
        piece = text[at:end]
        done = self._value.reading is Reading.DONE
        if self._decoder is not None:
            piece = self._decoder.feed(piece, last=done)
        if self._open:
            self._say(piece, out)
        self._keep(piece, out)
        if done or self._value.reading is Reading.MARKER:
            self._leave(out)
        return end

    def _say(self, arguments: str, out: list[Fragment]) -> None:
        if arguments:
            self._said = True
            out.append(Arguments(arguments))

    def _keep(self, piece: str, out: list[Fragment]) -> None:
        """What was read is text, if this is no call."""
        if not self._open:
            self._outside.flow.add(piece, out)

    def _leave(self, out: list[Fragment]) -> None:
        """Nothing more belongs to the call."""
        self._following = self._outside
        if not self._open:
            return
        if not self._said:
            out.append(Arguments("{}"))
        out.append(CallDone())
        if self._fenced:
            self._following = FenceEnd(self._outside)


def named_calls(form: Form) -> Callable[[Outside, Tags, Collection[str], Collection[str]], Body]:
    """What makes the state for calls of one form."""
    return partial(NamedCalls, form=form)
