"""The states that most dialects share: the visible text, and thinking between tags."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct

from antiphon.protocol.fragments import Fragment, Reasoning, ReasoningDone, Text
from antiphon.text.dialects.flow import SPACE_LIMIT, WHITESPACE, Flow
from antiphon.text.dialects.machine import State
from antiphon.text.markers import Markers

_SPACE = re.compile(f"[{WHITESPACE}]*")
_BARE_START = re.compile(f"[{WHITESPACE}]*(?:(?P<separator>;)[{WHITESPACE}]*)?")


class Tags(Struct, frozen=True):
    """The two markers round a block."""

    opening: str
    closing: str


class Body(State, Protocol):
    """The state between the tags of a block."""

    def enter(self, opening: str, out: list[Fragment]) -> State:
        """Its opening marker was read; empty if it has none. Gives who reads on."""
        ...


class Markings(Struct, frozen=True, kw_only=True):
    """The markers of one output. Those among `control` count only as tokens."""

    bodies: Mapping[str, Body]  # what opens, by opening marker
    closings: Collection[str]  # of blocks and sections
    passed: Collection[str] = ()  # markers that show nothing, wherever they stand
    bare: str = ""  # what calls without a marker begin with
    bare_body: Body | None = None
    control: Collection[str] = ()
    one_value: bool = False  # the visible text is one JSON value: once it has begun, nothing in it is a marker
    calls: bool = False  # whether calls can open: separators stand before them


class Outside:
    """The visible text, with the markers that lead out of it.

    A closing tag without its opening is passed over where only separators stand before it (the template had closed the
    block already, or a call ended before its tag), and behind a block so is a half of one at the end of the output.
    Behind text it is text: what was sent cannot be taken back.

    A call that no marker opens begins where nothing but separators stands before it, at the start or behind a marker;
    behind another call a semicolon separates too.
    """

    __slots__ = ("_bare", "_bare_body", "_bodies", "_closings", "_markers", "_one_value", "_passed", "flow")

    reasoning = False
    calling = False

    def __init__(self) -> None:
        self.flow = Flow(Text)
        self._bodies: Mapping[str, Body] = {}
        self._closings: Collection[str] = ()
        self._passed: Collection[str] = ()
        self._bare = ""
        self._bare_body: Body | None = None
        self._one_value = False
        self._markers = Markers(())

    def connect(self, markings: Markings) -> None:
        """What can open here."""
        self._bodies, self._closings, self._passed = markings.bodies, markings.closings, markings.passed
        self._bare, self._bare_body, self._one_value = markings.bare, markings.bare_body, markings.one_value
        self.flow.eager = not markings.calls
        every = {*self._bodies, *self._closings, *self._passed}
        self._markers = Markers(every.difference(markings.control))

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        if self._one_value and self._in_value(text, at):
            return len(text), self.literal(text[at:], out)
        if self._bare_body is not None and not self.flow.begun:
            return self._read_start(self._bare_body, text, at, out)
        return self._read_on(text, at, out)

    def _in_value(self, text: str, at: int) -> bool:
        """Whether the text goes on with a value, or begins with one."""
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        marked = self._markers.stands_at(text, at) or self._markers.half_at(text, at)
        called = self._bare_body is not None and text.startswith(self._bare, at)
        return self.flow.begun or not (at == len(text) or marked or called)

    def _read_start(self, body: Body, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        """Reads where a call without a marker may begin."""
        start = _BARE_START.match(text, at)
        assert start is not None, "it matches nothing as well"
        end = start.end()
        if not start["separator"]:
            self.flow.add(text[at:end], out)
            if not self.flow.begun and text.startswith(self._bare, end):
                return end, body.enter("", out)
            return self._read_on(text, end, out)
        if self.flow.behind_marker and end - at <= SPACE_LIMIT:
            if end == len(text):
                return at, self  # It belongs to what comes.
            if text.startswith(self._bare, end):
                return end, body.enter(text[at:end], out)
        return self._read_on(text, at, out)

    def _read_on(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        if self._markers.possible(text, at) is None:
            self.flow.add(text[at:] if at else text, out)
            return len(text), self
        while (found := self._markers.find(text, at)) is not None:
            self.flow.add(text[at : found.start], out)
            at = found.start + len(found.marker)
            state = self.marker(found.marker, out) or self.literal(found.marker, out)
            if state is not self:
                return at, state
            if self._one_value and self._in_value(text, at):
                return len(text), self.literal(text[at:], out)
            if self._bare_body is not None and not self.flow.begun:
                return self._read_start(self._bare_body, text, at, out)
        end = self._markers.half(text, at)
        self.flow.add(text[at:end], out)
        return end, self

    def literal(self, text: str, out: list[Fragment]) -> State:
        self.flow.add(text, out)
        return self

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        body = self._bodies.get(marker)
        if body is not None:
            return body.enter(marker, out)
        if marker in self._passed or (marker in self._closings and not self.flow.begun):
            self.flow.pass_over()
            return self
        return None

    def finish(self, left: str, out: list[Fragment]) -> None:
        if not (self.flow.behind_marker and any(tag.startswith(left) for tag in self._closings)):
            self.literal(left, out)


class Section:
    """Behind the marker that opens all calls of a turn, where the first of them is to come.

    The marker shows nothing then. If none comes, it is text, and so is the whitespace behind it.
    """

    __slots__ = ("_following", "_markers", "_outside", "_raw")

    reasoning = False
    calling = True

    def __init__(self, outside: Outside, following: Collection[str], control: Collection[str]) -> None:
        """`following`: the markers of which one must come: the openings of calls, and the section's own closing."""
        self._outside = outside
        self._following = following
        self._markers = Markers(set(following).difference(control))
        self._raw = ""

    def enter(self, opening: str, out: list[Fragment]) -> State:
        self._raw = opening
        return self

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        end = _SPACE.match(text, at, at + SPACE_LIMIT - len(self._raw)).end()  # type: ignore[union-attr]
        if end < len(text) and self._markers.stands_at(text, end):
            self._outside.flow.pass_over()
            return end, self._outside
        self._raw += text[at:end]
        if end == len(text) or self._markers.half_at(text, end):
            return end, self
        return end, self._give_up(out)

    def literal(self, text: str, out: list[Fragment]) -> State:
        at, state = (0, self._give_up(out)) if text.strip(WHITESPACE) else self.read(text, 0, out)
        return state if state is self else state.literal(text[at:], out)

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        if marker in self._following:
            self._outside.flow.pass_over()
        else:
            self._give_up(out)
        return self._outside.marker(marker, out) or self._outside.literal(marker, out)

    def finish(self, left: str, out: list[Fragment]) -> None:
        self._give_up(out).literal(left, out)

    def _give_up(self, out: list[Fragment]) -> State:
        return self._outside.literal(self._raw, out)


