"""Token ids to text, a step at a time.

Rules
* A token may hold a part of a character. Bytes that may still become one are held back; what cannot is U+FFFD, as in
  Python's incremental decoder.
* A control token stands between two texts: bytes held before it can no longer become a character.
* A character that the end of the output tears is dropped; its tokens count all the same.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from msgspec import Struct

from antiphon.engine.base import Tokenizer


class ControlToken(Struct, frozen=True, gc=False):
    """A control token that the model emitted; `text` is its spelling."""

    text: str


class Vocabulary:
    """What the tokens of one model stand for, remembered once they were looked up; shared by all its detokenizers.

    It grows to at most one entry for each token of the vocabulary. Not safe to share between threads.
    """

    __slots__ = ("_tokenizer", "control", "torn", "whole")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.control = tokenizer.control
        self.whole: dict[int, str | ControlToken] = {}  # control tokens, and pieces of whole characters
        self.torn: dict[int, bytes] = {}  # pieces that need their neighbours

    def look_up(self, token: int) -> str | ControlToken | bytes:
        """A control token, the text of a piece that is valid UTF-8 by itself, or else the piece's bytes."""
        known = self.whole.get(token)
        if known is not None:
            return known
        torn = self.torn.get(token)
        return self._learn(token) if torn is None else torn

    def _learn(self, token: int) -> str | ControlToken | bytes:
        spelling = self.control.get(token)
        if spelling is not None:
            return self.whole.setdefault(token, ControlToken(spelling))
        piece = self._tokenizer.piece(token)
        try:
            return self.whole.setdefault(token, piece.decode())
        except UnicodeDecodeError:
            return self.torn.setdefault(token, piece)


class Detokenizer:
    """The text of one sequence."""

    __slots__ = ("_decoder", "_torn", "_vocabulary", "_whole")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._whole = vocabulary.whole
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._torn = False  # whether the decoder holds bytes

    def feed(self, tokens: Sequence[int]) -> list[str | ControlToken]:
        """Non-empty texts and control tokens in order; no two texts are neighbours."""
        if len(tokens) == 1 and not self._torn:
            piece = self._whole.get(tokens[0])
            if piece:
                return [piece]
        pieces: list[str | ControlToken] = []
        texts: list[str] = []
        for token in tokens:
            known = self._vocabulary.look_up(token)
            if isinstance(known, ControlToken):
                texts.append(self._decode(b"", final=True))
                _append_text(pieces, texts)
                pieces.append(known)
            elif isinstance(known, bytes):
                texts.append(self._decode(known))
            else:
                texts.append(self._decode(known.encode()) if self._torn else known)
        _append_text(pieces, texts)
        return pieces

    def finish(self) -> None:
        """The end of the output: a torn character is dropped."""
        self._decoder.reset()
        self._torn = False

    def _decode(self, piece: bytes, *, final: bool = False) -> str:
        text = self._decoder.decode(piece, final)
        self._torn = bool(self._decoder.getstate()[0])
        return text


def _append_text(pieces: list[str | ControlToken], texts: list[str]) -> None:
    """Moves the texts, as one, to the pieces."""
    text = "".join(texts)
    texts.clear()
    if text:
        pieces.append(text)
