"""A byte-level tokenizer: ids 0 to 255 are the bytes, the control tokens follow in order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence


class ByteTokenizer:
    def __init__(self, control: Sequence[str] = (), bos: str | None = None) -> None:
        self._control = dict(enumerate(control, start=256))
        self._ids = {spelling: token for token, spelling in self._control.items()}
        longest_first = sorted(control, key=len, reverse=True)
        self._pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")" if control else "((?!))")
        self._bos = None if bos is None else self._ids[bos]

    @property
    def size(self) -> int:
        return 256 + len(self._control)

    @property
    def bos(self) -> int | None:
        return self._bos

    @property
    def end(self) -> tuple[()]:
        return ()

    @property
    def control(self) -> Mapping[int, str]:
        return self._control

    def encode(self, text: str, *, control: bool) -> list[int]:
        if not control:
            return list(text.encode())
        tokens: list[int] = []
        for piece in self._pattern.split(text):
            tokens += [self._ids[piece]] if piece in self._ids else piece.encode()
        return tokens

    def fewest(self, text: str, enough: int) -> int:
        return 0

    def parts(self, text: str) -> Iterator[str]:
        yield text

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else self._control[token].encode()

    def decode(self, tokens: Iterable[int]) -> str:
        return b"".join(map(self.piece, tokens)).decode()

    def spelled_control(self, tokens: Iterable[int]) -> list[str]:
        """The control tokens among the tokens, in order."""
        return [self._control[token] for token in tokens if token in self._control]
