"""The worker with its real thread when the backend fails, in every execution and in every way."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.backend import CellsExhausted
from antiphon.engine.base import EngineFailure, Generation, Sampling, Step
from antiphon.engine.worker import WorkerEngine
from tests.engine.arithmetic_backend import ArithmeticBackend, Hook, alone
from tests.engine.worker_support import LOGGER, Both, Fault, Gate, failed, output, read, serving, submit, text, works


@pytest.mark.parametrize("at", range(8))
async def test_a_failing_step_fails_its_own_sequences_only(at: int, caplog: pytest.LogCaptureFixture) -> None:
    """Two slots for four requests: who waits is answered, whenever the others fail. No step may spoil a later one."""
    caplog.set_level(logging.CRITICAL, LOGGER)
    backend = ArithmeticBackend(slots=2, batch_tokens=8, hook=Fault(EngineFailure("device lost"), at))
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
    hook = Fault(EngineFailure("device lost"), 1)
    async with serving(ArithmeticBackend(slots=2, batch_tokens=4, hook=hook)) as engine:
        first, second = submit(engine, text(8), 3), submit(engine, text(6, start=50), 3)
        assert await failed(first)
        assert await output(second) == alone(text(6, start=50), 3)


async def test_steps_before_the_failure_are_delivered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    async with serving(ArithmeticBackend(hook=Fault(EngineFailure("device lost"), 3))) as engine:
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
    gate = Gate(1)
    hook = Both(gate, Fault(CellsExhausted(), at, at + 1))
    backend = ArithmeticBackend(batch_tokens=8, can_trim=can_trim, hook=hook)
    async with serving(backend) as engine:
        cold = submit(engine, text(10, start=200), 1)  # Executions 0 and 1; a prefix that can be given back.
        await gate.reached(1)
        streams = [cold, *(submit(engine, text(10, start), 12) for start in (0, 50, 100))]
        gate.open(1)
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
    backend = ArithmeticBackend(slots=2, hook=Fault(RuntimeError("a bug"), 2))
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
    backend = Stuck(hook=Gate(0))
    async with serving(backend) as engine:
        stream, waiting = submit(engine, text(8)), [submit(engine, text(8)) for _ in range(6)]
        await engine.aclose()
        for each in (stream, *waiting):
            assert await failed(each)


async def test_sizes_that_cannot_work_are_refused_when_the_engine_is_made() -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        WorkerEngine(ArithmeticBackend(slots=4, batch_tokens=3))


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

    class Refusal(Hook):
        def before(self, execution: int) -> None:
            # Never when one sequence has all: that one would fail, and rightly.
            if execution in exhausted and sum(bool(backend.tokens(slot)) for slot in range(backend.slots)) > 1:
                raise CellsExhausted

    backend = ArithmeticBackend(cells=cells, batch_tokens=16, can_trim=can_trim, hook=Refusal())

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
