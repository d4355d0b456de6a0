"""Text whose separators are known only when what follows is known."""

from __future__ import annotations

from collections.abc import Callable

from antiphon.protocol.fragments import Fragment

# What models put between markers and text. Other Unicode spaces are content.
WHITESPACE = " \t\r\n"

# Characters of whitespace held back. Templates put two newlines between parts; a model that runs on in newlines must
# not fill the memory, and its reader should see that something happens. What exceeds it goes out from the front.
SPACE_LIMIT = 1024


class Flow:
    """One run of text between two markers, as fragments.

    Whitespace at its end is held back: it belongs to the text if more text follows, and is a separator if a marker
    follows. `begun` says whether the run has shown anything yet.

    An `eager` run holds back only what stands before its text: a reader should not wait for a line feed where hardly
    ever a marker follows.
    """

    __slots__ = ("_lead", "_make", "_space", "begun", "eager")

    def __init__(self, make: Callable[[str], Fragment]) -> None:
        self.begun = False
        self.eager = False
        self._make = make
        self._lead = False  # whether whitespace that comes next is a separator
        self._space = ""

    @property
    def behind_marker(self) -> bool:
        """Whether nothing but separators has come since the last marker (and there was one)."""
        return self._lead and not self.begun

    def add(self, text: str, out: list[Fragment]) -> None:
        """More text of this run."""
        if self._lead:
            text = text.lstrip(WHITESPACE)
            if not text:
                return
            self._lead = False
        kept = text.rstrip(WHITESPACE)
        if self.eager and (kept or self.begun):
            kept = text
        if kept:
            self.begun = True
            out.append(self._make(self._space + kept if self._space else kept))
            self._space = text[len(kept) :] if len(kept) < len(text) else ""
        elif text:
            self._space += text
        if self._space:
            self._let_go(out)

    def pass_over(self) -> None:
        """A marker that shows nothing: what follows still belongs to this run, except whitespace directly behind it."""
        self._lead = True
        if not self.begun:
            self._space = ""

    def restart(self) -> None:
        """A marker that shows something: this run is over, separators at its end are gone, the next one begins."""
        self.begun = False
        self._lead = True
        self._space = ""

    def finish(self, out: list[Fragment]) -> None:
        """The end of the output: whitespace behind text is text, whitespace alone is nothing."""
        if self.begun and self._space:
            out.append(self._make(self._space))
        self._space = ""

    def _let_go(self, out: list[Fragment]) -> None:
        """What is held back beyond the limit is text after all."""
        if len(self._space) > SPACE_LIMIT:
            self.begun = True
            out.append(self._make(self._space[:-SPACE_LIMIT]))
            self._space = self._space[-SPACE_LIMIT:]
