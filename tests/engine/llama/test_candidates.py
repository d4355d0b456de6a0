"""The fast choice and the slow one: the same tokens are left, with the same probabilities, and come as often."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from antiphon.engine.base import Sampling
from antiphon.engine.llama.candidates import BLOCK, COLUMNS, Candidates, Floats, draw, largest, narrow, nucleus, weights
from antiphon.engine.llama.sampling import NumpySampler
from tests.engine.llama.slow_sampling import ROUNDED, kept, probabilities

CHANCE = np.random.default_rng(1)
LARGE = 3 * COLUMNS + 77  # no multiple of a block or a row


def normal(size: int, width: float) -> Floats:
    return (CHANCE.standard_normal(size) * width).astype(np.float32)


def masked(scores: Floats, left: int) -> Floats:
    """All but every `left`-th token are impossible."""
    found = np.full_like(scores, -math.inf)
    found[::left] = scores[::left]
    return found


SCORES: dict[str, Floats] = {
    "one token": np.zeros(1, np.float32),
    "two": np.array([-3.0, 2.0], np.float32),
    "equal": np.full(LARGE, -5.0, np.float32),
    "equal but for one": np.append(np.zeros(LARGE, np.float32), np.float32(1)),
    "flat": normal(LARGE, 0.1),
    "normal": normal(LARGE, 3),
    "whole blocks": normal(4 * BLOCK, 3),
    "a block and one": normal(BLOCK + 1, 3),
    "peaked": np.append(normal(LARGE, 1), np.float32(30)),
    "steps of equals": np.repeat(np.arange(40, dtype=np.float32) / 4, 90),
    "rising": np.sort(normal(LARGE, 3)),
    "falling": np.sort(normal(LARGE, 3))[::-1].copy(),
    "masked": masked(normal(LARGE, 3), 100),
    "masked but for one": masked(normal(LARGE, 3), LARGE),
    "far apart": np.linspace(-3.4e38, 3.4e38, 1000, dtype=np.float32),
    "all very low": normal(1000, 1) - np.float32(1e6),
}
SETTINGS = [
    Sampling(),
    *(Sampling(top_k=k) for k in (1, 2, 40, 100, 2**31 - 1)),
    *(Sampling(top_p=p) for p in (0.0, 1e-9, 0.3, 0.5, 0.9, 0.999, 1 - 1e-12)),
    *(Sampling(min_p=p) for p in (1e-9, 0.05, 0.7, 1.0)),
    Sampling(top_k=40, top_p=0.9, min_p=0.05),
    Sampling(top_p=0.9, min_p=0.01),
    Sampling(top_k=500, min_p=0.01),
]
TEMPERATURES = [1e-300, 1e-3, 0.7, 1.0, 2.0, 1e30]


def left(scores: Floats, sampling: Sampling) -> list[int]:
    found = Candidates(scores)
    narrow(found, float(scores.max()), sampling)
    return [found.token(place) for place in range(len(found.scores))]


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("sampling", SETTINGS)
def test_the_same_tokens_are_left(name: str, sampling: Sampling) -> None:
    scores = SCORES[name]
    found, values = left(scores, sampling), scores.tolist()
    assert len(set(found)) == len(found)
    # Where top-p ends within the rounding, either end will do. What is impossible is never drawn.
    fewest, most = (
        [token for token in kept(values, sampling, rounding) if math.isfinite(values[token])]
        for rounding in (-ROUNDED, ROUNDED)
    )
    tokens = {token for token in found if math.isfinite(values[token])}
    assert len(fewest) <= len(tokens)
    assert tokens == set(most[: len(tokens)])


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_same_probabilities(name: str, temperature: float) -> None:
    scores = SCORES[name]
    found = weights(scores, float(scores.max()), temperature).astype(np.float64)
    expected = probabilities(scores.astype(np.float64).tolist(), temperature)
    assert found / found.sum() == pytest.approx(expected, rel=1e-4, abs=1e-9)


SHARES = [0.0, 1e-300, 0.1, 0.5, 0.9, 1 - 2**-53]
WEIGHTS: dict[str, Floats] = {
    "one": np.ones(1, np.float32),
    "zeros round one": np.array([0, 0, 1, 0, 0], np.float32),
    "the last block is empty": np.repeat(np.array([1, 0], np.float32), 2 * BLOCK),
    "the first block is empty": np.repeat(np.array([0, 1], np.float32), 2 * BLOCK),
    "every third": np.tile(np.array([0, 0, 1], np.float32), 500),
    "nearly nothing": np.append(np.full(3 * BLOCK, 1e-45, np.float32), np.float32(1)),
    "one that vanishes beside the rest": np.append(np.ones(3 * BLOCK, np.float32), np.float32(1e-30)),
    "random": np.exp(normal(LARGE, 3)),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_draw_is_where_the_sum_passes_the_number(name: str) -> None:
    values = WEIGHTS[name]
    sums = np.cumsum(values.astype(np.float64))
    sums /= sums[-1]
    for uniform in (*SHARES, *CHANCE.random(200)):
        place = draw(values, uniform)
        assert values[place] > 0
        assert (sums[place - 1] if place else 0.0) <= uniform + ROUNDED
        assert sums[place] >= uniform - ROUNDED


def test_every_token_has_its_share_of_the_numbers() -> None:
    """Exactly: where nothing is rounded, so many of evenly spaced numbers as its weight says."""
    values = np.tile(np.array([1, 0, 2, 5], np.float32), BLOCK)  # 1,024 tokens, weight 2,048
    drawn = Counter(draw(values, number / 8192) for number in range(8192))
    size = float(values.sum())
    assert drawn == {place: 8192 * float(value) / size for place, value in enumerate(values) if value}


@pytest.mark.parametrize("count", [1, 39, 40, 41, LARGE])
def test_among_equals_the_lower_tokens_are_left(count: int) -> None:
    assert sorted(largest(SCORES["equal"], count)) == list(range(count))
    share = count / LARGE - 1e-5
    ones = np.ones(LARGE, np.float32)
    assert sorted(nucleus(ones, ones, share)) == list(range(count))


@pytest.mark.parametrize("top_p", [0.0, 1e-9, 0.5])
@pytest.mark.parametrize("min_p", [0.0, 1.0])
def test_the_best_token_stays_among_those_that_weigh_the_same(top_p: float, min_p: float) -> None:
    """Scores closer than float32's last bit of a weight of 1, as a bias and a tiny penalty make them."""
    scores = np.array([-3e-8, -2e-8, -1e-8, -9.0], np.float32)
    left = Candidates(scores)
    narrow(left, float(scores[2]), Sampling(top_p=top_p, min_p=min_p))
    assert 2 in [left.token(place) for place in range(len(left.scores))]


