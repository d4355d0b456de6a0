"""Code fences round what a call says."""

from __future__ import annotations

import re

from antiphon.protocol.fragments import Fragment
from antiphon.text.dialects.flow import WHITESPACE
from antiphon.text.dialects.machine import State
from antiphon.text.dialects.states import Outside

FENCE = "```"

_SPACE = re.compile(f"[{WHITESPACE}]*+")


class FenceEnd:
    """Behind what a call says in a code fence: the end of the fence shows nothing, nor does a half of it at the end of
    the output. Anything else is read outside.
    """

    __slots__ = ("_outside",)

    reasoning = False
    calling = False

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        start = skip_space(text, at)  # Behind a call that is a separator.
        if text.startswith(FENCE, start):
            return start + len(FENCE), self._outside
        return start, self if FENCE.startswith(text[start:]) else self._outside

    def literal(self, text: str, out: list[Fragment]) -> State:
        return self._outside.literal(text, out) if text else self

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        return self._outside.marker(marker, out)

    def finish(self, left: str, out: list[Fragment]) -> None:
        """Nothing is open, and a half fence shows nothing."""


def skip_space(text: str, at: int) -> int:
    """The index of the first character from `at` on that is not whitespace."""
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]
