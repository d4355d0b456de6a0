"""Logits that are no numbers end the sequence that computes them, and nobody else's."""

from __future__ import annotations

import pytest

from antiphon.engine.backend import Batch, ContextLost, Entry, Sampled, Trim
from antiphon.engine.base import EngineFailure, Sampling
from antiphon.engine.llama import LlamaBackend
from antiphon.engine.llama.candidates import Floats
from antiphon.engine.llama.sampling import NumpySampler
from tests.engine.llama.conftest import LoadTiny
from tests.engine.llama.generate import (
    GREEDY,
    JUDGED,
    assert_holds,
    assert_same_but_for_ties,
    compute,
    generate,
    ids,
    move,
    prefill,
)
from tests.tiny_model import Tiny

POISON = 200
PROMPT = [5 + i % 40 for i in range(100)]


@pytest.fixture
def backend(load_tiny: LoadTiny) -> LlamaBackend:
    return load_tiny(Tiny(poisonous=(POISON,)), batch_tokens=512)


def sampled(backend: LlamaBackend, entries: list[tuple[int, int, list[int]]]) -> list[Sampled | EngineFailure]:
    batch = [Entry(lane, start, tokens, backend.sampler(JUDGED, [5])) for lane, start, tokens in entries]
    return backend.execute(Batch(entries=tuple(batch)))


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_only_the_bad_sequence_fails(backend: LlamaBackend, count: int, bad: int) -> None:
    """100 tokens take the kernel that reads masked cells."""
    prefill(backend, bad, PROMPT[:10])
    reference = generate(backend, PROMPT[:count], 1, JUDGED, slot=7)
    entries = [(lane, 0, PROMPT[:count]) for lane in range(3)]
    entries[bad] = (bad, 10, [POISON, *PROMPT[:count]])
    results = sampled(backend, entries)
    failure = results.pop(bad)
    assert isinstance(failure, EngineFailure)
    assert "no numbers" in str(failure)
    for result in results:
        assert isinstance(result, Sampled)
        assert_same_but_for_ties([result], reference)
    for lane in range(3):
        assert_holds(backend, lane, 10 if lane == bad else count)


def test_a_bad_prompt_that_is_still_being_read_harms_nobody(backend: LlamaBackend) -> None:
    reference = generate(backend, PROMPT, 2, JUDGED)
    prefill(backend, 0, PROMPT[:-1])
    sampler = backend.sampler(JUDGED, PROMPT)
    poisoned = Entry(1, 0, [POISON] * 80)
    run = compute(backend, poisoned, Entry(0, 99, PROMPT[-1:], sampler))
    run += compute(backend, Entry(1, 80, [7] * 80), Entry(0, 100, (run[0].token,), sampler))
    assert_same_but_for_ties(run, reference)
    assert isinstance(sampled(backend, [(1, 160, [7])])[0], EngineFailure)


def test_what_is_left_of_a_bad_sequence_is_given_up(backend: LlamaBackend) -> None:
    reference = ids(generate(backend, PROMPT, 1))
    assert isinstance(sampled(backend, [(0, 0, [POISON] * 120)])[0], EngineFailure)
    move(backend, Trim(0, 0))
    sampler = backend.sampler(GREEDY, PROMPT)
    entry = Entry(1, 0, PROMPT, sampler)
    with pytest.raises(ContextLost, match="again"):
        compute(backend, entry)
    backend.reset()
    assert ids(compute(backend, entry)) == reference


def test_every_context_tells_one_failure_before_it_is_lost(backend: LlamaBackend) -> None:
    """So recomputing what was lost comes to an end, however many are bad."""
    for _ in range(3):
        assert isinstance(sampled(backend, [(0, 0, [POISON])])[0], EngineFailure)
        with pytest.raises(ContextLost):
            sampled(backend, [(1, 0, [POISON])])
        backend.reset()


def test_a_model_that_computes_nothing_else(load_tiny: LoadTiny) -> None:
    backend = load_tiny(Tiny(fill={"blk.1.attn_norm.weight": float("nan")}))
    prefill(backend, 1, [5] * 10)
    assert [str(r) for r in sampled(backend, [(1, 10, [6]), (2, 0, [6])])] == [
        "the model computed logits that are no numbers"
    ] * 2
    with pytest.raises(ContextLost, match="again"):  # and not that the lanes end elsewhere
        sampled(backend, [(1, 10, [6]), (2, 0, [6])])


def test_a_slot_that_cannot_be_cut_is_emptied(load_tiny: LoadTiny) -> None:
    backend = load_tiny(Tiny(family="mamba", poisonous=(POISON,)))
    reference = ids(generate(backend, [5, 6], 1))
    prefill(backend, 0, [5])
    prefill(backend, 1, [5])
    failure, good = sampled(backend, [(0, 1, [POISON]), (1, 1, [6])])
    assert isinstance(failure, EngineFailure)
    assert isinstance(good, Sampled)
    assert [good.token] == reference
    with pytest.raises(ContextLost, match="again"):  # what is left of a recurrent state spoils the next one there
        compute(backend, Entry(0, 0, (5,)))
    backend.reset()
    assert ids(generate(backend, [5, 6], 1)) == reference


def test_a_closed_sampler_fails_its_own_entry(backend: LlamaBackend) -> None:
    closed, open_one = backend.sampler(GREEDY, [5]), backend.sampler(GREEDY, [5])
    closed.close()
    failure, good = backend.execute(Batch(entries=(Entry(0, 0, (5,), closed), Entry(1, 0, (5,), open_one))))
    assert str(failure) == "the sampler is closed"
    assert isinstance(good, Sampled)
    assert_holds(backend, 0, 0)
    assert_holds(backend, 1, 1)


class Broken(NumpySampler):
    """Has a fault that nobody thought of."""

    def sample(self, logits: Floats) -> int:
        raise IndexError("no such place")


def test_a_fault_in_sampling_ends_its_own_sequence(backend: LlamaBackend, caplog: pytest.LogCaptureFixture) -> None:
    broken, good_one = Broken(GREEDY, [5], backend.tokenizer.size), backend.sampler(GREEDY, [5])
    failure, good = backend.execute(Batch(entries=(Entry(0, 0, (5,), broken), Entry(1, 0, (5,), good_one))))
    assert isinstance(failure, EngineFailure) and "no such place" in str(failure)
    assert isinstance(good, Sampled)
    assert_holds(backend, 0, 0)
    assert "a token cannot be sampled" in caplog.text


def test_who_leaves_no_token_fails_alone(backend: LlamaBackend) -> None:
    everything = range(backend.tokenizer.size)
    nothing = Sampling(logit_bias=dict.fromkeys(everything, -3e38), repetition_penalty=10)
    failing, good_one = backend.sampler(nothing, everything), backend.sampler(GREEDY, [5])
    failure, good = backend.execute(Batch(entries=(Entry(0, 0, (5,), failing), Entry(1, 0, (5,), good_one))))
    assert str(failure) == "bias and penalties leave no token"
    assert isinstance(good, Sampled)
    assert_holds(backend, 0, 0)
    assert_holds(backend, 1, 1)
