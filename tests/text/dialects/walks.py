"""Outputs drawn at random from a grammar: a model that knows nothing, held by the grammar alone."""

from __future__ import annotations

import random

import numpy as np

from antiphon.text.constraint import Grammars
from antiphon.text.detokenizer import ControlToken
from antiphon.text.dialects.dialect import Dialect
from antiphon.text.dialects.grammar import Wanted, output_grammar
from tests.text.vocabulary import EndingTokenizer

# A walk that is longer has gone astray in a string; it is ended there, as a limit ends an answer.
LONGEST = 3_000

# Drawn every other time, where they may come: without them no string would ever end.
CLOSING = frozenset(b'"}])>\n/<|e')


def walk(
    dialect: Dialect, wanted: Wanted, tokenizer: EndingTokenizer, seed: int, grammars: Grammars
) -> tuple[list[str | ControlToken], bool]:
    """The pieces of an output, and whether it was finished."""
    chance = random.Random(seed)
    constraint = grammars.constraint(output_grammar(dialect, wanted, tokenizer.control))
    pieces: list[str | ControlToken] = []
    held = b""
    for _ in range(LONGEST):
        allowed = np.flatnonzero(np.frombuffer(constraint.allowed(), np.uint8)).tolist()
        token = _drawn(allowed, tokenizer, chance)
        if token in tokenizer.end:
            return pieces, True
        assert constraint.accept(token)
        if token in tokenizer.control:
            pieces.append(ControlToken(tokenizer.control[token]))
        else:
            held += bytes([token])
            try:
                pieces.append(held.decode())
            except UnicodeDecodeError:
                continue
        held = b""
    return pieces, False


def _drawn(allowed: list[int], tokenizer: EndingTokenizer, chance: random.Random) -> int:
    """One of the allowed tokens; mostly the end, a control token or what closes something, else printable if it can."""
    closing = [token for token in allowed if token >= 256 or token in CLOSING]
    if closing and chance.random() < 0.5:
        return chance.choice(closing)
    printable = [token for token in allowed if 32 <= token < 127]
    return chance.choice(printable or allowed)
