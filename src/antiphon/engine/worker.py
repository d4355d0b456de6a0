"""An engine that runs a backend on a thread of its own: requests in by an inbox, one wake-up of the event loop a step.

The thread owns the backend, the scheduler's state and every sequence; the event loop owns the streams. They meet at the
inbox and at `_deliver`, nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Sequence as Seq

from msgspec import Struct

from antiphon.engine.backend import Backend, CellsExhausted
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
from antiphon.engine.scheduler import Compute, Idle, Sequence, State, decide

log = logging.getLogger(__name__)


class _Submit(Struct, frozen=True):
    generation: Generation
    stream: StepStream


class _Cancel(Struct, frozen=True):
    stream: StepStream


class _Stop(Struct, frozen=True):
    pass


_Message = _Submit | _Cancel | _Stop
_Outcome = tuple[StepStream, int, Step | EngineFailure]
"""A stream, its cached tokens, and what happened to it."""


class WorkerEngine:
    """Serves a backend. `max_queue` bounds the requests that are waiting or running beyond the backend's slots."""

    def __init__(self, backend: Backend, *, max_queue: int = 256) -> None:
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._limit = backend.slots + max_queue
        self._live: set[StepStream] = set()
        self._broken: EngineFailure | None = None
        self._closing = False
        worker = _Worker(backend)  # Here, because sizes that cannot work are for the caller, not for the thread.
        self._thread = threading.Thread(target=self._run, args=(worker,), name="antiphon-engine", daemon=True)
        self._thread.start()

    @property
    def info(self) -> ModelInfo:
        return self._backend.info

    @property
    def tokenizer(self) -> Tokenizer:
        return self._backend.tokenizer

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
        self._inbox.put(_Submit(generation, stream))
        return stream

    async def aclose(self) -> None:
        if not self._closing:
            self._closing = True
            self._inbox.put(_Stop())
            self._backend.abort()
        await asyncio.to_thread(self._thread.join)

    def _check(self, generation: Generation) -> None:
        length, context = len(generation.prompt), self.info.context_length
        if not 0 < length < context:
            raise EngineFailure(f"a prompt of {length} tokens in a context of {context}")

    def _cancel(self, stream: StepStream) -> None:
        self._live.discard(stream)
        self._inbox.put(_Cancel(stream))

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
            while worker.receive(self._inbox):
                outcomes = worker.step()
                if outcomes:
                    self._loop.call_soon_threadsafe(self._deliver, outcomes)
        except Exception as error:
            log.exception("the engine's thread failed")
            failure = EngineFailure(f"the engine's thread failed: {error!r}")
        try:
            worker.close()
            self._backend.close()
        except Exception:
            log.exception("the engine could not be closed")
        finally:
            self._tell(failure)

    def _tell(self, failure: EngineFailure) -> None:
        try:
            self._loop.call_soon_threadsafe(self._break, failure)
        except RuntimeError:  # The loop is closed: nobody is left to tell.
            log.debug("the event loop ended before the engine")


class _Worker:
    """The thread's own part."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._streams: dict[Sequence, StepStream] = {}
        self._sequences: dict[StepStream, Sequence] = {}
        self._state = State(
            slots=backend.slots,
            cells=backend.cells,
            batch_tokens=backend.batch_tokens,
            context_length=backend.info.context_length,
            can_trim=backend.can_trim,
        )

    def receive(self, inbox: queue.SimpleQueue[_Message]) -> bool:
        """Takes what has arrived, waiting only if there is nothing else to do. False: stop."""
        while True:
            try:
                message = inbox.get(block=not self._streams)
            except queue.Empty:
                return True
            if isinstance(message, _Stop):
                return False
            if isinstance(message, _Submit):
                sequence = self._state.add(message.generation)
                self._streams[sequence] = message.stream
                self._sequences[message.stream] = sequence
            else:
                self._forget(self._sequences.get(message.stream))

    def step(self) -> list[_Outcome]:
        """Decides and carries out one step."""
        while not isinstance(decision := decide(self._state), Compute):
            # `receive` waits until there is a sequence, and each can be worked on. To return here would be to spin.
            assert not isinstance(decision, Idle)
            self._state.apply(decision)
        return self._compute(decision)

    def close(self) -> None:
        for sequence in list(self._streams):
            self._forget(sequence)

    def _compute(self, decision: Compute) -> list[_Outcome]:
        failed = self._make_samplers(decision)
        if failed:
            return failed
        try:
            sampled = self._backend.execute(self._state.batch(decision))
        except CellsExhausted:
            # The backend found no room where the count says there is some: give back more and try again.
            if self._state.exhausted():
                return []
            return self._failed(_sequences(decision), EngineFailure("the KV cache has no room for one sequence"))
        except EngineFailure as failure:
            return self._failed(_sequences(decision), failure)
        return [self._outcome(sequence, step) for sequence, step in self._state.complete(decision, sampled)]

    def _make_samplers(self, decision: Compute) -> list[_Outcome]:
        """Whose sampling cannot be set up fails alone."""
        for sequence in _sequences(decision):
            if sequence.sampler is None:
                generation = sequence.generation
                try:
                    sequence.sampler = self._backend.sampler(generation.sampling, generation.prompt)
                except EngineFailure as failure:
                    return self._failed([sequence], failure)
        return []

    def _outcome(self, sequence: Sequence, step: Step) -> _Outcome:
        outcome = (self._streams[sequence], sequence.cached or 0, step)
        if step.finish is not None:
            self._forget(sequence)
        return outcome

    def _failed(self, sequences: Seq[Sequence], failure: EngineFailure) -> list[_Outcome]:
        level = logging.INFO if isinstance(failure, EngineClosed) else logging.ERROR
        log.log(level, "the engine failed: %s", failure)
        outcomes: list[_Outcome] = []
        for sequence in sequences:
            outcomes.append((self._streams[sequence], sequence.cached or 0, failure))
            self._state.drop(sequence)
            self._forget(sequence)
        return outcomes

    def _forget(self, sequence: Sequence | None) -> None:
        """The sequence is gone, whatever the reason; its cells stay as a cached prefix."""
        if sequence is None:
            return
        self._state.remove(sequence)
        del self._sequences[self._streams.pop(sequence)]
        if sequence.sampler is not None:
            sequence.sampler.close()
            sequence.sampler = None


def _sequences(decision: Compute) -> list[Sequence]:
    return [sequence for sequence, _ in decision.parts]
