"""The body of a streamed answer: events as server-sent events, silence filled, a client that leaves noticed.

Two tasks to a stream: this one writes; a watcher waits for the client to leave and fills silences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.types import Receive, Scope, Send

from antiphon.protocol import sse
from antiphon.protocol.events import KeepAlive
from antiphon.serving.run import Run

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
]


class KeepAlivePolicy:
    """After `seconds` of silence, once a response exists: an event (`events`), or only a comment."""

    def __init__(self, seconds: float, *, events: bool) -> None:
        self.seconds = seconds
        self.events = events


class EventStream:
    """An ASGI application that answers with one run's events."""

    def __init__(
        self, run: Run, headers: list[tuple[bytes, bytes]], policy: KeepAlivePolicy, clock: Callable[[], float]
    ) -> None:
        self._run = run
        self._headers = [*HEADERS, *headers]
        self._policy = policy
        self._clock = clock
        self._last_number = -1
        self._last_sent = clock()
        self._sending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        watcher = asyncio.create_task(self._watch(receive, send))
        try:
            async for events in self._run.events():
                self._last_number = events[-1].sequence_number
                self._sending = True
                await self._write(send, sse.encode(events))
                self._sending = False
            await send({"type": "http.response.body", "body": sse.DONE, "more_body": False})
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher

    async def _write(self, send: Send, data: bytes) -> None:
        self._last_sent = self._clock()
        await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _watch(self, receive: Receive, send: Send) -> None:
        """Until the client leaves: then nobody wants the rest, and the engine is told at once."""
        while True:
            silence = self._clock() - self._last_sent
            try:
                async with asyncio.timeout(max(self._policy.seconds - silence, 0)):
                    message = await receive()
            except TimeoutError:
                await self._fill_silence(send)
                continue
            if message["type"] == "http.disconnect":
                self._run.cancel()
                return

    async def _fill_silence(self, send: Send) -> None:
        if self._sending:
            # The client does not read what it has: nobody is waiting, and events must not be overtaken.
            self._last_sent = self._clock()
        elif self._clock() - self._last_sent >= self._policy.seconds:
            await self._write(send, self._keep_alive())

    def _keep_alive(self) -> bytes:
        if self._policy.events and self._last_number >= 0:
            return sse.encode([KeepAlive(self._last_number)])
        return sse.KEEP_ALIVE_COMMENT
