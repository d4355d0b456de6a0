"""What tests of the worker share: faults and gates in chosen executions, an engine that must leave nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from antiphon.engine.base import EngineFailure, Generation, Sampling, Step, StepStream
from antiphon.engine.observe import Observe, StepReport
from antiphon.engine.prefix_store import PrefixStore
from antiphon.engine.stepper import Options
from antiphon.engine.worker import WorkerEngine
from tests.engine.arithmetic_backend import ArithmeticBackend, Hook, alone

LOGGER = "antiphon.engine"


class Gate(Hook):
    """Stops the thread inside these executions, until it is opened for all or the backend is aborted."""

    def __init__(self, *at: int) -> None:
        self._reached = {execution: threading.Event() for execution in at}
        self._open = {execution: threading.Event() for execution in at}

    def before(self, execution: int) -> None:
        if execution in self._reached:
            self._reached[execution].set()
            self._open[execution].wait()

    def abort(self) -> None:
        for opened in self._open.values():
            opened.set()

    async def reached(self, execution: int = 0) -> None:
        await asyncio.to_thread(self.block_until_reached, execution)

    def block_until_reached(self, execution: int) -> None:
        """Meanwhile the event loop stands still."""
        self._reached[execution].wait()

    def open(self, execution: int = 0) -> None:
        self._open[execution].set()


class Fault(Hook):
    """Raises an error in these executions."""

    def __init__(self, error: Exception, *at: int) -> None:
        self._error = error
        self._at = at

    def before(self, execution: int) -> None:
        if execution in self._at:
            raise self._error


class Both(Hook):
    """One after the other."""

    def __init__(self, first: Hook, second: Hook) -> None:
        self._hooks = (first, second)

    def before(self, execution: int) -> None:
        for hook in self._hooks:
            hook.before(execution)

    def refuses(self, tokens: Sequence[int]) -> Exception | None:
        errors = [hook.refuses(tokens) for hook in self._hooks]
        return next((error for error in errors if error is not None), None)

    def abort(self) -> None:
        for hook in self._hooks:
            hook.abort()


POISON = 300
"""A token that no model says, and that no text has."""


class Poison(Hook):
    """Every batch fails that computes `POISON`, `times` times at most."""

    def __init__(self, error: Exception, times: int = 1_000) -> None:
        self._error = error
        self._times = times

    def refuses(self, tokens: Sequence[int]) -> Exception | None:
        if POISON not in tokens or not self._times:
            return None
        self._times -= 1
        return self._error


class Idleness:
    """Observes whether the engine has nothing to do, and what it said of itself last."""

    def __init__(self) -> None:
        self.last: StepReport | None = None
        self._worked = False
        self._idle = threading.Event()

    def __call__(self, report: StepReport) -> None:
        self.last = report
        self._worked = self._worked or report.decoding + report.prefilled > 0
        if self._worked and not (report.running or report.waiting or report.decoding or report.prefilled):
            self._idle.set()

    def forget(self) -> None:
        """Only idleness behind the next step counts. Call it when the engine has answered everybody."""
        self._worked = False
        self._idle.clear()

    async def wait(self) -> StepReport:
        await asyncio.to_thread(self._idle.wait)
        assert self.last is not None
        return self.last


@asynccontextmanager
async def serving(
    backend: ArithmeticBackend,
    max_queue: int = 256,
    *,
    options: Options | None = None,
    store: PrefixStore | None = None,
    observe: Observe | None = None,
) -> AsyncIterator[WorkerEngine]:
    """An engine that is closed afterwards, whatever happened, and has left nothing behind."""
    engine = WorkerEngine(backend, max_queue=max_queue, options=options, store=store, observe=observe)
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
