"""Bias and penalties: as defined, in float32's whole range, and refused where they are no numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.base import EngineFailure, Sampling
from antiphon.engine.llama.penalties import LARGEST, Penalties
from antiphon.engine.llama.sampling import NumpySampler
from tests.engine.llama.slow_sampling import changed

SIZE = 12
tokens = st.integers(0, SIZE - 1)
samplings = st.builds(
    Sampling,
    logit_bias=st.dictionaries(tokens, st.floats(-100, 100), max_size=5),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.3, 10.0]),
    presence_penalty=st.sampled_from([0.0, -2.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, -0.1, 2.0]),
)


@given(samplings, st.lists(tokens, max_size=20), st.lists(tokens, max_size=20), st.integers(0, 9))
def test_the_same_scores(sampling: Sampling, prompt: list[int], answer: list[int], seed: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 10, SIZE).astype(np.float32)
    penalties = Penalties(sampling, prompt, SIZE)
    for said in range(len(answer) + 1):
        expected = changed(logits.tolist(), sampling, prompt, answer[:said])
        assert penalties.applied(logits) == pytest.approx(expected, rel=1e-6, abs=1e-6)
        if said < len(answer):
            penalties.count(answer[said])


HUGE = [LARGEST, -LARGEST, 1e-300]


@pytest.mark.parametrize("bias", HUGE)
@pytest.mark.parametrize("repetition", [LARGEST, 5e-324, 1.0])
@pytest.mark.parametrize("penalty", HUGE)
def test_nothing_becomes_nan(bias: float, repetition: float, penalty: float) -> None:
    logits = np.array([LARGEST, 1, 0, -1, -LARGEST, -math.inf], np.float32)
    sampling = Sampling(
        logit_bias=dict.fromkeys(range(5), bias),
        repetition_penalty=repetition,
        presence_penalty=penalty,
        frequency_penalty=penalty,
    )
    penalties = Penalties(sampling, [0, 1, 2, 3, 5], 6)
    for token in (1, 1, 2, 4, 5):
        penalties.count(token)
    scores = penalties.applied(logits)
    assert not np.isnan(scores).any()
    assert scores.max() <= LARGEST
    assert scores[5] == -math.inf


NUMBERS = ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39])
def test_what_is_no_number_is_refused(name: str, value: float) -> None:
    with pytest.raises(EngineFailure, match=f"^{name} is"):
        NumpySampler(Sampling(**{name: value}), [], SIZE)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, -math.inf, 1e39])
def test_a_bias_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(EngineFailure, match=r"^logit_bias\.3 is"):
        NumpySampler(Sampling(logit_bias={3: value}), [], SIZE)


@pytest.mark.parametrize("penalty", [0.0, -1.0])
def test_repetition_is_a_factor_above_0(penalty: float) -> None:
    with pytest.raises(EngineFailure, match="repetition_penalty"):
        NumpySampler(Sampling(repetition_penalty=penalty), [], SIZE)


def test_the_same_bias_everywhere_changes_nothing() -> None:
    logits = np.random.default_rng(1).integers(-5, 5, 1000).astype(np.float32)  # added to without rounding
    plain = NumpySampler(Sampling(seed=1), [], 1000)
    pressed = NumpySampler(Sampling(seed=1, logit_bias=dict.fromkeys(range(1000), -100.0)), [], 1000)
    assert [pressed.sample(logits) for _ in range(50)] == [plain.sample(logits) for _ in range(50)]


def test_when_no_token_is_left() -> None:
    """-LARGEST ten times over is below what a float32 can hold, everywhere."""
    sampling = Sampling(logit_bias=dict.fromkeys(range(SIZE), -LARGEST), repetition_penalty=10)
    sampler = NumpySampler(sampling, range(SIZE), SIZE)
    with pytest.raises(EngineFailure, match="no token"):
        sampler.sample(np.zeros(SIZE, np.float32))
