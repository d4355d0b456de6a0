"""Stop strings: where the visible answer ends by the client's wish.

Rules
* They act on `Text` alone, never in reasoning or in a call, and never across what stands between two texts.
* The stop string that is complete first counts; of several that end on the same character, the longest. The answer
  ends before it.
* Only the end of the text that may still become a stop string is held back; so it is shorter than the longest one.
* `logprobs` go out with the first character of the fragment that they came with. With a fragment a token, that is the
  text of their token; entries of text that is cut away go with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.protocol.fragments import Fragment, Text
from antiphon.text.markers import Markers


class StopMatcher:
    """Watches the fragments of one answer. `matched` is the stop string that ended it, or None."""

    __slots__ = ("_entries", "_held", "_markers", "matched")

    def __init__(self, stops: Sequence[str]) -> None:
        self.matched: str | None = None
        self._markers = Markers(stops)
        self._held = ""
        self._entries: list[tuple[int, tuple[Any, ...]]] = []  # index in what is held, and the entries from there

    def feed(self, fragment: Fragment) -> list[Fragment]:
        """What can be sent on; nothing once a stop string has matched."""
        if self.matched is not None:
            return []
        if not isinstance(fragment, Text):
            return [*self.finish(), fragment]
        if not self._held and self._markers.possible(fragment.text, 0) is None:
            return [fragment]
        if fragment.logprobs:
            self._entries.append((len(self._held), fragment.logprobs))
        return self._scan(self._held + fragment.text)

    def finish(self) -> list[Fragment]:
        """The end of the answer, or of this text: what was held back is text."""
        held, self._held = self._held, ""
        return self._release(held)

    def _scan(self, text: str) -> list[Fragment]:
        found = self._markers.find(text, 0)
        if found is None:
            end = self._markers.half(text, 0)
            self._held = text[end:]
            return self._release(text[:end])
        self.matched = found.marker
        self._held = ""
        return self._release(text[: found.start])

    def _release(self, text: str) -> list[Fragment]:
        if not text:
            return []
        end = len(text)
        entries = tuple(entry for start, group in self._entries if start < end for entry in group)
        self._entries = [(start - end, group) for start, group in self._entries if start >= end]
        return [Text(text, entries)]