FOLLOWED = [
    Sampling(seed=1),
    Sampling(seed=2, temperature=0.5),
    Sampling(seed=3, temperature=1.5, top_p=0.8),
    Sampling(seed=4, top_k=20),
    Sampling(seed=5, temperature=0.8, min_p=0.1),
    Sampling(seed=6, temperature=2.0, top_k=100, top_p=0.9, min_p=0.02, logit_bias={5: 3.0, 6: -3.0}),
]


@pytest.mark.parametrize("sampling", FOLLOWED)
def test_tokens_come_as_often_as_they_should(sampling: Sampling) -> None:
    """Pearson's chi-square, of the tokens that should come five times or more and the rest together."""
    logits = normal(2 * BLOCK + 100, 1.5)
    sampler, draws = NumpySampler(sampling, [], len(logits)), 4000
    counts = Counter(sampler.sample(logits) for _ in range(draws))
    scores = [float(value) + sampling.logit_bias.get(token, 0.0) for token, value in enumerate(logits)]
    tokens = kept(scores, sampling)
    assert set(counts) <= set(tokens)
    shares = probabilities([scores[token] for token in tokens], sampling.temperature)
    often = {token: draws * share for token, share in zip(tokens, shares, strict=True) if draws * share >= 5}
    pairs = [(counts[token], expected) for token, expected in often.items()]
    if (rest := draws - sum(often.values())) >= 5:
        pairs.append((draws - sum(counts[token] for token in often), rest))
    chi_square = sum((count - expected) ** 2 / expected for count, expected in pairs)
    freedom = len(pairs) - 1
    assert freedom > 5
    assert chi_square < freedom + 3 * math.sqrt(2 * freedom)  # one seed in some hundreds would fail


def test_logits_are_only_read() -> None:
    logits = normal(LARGE, 3)
    logits.flags.writeable = False  # writing would raise
    bent = {"logit_bias": {5: 1.0}, "repetition_penalty": 1.1, "frequency_penalty": 0.5, "presence_penalty": 0.5}
    for sampling, more in itertools.product(SETTINGS, ({}, bent)):
        sampler = NumpySampler(Sampling(**{**_set(sampling), **more}), [1, 2], LARGE)  # type: ignore[arg-type]
        for _ in range(3):
            assert 0 <= sampler.sample(logits) < LARGE


def _set(sampling: Sampling) -> dict[str, object]:
    return {"top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p}
