"""An engine that runs a backend on a thread of its own: requests in by an inbox, one wake-up of the event loop a step.

The thread owns the backend, the scheduler's state and every sequence; the event loop owns the streams. They meet at the
inbox and at `_deliver`, nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from collections.abc import Sequence as Seq

from antiphon.engine.backend import Backend
from antiphon.engine.base import (
    EngineBusy,
    EngineClosed,
    EngineFailure,
    Generation,
    ModelInfo,
    Step,
    StepStream,
    Tokenizer,
)
from antiphon.engine.observe import Observe
from antiphon.engine.prefix_store import PrefixStore
from antiphon.engine.sequence import Sequence
from antiphon.engine.stepper import Options, Stepper

log = logging.getLogger(__name__)

_Message = Callable[["_Worker"], None]
"""What the thread does next, before its next step."""

_Outcome = tuple[StepStream, int, Step | EngineFailure]
"""A stream, its cached tokens, and what happened to it."""


class WorkerEngine:
    """Serves a backend. `max_queue` bounds the requests that are waiting or running beyond the backend's lanes."""

    def __init__(
        self,
        backend: Backend,
        *,
        max_queue: int = 256,
        options: Options | None = None,
        store: PrefixStore | None = None,
        observe: Observe | None = None,
    ) -> None:
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self._inbox: queue.SimpleQueue[_Message | None] = queue.SimpleQueue()
        self._limit = backend.lanes + max_queue
        self._live: set[StepStream] = set()
        self._broken: EngineFailure | None = None
        self._closing = False
        # Here, because sizes that cannot work are for the caller, not for the thread.
        worker = _Worker(Stepper(backend, options or Options(), store, self._post, observe))
        self._thread = threading.Thread(target=self._run, args=(worker,), name="antiphon-engine", daemon=True)
        self._thread.start()

    @property
    def info(self) -> ModelInfo:
        return self._backend.info

    @property
    def tokenizer(self) -> Tokenizer:
        return self._backend.tokenizer

    @property
    def alive(self) -> bool:
        return self._broken is None and not self._closing

    @property
    def running(self) -> int:
        """Sequences that are waiting or running."""
        return len(self._live)

    def submit(self, generation: Generation) -> StepStream:
        """See `Engine.submit`. Raises `EngineFailure` if the engine is closed, its thread has died, or the prompt is
        empty or leaves no room in the context: such a one would wait for ever, and everybody behind it."""
        if self._broken is not None or self._closing:
            raise self._broken or EngineClosed("the engine is closed")
        self._check(generation)
        # What was cancelled is no longer live, but stays in the inbox as long as a step takes.
        if max(len(self._live), self._inbox.qsize()) >= self._limit:
            raise EngineBusy()
        stream = StepStream(lambda: self._cancel(stream))
        self._live.add(stream)
        self._inbox.put(lambda worker: worker.add(generation, stream))
        return stream

    async def aclose(self) -> None:
        if not self._closing:
            self._closing = True
            self._inbox.put(None)
            self._backend.abort()
        await asyncio.to_thread(self._thread.join)

    def _check(self, generation: Generation) -> None:
        length, context = len(generation.prompt), self.info.context_length
        if not 0 < length < context:
            raise EngineFailure(f"a prompt of {length} tokens in a context of {context}")

    def _cancel(self, stream: StepStream) -> None:
        self._live.discard(stream)
        self._inbox.put(lambda worker: worker.cancel(stream))

    def _post(self, work: Callable[[Stepper], None]) -> None:
        """From any thread: something that the stepper must know."""
        self._inbox.put(lambda worker: work(worker.stepper))

    def _deliver(self, outcomes: Seq[_Outcome]) -> None:
        """On the event loop: hands a whole step to its readers."""
        for stream, cached, outcome in outcomes:
            if isinstance(outcome, EngineFailure):
                stream.fail(outcome)
            else:
                stream.cached_tokens = cached
                stream.put(outcome)
            if stream.closed:
                self._live.discard(stream)

    def _break(self, failure: EngineFailure) -> None:
        """On the event loop: the thread has ended."""
        self._broken = failure
        for stream in list(self._live):
            stream.fail(failure)
        self._live.clear()

    def _run(self, worker: _Worker) -> None:
        failure: EngineFailure = EngineClosed("the engine was closed")
        try:
            worker.stepper.open()
            while worker.receive(self._inbox):
                outcomes = worker.step()
                if outcomes:
                    self._loop.call_soon_threadsafe(self._deliver, outcomes)
        except Exception as error:
            log.exception("the engine's thread failed")
            failure = EngineFailure(f"the engine's thread failed: {error!r}")
        # First of all: saving what was computed may take longer than a reader, or whoever stops us, will wait.
        self._tell(failure)
        try:
            orderly = isinstance(failure, EngineClosed)
            worker.stepper.close(worker.waiter(self._inbox) if orderly else None)
        except Exception:
            log.exception("the engine could not be closed in order")
        try:
            self._backend.close()
        except Exception:
            log.exception("the engine could not be closed")

    def _tell(self, failure: EngineFailure) -> None:
        try:
            self._loop.call_soon_threadsafe(self._break, failure)
        except RuntimeError:  # The loop is closed: nobody is left to tell.
            log.debug("the event loop ended before the engine")


class _Worker:
    """The thread's own part: which stream belongs to which sequence."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper
        self._streams: dict[Sequence, StepStream] = {}
        self._sequences: dict[StepStream, Sequence] = {}
        self._idle = True

    def receive(self, inbox: queue.SimpleQueue[_Message | None]) -> bool:
        """Takes what has arrived, waiting only if there is nothing else to do. False: stop."""
        while True:
            try:
                message = inbox.get(block=self._idle)
            except queue.Empty:
                return True
            if message is None:
                return False
            message(self)
            self._idle = False

    def waiter(self, inbox: queue.SimpleQueue[_Message | None]) -> Callable[[float], None]:
        """For the end: handles one more message, if one comes within so many seconds."""

        def wait(seconds: float) -> None:
            with contextlib.suppress(queue.Empty):
                message = inbox.get(timeout=seconds)
                if message is not None:
                    message(self)

        return wait

    def add(self, generation: Generation, stream: StepStream) -> None:
        sequence = self.stepper.add(generation)
        self._streams[sequence] = stream
        self._sequences[stream] = sequence

    def cancel(self, stream: StepStream) -> None:
        """The sequence may have ended already."""
        sequence = self._sequences.pop(stream, None)
        if sequence is not None:
            del self._streams[sequence]
            self.stepper.cancel(sequence)

    def step(self) -> list[_Outcome]:
        """One step, or the start of idleness."""
        outcomes = self.stepper.step()
        self._idle = outcomes is None
        return [self._outcome(sequence, outcome) for sequence, outcome in outcomes or ()]

    def _outcome(self, sequence: Sequence, outcome: Step | EngineFailure) -> _Outcome:
        stream = self._streams[sequence]
        if isinstance(outcome, EngineFailure) or outcome.finish is not None:
            del self._sequences[self._streams.pop(sequence)]
        return (stream, sequence.cached or 0, outcome)
