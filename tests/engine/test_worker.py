"""The worker with its real thread: many at once, cancelling, closing. Nothing here sleeps."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from antiphon.engine.base import EngineBusy, EngineFailure
from antiphon.engine.worker import WorkerEngine
from tests.engine.arithmetic_backend import ArithmeticBackend, alone
from tests.engine.worker_support import LOGGER, Gate, failed, output, read, serving, submit, text, works

# Serving


async def test_what_the_backend_is_the_engine_is() -> None:
    backend = ArithmeticBackend()
    async with serving(backend) as engine:
        assert engine.info is backend.info
        assert engine.tokenizer is backend.tokenizer


@pytest.mark.parametrize("can_trim", [True, False])
async def test_many_at_once_are_each_answered_as_if_alone(can_trim: bool) -> None:
    backend = ArithmeticBackend(lanes=4, cells=200, can_trim=can_trim)
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
    backend = ArithmeticBackend(lanes=2, cells=128)
    async with serving(backend) as engine:
        streams = [submit(engine, [*text(1, start), *text(20)]) for start in (100, 200)]
        outputs = await asyncio.gather(*map(output, streams))
    assert [stream.cached_tokens for stream in streams] == [0, 0]
    assert outputs == [alone([*text(1, start), *text(20)], 107) for start in (100, 200)]


async def test_one_wake_up_a_step_for_the_whole_batch() -> None:
    """Who sees a step of one stream finds that step of all the others there already."""
    gate = Gate(0)
    async with serving(ArithmeticBackend(lanes=4, hook=gate)) as engine:
        first = submit(engine, [1], 9)
        await gate.reached()
        others = [submit(engine, [2, n], 8) for n in range(3)]
        gate.open()
        arrived, theirs = 0, [0, 0, 0]
        while not first.closed:
            arrived += len(await first.take())
            theirs = [seen + len(stream.ready()) for seen, stream in zip(theirs, others, strict=True)]
            assert len(set(theirs)) == 1
            assert arrived - 1 <= theirs[0] <= arrived  # They came a step later, in one of their own.
        assert arrived == 9
        assert all(stream.closed for stream in others)


async def test_a_full_queue_is_busy_until_there_is_room() -> None:
    gate = Gate(0)
    async with serving(ArithmeticBackend(lanes=2, hook=gate), max_queue=3) as engine:
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
    gate = Gate(0)
    async with serving(ArithmeticBackend(lanes=2, hook=gate), max_queue=8) as engine:
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
    gate = Gate(0)
    async with serving(ArithmeticBackend(lanes=1, hook=gate)) as engine:
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
    gate = Gate(1)
    backend = ArithmeticBackend(batch_tokens=10, hook=gate)
    async with serving(backend) as engine:
        stream = submit(engine, text(100))
        await gate.reached(1)
        stream.cancel()
        assert engine.running == 0
        gate.open(1)
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
        await gate.reached(at)
        streams[1].cancel()
        gate.open(at)
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
    gate = Gate(0, 1)
    async with serving(ArithmeticBackend(hook=gate)) as engine:
        stream = submit(engine, text(20), 1)
        await gate.reached(0)
        other = submit(engine, text(20, start=50), 3)
        gate.open(0)
        gate.block_until_reached(1)
        stream.cancel()
        gate.open(1)
        assert await output(other) == alone(text(20, start=50), 3)
        assert stream.ready() == []
        await works(engine)


# Closing


async def test_closing_ends_a_running_step(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    gate = Gate(2)
    async with serving(ArithmeticBackend(lanes=1, hook=gate)) as engine:
        running, waiting = submit(engine, text(8)), submit(engine, text(8))
        reader = asyncio.create_task(read(waiting))
        await gate.reached(2)
        await engine.aclose()
        assert await failed(running)
        with pytest.raises(EngineFailure):
            await reader
        assert engine.running == 0


async def test_closing_twice_at_once_and_again() -> None:
    async with serving(ArithmeticBackend()) as engine:
        await asyncio.gather(engine.aclose(), engine.aclose())
        await engine.aclose()
    assert not engine.alive


async def test_a_closed_engine_takes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(0)
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
        assert engine.alive
    assert not engine.alive


def test_an_event_loop_that_has_ended_does_not_hang_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, LOGGER)
    gate = Gate(0)
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
