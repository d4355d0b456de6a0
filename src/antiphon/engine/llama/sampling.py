"""How the next token is chosen, and log-probabilities.

Log-probabilities are natural logarithms of the softmax of the model's raw logits: before bias, penalties, truncation
and temperature.

Logits are views of the context's memory: nothing here writes into them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from antiphon.engine.base import EngineFailure, Sampling, TokenLogprob
from antiphon.engine.llama.candidates import Candidates, Floats, draw, largest, narrow, weights
from antiphon.engine.llama.penalties import LARGEST, Penalties


class NumpySampler:
    """`engine.backend.Sampler`. Draws one random number a token, none if greedy, so that the tokens of a seed depend on
    nothing but the logits."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int], size: int, end: Collection[int] = ()) -> None:
        """`size` is the vocabulary's, `end` its end-of-generation tokens.

        Raises `EngineFailure` for numbers that cannot be computed with.
        """
        _check_numbers(sampling)
        self.top_logprobs = sampling.top_logprobs
        self._sampling = sampling
        self._constraint = sampling.constraint
        self._end = end
        self._penalties = Penalties(sampling, prompt, size)
        seed = None if sampling.seed is None else sampling.seed % 2**64
        self._random = None if sampling.temperature <= 0 else np.random.Generator(np.random.PCG64(seed))
        self._closed = False

    def sample(self, logits: Floats) -> int:
        """The next token, which counts for the penalties from now on.

        The largest logit is finite and none is NaN, see `are_numbers`. Raises `EngineFailure` if constraint, bias and
        penalties leave no token.
        """
        if self._closed:
            raise EngineFailure("the sampler is closed")
        left = self._left(self._penalties.applied(logits))
        best = int(left.scores.argmax())
        peak = float(left.scores[best])
        if peak == -math.inf:
            raise EngineFailure("bias and penalties leave no token")
        token = left.token(best)
        if self._random is not None:
            narrow(left, peak, self._sampling)
            token = left.token(draw(weights(left.scores, peak, self._sampling.temperature), self._random.random()))
        self._penalties.count(token)
        if self._constraint is not None and token not in self._end:
            self._constraint.accept(token)
        return token

    def _left(self, scores: Floats) -> Candidates:
        """The tokens that the constraint allows."""
        if self._constraint is None:
            return Candidates(scores)
        allowed = np.flatnonzero(np.frombuffer(self._constraint.allowed(), np.uint8, len(scores)))
        if not len(allowed):
            raise EngineFailure("the constraint leaves no token")
        return Candidates(scores[allowed], allowed)

    def close(self) -> None:
        self._closed = True


def _check_numbers(sampling: Sampling) -> None:
    numbers = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        **{f"logit_bias.{token}": bias for token, bias in sampling.logit_bias.items()},
    }
    for name, number in numbers.items():
        if not abs(number) <= LARGEST:  # NaN is not
            raise EngineFailure(f"{name} is {number}")
    if sampling.repetition_penalty <= 0:
        raise EngineFailure(f"repetition_penalty is {sampling.repetition_penalty}")


def are_numbers(logits: Floats) -> bool:
    """Whether anything can be sampled: `max` is NaN if any logit is, and -inf if all are."""
    return bool(np.isfinite(np.max(logits)))


def logprob(logits: Floats, token: int, top: int) -> TokenLogprob:
    """The log-probability of `token`, and of the `top` most likely tokens in falling order."""
    peak = float(np.max(logits))
    # float32 up to here costs less than 1e-6 of the logarithm, a hundredth of what kernels round.
    total = peak + math.log(float(weights(logits, peak).sum()))
    best = largest(logits, min(top, len(logits))) if top else np.empty(0, np.intp)
    # Equal ones by id, so that the same logits always give the same list.
    ordered = best[np.lexsort((best, -logits[best]))]
    return TokenLogprob(token, float(logits[token]) - total, tuple((int(t), float(logits[t]) - total) for t in ordered))
