"""What a batch does: the moves, one decode, the samples; and what is left behind when it cannot be done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from antiphon.engine.backend import Backend, Batch, CellsExhausted, ContextLost, Entry, Share, Trim
from antiphon.engine.base import EngineClosed, EngineFailure, Sampling
from antiphon.engine.llama import LlamaBackend, load
from tests.engine.llama.conftest import LoadTiny
from tests.engine.llama.generate import (
    GREEDY,
    JUDGED,
    assert_holds,
    assert_same_but_for_ties,
    compute,
    generate,
    generate_together,
    ids,
    move,
    prefill,
)
from tests.tiny_model import Tiny, write_tiny_model

QUESTION = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(params=["tiny", "real"])
def backend(request: pytest.FixtureRequest) -> LlamaBackend:
    found: LlamaBackend = request.getfixturevalue(request.param)
    return found


def prompts(backend: Backend) -> list[list[int]]:
    common = "You answer in one short sentence. " * 4
    questions = (
        "What is the capital of France?",
        "Name a colour.",
        "Who wrote Faust?",
        "Is water wet? hello the world",
    )
    return [backend.tokenizer.encode(common + QUESTION.format(q), control=True) for q in questions]


def test_backend_is_one(tiny: LlamaBackend) -> None:
    typed: Backend = tiny
    assert typed.info.context_length == 1024


def test_real_model_says_something_true(real: LlamaBackend) -> None:
    prompt = real.tokenizer.encode(QUESTION.format("What is the capital of France?"), control=True)
    text = b"".join(real.tokenizer.piece(token) for token in ids(generate(real, prompt, 7)))
    assert b"Paris" in text


def test_end_of_generation_is_told(real: LlamaBackend) -> None:
    prompt = real.tokenizer.encode(QUESTION.format("What is the capital of France?"), control=True)
    run = generate(real, prompt, 12)
    assert [s.end for s in run] == [s.token in (0, 2) for s in run]
    assert any(s.end for s in run)


def test_same_text_alone_and_in_company(backend: LlamaBackend) -> None:
    all_prompts = prompts(backend)
    alone = [generate(backend, prompt, 10, JUDGED) for prompt in all_prompts]
    for run, reference in zip(generate_together(backend, all_prompts, 10, JUDGED), alone, strict=True):
        assert_same_but_for_ties(run, reference)


def test_same_text_with_a_shared_prefix(backend: LlamaBackend) -> None:
    all_prompts = prompts(backend)
    shared = next(i for i, column in enumerate(zip(*all_prompts, strict=False)) if len(set(column)) > 1)
    assert shared > 20
    alone = [generate(backend, prompt, 10, JUDGED) for prompt in all_prompts]
    for run, reference in zip(generate_together(backend, all_prompts, 10, JUDGED, shared=shared), alone, strict=True):
        assert_same_but_for_ties(run, reference)


def test_same_text_after_a_trim(backend: LlamaBackend) -> None:
    prompt, other = prompts(backend)[:2]
    reference = generate(backend, prompt, 12, JUDGED)
    keep = next(i for i, (a, b) in enumerate(zip(prompt, other, strict=False)) if a != b)
    prefill(backend, 3, other)
    move(backend, Trim(3, keep))
    assert_same_but_for_ties(generate(backend, prompt, 12, JUDGED, slot=3, start=keep), reference)


def test_sharing_takes_no_cells(load_tiny: LoadTiny) -> None:
    backend = load_tiny(context_length=256, cells=256, batch_tokens=256)
    prefill(backend, 0, [5] * 200)
    move(backend, *(Share(0, slot, 0, 200) for slot in range(1, 8)))
    entries = [Entry(slot, 200, (6,), backend.sampler(GREEDY, [5])) for slot in range(8)]
    assert len({s.token for s in compute(backend, *entries)}) == 1


def test_moves_are_made_in_their_order(tiny: LlamaBackend) -> None:
    prefill(tiny, 0, [5] * 20)
    move(tiny, Share(0, 1, 0, 20), Trim(0, 0), Share(1, 2, 0, 10), Trim(1, 0))
    assert_holds(tiny, 0, 0)
    assert_holds(tiny, 1, 0)
    assert_holds(tiny, 2, 10)


def test_samples_come_in_the_order_of_the_entries(tiny: LlamaBackend) -> None:
    alone = [ids(generate(tiny, [token], 1))[0] for token in (5, 6, 7)]
    assert len(set(alone)) == 3
    entries = (
        Entry(4, 0, (5,), tiny.sampler(GREEDY, [5])),
        Entry(0, 0, (9, 9, 9)),
        Entry(2, 0, (6,), tiny.sampler(GREEDY, [6])),
        Entry(1, 0, (7,), tiny.sampler(GREEDY, [7])),
    )
    assert ids(compute(tiny, *entries)) == alone


def test_batch_is_filled_anew_each_time(load_tiny: LoadTiny) -> None:
    """More logits than lanes end the process, so not one may be wanted still from a batch before."""
    backend = load_tiny(lanes=2)
    for length in range(1, 20):
        sampler = backend.sampler(GREEDY, [5])
        (sampled,) = compute(backend, Entry(0, 0, [5] * length, sampler))
        move(backend, Trim(0, 0))
        assert [sampled.token] == ids(generate(backend, [5] * length, 1, slot=1))


def test_batch_without_entries_samples_nothing(tiny: LlamaBackend) -> None:
    assert tiny.execute(Batch()) == []
    assert tiny.execute(Batch(moves=(Trim(0, 0),))) == []


def test_full_cache_then_trim_then_retry(load_tiny: LoadTiny) -> None:
    backend = load_tiny(context_length=256, cells=256)
    prompt = [5 + i % 40 for i in range(100)]
    reference = generate(backend, prompt, 8, JUDGED)
    prefill(backend, 0, [7] * (backend.cells - 80))
    prefill(backend, 1, prompt[:60])
    batch = Batch(entries=(Entry(1, 60, prompt[60:-1]), Entry(0, backend.cells - 80, (7,))))
    for _ in range(2):
        with pytest.raises(CellsExhausted):
            backend.execute(batch)
        assert_holds(backend, 1, 60)
        assert_holds(backend, 0, backend.cells - 80)
    move(backend, Trim(0, 0))
    assert_same_but_for_ties(generate(backend, prompt, 8, JUDGED, slot=1, start=60), reference)


def test_cells_exhausted_after_moves_keeps_the_moves(load_tiny: LoadTiny) -> None:
    backend = load_tiny(context_length=256, cells=256)
    prefill(backend, 0, [7] * 250)
    with pytest.raises(CellsExhausted):
        backend.execute(Batch(moves=(Share(0, 1, 0, 200), Trim(0, 240)), entries=(Entry(2, 0, [5] * 60),)))
    assert_holds(backend, 0, 240)
    assert_holds(backend, 1, 200)
    assert_holds(backend, 2, 0)


REFUSED = {
    "too many tokens": Batch(entries=(Entry(0, 20, [5] * 65),)),
    "too many tokens together": Batch(entries=(Entry(0, 20, [5] * 40), Entry(1, 0, [5] * 40))),
    "no tokens": Batch(entries=(Entry(0, 20, ()),)),
    "token too large": Batch(entries=(Entry(0, 20, (5, 10**6)),)),
    "token below 0": Batch(entries=(Entry(0, 20, (-1,)),)),
    "slot for prefixes": Batch(entries=(Entry(8, 0, (5,)),)),
    "slot below 0": Batch(entries=(Entry(-1, 0, (5,)),)),
    "two entries of a slot": Batch(entries=(Entry(0, 20, (5,)), Entry(0, 21, (5,)))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_llama_cpp_cannot_do_is_refused_and_changes_nothing(tiny: LlamaBackend, name: str) -> None:
    prefill(tiny, 0, [5] * 20)
    with pytest.raises(EngineFailure) as caught:
        tiny.execute(Batch(moves=(Trim(0, 0),), entries=REFUSED[name].entries))
    assert not isinstance(caught.value, ContextLost)
    assert_holds(tiny, 0, 20)
    assert_holds(tiny, 1, 0)


@pytest.mark.parametrize(("slot", "start"), [(0, 21), (0, 19), (1, 1), (0, -1)])
def test_an_entry_that_does_not_follow_its_slot_loses_the_context(tiny: LlamaBackend, slot: int, start: int) -> None:
    prefill(tiny, 0, [5] * 20)
    with pytest.raises(ContextLost, match=rf"cannot go on at position {start}"):
        tiny.execute(Batch(entries=(Entry(slot, start, (5,)),)))
    with pytest.raises(ContextLost):
        tiny.execute(Batch())
    tiny.reset()
    assert_holds(tiny, 0, 0)


def test_batch_larger_than_the_cache_is_refused(load_tiny: LoadTiny) -> None:
    backend = load_tiny(context_length=100, cells=100, batch_tokens=512)
    assert (backend.cells, backend.batch_tokens) == (256, 256)
    compute(backend, Entry(0, 0, [5] * 256))
    with pytest.raises(EngineFailure, match="a batch of 257 tokens, of 256 at most"):
        compute(backend, Entry(0, 0, [5] * 257))


def test_all_lanes_sample_at_once(load_tiny: LoadTiny) -> None:
    """Logits are reserved for lanes alone, so this is as many as there can be."""
    backend = load_tiny(lanes=60)
    assert (backend.lanes, backend.slots) == (60, 128)
    entries = [Entry(lane, 0, (5,), backend.sampler(GREEDY, [5])) for lane in range(60)]
    assert len(compute(backend, *entries)) == 60


def test_reset_empties_everything_and_answers_the_same(backend: LlamaBackend) -> None:
    prompt = prompts(backend)[0]
    reference = generate(backend, prompt, 8)
    prefill(backend, 0, prompt)
    move(backend, Share(0, backend.lanes, 3, 9))
    backend.reset()
    move(backend, Trim(backend.lanes, 0))
    assert_holds(backend, 0, 0)
    assert ids(generate(backend, prompt, 8)) == ids(reference)


def test_a_sampler_outlives_the_context(tiny: LlamaBackend) -> None:
    sampling = Sampling(seed=3, temperature=1.5)
    whole = generate(tiny, [5, 6], 2, sampling)
    sampler = tiny.sampler(sampling, [5, 6])
    first = compute(tiny, Entry(0, 0, (5, 6), sampler))
    tiny.reset()
    assert ids(first + compute(tiny, Entry(0, 0, (5, 6, first[0].token), sampler))) == ids(whole)


def test_threads_can_change_between_steps(tiny: LlamaBackend) -> None:
    (alone,) = generate(tiny, [5, 6, 7], 1)
    assert tiny.threads == 1
    tiny.set_threads(2)
    assert generate(tiny, [5, 6, 7], 1) == [alone]
    tiny.reset()
    assert tiny.threads == 2
    with pytest.raises(EngineFailure, match="0 threads"):
        tiny.set_threads(0)


def test_native_seconds_grow_with_what_is_computed(tiny: LlamaBackend) -> None:
    before = tiny.native_seconds
    tiny.execute(Batch())
    assert tiny.native_seconds == before
    prefill(tiny, 0, [5] * 60)
    computed = tiny.native_seconds
    move(tiny, Share(0, 1, 0, 60))
    assert before < computed < tiny.native_seconds


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[LlamaBackend]:
    """A batch takes this one long enough to be interrupted, wherever it runs."""
    backend = load(write_tiny_model(tmp_path / "m.gguf", Tiny(width=256, layers=12, context=4096)), batch_tokens=4096)
    yield backend
    backend.close()


def test_abort_ends_a_running_decode(slow: LlamaBackend) -> None:
    failures: list[BaseException] = []
    running = threading.Event()

    def work() -> None:
        try:
            running.set()
            compute(slow, Entry(0, 0, [5] * 4000, slow.sampler(GREEDY, [5])))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    running.wait()
    # Takes about as long as the first two of the eight parts of the batch, which are then there to be taken back.
    slow.tokenizer.encode("hello " * 100_000, control=False)
    slow.abort()
    thread.join()
    assert [repr(failure) for failure in failures] == ["EngineClosed('aborted')"]
    with pytest.raises(EngineFailure, match="aborted"):
        slow.execute(Batch(entries=(Entry(1, 0, (5,)),)))
    with pytest.raises(ContextLost, match="slot 0 holds nothing, not positions 0 to 0"):
        move(slow, Trim(0, 1))


def test_closed_backend_computes_nothing(tiny: LlamaBackend) -> None:
    tiny.close()
    tiny.close()
    for batch in (Batch(entries=(Entry(0, 0, (5,)),)), Batch(moves=(Trim(0, 0),))):
        with pytest.raises(EngineClosed, match="closed"):
            tiny.execute(batch)
    with pytest.raises(EngineClosed):
        tiny.reset()
    tiny.set_threads(2)  # for a context that will not be


def test_two_models_at_once(load_tiny: LoadTiny) -> None:
    one, two = load_tiny(Tiny(seed=1)), load_tiny(Tiny(seed=2))
    first = ids(generate(one, [5, 6], 10))
    assert ids(generate(two, [5, 6], 10)) != first
    assert ids(generate(one, [5, 6], 10)) == first


def test_whole_context_can_be_used(load_tiny: LoadTiny) -> None:
    backend = load_tiny(context_length=256, cells=256)
    assert len(generate(backend, [5] * 200, 56)) == 56


def test_log_probabilities_fall(tiny: LlamaBackend) -> None:
    for sampled in generate(tiny, [5, 6], 20, Sampling(temperature=0, top_logprobs=5)):
        assert sampled.logprob is not None
        values = [value for _, value in sampled.logprob.top]
        assert len(values) == 5
        assert all(a >= b for a, b in pairwise(values))
        assert sampled.logprob.top[0] == (sampled.token, sampled.logprob.logprob)
