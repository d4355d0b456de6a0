"""llama.cpp's own samplers, given the same scores, leave the same tokens with the same probabilities.

Its own functions for that are declared here only: the product does not call them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from cffi import FFI

from antiphon.engine.base import Sampling
from antiphon.engine.llama.binding import packaged_library
from antiphon.engine.llama.candidates import Candidates, Floats, narrow, weights
from antiphon.engine.llama.penalties import Penalties
from tests.engine.llama.slow_sampling import ROUNDED, probabilities

DECLARED = """
typedef struct { int32_t id; float logit; float p; } llama_token_data;
typedef struct { llama_token_data * data; size_t size; int64_t selected; bool sorted; } llama_token_data_array;
typedef struct { int32_t token; float bias; } llama_logit_bias;
void llama_sampler_apply(void * smpl, llama_token_data_array * cur_p);
void llama_sampler_accept(void * smpl, int32_t token);
void llama_sampler_free(void * smpl);
void * llama_sampler_init_top_k(int32_t k);
void * llama_sampler_init_top_p(float p, size_t min_keep);
void * llama_sampler_init_min_p(float p, size_t min_keep);
void * llama_sampler_init_temp(float t);
void * llama_sampler_init_penalties(int32_t n_vocab, int32_t last_n, float repeat, float freq, float present);
void * llama_sampler_init_logit_bias(int32_t n_vocab, int32_t n_logit_bias, const llama_logit_bias * logit_bias);
"""
SIZE = 3000


class Rival:
    """llama.cpp's samplers, one after the other on one list of candidates."""

    def __init__(self, logits: Floats) -> None:
        self._ffi = FFI()
        self._ffi.cdef(DECLARED)
        self._c: Any = self._ffi.dlopen(str(packaged_library()))
        self._data = self._ffi.new("llama_token_data[]", [(t, float(logit), 0) for t, logit in enumerate(logits)])
        self._array: Any = self._ffi.new("llama_token_data_array *", (self._data, len(logits), -1, False))

    def apply(self, kind: str, *arguments: object, seen: Sequence[int] = ()) -> None:
        sampler = getattr(self._c, f"llama_sampler_init_{kind}")(*arguments)
        for token in seen:
            self._c.llama_sampler_accept(sampler, token)
        self._c.llama_sampler_apply(sampler, self._array)
        self._c.llama_sampler_free(sampler)

    def bias(self, bias: dict[int, float]) -> None:
        self.apply("logit_bias", SIZE, len(bias), self._ffi.new("llama_logit_bias[]", list(bias.items())))

    @property
    def scores(self) -> dict[int, float]:
        found = [self._array.data[place] for place in range(self._array.size)]
        return {int(one.id): float(one.logit) for one in found}


@pytest.fixture(params=[0.5, 3.0], ids=["flat", "peaked"])
def logits(request: pytest.FixtureRequest) -> Floats:
    width = float(request.param)
    return (np.random.default_rng(5).standard_normal(SIZE) * width).astype(np.float32)


CHAINS: list[tuple[Sampling, Callable[[Rival], None]]] = [
    (Sampling(top_k=40), lambda rival: rival.apply("top_k", 40)),
    (Sampling(top_p=0.3), lambda rival: rival.apply("top_p", 0.3, 1)),
    (Sampling(top_p=0.95), lambda rival: rival.apply("top_p", 0.95, 1)),
    (Sampling(top_p=0.0), lambda rival: rival.apply("top_p", 0.0, 1)),
    (Sampling(min_p=0.1), lambda rival: rival.apply("min_p", 0.1, 1)),
    (Sampling(min_p=1.0), lambda rival: rival.apply("min_p", 1.0, 1)),
]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("chain", CHAINS)
def test_the_same_tokens_and_probabilities(
    logits: Floats, chain: tuple[Sampling, Callable[[Rival], None]], temperature: float
) -> None:
    sampling, apply = chain
    rival = Rival(logits)
    apply(rival)
    rival.apply("temp", temperature)
    assert_same(rival, logits, sampling, temperature)


def test_all_in_their_order(logits: Floats) -> None:
    rival = Rival(logits)
    rival.apply("top_k", 100)
    rival.apply("top_p", 0.8, 1)
    rival.apply("min_p", 0.2, 1)
    assert_same(rival, logits, Sampling(top_k=100, top_p=0.8, min_p=0.2), 1.0)


def assert_same(rival: Rival, logits: Floats, sampling: Sampling, temperature: float) -> None:
    peak = float(logits.max())
    left = Candidates(logits)
    narrow(left, peak, sampling)
    weight = weights(left.scores, peak, temperature)
    ours = {left.token(place): float(share) for place, share in enumerate(weight / weight.sum())}
    theirs = dict(zip(rival.scores, probabilities(list(rival.scores.values())), strict=True))
    assert ours == pytest.approx(theirs, rel=1e-4, abs=ROUNDED)


def test_bias_and_penalties(logits: Floats) -> None:
    bias, prompt, answer = {5: 3.5, 6: -100.0, 9: 1.0}, [1, 5, 5, 40], [40, 41, 41, 41, 9]
    rival = Rival(logits)
    rival.bias(bias)
    rival.apply("penalties", SIZE, SIZE, 1.3, 0.0, 0.0, seen=[*prompt, *answer])
    rival.apply("penalties", SIZE, SIZE, 1.0, 0.2, 0.7, seen=answer)
    sampling = Sampling(logit_bias=bias, repetition_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.7)
    penalties = Penalties(sampling, prompt, SIZE)
    for token in answer:
        penalties.count(token)
    ours = dict(enumerate(penalties.applied(logits).tolist()))
    assert ours == pytest.approx(rival.scores, rel=1e-6, abs=1e-6)
