"""Looking for fixed strings in text that arrives in pieces.

Rule: the marker that is complete first counts; of several that end on the same character, the longest. So the answer
is the one that reading character by character gives, however the text was cut, and nothing has to be waited for once a
marker is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

_NEVER = re.compile(r"[^\s\S]")


class Found(NamedTuple):
    """A marker and the index of its first character."""

    start: int
    marker: str


class Markers:
    """A fixed set of non-empty strings.

    `possible(text, start)` is the cheap first look: a match on the first character that can begin a marker, or None.
    """

    __slots__ = ("_longest", "_markers", "_pattern", "possible")

    def __init__(self, markers: Iterable[str]) -> None:
        distinct = set(markers)
        if "" in distinct:
            raise ValueError("an empty string cannot be a marker")
        # One that holds another which ends before it does is never complete first. Without those, the leftmost match
        # of an alternation is the one that is complete first.
        self._markers = sorted(m for m in distinct if not any(other in m[:-1] for other in distinct))
        self._longest = max(map(len, self._markers), default=0)
        self._pattern = _NEVER
        firsts = _NEVER
        if self._markers:
            self._pattern = re.compile("|".join(map(re.escape, self._markers)))
            firsts = re.compile(f"[{''.join(re.escape(first) for first in sorted({m[0] for m in distinct}))}]")
        self.possible: Callable[[str, int], re.Match[str] | None] = firsts.search

    def find(self, text: str, start: int) -> Found | None:
        """The first marker in `text`, from `start` on."""
        match = self._pattern.search(text, start)
        return None if match is None else Found(match.start(), match.group())

    def half(self, text: str, start: int) -> int:
        """Where the marker begins that the end of `text` (in which no whole one is) may still become.

        The length of the text if its end cannot become any.
        """
        start = max(start, len(text) - self._longest + 1)
        while (first := self.possible(text, start)) is not None:
            start = first.start()
            if self.half_at(text, start):
                return start
            start += 1
        return len(text)

    def stands_at(self, text: str, start: int) -> bool:
        """Whether a marker begins at `start`."""
        return self._pattern.match(text, start) is not None

    def half_at(self, text: str, start: int) -> bool:
        """Whether all that follows from `start` on is the beginning of a marker."""
        rest = text[start : start + self._longest]
        return any(marker.startswith(rest) for marker in self._markers)
