"""One response, from its first event to its last.

Rules
* Whatever happens (limit, stop string, cancel, engine failure, our own fault), the events end in one terminal event.
* A step that the engine delivered is one delta. Steps that pile up while a slow reader is being written to are merged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

import msgspec

from antiphon.engine.base import EngineClosed, EngineFailure, Finish, StepStream
from antiphon.protocol.events import Event, FunctionCallArgumentsDone
from antiphon.protocol.fold import Fold
from antiphon.protocol.fragments import CallDone, Fragment
from antiphon.protocol.response import Failure, Response, Usage, usage
from antiphon.protocol.stream import FinishReason, ResponseStream
from antiphon.serving.metrics import Outcome
from antiphon.serving.output import OutputReader
from antiphon.serving.record import RequestRecord

log = logging.getLogger(__name__)

STEPS_A_WRITE = 64
"""Steps that go into one write when an engine delivers many at once, so that one stream does not hold up the others."""


class Run:
    """A response in the making. `events` may be iterated once; `warnings` are for the answer's header.

    `stopped` says that the server's end cut it off: it failed, and nothing was wrong with it.
    """

    def __init__(
        self,
        *,
        request_id: str,
        stream: ResponseStream,
        reader: OutputReader,
        steps: StepStream,
        prompt_tokens: int,
        record: RequestRecord,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._request_id = request_id
        self.warnings = warnings
        self._stream = stream
        self._reader = reader
        self._steps = steps
        self._prompt_tokens = prompt_tokens
        self._record = record
        self._outcome: Outcome = "cancelled"  # as long as there is no other end: whoever reads may leave at any time
        self._cancelled = False
        self.stopped = False
        self._unreadable = 0  # calls whose arguments are no JSON object
        self._made: list[Event] = []

    def cancel(self) -> None:
        """Nobody wants the rest: the engine is told at once, and the events end as cancelled. Idempotent."""
        self._cancelled = True
        self._steps.cancel()

    async def events(self) -> AsyncIterator[list[Event]]:
        """The events in the pieces in which they should be sent."""
        self._record.opened()
        try:
            yield self._stream.start()
            async for events in self._generated():
                yield events
        except Exception:
            log.exception("%s: failed in state %s", self._request_id, self._stream.state)
            yield self._handed_over(self._failed())
        finally:
            self._steps.cancel()
            self._record.calls_read(as_text=self._reader.misread, unreadable=self._unreadable)
            self._record.ended(self._outcome, self._usage())

    async def respond(self) -> Response:
        """The whole response at once: the fold of the same events."""
        fold = Fold()
        async for events in self.events():
            fold.apply(events)
        return fold.response

    async def _generated(self) -> AsyncIterator[list[Event]]:
        while True:
            try:
                steps, merge = await self._steps.take(), False
            except EngineFailure as failure:
                self.stopped = isinstance(failure, EngineClosed)
                if self.stopped:
                    log.info("%s: ended with the server", self._request_id)
                else:
                    log.error("%s: the engine failed: %s", self._request_id, failure)
                self._feed(self._reader.finish())
                yield self._handed_over(self._failed())
                return
            if self._cancelled:
                self._feed(self._reader.finish())
                yield self._handed_over(self._stream.cancel(self._usage()))
                return
            while steps:
                count = len(steps) if merge else STEPS_A_WRITE
                now, steps = steps[:count], steps[count:]
                for together in [now] if merge else [[step] for step in now]:
                    self._feed(self._reader.read(together))
                self._record.delivered(self._reader.output_tokens)
                if self._reader.ended or now[-1].finish is not None:
                    yield self._handed_over(self._finished(now[-1].finish))
                    return
                if self._made:
                    yield self._handed_over()
                # What came while the reader was being written to: it is slow, so it gets the rest in one piece.
                late = self._steps.ready()
                merge = bool(late)
                steps += late
                if steps and not merge:  # Much at once: others get their turn in between.
                    await asyncio.sleep(0)

    def _feed(self, fragments: Sequence[Fragment]) -> None:
        """Makes events. Those made before a fault have their numbers, so they are kept to be sent before the end."""
        for fragment in fragments:
            events = self._stream.feed(fragment)
            self._made += events
            if type(fragment) is CallDone:
                self._unreadable += sum(map(_is_unreadable, events))

    def _handed_over(self, last: Sequence[Event] = ()) -> list[Event]:
        """The events that were made since the last time, and those that follow them."""
        events, self._made = [*self._made, *last], []
        return events

    def _finished(self, finish: Finish | None) -> list[Event]:
        self._steps.cancel()
        self._feed(self._reader.finish())
        reason: FinishReason = "stop" if self._reader.ended or finish is Finish.STOP else "max_output_tokens"
        self._outcome = "completed" if reason == "stop" else "incomplete"
        return self._stream.finish(reason, self._usage())

    def _failed(self) -> list[Event]:
        self._outcome = "failed"
        what = "The server is shutting down" if self.stopped else "The model failed to answer"
        message = f"{what} (request {self._request_id})."
        return self._stream.fail(Failure("server_error", message), self._usage())

    def _usage(self) -> Usage:
        reader = self._reader
        return usage(
            self._prompt_tokens,
            reader.output_tokens,
            cached=self._steps.cached_tokens,
            reasoning=reader.reasoning_tokens,
        )


def _is_unreadable(event: Event) -> bool:
    """Whether a call ended whose arguments no client can read as JSON."""
    if not isinstance(event, FunctionCallArgumentsDone):
        return False
    try:
        return not isinstance(msgspec.json.decode(event.arguments), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return True
