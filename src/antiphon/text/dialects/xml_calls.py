"""Calls with an element for each parameter, XML-like but without escapes: one machine, and a `Syntax` for each form.

Rules
* A call opens when its name is known and declared. Its arguments go out as a JSON object: each value as the schema of
  its parameter says (`xml_values`), a string while it streams. A key that comes twice is written twice.
* The end of a value counts only if another parameter, the end of the call or a marker round calls follows, with little
  whitespace between: else it belongs to the value, which may be XML itself. So does one in a string of a JSON value.
  At the end of the output it counts.
* What stands where a parameter or the end of the call must ends the call; it is read outside. Markers that open or
  close calls end one that lacks its own end.
* What cannot be read as a call before its name is known is text, in order and complete. So is a call of a name that is
  not declared; it is followed to its end, so that nothing in its values is taken for a tag.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Collection
from functools import partial
from typing import Protocol

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment
from antiphon.text.dialects import xml_syntax
from antiphon.text.dialects.dialect import Calling, Dialect, Tools
from antiphon.text.dialects.flow import WHITESPACE
from antiphon.text.dialects.machine import State
from antiphon.text.dialects.states import Outside, Tags
from antiphon.text.dialects.xml_grammar import call_rule
from antiphon.text.dialects.xml_syntax import GAP_LIMIT, Shape, Syntax
from antiphon.text.dialects.xml_types import ANY_JSON, STRING, parameter_types
from antiphon.text.dialects.xml_values import ValueWriter
from antiphon.text.markers import Markers

# Characters of a head: the markers, whitespace and name before the first parameter, or before a value. Above the
# longest declared name (`namespace__name`: 130 characters) and any name of a property that somebody would give.
HEAD_LIMIT = 1024

_SPACE = re.compile(f"[{WHITESPACE}]*+")
_NAME = re.compile(rf'[^{WHITESPACE}<>"]*+')
_NO_MARKERS = Markers(())


class Part(enum.Enum):
    """What is being read."""

    OPENING = enum.auto()  # behind the tag: what comes before the name
    NAME = enum.auto()
    NAMED = enum.auto()  # behind the name: what ends it
    INSIDE = enum.auto()  # a parameter or the end of the call
    KEY = enum.auto()
    SHAPE = enum.auto()  # behind the key: what opens the value
    VALUE = enum.auto()
    GAP = enum.auto()  # behind what may be the end of the value


class _Read(Protocol):
    """Reads from `at` as far as it can; gives the index of what is left. Not `spelled`: nothing in it is a marker."""

    def __call__(self, text: str, at: int, out: list[Fragment], *, spelled: bool) -> int: ...


class XmlCalls:
    """The state between the call tags."""

    __slots__ = (
        "_empty",
        "_expected",
        "_following",
        "_gap",
        "_head",
        "_key",
        "_key_end",
        "_name",
        "_open",
        "_outside",
        "_part",
        "_readers",
        "_spelled",
        "_syntax",
        "_tools",
        "_value_end",
        "_writer",
    )

    reasoning = False
    calling = True

    def __init__(self, outside: Outside, tags: Tags, tools: Tools, control: Collection[str], *, syntax: Syntax) -> None:
        self._outside = outside
        self._tools = tools
        self._syntax = syntax
        self._expected = _expected(syntax)
        tokens = syntax.ends.intersection(control)
        self._spelled = {part: literals - tokens for part, literals in self._expected.items()}
        self._key_end = Markers({syntax.key.closing})
        self._value_end = Markers({syntax.value_end})
        self._readers: dict[Part, _Read] = {
            **dict.fromkeys(self._expected, self._read_expected),
            Part.NAME: self._read_name,
            Part.KEY: self._read_key,
            Part.VALUE: self._read_value,
            Part.GAP: self._read_gap,
        }
        self._following: State = self  # who reads on
        self._part = Part.OPENING
        self._open = False  # a call is; else everything is text
        self._empty = True  # the open call has shown no arguments
        self._head = ""  # what becomes text if it is no head
        self._name = ""
        self._key = ""
        self._writer = ValueWriter(STRING)
        self._gap = ""  # the end of a value and what followed, as long as it may be content

    def enter(self, opening: str, out: list[Fragment]) -> State:
        self._following = self
        self._open = False
        self._empty = True
        self._head = opening
        self._name = self._gap = ""
        self._part = Part.NAME if self._syntax.name.opening in (opening, "") else Part.OPENING
        return self

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        return self._read_on(text, at, out, spelled=True), self._following

    def literal(self, text: str, out: list[Fragment]) -> State:
        at = self._read_on(text, 0, out, spelled=False)
        return self if self._following is self else self._following.literal(text[at:], out)

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        """A marker that came as a token counts where it is expected, and ends the call wherever it stands."""
        if self._part is Part.NAME:
            self._part = Part.NAMED
        if marker in self._expected.get(self._part, ()):
            taken = self._take(marker, out)
            return self._following if taken else self.marker(marker, out)
        if marker not in self._syntax.ends:
            return None
        self._leave(out)
        return self._outside.marker(marker, out) or self._outside.literal(marker, out)

    def finish(self, left: str, out: list[Fragment]) -> None:
        """A half head or marker behind the name of an open call shows nothing."""
        if not self._open:
            self._outside.flow.add(self._head + self._gap + left, out)
        elif self._part is Part.VALUE:
            self._say(self._writer.add(left), out)
            self._say(self._writer.cut(), out)
        elif self._part is Part.GAP:
            self._say(self._writer.close(), out)

    def _read_on(self, text: str, at: int, out: list[Fragment], *, spelled: bool) -> int:
        part, left = None, at
        while at < len(text) and self._following is self and (at > left or self._part is not part):
            part, left = self._part, at
            at = self._readers[part](text, at, out, spelled=spelled)
        return at

    def _read_expected(self, text: str, at: int, out: list[Fragment], *, spelled: bool) -> int:
        """Reads whitespace, and one of the markers that may come."""
        start = _skip_space(text, at)
        if self._part is Part.INSIDE:
            self._pass(text[at:start], out)
        else:
            grown = self._grow(text, at, start, out)
            if grown < start:
                return grown
        if start == len(text):
            return start
        found = _standing(text, start, self._spelled[self._part] if spelled else ())
        if found is None:
            self._leave(out)
        return start + self._take(found, out) if found else start

    def _read_name(self, text: str, at: int, out: list[Fragment], *, spelled: bool) -> int:
        start = at if self._name else _skip_space(text, at)
        end = _NAME.match(text, start).end()  # type: ignore[union-attr]
        grown = self._grow(text, at, end, out)
        self._name += text[start:end]
        if grown == end < len(text):
            self._part = Part.NAMED
        return grown

    def _read_key(self, text: str, at: int, out: list[Fragment], *, spelled: bool) -> int:
        markers = self._key_end if spelled else _NO_MARKERS
        found = markers.find(text, at)
        end = markers.half(text, at) if found is None else found.start
        grown = self._grow(text, at, end, out)
        if grown < end or found is None:
            self._key += text[at:grown]
            return grown
        self._key += text[at:end]
        self._head += found.marker
        self._part = Part.SHAPE
        if "" in self._syntax.values:
            self._open_value(self._syntax.values[""], out)
        return end + len(found.marker)

    def _read_value(self, text: str, at: int, out: list[Fragment], *, spelled: bool) -> int:
        markers = self._value_end if spelled else _NO_MARKERS
        found = markers.find(text, at)
        end = markers.half(text, at) if found is None else found.start
        self._write(text[at:end], out)
        if found is None:
            return end
        self._gap = found.marker
        self._part = Part.GAP
        return end + len(found.marker)

    def _read_gap(self, text: str, at: int, out: list[Fragment], *, spelled: bool) -> int:
        """Reads on behind the end of a value, until it is known whether it is one."""
        start = _skip_space(text, at)
        room = GAP_LIMIT + len(self._syntax.value_end) - len(self._gap)
        fits = start - at <= room
        stop = start if fits else at + room
        self._gap += text[at:stop]
        if fits and start == len(text):
            return stop
        found = _standing(text, start, self._spelled[Part.GAP] if spelled and fits else ())
        if found is None or (found and self._in_string()):
            self._part = Part.VALUE
            gap, self._gap = self._gap, ""
            self._write(gap, out)
        elif found:
            self._take(found, out)
        return stop

    def _in_string(self) -> bool:
        return self._open and self._writer.in_string(self._gap)

    def _take(self, marker: str, out: list[Fragment]) -> int:
        """A marker has come that was expected. Gives how many of its characters are read with that."""
        match self._part:
            case Part.OPENING:
                self._head += marker
                self._part = Part.NAME
            case Part.NAMED:
                return self._open_call(marker, out)
            case Part.INSIDE if marker == self._syntax.key.opening:
                self._head = marker
                self._key = ""
                self._part = Part.KEY
            case Part.INSIDE:
                self._pass(marker, out)
                self._leave(out)
            case Part.SHAPE:
                self._head += marker
                self._open_value(self._syntax.values[marker], out)
            case _:
                self._close_value(out)
                return 0
        return len(marker)

    def _open_call(self, marker: str, out: list[Fragment]) -> int:
        taken = marker if marker == self._syntax.name.closing else ""
        self._part = Part.INSIDE
        if self._name in self._tools:
            self._open = True
            self._head = ""
            self._outside.flow.restart()
            out.append(Call(name=self._name))
        else:
            self._head += taken
            self._pass(self._end_head(), out)
        return len(taken)

    def _open_value(self, shape: Shape, out: list[Fragment]) -> None:
        self._part = Part.VALUE
        head = self._end_head()
        if not self._open:
            self._pass(head, out)
            return
        key = self._key.strip(WHITESPACE)
        self._writer = ValueWriter(self._types(shape, key), lines=self._syntax.lines)
        lead = "{" if self._empty else ", "
        self._empty = False
        self._say(f"{lead}{json.dumps(key, ensure_ascii=False)}: {self._writer.opening}", out)

    def _types(self, shape: Shape, key: str) -> frozenset[str]:
        if shape is Shape.SCHEMA:
            return parameter_types(self._tools[self._name], key)
        return STRING if shape is Shape.STRING else ANY_JSON

    def _write(self, text: str, out: list[Fragment]) -> None:
        """More of the value."""
        if self._open:
            self._say(self._writer.add(text), out)
        else:
            self._pass(text, out)

    def _close_value(self, out: list[Fragment]) -> None:
        self._part = Part.INSIDE
        if self._open:
            self._say(self._writer.close(), out)
        else:
            self._pass(self._gap, out)
        self._gap = ""

    def _say(self, arguments: str, out: list[Fragment]) -> None:
        if arguments:
            out.append(Arguments(arguments))

    def _grow(self, text: str, at: int, end: int, out: list[Fragment]) -> int:
        """More of a head, up to `end`. Gives where it stopped: earlier if it is too long, which makes it none."""
        room = max(0, HEAD_LIMIT - len(self._head))
        stop = min(end, at + room)
        self._head += text[at:stop]
        if stop < end:
            self._leave(out)
        return stop

    def _end_head(self) -> str:
        head, self._head = self._head, ""
        return head

    def _pass(self, text: str, out: list[Fragment]) -> None:
        """Characters were read that say nothing in a call."""
        if not self._open:
            self._outside.flow.add(text, out)

    def _leave(self, out: list[Fragment]) -> None:
        """Nothing more belongs to the call. A head that was begun is text."""
        if self._part in (Part.VALUE, Part.GAP):
            self._close_value(out)
        if self._open:
            self._say("{}" if self._empty else "}", out)
            out.append(CallDone())
        self._following = self._outside
        self._outside.flow.add(self._end_head(), out)


def _expected(syntax: Syntax) -> dict[Part, frozenset[str]]:
    """The markers that may come. Behind a value and behind a name that nothing closes they are only looked at."""
    inside = frozenset({syntax.key.opening, syntax.closing})
    return {
        Part.OPENING: frozenset({syntax.name.opening}),
        Part.NAMED: frozenset({syntax.name.closing}) if syntax.name.closing else inside,
        Part.INSIDE: inside,
        Part.SHAPE: frozenset(syntax.values),
        Part.GAP: syntax.following,
    }


def _standing(text: str, at: int, markers: Collection[str]) -> str | None:
    """The marker that stands at `at`; empty if it may still become one, None if it cannot."""
    for marker in markers:
        if text.startswith(marker, at):
            return marker
    rest = text[at : at + max(map(len, markers), default=0)]
    return "" if any(marker.startswith(rest) for marker in markers) else None


def _skip_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _dialect(name: str, syntax: Syntax) -> Dialect:
    calling = Calling(
        tags=syntax.tags,
        also=syntax.also,
        section=syntax.section,
        body=partial(XmlCalls, syntax=syntax),
        call=partial(call_rule, syntax),
    )
    return Dialect(name=name, thinking=Tags("<think>", "</think>"), calling=calling, parts=syntax.parts)


QWEN3_CODER = _dialect("qwen3-coder", xml_syntax.QWEN3_CODER)
GLM = _dialect("glm-4.x", xml_syntax.GLM)
MINIMAX_M2 = _dialect("minimax-m2", xml_syntax.MINIMAX_M2)
DSML = _dialect("deepseek-v3.2", xml_syntax.DSML)
DSML_V4 = _dialect("deepseek-v4", xml_syntax.DSML_V4)
