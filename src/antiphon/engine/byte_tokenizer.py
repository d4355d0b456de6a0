"""The vocabulary of the scripted engine: one token a byte, and control tokens after them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

BYTES = 256


class ByteTokenizer:
    """Ids 0 to 255 are the bytes of UTF-8; the control tokens have the ids from 256 on, in the order given."""

    def __init__(self, control: Sequence[str] = ()) -> None:
        self._ids = {spelling: BYTES + place for place, spelling in enumerate(control)}
        self._control = MappingProxyType({token: spelling for spelling, token in self._ids.items()})
        self._pieces = [bytes([byte]) for byte in range(BYTES)] + [_utf8(spelling) for spelling in control]
        # The longest first: where one spelling begins another, the longer one is meant.
        longest_first = sorted(control, key=len, reverse=True)
        self._spelled = re.compile("|".join(map(re.escape, longest_first))) if control else None
        self._longest = max(map(len, self._pieces))

    @property
    def size(self) -> int:
        return len(self._pieces)

    @property
    def bos(self) -> None:
        return None

    @property
    def end(self) -> tuple[()]:
        return ()

    @property
    def control(self) -> Mapping[int, str]:
        return self._control

    def encode(self, text: str, *, control: bool) -> list[int]:
        if not control or self._spelled is None:
            return list(_utf8(text))
        tokens: list[int] = []
        start = 0
        for match in self._spelled.finditer(text):
            tokens += _utf8(text[start : match.start()])
            tokens.append(self._ids[match[0]])
            start = match.end()
        tokens += _utf8(text[start:])
        return tokens

    def fewest(self, text: str, enough: int) -> int:
        return -(-len(text) // self._longest)  # a character has a byte at least

    def parts(self, text: str) -> Iterator[str]:
        yield text

    def piece(self, token: int) -> bytes:
        return self._pieces[token]

    def id_of(self, spelling: str) -> int | None:
        """The control token with this spelling."""
        return self._ids.get(spelling)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of whole sequences; what is not UTF-8 becomes U+FFFD."""
        return b"".join(map(self._pieces.__getitem__, tokens)).decode("utf-8", errors="replace")


def _utf8(text: str) -> bytes:
    """Never raises: a lone surrogate, which JSON can spell, goes through as its three bytes."""
    return text.encode("utf-8", errors="surrogatepass")
