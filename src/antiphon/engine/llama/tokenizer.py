"""Text to token ids and back, with the vocabulary of a loaded model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from antiphon.engine.llama.fewest import ALL, BLANKS, TokenBound
from antiphon.engine.llama.model import Model
from antiphon.engine.llama.runs import long_run_cuts, outside

# Longest text in bytes: llama.cpp counts in 32 bits, and a text of this size has no more tokens than bytes plus one.
TEXT_LIMIT = 2**30

# Most pieces are a few bytes long; longer ones are asked for a second time.
PIECE_BYTES = 64

# Characters. llama.cpp reads about a million a second, fewer if a part has many control tokens, whose list it walks for
# each of them; and nobody can stop it.
PART = 2**16

BETWEEN_WORDS = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])")
ACROSS_WORDS = re.compile(rb"[A-Za-z] ")

# Of `tokenizer.ggml.model`: those that drop nothing but bytes they have no token for. Others normalize, or make one
# token of a whole unknown word.
BYTE_LEVEL = "gpt2"
FAITHFUL = frozenset({BYTE_LEVEL, "llama", "gemma4"})


class LlamaTokenizer:
    """`engine.base.Tokenizer`. llama.cpp reads its vocabulary without changing it, so any thread may call.

    Text is what UTF-8 can say: a lone surrogate becomes U+FFFD, as every decoder of bytes would have made of it.
    A byte that the vocabulary lacks is lost (SmolLM2 has no 06).
    """

    def __init__(self, model: Model) -> None:
        # Keeps the weights loaded for as long as anyone holds the tokenizer.
        self._model = model
        self._ffi, self._c, self._vocab = model.library.ffi, model.library.c, model.vocab
        self._size: int = self._c.llama_vocab_n_tokens(self._vocab)
        self._cuts_runs: bool = self._c.llama_vocab_type(self._vocab) == self._c.LLAMA_VOCAB_TYPE_BPE
        ids = range(self._size)
        self._end = frozenset(token for token in ids if self._c.llama_vocab_is_eog(self._vocab, token))
        control = (token for token in ids if token in self._end or self._is_control(token))
        self._control = MappingProxyType({t: self.piece(t).decode("utf-8", "replace") for t in control})
        spellings = sorted(filter(None, self._control.values()), key=len, reverse=True)
        self._spelled = re.compile("|".join(map(re.escape, spellings)) or "(?!)")
        self._bound, self._parts_at = self._limits(model.tokenizer)

    @property
    def size(self) -> int:
        return self._size

    @property
    def bos(self) -> int | None:
        return self._c.llama_vocab_bos(self._vocab) if self._c.llama_vocab_get_add_bos(self._vocab) else None

    @property
    def end(self) -> frozenset[int]:
        return self._end

    @property
    def control(self) -> Mapping[int, str]:
        return self._control

    def encode(self, text: str, *, control: bool) -> list[int]:
        """Raises `ValueError` for a text over `TEXT_LIMIT`.

        In a byte-level vocabulary a run of more than `runs.RUN_LIMIT` letters, or of blanks, is tokenized in parts.
        """
        cuts = long_run_cuts(text) if self._cuts_runs else []
        if cuts and control:
            cuts = outside(cuts, [match.span() for match in self._spelled.finditer(text)])
        tokens = self._tokenize_parts(text, cuts, control)
        if control or self._control.keys().isdisjoint(tokens):
            return tokens
        # The vocabulary calls some end-of-generation token a user's own, so llama.cpp found it in plain text as well:
        # a cut inside of every spelling leaves nothing to be found.
        inside = [match.start() + 1 for match in self._spelled.finditer(text)]
        return self._tokenize_parts(text, sorted({*cuts, *inside}), control)

    def fewest(self, text: str, enough: int) -> int:
        return self._bound.fewest(text, enough) if self._bound is not None else 0

    def parts(self, text: str) -> Iterator[str]:
        """Byte-level vocabularies whose tokens end with a word can be given a text word by word.

        All their patterns end a match between a letter and a blank before another one.
        """
        start = 0
        if self._parts_at is not None:
            while (cut := self._parts_at.search(text, start + PART)) is not None:
                yield text[start : cut.start()]
                start = cut.start()
        yield text[start:]

    def piece(self, token: int) -> bytes:
        """Raises `ValueError` for what is no token id."""
        if not 0 <= token < self._size:
            raise ValueError(f"token {token} is not in the vocabulary of {self._size}")
        length = PIECE_BYTES
        while True:
            buffer = self._ffi.new("char[]", length)
            needed = self._c.llama_token_to_piece(self._vocab, token, buffer, length, 0, True)
            if needed >= 0:
                return bytes(self._ffi.buffer(buffer, needed))
            length = -needed

    def _limits(self, tokenizer: str) -> tuple[TokenBound | None, re.Pattern[str] | None]:
        """What proves how few tokens a text has, and where a text can be parted; None: nothing, nowhere."""
        if tokenizer not in FAITHFUL:
            return None, None
        pieces = [self.piece(token) for token in range(self._size)]
        strip = self._c.LLAMA_TOKEN_ATTR_LSTRIP | self._c.LLAMA_TOKEN_ATTR_RSTRIP
        strips = any(self._has(token, strip) for token in range(self._size))
        alone = {piece[0] for piece in pieces if len(piece) == 1}
        dropped = {*ALL} - alone | {*(BLANKS if strips else b"")}
        words = tokenizer == BYTE_LEVEL and not strips and not any(map(ACROSS_WORDS.search, pieces))
        return TokenBound(pieces, bytes(dropped)), BETWEEN_WORDS if words else None

    def _is_control(self, token: int) -> bool:
        return self._has(token, self._c.LLAMA_TOKEN_ATTR_CONTROL)

    def _has(self, token: int, attributes: int) -> bool:
        return bool(self._c.llama_vocab_get_attr(self._vocab, token) & attributes)

    def _tokenize_parts(self, text: str, cuts: list[int], control: bool) -> list[int]:
        parts = zip([0, *cuts], [*cuts, len(text)], strict=True)
        return [token for start, end in parts for token in self._tokenize(text[start:end], control)]

    def _tokenize(self, text: str, control: bool) -> list[int]:
        data = utf8(text)
        if len(data) > TEXT_LIMIT:
            raise ValueError(f"a text of {len(data)} bytes is too long to tokenize")
        room = len(data) // 2 + 8
        while True:
            tokens: Any = self._ffi.new("llama_token[]", room)
            count = self._c.llama_tokenize(self._vocab, data, len(data), tokens, room, False, control)
            if count >= 0:
                return list(self._ffi.unpack(tokens, count))
            room = -count


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
