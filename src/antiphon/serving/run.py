"""One response, from its first event to its last.

Rules
* Whatever happens (limit, stop string, cancel, engine failure, our own fault), the events end in one terminal event.
* A step that the engine delivered is one delta. Steps that pile up while a slow reader is being written to are merged.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from antiphon.engine.base import EngineFailure, Finish, Step, StepStream
from antiphon.protocol.events import Event
from antiphon.protocol.fold import Fold
from antiphon.protocol.response import Failure, Response, Usage, usage
from antiphon.protocol.stream import FinishReason, ResponseStream
from antiphon.serving.output import OutputReader

log = logging.getLogger(__name__)

STEPS_A_WRITE = 64
"""Steps that go into one write when an engine delivers many at once, so that one stream does not hold up the others."""


class Run:
    """A response in the making. `events` may be iterated once; `warnings` are for the answer's header."""

    def __init__(
        self,
        *,
        response_id: str,
        stream: ResponseStream,
        reader: OutputReader,
        steps: StepStream,
        prompt_tokens: int,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.response_id = response_id
        self.warnings = warnings
        self._stream = stream
        self._reader = reader
        self._steps = steps
        self._prompt_tokens = prompt_tokens
        self._cancelled = False

    def cancel(self) -> None:
        """Nobody wants the rest: the engine is told at once, and the events end as cancelled. Idempotent."""
        self._cancelled = True
        self._steps.cancel()

    async def events(self) -> AsyncIterator[list[Event]]:
        """The events in the pieces in which they should be sent."""
        yield self._stream.start()
        try:
            async for events in self._generated():
                yield events
        except EngineFailure as failure:
            log.error("%s: the engine failed: %s", self.response_id, failure)
            yield self._flushed() + self._failed()
        except Exception:
            log.exception("%s: failed in state %s", self.response_id, self._stream.state)
            yield self._failed()
        finally:
            self._steps.cancel()

    async def respond(self) -> Response:
        """The whole response at once: the fold of the same events."""
        fold = Fold()
        async for events in self.events():
            fold.apply(events)
        return fold.response

    async def _generated(self) -> AsyncIterator[list[Event]]:
        while True:
            steps, merge = await self._steps.take(), False
            if self._cancelled:
                yield self._flushed() + self._stream.cancel(self._usage())
                return
            while steps:
                count = len(steps) if merge else STEPS_A_WRITE
                now, steps = steps[:count], steps[count:]
                events = self._read(now) if merge else [event for step in now for event in self._read([step])]
                if (ending := self._ending(now)) is not None:
                    yield events + ending
                    return
                if events:
                    yield events
                # What came while the reader was being written to: it is slow, so it gets the rest in one piece.
                late = self._steps.ready()
                merge = bool(late)
                steps += late

    def _read(self, steps: list[Step]) -> list[Event]:
        return [event for fragment in self._reader.read(steps) for event in self._stream.feed(fragment)]

    def _flushed(self) -> list[Event]:
        return [event for fragment in self._reader.finish() for event in self._stream.feed(fragment)]

    def _ending(self, steps: list[Step]) -> list[Event] | None:
        """The last events, if these steps were the last."""
        finish = steps[-1].finish
        if finish is None and not self._reader.ended:
            return None
        self._steps.cancel()
        events = self._flushed()
        reason: FinishReason = "stop" if self._reader.ended or finish is Finish.STOP else "max_output_tokens"
        return events + self._stream.finish(reason, self._usage())

    def _failed(self) -> list[Event]:
        message = f"The model failed to answer ({self.response_id})."
        return self._stream.fail(Failure("server_error", message), self._usage())

    def _usage(self) -> Usage:
        reader = self._reader
        return usage(
            self._prompt_tokens,
            reader.output_tokens,
            cached=self._steps.cached_tokens,
            reasoning=reader.reasoning_tokens,
        )
