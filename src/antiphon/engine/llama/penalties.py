"""What a request changes about logits: biases, and penalties for tokens that were there before.

The order is llama.cpp's: the bias is added; the repetition penalty divides what is above 0 and multiplies what is not,
once for a token of the prompt or the answer; the frequency penalty is taken off for each time that a token came in the
answer, the presence penalty once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from antiphon.engine.base import EngineFailure, Sampling
from antiphon.engine.llama.candidates import Floats

LARGEST = float(np.finfo(np.float32).max)


class Penalties:
    """The tokens of one sequence whose logits change: those named and those seen, never the whole vocabulary."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int], size: int) -> None:
        """`size` is the vocabulary's. Raises `EngineFailure` for the bias of a token that does not exist."""
        bias, self._repetition = sampling.logit_bias, sampling.repetition_penalty
        for token in bias:
            if not 0 <= token < size:
                raise EngineFailure(f"logit_bias names token {token}, the vocabulary has {size}")
        self._frequency, self._presence = sampling.frequency_penalty, sampling.presence_penalty
        self._counting = bool(self._repetition != 1 or self._frequency or self._presence)
        seen = set(prompt if self._repetition != 1 else ())
        tokens = sorted({*bias, *seen})
        self._places = {token: place for place, token in enumerate(tokens)}
        self._tokens = np.array(tokens, np.intp)
        # For each of these tokens its bias, the repetition penalty or 1, and how often it came in the answer. In
        # float64, where what a float32 can hold does not overflow into NaN.
        columns = [(bias.get(token, 0.0), self._repetition if token in seen else 1.0, 0.0) for token in tokens]
        self._table = np.array(columns, np.float64).reshape(-1, 3).T

    def applied(self, logits: Floats) -> Floats:
        """The scores. The logits stay as they are, and may be what is returned."""
        if not self._places:
            return logits
        scores = logits.copy()
        bias, factor, count = self._table
        with np.errstate(over="ignore"):
            values = logits[self._tokens] + bias
            values = np.where(values > 0, values / factor, values * factor)
            values -= count * self._frequency + (count > 0) * self._presence
            # What is too low for a float32 becomes -inf: never chosen.
            scores[self._tokens] = np.minimum(values, LARGEST)
        return scores

    def count(self, token: int) -> None:
        """The token is part of the answer now."""
        if not self._counting:
            return
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._tokens):
            self._tokens = np.append(self._tokens, token)
            self._table = np.append(self._table, [[0.0], [1.0], [0.0]], axis=1)
        _, factor, count = self._table
        factor[place] = self._repetition
        count[place] += 1
