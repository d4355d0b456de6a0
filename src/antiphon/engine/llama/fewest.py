"""How few tokens a text can have, told without tokenizing it.

A token spells no more letters than the piece with the most letters, so a text of n letters has at least n divided by
that many tokens. The same holds for every set of bytes; the set that proves most counts. It holds only for bytes that
tokenizing never drops: `TokenBound` is told which it does.
"""

from __future__ import annotations

import string
from collections.abc import Iterable

BLANKS = b" \t\n\v\f\r"
LETTERS = string.ascii_letters.encode()
DIGITS = string.digits.encode()
ASCII = bytes(range(0x80))
ALL = bytes(range(0x100))

SETS = (
    ALL,
    LETTERS,  # longest pieces of all are rules of blanks or dashes; words are far shorter
    DIGITS,
    bytes(set(ASCII) - set(LETTERS) - set(DIGITS) - set(BLANKS)),
    bytes(set(ALL) - set(ASCII)),
)

# SentencePiece's letter for a blank. Who writes it himself has three bytes read as one, so it is not counted.
ESCAPED_BLANK = "\u2581"

# Characters that are counted at once: the interpreter is held for some milliseconds.
WINDOW = 2**20


class TokenBound:
    """Of one vocabulary. `dropped` are the bytes that may be in a text and in none of its tokens."""

    def __init__(self, pieces: Iterable[bytes], dropped: bytes) -> None:
        self._others = [bytes(set(ALL) - (set(counted) - set(dropped))) for counted in SETS]
        longest = [0] * len(SETS)
        for piece in sorted(pieces, key=len, reverse=True):
            for place, others in enumerate(self._others):
                if len(piece) > longest[place]:
                    longest[place] = max(longest[place], len(piece.translate(None, others)))
        # Bytes that no piece has are each a token of their own: unknown ones.
        self._longest = [max(1, length) for length in longest]

    def fewest(self, text: str, enough: int) -> int:
        """At least so many tokens; the rest of the text is not looked at once they are `enough`."""
        counts = [0] * len(SETS)
        found = 0
        for start in range(0, len(text), WINDOW):
            # A surrogate becomes some other letter when it is tokenized: it is not counted either.
            data = text[start : start + WINDOW].replace(ESCAPED_BLANK, "").encode(errors="ignore")
            for place, others in enumerate(self._others):
                counts[place] += len(data.translate(None, others))
            found = max(-(-count // longest) for count, longest in zip(counts, self._longest, strict=True))
            if found >= enough:
                break
        return found
