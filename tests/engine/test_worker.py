"""The worker with its real thread: many at once, faults at every step, cancelling, closing. Nothing here sleeps."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.arithmetic_backend import ArithmeticBackend, Hook, alone

from antiphon.engine.backend import CellsExhausted
from antiphon.engine.base import EngineBusy, EngineFailure, Generation, Sampling, Step, StepStream
from antiphon.engine.worker import WorkerEngine

LOGGER = "antiphon.engine.worker"


class Gate:
    """A hook that stops the thread inside the execution `at`, until it is opened or the backend is aborted."""

    def __init__(self, at: int = 0) -> None:
        self._at = at
        self._reached = threading.Event()
        self._open = threading.Event()

    def __call__(self, execution: int, aborted: threading.Event) -> None:
        if execution == self._at:
            self._reached.set()
            while not self._open.is_set() and not aborted.is_set():
                aborted.wait(0.001)

    async def reached(self) -> None:
        await asyncio.to_thread(self._reached.wait)

    def open(self) -> None:
        self._open.set()


def fault(error: Exception, *at: int) -> Hook:
    """A hook that raises at these executions."""

    def raises(execution: int, _: threading.Event) -> None:
        if execution in at:
            raise error

    return raises


@asynccontextmanager
async def serving(backend: ArithmeticBackend, max_queue: int = 256) -> AsyncIterator[WorkerEngine]:
    """An engine that is closed afterwards, whatever happened, and has left nothing behind."""
    engine = WorkerEngine(backend, max_queue=max_queue)
    try:
        yield engine
    finally:
        await engine.aclose()
    assert backend.closed
    assert not backend.open_samplers
    assert engine.running == 0


def submit(engine: WorkerEngine, prompt: Sequence[int], max_tokens: int | None = None, seed: int = 0) -> StepStream:
    sampling = Sampling(seed=seed)
    return engine.submit(Generation(id="resp_worker", prompt=prompt, max_tokens=max_tokens, sampling=sampling))


async def read(stream: StepStream) -> list[Step]:
    steps: list[Step] = []
    while not (steps and steps[-1].finish):
        steps += await stream.take()
    return steps


async def output(stream: StepStream) -> list[int]:
    return [token for step in await read(stream) for token in step.tokens]


async def failed(stream: StepStream) -> bool:
    """Whether the stream ends with a failure."""
    try:
        await read(stream)
    except EngineFailure:
        return True
    return False


def text(length: int, start: int = 0) -> list[int]:
    return [(start + place) % 251 for place in range(length)]


async def works(engine: WorkerEngine) -> None:
    """A new request is answered, and from an engine that has forgotten everybody else."""
    assert await output(submit(engine, text(30, start=77), 5)) == alone(text(30, start=77), 5)
    assert engine.running == 0


# Serving


async def test_what_the_backend_is_the_engine_is() -> None:
    backend = ArithmeticBackend()
    async with serving(backend) as engine:
        assert engine.info is backend.info
        assert engine.tokenizer is backend.tokenizer


@pytest.mark.parametrize("can_trim", [True, False])
async def test_many_at_once_are_each_answered_as_if_alone(can_trim: bool) -> None:
    backend = ArithmeticBackend(slots=4, cells=200, can_trim=can_trim)
    requests = [([*text(n % 50), n], 1 + n % 60) for n in range(100)]
    async with serving(backend) as engine:
        streams = [submit(engine, prompt, limit, seed=n) for n, (prompt, limit) in enumerate(requests)]
        outputs = await asyncio.gather(*map(output, streams))
    assert outputs == [alone(prompt, limit, seed=n) for n, (prompt, limit) in enumerate(requests)]


async def test_a_second_turn_finds_the_first_one_in_the_cache() -> None:
    async with serving(ArithmeticBackend()) as engine:
        first = submit(engine, text(30), 5)
        said = await output(first)
        assert first.cached_tokens == 0
        second = submit(engine, [*text(30), *said, 1, 2, 3], 5)
        await second.take()
        assert second.cached_tokens == 34  # The prompt and all but the last token, which was sampled but never read.
        assert await output(submit(engine, text(30), 5)) == said


async def test_what_was_preempted_tells_what_was_cached_at_first() -> None:
    backend = ArithmeticBackend(slots=2, cells=128)
    async with serving(backend) as engine:
        streams = [submit(engine, [*text(1, start), *text(20)]) for start in (100, 200)]
        outputs = await asyncio.gather(*map(output, streams))
    assert [stream.cached_tokens for stream in streams] == [0, 0]
    assert outputs == [alone([*text(1, start), *text(20)], 107) for start in (100, 200)]


async def test_one_wake_up_a_step_for_the_whole_batch() -> None:
    """Who sees a step of one stream finds that step of all the others there already."""
    gate = Gate()
    async with serving(ArithmeticBackend(slots=4, hook=gate)) as engine:
        first = submit(engine, [1], 9)
        await gate.reached()
        others = [submit(engine, [2, n], 8) for n in range(3)]
        gate.open()
        arrived, theirs = 0, [0, 0, 0]
        while not first.closed:
            arrived += len(await first.take())
            theirs = [seen + len(stream.ready()) for seen, stream in zip(theirs, others, strict=True)]
            assert theirs == [arrived - 1] * 3  # They came a step later.
        assert arrived == 9
        assert all(stream.closed for stream in others)


async def test_a_full_queue_is_busy_until_there_is_room() -> None:
    gate = Gate()
    async with serving(ArithmeticBackend(slots=2, hook=gate), max_queue=3) as engine:
        streams = [submit(engine, [n], 2) for n in range(5)]
        await gate.reached()
        for _ in range(2):
            with pytest.raises(EngineBusy):
                submit(engine, [9], 2)
        assert engine.running == 5
        gate.open()
        assert await asyncio.gather(*map(output, streams)) == [alone([n], 2) for n in range(5)]
        await works(engine)


async def test_cancelling_makes_room_at_once_but_not_without_bound() -> None:
    """While the thread computes, what comes and goes piles up in the inbox."""
    gate = Gate()
    async with serving(ArithmeticBackend(slots=2, hook=gate), max_queue=8) as engine:
        stream = submit(engine, text(30), 5)
        await gate.reached()
        submit(engine, [1]).cancel()
        with pytest.raises(EngineBusy):
            for _ in range(100):
                submit(engine, [1]).cancel()
        assert engine.running == 1
        gate.open()
        assert await output(stream) == alone(text(30), 5)
        await works(engine)


@pytest.mark.parametrize("length", [0, 128, 129, 1000])
async def test_a_prompt_that_could_never_be_computed_is_refused_at_once(length: int) -> None:
    async with serving(ArithmeticBackend(context_length=128)) as engine:
        with pytest.raises(EngineFailure, match=f"a prompt of {length} tokens"):
            submit(engine, text(length))
        assert engine.running == 0
        await works(engine)


# Cancelling


async def test_cancelling_who_waits() -> None:
    gate = Gate()
    async with serving(ArithmeticBackend(slots=1, hook=gate)) as engine:
        running = submit(engine, text(20), 3)
        await gate.reached()
        waiting, behind = submit(engine, text(20, start=50), 3), submit(engine, text(20, start=100), 3)
        waiting.cancel()
        gate.open()
        assert await output(running) == alone(text(20), 3)
        assert await output(behind) == alone(text(20, start=100), 3)
        assert waiting.ready() == []
        await works(engine)


async def test_cancelling_in_prefill_ends_it_within_a_step() -> None:
    gate = Gate(at=1)
    backend = ArithmeticBackend(batch_tokens=10, hook=gate)
    async with serving(backend) as engine:
        stream = submit(engine, text(100))
        await gate.reached()
        stream.cancel()
        assert engine.running == 0
        gate.open()
        again = submit(engine, text(100), 1)
        assert await output(again) == alone(text(100), 1)
        assert again.cached_tokens == 20  # The two chunks that were computed before and while it was cancelled.
        assert stream.ready() == []
    assert backend.executions == 2 + 8


@pytest.mark.parametrize("at", [1, 2, 5])
async def test_cancelling_while_decoding_leaves_the_others_alone(at: int) -> None:
    gate = Gate(at)
    async with serving(ArithmeticBackend(hook=gate)) as engine:
        streams = [submit(engine, text(20, start), 30) for start in (0, 50, 100)]
        await gate.reached()
        streams[1].cancel()
        gate.open()
        for stream, start in ((streams[0], 0), (streams[2], 100)):
            assert await output(stream) == alone(text(20, start), 30)
        assert streams[1].ready() == []
        await works(engine)


async def test_cancelling_before_the_thread_has_seen_it_and_after_the_end() -> None:
    async with serving(ArithmeticBackend()) as engine:
        submit(engine, text(20)).cancel()
        stream = submit(engine, text(20), 2)
        await read(stream)
        stream.cancel()
        await works(engine)


async def test_cancelling_when_the_end_is_already_on_its_way() -> None:
    """The thread has forgotten the sequence, the loop has not yet heard of its end."""
    gate = Gate()
    async with serving(ArithmeticBackend(hook=gate)) as engine:
        stream = submit(engine, text(20), 1)
        await gate.reached()
        other = submit(engine, [5], 1)
        gate.open()
        while not other.closed:
            await other.take()
            stream.cancel()
        assert engine.running == 0
        await works(engine)


# Faults


@pytest.mark.parametrize("at", range(8))
async def test_a_failing_step_fails_its_own_sequences_only(at: int, caplog: pytest.LogCaptureFixture) -> None:
    """Two slots for four requests: who waits is answered, whenever the others fail. No step may spoil a later one."""
    caplog.set_level(logging.CRITICAL, LOGGER)
    backend = ArithmeticBackend(slots=2, batch_tokens=8, hook=fault(EngineFailure("device lost"), at))
    requests = [(text(5 + 3 * n, 50 * n), 2 + n) for n in range(4)]
    async with serving(backend) as engine:
        streams = [submit(engine, prompt, limit) for prompt, limit in requests]
        lost = await asyncio.gather(*map(failed, streams))
        assert 1 <= sum(lost) <= 2
        for (prompt, limit), stream, gone in zip(requests, streams, lost, strict=True):
            again = submit(engine, prompt, limit)
            assert stream.closed
            assert await output(again) == alone(prompt, limit), gone
        await works(engine)


async def test_a_sequence_that_was_not_in_the_failing_step_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    hook = fault(EngineFailure("device lost"), 1)
    async with serving(ArithmeticBackend(slots=2, batch_tokens=4, hook=hook)) as engine:
        first, second = submit(engine, text(8), 3), submit(engine, text(6, start=50), 3)
        assert await failed(first)
        assert await output(second) == alone(text(6, start=50), 3)


async def test_steps_before_the_failure_are_delivered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    async with serving(ArithmeticBackend(hook=fault(EngineFailure("device lost"), 3))) as engine:
        stream = submit(engine, text(8))
        steps: list[Step] = []
        with pytest.raises(EngineFailure, match="device lost"):
            while True:
                steps += await stream.take()
        assert [token for step in steps for token in step.tokens] == alone(text(8), 3)


async def test_who_cannot_be_sampled_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    async with serving(ArithmeticBackend()) as engine:
        good = submit(engine, text(8), 9)
        bad = engine.submit(Generation(id="r", prompt=text(8), sampling=Sampling(logit_bias={1_000: 1.0})))
        late = submit(engine, text(8, start=50), 9)
        with pytest.raises(EngineFailure, match="no token 1000"):
            await read(bad)
        assert await output(good) == alone(text(8), 9)
        assert await output(late) == alone(text(8, start=50), 9)


@pytest.mark.parametrize("at", range(2, 12))
@pytest.mark.parametrize("can_trim", [True, False])
async def test_exhausted_cells_are_not_seen_from_outside(at: int, can_trim: bool) -> None:
    gate, refuse = Gate(at=1), fault(CellsExhausted(), at, at + 1)

    def hook(execution: int, aborted: threading.Event) -> None:
        gate(execution, aborted)
        refuse(execution, aborted)

    backend = ArithmeticBackend(batch_tokens=8, can_trim=can_trim, hook=hook)
    async with serving(backend) as engine:
        cold = submit(engine, text(10, start=200), 1)  # Executions 0 and 1; a prefix that can be given back.
        await gate.reached()
        streams = [cold, *(submit(engine, text(10, start), 12) for start in (0, 50, 100))]
        gate.open()
        outputs = await asyncio.gather(*map(output, streams))
    assert outputs[1:] == [alone(text(10, start), 12) for start in (0, 50, 100)]


@pytest.mark.parametrize("missing", [1, 20, 60, 100])
@pytest.mark.parametrize("can_trim", [True, False])
async def test_a_cache_that_is_smaller_than_it_says_serves_all_that_fits(missing: int, can_trim: bool) -> None:
    """It must not preempt and admit the same sequence for ever."""
    backend = ArithmeticBackend(slots=4, cells=200, context_length=90, missing=missing, can_trim=can_trim)
    requests = [(text(30, 40 * n), 60) for n in range(6)]
    async with serving(backend) as engine:
        outputs = await asyncio.gather(*(output(submit(engine, *request)) for request in requests))
    assert outputs == [alone(*request) for request in requests]


async def test_without_room_for_one_sequence_that_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    async with serving(ArithmeticBackend(slots=2, cells=200, missing=150)) as engine:
        large, small = submit(engine, text(60)), submit(engine, text(30, start=77), 5)
        with pytest.raises(EngineFailure, match="no room for one sequence"):
            await read(large)
        assert await output(small) == alone(text(30, start=77), 5)
        await works(engine)


async def test_any_other_error_ends_the_engine_and_everybody_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, LOGGER)
    backend = ArithmeticBackend(slots=2, hook=fault(RuntimeError("a bug"), 2))
    async with serving(backend) as engine:
        streams = [submit(engine, text(8, 20 * n)) for n in range(4)]
        assert await asyncio.gather(*map(failed, streams)) == [True] * 4
        assert engine.running == 0
        assert backend.closed
        with pytest.raises(EngineFailure, match="a bug"):
            submit(engine, text(8))


async def test_an_error_while_closing_still_tells_everybody(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(ArithmeticBackend):
        def close(self) -> None:
            super().close()
            raise RuntimeError("the device does not answer")

    caplog.set_level(logging.CRITICAL + 1, LOGGER)
    backend = Stuck(hook=Gate())
    async with serving(backend) as engine:
        stream, waiting = submit(engine, text(8)), [submit(engine, text(8)) for _ in range(6)]
        await engine.aclose()
        for each in (stream, *waiting):
            assert await failed(each)


async def test_sizes_that_cannot_work_are_refused_when_the_engine_is_made() -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        WorkerEngine(ArithmeticBackend(slots=4, batch_tokens=3))


# Closing


async def test_closing_ends_a_running_step(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    gate = Gate(at=2)
    async with serving(ArithmeticBackend(slots=1, hook=gate)) as engine:
        running, waiting = submit(engine, text(8)), submit(engine, text(8))
        reader = asyncio.create_task(read(waiting))
        await gate.reached()
        await engine.aclose()
        assert await failed(running)
        with pytest.raises(EngineFailure):
            await reader
        assert engine.running == 0


async def test_closing_twice_at_once_and_again() -> None:
    async with serving(ArithmeticBackend()) as engine:
        await asyncio.gather(engine.aclose(), engine.aclose())
        await engine.aclose()


async def test_a_closed_engine_takes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    caplog.set_level(logging.CRITICAL, LOGGER)
    async with serving(ArithmeticBackend(hook=gate)) as engine:
        submit(engine, text(8))
        await gate.reached()
        closing = asyncio.create_task(engine.aclose())
        await asyncio.sleep(0)
        with pytest.raises(EngineFailure, match="closed"):
            submit(engine, text(8))
        await closing
        with pytest.raises(EngineFailure, match="closed"):
            submit(engine, text(8))


async def test_closing_when_idle() -> None:
    async with serving(ArithmeticBackend()) as engine:
        await works(engine)


def test_an_event_loop_that_has_ended_does_not_hang_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, LOGGER)
    gate = Gate()
    backend = ArithmeticBackend(hook=gate)

    async def leave() -> threading.Thread:
        before = set(threading.enumerate())
        submit(WorkerEngine(backend), text(8))
        [thread] = [one for one in threading.enumerate() if one not in before]
        await gate.reached()
        return thread

    thread = asyncio.run(leave())
    gate.open()
    thread.join()
    assert backend.closed


# Everything at once


@st.composite
def storms(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]], list[int], list[int]]:
    requests = st.tuples(st.integers(1, 40), st.integers(1, 60), st.sampled_from([0, 0, 100]))
    places = st.integers(0, 40)
    return (
        draw(st.integers(128, 300)),
        draw(st.lists(requests, min_size=1, max_size=12)),
        draw(st.lists(places, max_size=6)),
        draw(st.lists(st.integers(0, 11), max_size=4)),
    )


@settings(deadline=None, max_examples=40)
@given(storms(), st.booleans())
def test_exhaustion_and_cancelling_in_any_company(
    storm: tuple[int, list[tuple[int, int, int]], list[int], list[int]], can_trim: bool
) -> None:
    cells, requests, exhausted, cancelled = storm
    refused = set(exhausted)

    def hook(execution: int, _: threading.Event) -> None:
        # Never when one sequence has all: that one would fail, and rightly.
        if execution in refused and sum(bool(backend.tokens(slot)) for slot in range(backend.slots)) > 1:
            raise CellsExhausted

    backend = ArithmeticBackend(cells=cells, batch_tokens=16, can_trim=can_trim, hook=hook)

    async def one(engine: WorkerEngine, number: int, length: int, limit: int, start: int) -> list[int]:
        stream = submit(engine, text(length, start), limit)
        if number in cancelled:
            await stream.take()
            stream.cancel()
            return []
        return await output(stream)

    async def all_of_them() -> list[list[int]]:
        async with serving(backend) as engine:
            return await asyncio.gather(*(one(engine, n, *request) for n, request in enumerate(requests)))

    outputs = asyncio.run(all_of_them())
    for number, ((length, limit, start), said) in enumerate(zip(requests, outputs, strict=True)):
        assert said == ([] if number in cancelled else alone(text(length, start), limit))
