"""Prompts of a given number of tokens, of random words, so that nothing is cached that is not meant to be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

from antiphon.engine.llama import load

WORD = re.compile(r" [a-z]{3,12}")


class Vocabulary:
    """The words that are one token each when a space stands before them, and the tokens that end an answer."""

    def __init__(self, words: Sequence[str], end_tokens: Sequence[int]) -> None:
        self._words = words
        self.end_tokens = end_tokens

    def text(self, random: Random, tokens: int) -> str:
        """About `tokens` tokens: the first word, which has no space before it, may be more than one."""
        return " ".join(random.choices(self._words, k=tokens))


def read_vocabulary(model: Path) -> Vocabulary:
    """From the model's own file. Raises `ModelLoadError`."""
    backend = load(model, context_length=256, lanes=1)
    try:
        tokenizer = backend.tokenizer
        pieces = (tokenizer.piece(token).decode("utf-8", "replace") for token in range(tokenizer.size))
        words = [piece[1:] for piece in pieces if WORD.fullmatch(piece)]
        return Vocabulary(words, sorted(tokenizer.end))
    finally:
        backend.close()
