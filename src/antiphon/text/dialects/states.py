"""The states that most dialects share: the visible text, and thinking between tags."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct

from antiphon.protocol.fragments import Fragment, Reasoning, ReasoningDone, Text
from antiphon.text.dialects.flow import Flow
from antiphon.text.dialects.machine import State
from antiphon.text.markers import Markers


class Tags(Struct, frozen=True):
    """The two markers round a block."""

    opening: str
    closing: str


class Body(State, Protocol):
    """The state between the tags of a block."""

    def enter(self, out: list[Fragment]) -> State:
        """Its opening marker was read. Gives who reads on."""
        ...


class Outside:
    """The visible text, with the markers that lead out of it.

    A closing tag without its opening is passed over where only separators stand before it (the template had closed the
    block already, or a call ended before its tag), and behind a block so is a half of one at the end of the output.
    Behind text it is text: what was sent cannot be taken back.
    """

    __slots__ = ("_bodies", "_closings", "_markers", "flow")

    reasoning = False

    def __init__(self) -> None:
        self.flow = Flow(Text)
        self._bodies: Mapping[str, Body] = {}
        self._closings: Collection[str] = ()
        self._markers = Markers(())

    def connect(self, blocks: Collection[tuple[Tags, Body]], control: Collection[str]) -> None:
        """The blocks that can open here. Tags among `control` count only as tokens."""
        self._bodies = {tags.opening: body for tags, body in blocks}
        self._closings = {tags.closing for tags, _ in blocks}
        self._markers = Markers({*self._bodies, *self._closings}.difference(control))

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        if self._markers.possible(text, at) is None:
            self.flow.add(text[at:] if at else text, out)
            return len(text), self
        while (found := self._markers.find(text, at)) is not None:
            self.flow.add(text[at : found.start], out)
            at = found.start + len(found.marker)
            state = self.marker(found.marker, out) or self.literal(found.marker, out)
            if state is not self:
                return at, state
        end = self._markers.half(text, at)
        self.flow.add(text[at:end], out)
        return end, self

    def literal(self, text: str, out: list[Fragment]) -> State:
        self.flow.add(text, out)
        return self

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        body = self._bodies.get(marker)
        if body is not None:
            return body.enter(out)
        if marker in self._closings and not self.flow.begun:
            self.flow.pass_over()
            return self
        return None

    def finish(self, left: str, out: list[Fragment]) -> None:
        if not (self.flow.behind_marker and any(tag.startswith(left) for tag in self._closings)):
            self.literal(left, out)


class Verbatim:
    """Text that nothing leads out of: not even its whitespace is looked at."""

    __slots__ = ()

    reasoning = False

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

    def __init__(self, outside: Outside, tags: Tags, control: Collection[str]) -> None:
        self._outside = outside
        self._closing = tags.closing
        self._markers = Markers({tags.closing}.difference(control))
        self._flow = Flow(Reasoning)
        self._flow.restart()

    def enter(self, out: list[Fragment]) -> State:
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
