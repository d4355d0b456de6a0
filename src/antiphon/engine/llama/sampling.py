"""How the next token is chosen: llama.cpp's samplers in its own default order, and log-probabilities.

Log-probabilities are natural logarithms of the softmax of the model's raw logits: before bias, penalties, truncation
and temperature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.engine.base import EngineFailure, Sampling, TokenLogprob
from antiphon.engine.llama.binding import Library

Logits = NDArray[np.float32]

# llama.cpp takes a seed of 32 bits and reads the highest one as "a fresh seed".
FRESH_SEED = 0xFFFFFFFF


class LlamaSampler:
    """`engine.backend.Sampler`: a chain of llama.cpp samplers. Freed by `close`, or with the last reference."""

    def __init__(self, library: Library, sampling: Sampling, prompt: Sequence[int], *, size: int, context: int) -> None:
        """`size` is the vocabulary's; `context` bounds how many tokens the penalties look back."""
        _check_bias(sampling.logit_bias, size)
        self.top_logprobs = sampling.top_logprobs
        # The largest logit, and nothing to remember: numpy finds it without a list of all candidates.
        self.greedy = sampling.temperature <= 0 and not (
            sampling.logit_bias
            or sampling.frequency_penalty
            or sampling.presence_penalty
            or sampling.repetition_penalty != 1
        )
        self._ffi, c = library.ffi, library.c
        params = c.llama_sampler_chain_default_params()
        self.chain: Any = self._ffi.gc(c.llama_sampler_chain_init(params), c.llama_sampler_free)
        for link in _links(library, sampling, prompt, size, context):
            c.llama_sampler_chain_add(self.chain, link)

    def close(self) -> None:
        if self.chain is not None:
            self._ffi.release(self.chain)
            self.chain = None


def _check_bias(bias: Mapping[int, float], size: int) -> None:
    for token in bias:
        if not 0 <= token < size:
            raise EngineFailure(f"logit_bias names token {token}, the vocabulary has {size}")


def _links(library: Library, sampling: Sampling, prompt: Sequence[int], size: int, context: int) -> Iterator[Any]:
    """The order of llama.cpp: bias, penalties, top-k, top-p, min-p, temperature, then the choice."""
    c = library.c
    if sampling.logit_bias:
        biases = library.ffi.new("llama_logit_bias[]", list(sampling.logit_bias.items()))
        yield c.llama_sampler_init_logit_bias(size, len(biases), biases)
    yield from _penalties(c, sampling, prompt, size, context)
    if sampling.temperature <= 0:
        yield c.llama_sampler_init_greedy()
        return
    if sampling.top_k > 0:
        yield c.llama_sampler_init_top_k(sampling.top_k)
    if sampling.top_p < 1:
        yield c.llama_sampler_init_top_p(sampling.top_p, 1)
    if sampling.min_p > 0:
        yield c.llama_sampler_init_min_p(sampling.min_p, 1)
    if sampling.temperature != 1:
        yield c.llama_sampler_init_temp(sampling.temperature)
    yield c.llama_sampler_init_dist(FRESH_SEED if sampling.seed is None else sampling.seed % FRESH_SEED)


def _penalties(c: Any, sampling: Sampling, prompt: Sequence[int], size: int, context: int) -> Iterator[Any]:
    """One sampler would count the same tokens for all three penalties, so there are two: the chain tells both of the
    sampled tokens, only the first has read the prompt."""
    if sampling.repetition_penalty != 1:
        repetition = c.llama_sampler_init_penalties(size, context, sampling.repetition_penalty, 0.0, 0.0)
        for token in prompt:
            c.llama_sampler_accept(repetition, token)
        yield repetition
    if sampling.frequency_penalty or sampling.presence_penalty:
        frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
        yield c.llama_sampler_init_penalties(size, context, 1.0, frequency, presence)


def are_numbers(logits: Logits) -> bool:
    """A sampler given NaN picks anything; `max` is NaN if any is."""
    return bool(np.isfinite(np.max(logits)))


def logprob(logits: Logits, token: int, top: int) -> TokenLogprob:
    """The log-probability of `token`, and of the `top` most likely tokens in falling order."""
    wide = logits.astype(np.float64)
    wide -= np.max(wide)
    wide -= np.log(np.exp(wide).sum())
    top = min(top, len(wide))
    best = np.argpartition(wide, -top)[len(wide) - top :] if top else np.empty(0, np.intp)
    # Equal ones by id, so that the same logits always give the same list.
    ordered = best[np.lexsort((best, -wide[best]))]
    return TokenLogprob(token, float(wide[token]), tuple((int(t), float(wide[t])) for t in ordered))
