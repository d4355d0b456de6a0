"""The machine that all dialects run on: states that read text and hand over to each other at markers.

Rules
* A state reads as far as it can at once. What it leaves unread is a half marker, shorter than the longest marker; the
  machine keeps it for the next piece. Nothing is read twice but that, so the time is linear in the output.
* What a state makes of the text does not depend on how it was cut.
* No output of a model makes it raise.
* A marker that is a control token of the vocabulary counts only as that token; text that spells it is text. A marker
  token where it counts for nothing is the text of its spelling.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from antiphon.protocol.fragments import Call, Fragment
from antiphon.text.dialects.flow import Flow


class Parser(Protocol):
    """One output of a model, piece by piece, as fragments. Neighbouring fragments of one kind belong together."""

    @property
    def in_reasoning(self) -> bool:
        """Whether what comes next belongs to a thinking block."""
        ...

    @property
    def misread(self) -> int:
        """How often something began as a call does and was none, and so was text."""
        ...

    def feed(self, text: str) -> list[Fragment]: ...

    def control(self, token: str) -> list[Fragment]:
        """A control token, by its spelling. One that is no marker of the dialect gives nothing."""
        ...

    def finish(self) -> list[Fragment]:
        """The end of the output. An open thinking block or call stays open: only the caller knows why it ended."""
        ...


class State(Protocol):
    """How a part of the output is read."""

    reasoning: bool
    calling: bool  # whether what is read may be a call

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        """Reads from index `at`: the index of what is left, and who reads on. Itself only if more text is needed."""
        ...

    def literal(self, text: str, out: list[Fragment]) -> State:
        """Reads text in which nothing is a marker. Gives who reads on."""
        ...

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        """A marker token. Gives who reads on; None if it counts for nothing here."""
        ...

    def finish(self, left: str, out: list[Fragment]) -> None:
        """The output ended in this state; `left` is a half marker that it had not read, or empty."""
        ...


class Machine:
    """A `Parser` made of states.

    `flow` is the visible text that they share; `parts` are control tokens that are read as the text of their spelling.
    """

    __slots__ = ("_called", "_flow", "_held", "_markers", "_parts", "_seen", "_state", "misread")

    def __init__(self, start: State, flow: Flow, markers: Collection[str], parts: Collection[str] = ()) -> None:
        self._state = start
        self._flow = flow
        self._markers = markers
        self._parts = parts
        self._held = ""
        self.misread = 0
        self._called = False  # a call has opened since a state that reads calls was entered
        self._seen = 0  # fragments of the present reading that came before that

    @property
    def in_reasoning(self) -> bool:
        return self._state.reasoning

    def feed(self, text: str) -> list[Fragment]:
        out: list[Fragment] = []
        self._seen = 0
        if self._held:
            text = self._held + text
        at, state = self._state.read(text, 0, out)
        while state is not self._state:
            self._enter(state, out)
            at, state = state.read(text, at, out)
        if state.calling:
            self._look_for_call(out)
        self._held = text[at:] if at < len(text) else ""
        return out

    def control(self, token: str) -> list[Fragment]:
        if token in self._parts:
            return self.feed(token)
        if token not in self._markers:
            return []
        out: list[Fragment] = []
        self._seen = 0
        self._release(out)
        self._enter(self._state.marker(token, out) or self._state.literal(token, out), out)
        if self._state.calling:
            self._look_for_call(out)
        return out

    def finish(self) -> list[Fragment]:
        out: list[Fragment] = []
        self._seen = 0
        self._state.finish(self._held, out)
        self._held = ""
        if self._state.calling:
            self._leave_calls(out)
        self._flow.finish(out)
        return out

    def _release(self, out: list[Fragment]) -> None:
        """Nothing can complete the half marker any more."""
        self._enter(self._state.literal(self._held, out), out)
        self._held = ""

    def _enter(self, state: State, out: Sequence[Fragment]) -> None:
        """The next state; `out` is what came so far of this reading."""
        if self._state.calling and not state.calling:
            self._leave_calls(out)
        elif state.calling and not self._state.calling:
            self._seen = len(out)
        self._state = state

    def _look_for_call(self, out: Sequence[Fragment]) -> None:
        self._called = self._called or any(type(fragment) is Call for fragment in out[self._seen :])

    def _leave_calls(self, out: Sequence[Fragment]) -> None:
        self._look_for_call(out)
        self.misread += not self._called
        self._called = False
