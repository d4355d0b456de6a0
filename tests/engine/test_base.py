"""`StepStream`: everything an engine and a reader may do with it, in every order that matters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from antiphon.engine.base import EngineBusy, EngineFailure, Finish, Step, StepStream

A, B, C = (Step((token,)) for token in b"abc")
END = Step((), Finish.STOP)


class Cancels:
    """Counts how often the engine was told to stop."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def cancels() -> Cancels:
    return Cancels()


@pytest.fixture
def stream(cancels: Cancels) -> StepStream:
    return StepStream(cancels)


async def taking(stream: StepStream) -> asyncio.Task[list[Step]]:
    """A reader that already waits."""
    task = asyncio.create_task(stream.take())
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_take_returns_at_once_what_is_there(stream: StepStream) -> None:
    stream.put(A)
    stream.extend([B, C])
    assert await stream.take() == [A, B, C]


@pytest.mark.parametrize("give", [lambda s: s.put(A), lambda s: s.extend([A]), lambda s: s.extend((A,))])
async def test_a_waiting_reader_is_woken(stream: StepStream, give: Callable[[StepStream], None]) -> None:
    reader = await taking(stream)
    give(stream)
    assert await reader == [A]
    assert not stream.closed


async def test_steps_that_arrive_before_the_reader_runs_come_together(stream: StepStream) -> None:
    reader = await taking(stream)
    stream.put(A)
    stream.put(B)
    assert await reader == [A, B]


async def test_an_empty_extend_wakes_nobody(stream: StepStream) -> None:
    reader = await taking(stream)
    stream.extend([])
    await asyncio.sleep(0)
    assert not reader.done()
    stream.put(A)
    assert await reader == [A]


async def test_ready_takes_without_waiting(stream: StepStream) -> None:
    assert stream.ready() == []
    stream.put(A)
    assert stream.ready() == [A]
    assert stream.ready() == []


@pytest.mark.parametrize("finish", list(Finish))
async def test_a_finish_closes_and_later_steps_are_dropped(
    stream: StepStream, cancels: Cancels, finish: Finish
) -> None:
    last = Step(B.tokens, finish)
    stream.extend([A, last])
    assert stream.closed
    stream.put(C)
    stream.extend([C])
    stream.fail(EngineFailure("too late"))
    assert await stream.take() == [A, last]
    with pytest.raises(RuntimeError, match="after the end"):
        await stream.take()
    assert cancels.count == 0


async def test_a_failure_comes_after_what_was_put_before_it(stream: StepStream, cancels: Cancels) -> None:
    stream.put(A)
    stream.fail(EngineFailure("device lost"))
    stream.fail(EngineFailure("a second one"))
    stream.put(B)
    assert stream.closed
    assert await stream.take() == [A]
    for _ in range(2):
        with pytest.raises(EngineFailure, match="device lost"):
            await stream.take()
    assert cancels.count == 0


async def test_a_failure_wakes_a_waiting_reader(stream: StepStream) -> None:
    reader = await taking(stream)
    stream.fail(EngineFailure("device lost"))
    with pytest.raises(EngineFailure, match="device lost"):
        await reader


async def test_cancel_drops_everything_and_tells_the_engine_once(stream: StepStream, cancels: Cancels) -> None:
    stream.put(A)
    stream.cancel()
    stream.cancel()
    stream.put(B)
    stream.extend([B, END])
    stream.fail(EngineFailure("too late"))
    assert stream.closed
    assert cancels.count == 1
    assert stream.ready() == []
    assert await stream.take() == []


async def test_cancel_wakes_a_waiting_reader_with_nothing(stream: StepStream) -> None:
    reader = await taking(stream)
    stream.cancel()
    assert await reader == []


@pytest.mark.parametrize("end", [lambda s: s.put(END), lambda s: s.fail(EngineFailure("x"))])
async def test_cancel_after_the_end_does_not_reach_the_engine(
    stream: StepStream, cancels: Cancels, end: Callable[[StepStream], None]
) -> None:
    end(stream)
    stream.cancel()
    assert cancels.count == 0


async def test_a_cancelled_reader_loses_no_step(stream: StepStream) -> None:
    reader = await taking(stream)
    reader.cancel()
    stream.put(A)
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await stream.take() == [A]


async def test_a_reader_that_goes_away_while_waiting_can_come_back(stream: StepStream) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await stream.take()
    stream.put(END)
    assert await stream.take() == [END]


async def test_cached_tokens_start_at_zero(stream: StepStream) -> None:
    assert stream.cached_tokens == 0


def test_busy_says_when_to_come_back() -> None:
    assert EngineBusy().retry_after == 1
    assert EngineBusy(7).retry_after == 7
    assert "7 s" in str(EngineBusy(7))
