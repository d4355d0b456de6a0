"""What a batch does: the moves, one decode, the samples; and what is left behind when it cannot be done.

Tolerance: with flash attention and an f16 cache, a sequence that lies elsewhere in the cache, or has company, may get
slightly other logits (0.6 at most was seen). So two greedy texts may part where the two best tokens lie closer than
`TOLERANCE`, and nowhere else. Log-probabilities differ as logits do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from antiphon.engine.backend import Backend, Batch, CellsExhausted, Copy, Entry, Sampled, Trim
from antiphon.engine.base import EngineFailure, Sampling
from antiphon.engine.llama import LlamaBackend, load
from tests.engine.llama.conftest import LoadTiny
from tests.engine.llama.generate import GREEDY, generate, generate_together, ids, prefill
from tests.tiny_model import Tiny, write_tiny_model

TOLERANCE = 0.6
JUDGED = Sampling(temperature=0, top_logprobs=2)
QUESTION = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def assert_same_but_for_ties(run: Sequence[Sampled], reference: Sequence[Sampled]) -> None:
    assert len(run) == len(reference)
    for sampled, expected in zip(run, reference, strict=True):
        if sampled.token != expected.token:
            assert expected.logprob is not None
            (_, best), (_, second) = expected.logprob.top
            assert best - second < TOLERANCE
            return  # behind the fork the texts are different ones


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


def test_same_text_with_a_copied_prefix(backend: LlamaBackend) -> None:
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
    backend.execute(Batch(moves=(Trim(3, keep),)))
    assert_same_but_for_ties(generate(backend, prompt, 12, JUDGED, slot=3, start=keep), reference)


def test_a_copy_takes_no_cells(load_tiny: LoadTiny) -> None:
    backend = load_tiny(context_length=256, batch_tokens=256)
    prefill(backend, 0, [5] * 200)
    backend.execute(Batch(moves=tuple(Copy(0, slot, 200) for slot in range(1, 8))))
    entries = tuple(Entry(slot, 200, (6,), backend.sampler(GREEDY, [5])) for slot in range(8))
    assert len({s.token for s in backend.execute(Batch(entries=entries))}) == 1


def test_moves_are_made_in_their_order(tiny: LlamaBackend) -> None:
    prefill(tiny, 0, [5] * 20)
    tiny.execute(Batch(moves=(Copy(0, 1, 20), Trim(0, 0), Copy(1, 2, 10), Trim(1, 0))))
    assert_holds(tiny, 0, 0)
    assert_holds(tiny, 1, 0)
    assert_holds(tiny, 2, 10)


def assert_holds(backend: LlamaBackend, slot: int, length: int) -> None:
    """A slot goes on exactly where it ends, and nowhere else."""
    backend.execute(Batch(entries=(Entry(slot, length, (5,)),)))
    backend.execute(Batch(moves=(Trim(slot, length),)))


def test_samples_come_in_the_order_of_the_entries(tiny: LlamaBackend) -> None:
    alone = [ids(generate(tiny, [token], 1))[0] for token in (5, 6, 7)]
    assert len(set(alone)) == 3
    entries = (
        Entry(4, 0, (5,), tiny.sampler(GREEDY, [5])),
        Entry(0, 0, (9, 9, 9)),
        Entry(2, 0, (6,), tiny.sampler(GREEDY, [6])),
        Entry(1, 0, (7,), tiny.sampler(GREEDY, [7])),
    )
    assert [s.token for s in tiny.execute(Batch(entries=entries))] == alone


def test_batch_is_filled_anew_each_time(load_tiny: LoadTiny) -> None:
    """More logits than slots end the process, so not one may be wanted still from a batch before."""
    backend = load_tiny(slots=2)
    for length in range(1, 20):
        sampler = backend.sampler(GREEDY, [5])
        (sampled,) = backend.execute(Batch(entries=(Entry(0, 0, [5] * length, sampler),)))
        backend.execute(Batch(moves=(Trim(0, 0),)))
        assert [sampled.token] == ids(generate(backend, [5] * length, 1, slot=1))


def test_batch_without_entries_samples_nothing(tiny: LlamaBackend) -> None:
    assert tiny.execute(Batch()) == []
    assert tiny.execute(Batch(moves=(Trim(0, 0),))) == []


def test_full_cache_then_trim_then_retry(load_tiny: LoadTiny) -> None:
    backend = load_tiny(context_length=256)
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
    backend.execute(Batch(moves=(Trim(0, 0),)))
    assert_same_but_for_ties(generate(backend, prompt, 8, JUDGED, slot=1, start=60), reference)


def test_cells_exhausted_after_moves_keeps_the_moves(load_tiny: LoadTiny) -> None:
    backend = load_tiny(context_length=256)
    prefill(backend, 0, [7] * 250)
    with pytest.raises(CellsExhausted):
        backend.execute(Batch(moves=(Copy(0, 1, 200), Trim(0, 240)), entries=(Entry(2, 0, [5] * 60),)))
    assert_holds(backend, 0, 240)
    assert_holds(backend, 1, 200)
    assert_holds(backend, 2, 0)


REFUSED = {
    "too many tokens": Batch(entries=(Entry(0, 20, [5] * 65),)),
    "too many tokens together": Batch(entries=(Entry(0, 20, [5] * 40), Entry(1, 0, [5] * 40))),
    "no tokens": Batch(entries=(Entry(0, 20, ()),)),
    "token too large": Batch(entries=(Entry(0, 20, (5, 10**6)),)),
    "token below 0": Batch(entries=(Entry(0, 20, (-1,)),)),
    "slot too large": Batch(entries=(Entry(8, 0, (5,)),)),
    "slot below 0": Batch(entries=(Entry(-1, 0, (5,)),)),
    "two entries of a slot": Batch(entries=(Entry(0, 20, (5,)), Entry(0, 21, (5,)))),
    "gap": Batch(entries=(Entry(0, 21, (5,)),)),
    "gap in an empty slot": Batch(entries=(Entry(1, 1, (5,)),)),
    "overlap": Batch(entries=(Entry(0, 19, (5,)),)),
    "trim of no slot": Batch(moves=(Trim(8, 0),)),
    "trim to more than there is": Batch(moves=(Trim(0, 21),)),
    "copy from no slot": Batch(moves=(Copy(-1, 0, 5),)),
    "copy to no slot": Batch(moves=(Copy(0, 8, 5),)),
    "copy of more than there is": Batch(moves=(Copy(0, 1, 21),)),
    "copy of an empty slot": Batch(moves=(Copy(2, 1, 5),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_llama_cpp_cannot_do_is_refused_and_changes_nothing(tiny: LlamaBackend, name: str) -> None:
    prefill(tiny, 0, [5] * 20)
    with pytest.raises(EngineFailure):
        tiny.execute(REFUSED[name])
    assert_holds(tiny, 0, 20)
    assert_holds(tiny, 1, 0)


def test_logits_that_are_no_numbers(load_tiny: LoadTiny) -> None:
    backend = load_tiny(Tiny(fill={"blk.1.attn_norm.weight": float("nan")}))
    prefill(backend, 1, [5] * 10)
    with pytest.raises(EngineFailure, match="no numbers"):
        backend.execute(Batch(entries=(Entry(1, 10, (6,), backend.sampler(GREEDY, [5])),)))
    assert_holds(backend, 1, 10)


def test_recurrent_model_generates_and_can_only_be_emptied(load_tiny: LoadTiny) -> None:
    backend = load_tiny(Tiny(recurrent=True))
    assert not backend.can_trim
    prompt = [5, 6, 7, 8]
    alone = ids(generate(backend, prompt, 10))
    assert [ids(run) for run in generate_together(backend, [prompt, [9, 9], prompt], 10)][::2] == [alone, alone]
    prefill(backend, 0, prompt)
    for move in (Trim(0, 2), Copy(0, 1, 2)):
        with pytest.raises(EngineFailure, match="can only be emptied"):
            backend.execute(Batch(moves=(move,)))
    backend.execute(Batch(moves=(Trim(0, 0),)))
    assert ids(generate(backend, prompt, 10)) == alone


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[LlamaBackend]:
    """A batch takes this one long enough to be interrupted, wherever it runs."""
    backend = load(write_tiny_model(tmp_path / "m.gguf", Tiny(width=256, layers=12, context=4096)), batch_tokens=4096)
    yield backend
    backend.close()


def test_abort_ends_a_running_decode(slow: LlamaBackend) -> None:
    failures: list[BaseException] = []
    running = threading.Event()

    def compute() -> None:
        try:
            running.set()
            slow.execute(Batch(entries=(Entry(0, 0, [5] * 4000, slow.sampler(GREEDY, [5])),)))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=compute)
    thread.start()
    running.wait()
    # Takes about as long as the first two of the eight parts of the batch, which are then there to be taken back.
    slow.tokenizer.encode("hello " * 100_000, control=False)
    slow.abort()
    thread.join()
    assert [repr(failure) for failure in failures] == ["EngineClosed('aborted')"]
    with pytest.raises(EngineFailure, match="aborted"):
        slow.execute(Batch(entries=(Entry(1, 0, (5,)),)))
    with pytest.raises(EngineFailure, match="slot 0 holds positions -1 to -1"):
        slow.execute(Batch(moves=(Trim(0, 1),)))


def test_closed_backend_computes_nothing(tiny: LlamaBackend) -> None:
    tiny.close()
    tiny.close()
    for batch in (Batch(entries=(Entry(0, 0, (5,)),)), Batch(moves=(Trim(0, 0),))):
        with pytest.raises(EngineFailure, match="closed"):
            tiny.execute(batch)


def test_two_models_at_once(load_tiny: LoadTiny) -> None:
    one, two = load_tiny(Tiny(seed=1)), load_tiny(Tiny(seed=2))
    first = ids(generate(one, [5, 6], 10))
    assert ids(generate(two, [5, 6], 10)) != first
    assert ids(generate(one, [5, 6], 10)) == first


def test_whole_context_can_be_used(load_tiny: LoadTiny) -> None:
    backend = load_tiny(context_length=256)
    assert len(generate(backend, [5] * 200, 56)) == 56


def test_log_probabilities_fall(tiny: LlamaBackend) -> None:
    for sampled in generate(tiny, [5, 6], 20, Sampling(temperature=0, top_logprobs=5)):
        assert sampled.logprob is not None
        values = [value for _, value in sampled.logprob.top]
        assert len(values) == 5
        assert all(a >= b for a, b in pairwise(values))
        assert sampled.logprob.top[0] == (sampled.token, sampled.logprob.logprob)
