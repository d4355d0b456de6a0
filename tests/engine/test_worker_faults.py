"""The worker with its real thread when the backend fails, in every execution and in every way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from antiphon.engine.backend import CellsExhausted, ContextLost
from antiphon.engine.base import EngineFailure, Generation, Sampling, Step
from antiphon.engine.worker import WorkerEngine
from tests.engine.arithmetic_backend import ArithmeticBackend, Hook, alone
from tests.engine.worker_support import (
    LOGGER,
    POISON,
    Both,
    Fault,
    Gate,
    Poison,
    failed,
    output,
    read,
    serving,
    submit,
    text,
    works,
)


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("error", [EngineFailure("device lost"), ContextLost("device lost")])
async def test_what_fails_once_in_company_costs_nobody_anything(
    at: int, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    backend = ArithmeticBackend(lanes=2, batch_tokens=8, hook=Fault(error, at))
    requests = [(text(5 + 3 * n, 50 * n), 2 + n) for n in range(4)]
    async with serving(backend) as engine:
        streams = [submit(engine, prompt, limit) for prompt, limit in requests]
        assert await asyncio.gather(*map(output, streams)) == [alone(*request) for request in requests]
        await works(engine)
    assert backend.resets == isinstance(error, ContextLost)


@pytest.mark.parametrize("place", range(3))
async def test_who_breaks_every_batch_ends_and_the_others_are_answered(
    place: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    prompts = [text(8, 50 * n) for n in range(3)]
    prompts[place].append(POISON)
    gate = Gate(0)
    async with serving(ArithmeticBackend(hook=Both(gate, Poison(EngineFailure("not a number"))))) as engine:
        first = submit(engine, text(8, 200), 12)
        await gate.reached()
        streams = [submit(engine, prompt, 9) for prompt in prompts]
        gate.open()
        with pytest.raises(EngineFailure, match="not a number"):
            await read(streams[place])
        for n in {0, 1, 2} - {place}:
            assert await output(streams[n]) == alone(prompts[n], 9)
        assert await output(first) == alone(text(8, 200), 12)
        await works(engine)


@pytest.mark.parametrize("said", range(4))
async def test_who_cannot_go_on_ends_and_the_others_are_answered(said: int, caplog: pytest.LogCaptureFixture) -> None:
    class Numb(Hook):
        def fails(self, tokens: Sequence[int]) -> bool:
            return tokens[0] == 50 and len(tokens) == 8 + said

    caplog.set_level(logging.CRITICAL, LOGGER)
    async with serving(ArithmeticBackend(hook=Numb())) as engine:
        streams = [submit(engine, text(8, 50 * n), 9) for n in range(3)]
        steps: list[Step] = []
        with pytest.raises(EngineFailure, match="no numbers"):
            while True:
                steps += await streams[1].take()
        assert [token for step in steps for token in step.tokens] == alone(text(8, 50), said)
        for n in (0, 2):
            assert await output(streams[n]) == alone(text(8, 50 * n), 9)
        await works(engine)


async def test_a_lost_context_is_made_anew_and_the_answer_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    backend = ArithmeticBackend(hook=Fault(ContextLost("device lost"), 4))
    async with serving(backend) as engine:
        assert await output(submit(engine, text(8), 12)) == alone(text(8), 12)
    assert backend.resets == 1


@pytest.mark.parametrize("company", [0, 3])
async def test_who_loses_the_context_alone_twice_ends(company: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    gate = Gate(0)
    backend = ArithmeticBackend(lanes=5, hook=Both(gate, Poison(ContextLost("device lost"))))
    async with serving(backend) as engine:
        first = submit(engine, text(8, 200), 2)
        await gate.reached()
        others = [submit(engine, text(8, 50 * n), 9) for n in range(company)]
        bad = submit(engine, [*text(8), POISON, 7], 9)
        late = [submit(engine, text(8, 50 * n + 25), 9) for n in range(company)]
        gate.open()
        with pytest.raises(EngineFailure, match="device lost"):
            await read(bad)
        assert await output(first) == alone(text(8, 200), 2)
        assert await asyncio.gather(*map(output, others)) == [alone(text(8, 50 * n), 9) for n in range(company)]
        assert await asyncio.gather(*map(output, late)) == [alone(text(8, 50 * n + 25), 9) for n in range(company)]
        await works(engine)
    assert backend.resets == (3 if company else 2)  # With company, the first loss was nobody's.


async def test_who_loses_the_context_when_tried_one_by_one_is_computed_again(caplog: pytest.LogCaptureFixture) -> None:
    """The batch fails, then one of its parts loses the context, then all is well."""
    caplog.set_level(logging.CRITICAL, LOGGER)
    gate = Gate(0)
    faults = Both(Fault(EngineFailure("busy"), 1), Fault(ContextLost("device lost"), 2))
    backend = ArithmeticBackend(hook=Both(gate, faults))
    async with serving(backend) as engine:
        first = submit(engine, text(8), 9)
        await gate.reached()
        second = submit(engine, text(8, 50), 9)
        gate.open()
        assert await output(first) == alone(text(8), 9)
        assert await output(second) == alone(text(8, 50), 9)
    assert backend.resets == 1


async def test_a_context_that_cannot_be_made_anew_ends_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    class Dead(ArithmeticBackend):
        def reset(self) -> None:
            raise EngineFailure("no device any more")

    caplog.set_level(logging.CRITICAL + 1, LOGGER)
    async with serving(Dead(hook=Fault(ContextLost("device lost"), 2))) as engine:
        streams = [submit(engine, text(8, 20 * n)) for n in range(6)]
        assert await asyncio.gather(*map(failed, streams)) == [True] * 6
        with pytest.raises(EngineFailure, match="no device any more"):
            submit(engine, text(8))


async def test_steps_before_the_failure_are_delivered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    async with serving(ArithmeticBackend(hook=Fault(EngineFailure("device lost"), 3, 4))) as engine:
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


async def test_who_cannot_be_sampled_leaves_the_prefix_that_it_stands_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    async with serving(ArithmeticBackend()) as engine:
        await read(submit(engine, text(40), 1))
        assert await failed(
            engine.submit(Generation(id="r", prompt=text(40), sampling=Sampling(logit_bias={1_000: 1.0})))
        )
        again = submit(engine, text(40), 1)
        await read(again)
        assert again.cached_tokens == 39


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
    backend = ArithmeticBackend(lanes=4, cells=200, context_length=90, missing=missing, can_trim=can_trim)
    requests = [(text(30, 40 * n), 60) for n in range(6)]
    async with serving(backend) as engine:
        outputs = await asyncio.gather(*(output(submit(engine, *request)) for request in requests))
    assert outputs == [alone(*request) for request in requests]


async def test_without_room_for_one_sequence_that_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    async with serving(ArithmeticBackend(lanes=2, cells=200, missing=150)) as engine:
        large, small = submit(engine, text(60)), submit(engine, text(30, start=77), 5)
        with pytest.raises(EngineFailure, match="no room for one sequence"):
            await read(large)
        assert await output(small) == alone(text(30, start=77), 5)
        await works(engine)


async def test_any_other_error_ends_the_engine_and_everybody_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, LOGGER)
    backend = ArithmeticBackend(lanes=2, hook=Fault(RuntimeError("a bug"), 2))
    async with serving(backend) as engine:
        streams = [submit(engine, text(8, 20 * n)) for n in range(4)]
        assert await asyncio.gather(*map(failed, streams)) == [True] * 4
        assert engine.running == 0
        assert not engine.alive
        await engine.aclose()
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
        WorkerEngine(ArithmeticBackend(lanes=4, batch_tokens=3))
