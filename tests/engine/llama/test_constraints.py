"""Tokens that a constraint does not allow are never sampled, whatever the other settings are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from antiphon.engine.base import EngineFailure, Sampling
from antiphon.engine.llama import LlamaBackend
from antiphon.engine.llama.sampling import NumpySampler
from tests.engine.constraints import OneOf, Unknowing
from tests.engine.llama.generate import generate

SIZE = 300
END = (7, 9)
SETTINGS = [
    Sampling(temperature=0),
    Sampling(seed=1),
    Sampling(seed=2, top_p=0.3),
    Sampling(seed=3, top_k=5),
    Sampling(seed=4, min_p=0.5),
    Sampling(seed=5, logit_bias={20: 100.0}, repetition_penalty=1.5),
]


def drawn(sampling: Sampling, constraint: OneOf, count: int) -> list[int]:
    logits = np.random.default_rng(5).normal(0, 4, SIZE).astype(np.float32)
    sampler = NumpySampler(replace(sampling, constraint=constraint), [1, 2], SIZE, END)
    return [sampler.sample(logits) for _ in range(count)]


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_only_what_is_allowed_is_sampled(sampling: Sampling) -> None:
    sequences = [(30, 40, 50), (30, 41, 51), (31, 42, 52)]
    tokens = drawn(sampling, OneOf(sequences, SIZE, END), 4)
    assert tuple(tokens[:3]) in sequences
    assert tokens[3] in END


def test_the_draw_follows_the_logits_of_what_is_left() -> None:
    logits = np.zeros(SIZE, np.float32)
    logits[[30, 31]] = math.log(3), 0.0
    counts = {30: 0, 31: 0}
    for seed in range(400):
        constraint = OneOf([(30,), (31,)], SIZE)
        counts[NumpySampler(Sampling(seed=seed, constraint=constraint), [], SIZE).sample(logits)] += 1
    assert counts[30] / 400 == pytest.approx(0.75, abs=0.07)


def test_the_end_is_not_told_to_the_constraint() -> None:
    constraint = OneOf([(30,)], SIZE, END)
    assert drawn(Sampling(temperature=0), constraint, 2)[1] in END
    assert constraint.taken == (30,)


def test_a_constraint_that_leaves_nothing_ends_the_sequence() -> None:
    with pytest.raises(EngineFailure, match="leaves no token"):
        drawn(Sampling(seed=1), OneOf([], SIZE), 1)


def test_one_that_cannot_tell_ends_its_sequence_alone(tiny: LlamaBackend) -> None:
    with pytest.raises(EngineFailure, match="cannot be told"):
        drawn(Sampling(seed=1), Unknowing([], SIZE), 1)
    size = tiny.tokenizer.size
    (first, second) = generate(tiny, (5, 6), 2, Sampling(seed=1, constraint=OneOf([(40, 41)], size)))
    assert (first.token, second.token) == (40, 41)
