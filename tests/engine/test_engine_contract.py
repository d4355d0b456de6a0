"""What every engine does, whatever it computes with. A new engine is one line in `CASES`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec
import pytest

from antiphon.engine.base import Engine, EngineFailure, Finish, Generation, Sampling, Step, StepStream
from antiphon.engine.script_file import parse_script
from antiphon.engine.scripted import ScriptedEngine
from antiphon.engine.worker import WorkerEngine
from tests.engine.arithmetic_backend import ArithmeticBackend

MANY = 16


class Case(NamedTuple):
    """An engine that goes on for longer than any test here asks, and how many sequences it still works on."""

    engine: Engine
    running: Callable[[], int]


def scripted() -> Case:
    async def yield_once(_: float) -> None:
        await asyncio.sleep(0)

    turn = {"steps": ["a", {"wait_ms": 1}, "bc", {"wait_ms": 1}], "repeat": 1000}
    file = {"turns": [turn], "context_length": 256, "special_tokens": ["<|im_start|>", "<|im_end|>"]}
    engine = ScriptedEngine(parse_script(msgspec.json.encode(file)), sleep=yield_once)
    return Case(engine, lambda: engine.running)


def worker() -> Case:
    engine = WorkerEngine(ArithmeticBackend(cells=8192, context_length=4096, batch_tokens=512))
    return Case(engine, lambda: engine.running)


def worker_that_shares_nothing() -> Case:
    """A model whose cache cannot be cut."""
    engine = WorkerEngine(ArithmeticBackend(cells=8192, context_length=4096, batch_tokens=512, can_trim=False))
    return Case(engine, lambda: engine.running)


CASES: list[Callable[[], Case]] = [scripted, worker, worker_that_shares_nothing]


@pytest.fixture(params=CASES, ids=lambda factory: factory.__name__)
async def case(request: pytest.FixtureRequest) -> AsyncIterator[Case]:
    made: Case = request.param()
    yield made
    await made.engine.aclose()


@pytest.fixture
def engine(case: Case) -> Engine:
    return case.engine


def submit(engine: Engine, text: str = "Once upon a time", max_tokens: int | None = None) -> StepStream:
    prompt = engine.tokenizer.encode(text, control=True)
    sampling = Sampling(temperature=0.0)
    return engine.submit(Generation(id="resp_contract", prompt=prompt, max_tokens=max_tokens, sampling=sampling))


async def read(stream: StepStream) -> list[Step]:
    steps: list[Step] = []
    while not (steps and steps[-1].finish):
        steps += await stream.take()
    return steps


def count(steps: list[Step]) -> int:
    return sum(len(step.tokens) for step in steps)


async def until_idle(case: Case) -> None:
    """An engine may need a step to free what was cancelled; the time limit of the suite is the limit here."""
    while case.running():  # noqa: ASYNC110 - there is no event to wait for: that the count falls is what is tested
        await asyncio.sleep(0.001)


async def test_the_model_is_described(engine: Engine) -> None:
    assert engine.info.name
    assert engine.info.context_length > 1


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 20])
async def test_max_tokens_is_exact_and_the_finish_says_so(engine: Engine, limit: int) -> None:
    steps = await read(submit(engine, max_tokens=limit))
    assert count(steps) == limit
    assert steps[-1].finish is Finish.LENGTH


async def test_every_step_keeps_its_promises(engine: Engine) -> None:
    steps = await read(submit(engine, max_tokens=20))
    assert all(step.finish is None and step.tokens for step in steps[:-1])
    assert all(0 <= token < engine.tokenizer.size for step in steps for token in step.tokens)
    assert all(step.logprobs == () for step in steps)


async def test_nothing_follows_the_finish(engine: Engine) -> None:
    stream = submit(engine, max_tokens=3)
    await read(stream)
    assert stream.closed
    with pytest.raises(RuntimeError):
        await stream.take()


async def test_the_context_ends_a_sequence(engine: Engine) -> None:
    piece = engine.tokenizer.encode("a", control=False)
    prompt = (piece * engine.info.context_length)[: engine.info.context_length - 3]
    steps = await read(engine.submit(Generation(id="resp_full", prompt=prompt)))
    assert 1 <= count(steps) <= 3
    assert steps[-1].finish is not None


async def test_the_same_greedy_request_gives_the_same_tokens(engine: Engine) -> None:
    runs = [await read(submit(engine, max_tokens=10)) for _ in range(2)]
    first, second = ([token for step in steps for token in step.tokens] for steps in runs)
    assert first == second


@pytest.mark.parametrize("top", [0, 1, 5])
async def test_log_probabilities_stand_beside_every_token(engine: Engine, top: int) -> None:
    prompt = engine.tokenizer.encode("Once", control=True)
    sampling = Sampling(temperature=0.0, top_logprobs=top)
    steps = await read(engine.submit(Generation(id="r", prompt=prompt, max_tokens=4, sampling=sampling)))
    for step in steps:
        assert [entry.token for entry in step.logprobs] == list(step.tokens)
        for entry in step.logprobs:
            assert entry.logprob <= 0
            assert len(entry.top) <= top
            assert list(entry.top) == sorted(entry.top, key=lambda pair: -pair[1])


async def test_cached_tokens_are_part_of_the_prompt(engine: Engine) -> None:
    for _ in range(2):
        stream = submit(engine, max_tokens=2)
        await stream.take()
        assert 0 <= stream.cached_tokens < len(engine.tokenizer.encode("Once upon a time", control=True))


@pytest.mark.parametrize("steps_before", [0, 1, 3])
async def test_cancel_frees_the_sequence_and_delivers_nothing_more(case: Case, steps_before: int) -> None:
    stream = submit(case.engine)
    seen = 0
    while seen < steps_before and not stream.closed:  # An engine may have ended before it is looked at again.
        seen += len(await stream.take())
    stream.cancel()
    stream.cancel()
    await until_idle(case)
    assert stream.closed
    assert stream.ready() == []


async def test_cancel_after_the_end_changes_nothing(case: Case) -> None:
    stream = submit(case.engine, max_tokens=2)
    await read(stream)
    stream.cancel()
    await until_idle(case)
    assert count(await read(submit(case.engine, max_tokens=2))) == 2


async def test_many_at_once_all_end(case: Case) -> None:
    streams = [submit(case.engine, text=f"Story {n}", max_tokens=n + 1) for n in range(MANY)]
    results = await asyncio.gather(*(read(stream) for stream in streams))
    assert [count(steps) for steps in results] == list(range(1, MANY + 1))
    await until_idle(case)


async def test_cancelling_half_of_many_lets_the_others_end(case: Case) -> None:
    streams = [submit(case.engine, text=f"Story {n}", max_tokens=8) for n in range(MANY)]
    await streams[0].take()
    for stream in streams[::2]:
        stream.cancel()
    results = await asyncio.gather(*(read(stream) for stream in streams[1::2]))
    assert [count(steps) for steps in results] == [8] * (MANY // 2)
    await until_idle(case)


async def test_aclose_fails_every_running_sequence(case: Case) -> None:
    streams = [submit(case.engine) for _ in range(4)]
    await streams[0].take()
    await case.engine.aclose()
    for stream in streams:
        with pytest.raises(EngineFailure):
            await read(stream)
    assert case.running() == 0


async def test_aclose_wakes_a_waiting_reader(engine: Engine) -> None:
    reader = asyncio.create_task(read(submit(engine)))
    await asyncio.sleep(0)
    await engine.aclose()
    with pytest.raises(EngineFailure):
        await reader


async def test_a_closed_engine_fails_whatever_is_submitted(engine: Engine) -> None:
    await engine.aclose()
    await engine.aclose()
    with pytest.raises(EngineFailure):  # raised by `submit` or delivered by the stream
        await read(submit(engine))


@pytest.mark.parametrize(
    "text", ["", "a", "Hello, world!\n", "naïve – “quoted” €", "日本語", "🙂👩‍👩‍👧", " \t\r\n\x00", "<think>"]
)
def test_text_survives_the_vocabulary(engine: Engine, text: str) -> None:
    tokens = engine.tokenizer.encode(text, control=False)
    assert b"".join(map(engine.tokenizer.piece, tokens)).decode() == text
    assert all(0 <= token < engine.tokenizer.size for token in tokens)


def test_control_tokens_are_spelled_only_on_demand(engine: Engine) -> None:
    tokenizer = engine.tokenizer
    assert tokenizer.control
    for token, spelling in tokenizer.control.items():
        assert tokenizer.piece(token) == spelling.encode()
        assert tokenizer.encode(f"a{spelling}b", control=True).count(token) == 1
        assert not set(tokenizer.encode(f"a{spelling}b", control=False)) & set(tokenizer.control)
