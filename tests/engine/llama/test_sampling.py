"""Every option has its effect, a seed gives the same tokens again, log-probabilities are those of the raw logits."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from antiphon.engine.backend import Entry, Trim
from antiphon.engine.base import EngineFailure, Sampling
from antiphon.engine.llama import LlamaBackend
from antiphon.engine.llama.sampling import are_numbers, logprob
from tests.engine.llama.generate import GREEDY, compute, generate, generate_together, ids, move

PROMPT = (5, 6, 7, 8)


def distribution(backend: LlamaBackend) -> list[tuple[int, float]]:
    """All tokens after the prompt with their log-probabilities, the likeliest first."""
    size = backend.tokenizer.size
    (sampled,) = generate(backend, PROMPT, 1, Sampling(temperature=0, top_logprobs=size))
    assert sampled.logprob is not None
    return list(sampled.logprob.top)


def draws(backend: LlamaBackend, sampling: Sampling, count: int = 200) -> Counter[int]:
    """First tokens after the prompt, from one sampler that is asked `count` times."""
    sampler = backend.sampler(sampling, PROMPT)
    found: Counter[int] = Counter()
    for _ in range(count):
        (sampled,) = compute(backend, Entry(0, 0, PROMPT, sampler))
        move(backend, Trim(0, 0))
        found[sampled.token] += 1
    sampler.close()
    return found


def test_greedy_takes_the_likeliest(tiny: LlamaBackend) -> None:
    assert set(draws(tiny, GREEDY, 3)) == {distribution(tiny)[0][0]}


def test_plain_sampling_follows_the_distribution(tiny: LlamaBackend) -> None:
    token, logprob_of = distribution(tiny)[0]
    share = draws(tiny, Sampling(seed=1), 1000)[token] / 1000
    assert share == pytest.approx(math.exp(logprob_of), abs=0.06)


def test_top_k(tiny: LlamaBackend) -> None:
    best = {token for token, _ in distribution(tiny)[:3]}
    assert set(draws(tiny, Sampling(seed=1, top_k=3, temperature=3.0))) == best


def test_top_p(tiny: LlamaBackend) -> None:
    ranked, total = [], 0.0
    for token, value in distribution(tiny):
        ranked.append(token)
        total += math.exp(value)
        if total >= 0.6:
            break
    drawn = draws(tiny, Sampling(seed=1, top_p=0.6))
    assert set(drawn) <= set(ranked)
    assert len(draws(tiny, Sampling(seed=1))) > len(drawn)


def test_top_p_0_takes_the_likeliest(tiny: LlamaBackend) -> None:
    assert set(draws(tiny, Sampling(seed=1, top_p=0.0), 20)) == {distribution(tiny)[0][0]}


def test_min_p(tiny: LlamaBackend) -> None:
    ranked = distribution(tiny)
    floor = ranked[0][1] + math.log(0.2)
    assert set(draws(tiny, Sampling(seed=1, min_p=0.2))) <= {token for token, value in ranked if value >= floor}
    assert min(draws(tiny, Sampling(seed=1, min_p=1.0), 20).values()) == 20


def test_temperature(tiny: LlamaBackend) -> None:
    cold, warm, hot = (len(draws(tiny, Sampling(seed=1, temperature=t))) for t in (0.2, 1.0, 5.0))
    assert cold < warm < hot


def test_logit_bias(tiny: LlamaBackend) -> None:
    assert set(draws(tiny, Sampling(temperature=0, logit_bias={40: 100.0}), 2)) == {40}
    banned = distribution(tiny)[0][0]
    assert banned not in draws(tiny, Sampling(seed=1, logit_bias={banned: -100.0}))


@pytest.mark.parametrize("token", [-1, 10**6])
def test_logit_bias_of_no_token_is_refused(tiny: LlamaBackend, token: int) -> None:
    with pytest.raises(EngineFailure, match=f"names token {token}"):
        tiny.sampler(Sampling(logit_bias={token: 1.0}), PROMPT)


def test_repetition_penalty_counts_the_prompt(tiny: LlamaBackend) -> None:
    """The only token allowed by bias but for one other, of the prompt: the penalty turns the balance."""
    favoured = {5: 60.0, 40: 50.0}
    assert set(draws(tiny, Sampling(temperature=0, logit_bias=favoured), 1)) == {5}
    assert set(draws(tiny, Sampling(temperature=0, logit_bias=favoured, repetition_penalty=2.0), 1)) == {40}


@pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
def test_output_penalties_do_not_count_the_prompt(tiny: LlamaBackend, penalty: str) -> None:
    favoured = {5: 60.0, 40: 55.0}
    sampling = Sampling(temperature=0, logit_bias=favoured, **{penalty: 20.0})  # type: ignore[arg-type]
    assert ids(generate(tiny, PROMPT, 2, sampling)) == [5, 40]


def test_frequency_grows_and_presence_does_not(tiny: LlamaBackend) -> None:
    favoured = {5: 100.0, 40: 50.0}
    often = Sampling(temperature=0, logit_bias=favoured, frequency_penalty=12.0)
    assert ids(generate(tiny, PROMPT, 8, often)).count(5) in (4, 5, 6)
    once = Sampling(temperature=0, logit_bias=favoured, presence_penalty=12.0)
    assert ids(generate(tiny, PROMPT, 8, once)) == [5] * 8


def test_same_seed_same_tokens_in_any_company(tiny: LlamaBackend) -> None:
    sampling = Sampling(seed=7, temperature=1.2, top_p=0.9)
    alone = ids(generate(tiny, PROMPT, 30, sampling))
    assert ids(generate(tiny, PROMPT, 30, sampling)) == alone
    assert ids(generate(tiny, PROMPT, 30, Sampling(seed=8, temperature=1.2, top_p=0.9))) != alone
    assert ids(generate_together(tiny, [[9, 9, 9], PROMPT, [8]], 30, sampling)[1]) == alone


@pytest.mark.parametrize("seed", [0, -1, 2**32 - 1, 2**63, -(2**63)])
def test_every_integer_is_a_seed(tiny: LlamaBackend, seed: int) -> None:
    sampling = Sampling(seed=seed, temperature=5.0)
    assert ids(generate(tiny, PROMPT, 10, sampling)) == ids(generate(tiny, PROMPT, 10, sampling))


def test_without_a_seed_every_run_is_another(tiny: LlamaBackend) -> None:
    runs = {tuple(ids(generate(tiny, PROMPT, 10, Sampling(temperature=5.0)))) for _ in range(3)}
    assert len(runs) == 3


def test_log_probabilities_are_of_the_raw_logits(tiny: LlamaBackend) -> None:
    raw = dict(distribution(tiny))
    assert sum(math.exp(value) for value in raw.values()) == pytest.approx(1)
    bent = Sampling(seed=1, temperature=0.1, top_k=2, logit_bias={40: 100.0}, presence_penalty=2.0, top_logprobs=3)
    (sampled,) = generate(tiny, PROMPT, 1, bent)
    assert sampled.token == 40
    assert sampled.logprob is not None
    assert sampled.logprob.logprob == pytest.approx(raw[40])
    assert dict(sampled.logprob.top) == pytest.approx(dict(distribution(tiny)[:3]))


def test_log_probabilities_only_when_asked(tiny: LlamaBackend) -> None:
    (without,) = generate(tiny, PROMPT, 1)
    (bare,) = generate(tiny, PROMPT, 1, Sampling(temperature=0, top_logprobs=0))
    assert without.logprob is None
    assert bare.logprob is not None
    assert bare.logprob.top == ()


def test_closed_sampler_can_be_closed_again(tiny: LlamaBackend) -> None:
    sampler = tiny.sampler(GREEDY, PROMPT)
    sampler.close()
    sampler.close()
    with pytest.raises(EngineFailure, match="closed"):
        compute(tiny, Entry(0, 0, PROMPT, sampler))
    compute(tiny, Entry(0, 0, PROMPT))


LOGITS = hnp.arrays(np.float32, st.integers(1, 50), elements=st.floats(-1e4, 1e4, width=32))


@given(LOGITS, st.integers(0, 60))
def test_top_log_probabilities_are_ordered_and_normal(
    logits: np.ndarray[tuple[int], np.dtype[np.float32]], top: int
) -> None:
    found = logprob(logits, 0, top)
    values = [value for _, value in found.top]
    assert len(values) == min(top, len(logits))
    assert values == sorted(values, reverse=True)
    assert all(value <= 1e-9 for value in values)
    if top >= len(logits):
        assert sum(map(math.exp, values)) == pytest.approx(1)
        assert dict(found.top)[0] == found.logprob


def test_equal_log_probabilities_are_told_in_the_order_of_the_tokens() -> None:
    found = logprob(np.array([1, 3, 2, 3, 3, 1], np.float32), 0, 5)
    assert [token for token, _ in found.top] == [1, 3, 4, 2, 0]


@pytest.mark.parametrize("width", [0.01, 1.0, 5.0])
def test_log_probabilities_of_a_large_vocabulary(width: float) -> None:
    """To a few of float32's last bits, whatever order the sums are made in."""
    logits = (np.random.default_rng(1).standard_normal(50_000) * width - 20).astype(np.float32)
    wide = logits.astype(np.float64)
    expected = wide - (wide.max() + math.log(np.exp(wide - wide.max()).sum()))
    found = logprob(logits, 777, 20)
    best = np.argsort(-wide, kind="stable")[:20].tolist()
    assert [token for token, _ in found.top] == best
    assert [found.logprob, *(value for _, value in found.top)] == pytest.approx(expected[[777, *best]], abs=2e-6, rel=0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_one_bad_logit_is_found(bad: float) -> None:
    logits = np.zeros(100, np.float32)
    assert are_numbers(logits)
    logits[50] = bad
    assert not are_numbers(logits)


def test_masked_logits_are_good() -> None:
    logits = np.full(100, -math.inf, np.float32)
    assert not are_numbers(logits)
    logits[3] = 1.0
    assert are_numbers(logits)
    assert logprob(logits, 3, 2).top[0] == (3, 0.0)