class Verbatim:
    """Text that nothing leads out of: not even its whitespace is looked at."""

    __slots__ = ()

    reasoning = False
    calling = False

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        return len(text), self.literal(text[at:], out)

    def literal(self, text: str, out: list[Fragment]) -> State:
        if text:
            out.append(Text(text))
        return self

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        """There are none."""

    def finish(self, left: str, out: list[Fragment]) -> None:
        """Nothing is open, and nothing was held back."""


class Thinking:
    """A thinking block. Only its closing tag counts in it; a block of nothing but whitespace is passed over."""

    __slots__ = ("_closing", "_flow", "_markers", "_outside")

    reasoning = True
    calling = False

    def __init__(self, outside: Outside, tags: Tags, control: Collection[str]) -> None:
        self._outside = outside
        self._closing = tags.closing
        self._markers = Markers({tags.closing}.difference(control))
        self._flow = Flow(Reasoning)
        self._flow.restart()

    def enter(self, opening: str, out: list[Fragment]) -> State:
        self._flow.restart()
        return self

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        found = self._markers.find(text, at)
        end = self._markers.half(text, at) if found is None else found.start
        self._add(text[at:end], out)
        if found is None:
            return end, self
        return end + len(found.marker), self._leave(out)

    def literal(self, text: str, out: list[Fragment]) -> State:
        self._add(text, out)
        return self

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        return self._leave(out) if marker == self._closing else None

    def finish(self, left: str, out: list[Fragment]) -> None:
        self._add(left, out)
        self._flow.finish(out)

    def _add(self, text: str, out: list[Fragment]) -> None:
        shown = self._flow.begun
        self._flow.add(text, out)
        if self._flow.begun and not shown:
            self._outside.flow.restart()

    def _leave(self, out: list[Fragment]) -> State:
        if self._flow.begun:
            out.append(ReasoningDone())
        else:
            self._outside.flow.pass_over()
        return self._outside
