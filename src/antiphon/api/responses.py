"""`POST /v1/responses`, streamed and not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from antiphon.api.body import read_body
from antiphon.api.errors import json_response
from antiphon.api.settings import ApiSettings
from antiphon.api.streaming import EventStream, KeepAlivePolicy
from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.request import CreateResponse, parse_request
from antiphon.serving.prepare import is_quick
from antiphon.serving.record import RequestRecord
from antiphon.serving.run import Run
from antiphon.serving.service import Service

INLINE_BODY = 256 * 1024
"""Bytes that are parsed on the event loop: some milliseconds at most. Agents' requests have 20 to 150 kB."""


class ResponsesEndpoint:
    """Decode, call, encode."""

    def __init__(self, service: Service, settings: ApiSettings) -> None:
        self._service = service
        self._settings = settings
        self._policy = KeepAlivePolicy(settings.keepalive_seconds, events=settings.keepalive_events)

    async def create(self, request: Request) -> ASGIApp:
        record = self._service.record(request.headers)
        with _until_it_runs(record):
            self._service.model  # noqa: B018  # 503 while loading, before a large body is read
            parsed = await _parsed(await read_body(request, self._settings.body_limit))
            creating = self._service.create(
                parsed, request_id=request.state.request_id, owner=request.state.owner, record=record
            )
            run = await (creating if is_quick(parsed) else _unless_it_leaves(request, creating))
        headers = [(b"x-antiphon-warning", "; ".join(run.warnings).encode())] if run.warnings else []
        if parsed.stream:
            return EventStream(run, headers, self._policy, self._settings.clock)
        return await _whole(request, run, headers)

    async def upgrade(self, request: Request) -> Response:
        """A GET: WebSocket clients are told to use POST at once; any other status costs Codex seconds."""
        if request.headers.get("upgrade", "").lower() == "websocket":
            raise RequestRefused("WebSocket mode is not served here; use POST.", code="upgrade_required", status=426)
        raise HTTPException(405, headers={"Allow": "POST"})


@contextmanager
def _until_it_runs(record: RequestRecord) -> Iterator[None]:
    """Records why a response did not begin; from then on its run records what becomes of it."""
    try:
        yield
    except RequestRefused as refused:
        record.refused(refused.status)
        raise
    except (ClientDisconnect, asyncio.CancelledError):
        record.ended("cancelled")
        raise
    except Exception:
        record.ended("failed")
        raise


async def _parsed(body: bytes) -> CreateResponse:
    """The request; a large one is read beside the event loop, so that nobody's stream waits for it."""
    if len(body) <= INLINE_BODY:
        return parse_request(body)
    return await asyncio.to_thread(parse_request, body)


async def _unless_it_leaves(request: Request, creating: Coroutine[Any, Any, Run]) -> Run:
    """A run that takes a while to begin. Raises `ClientDisconnect` if the client does not wait for it."""
    work = asyncio.create_task(creating)
    watcher = asyncio.create_task(_departure(request))
    try:
        await asyncio.wait((work, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        for task in (work, watcher):
            task.cancel()
        await asyncio.gather(work, watcher, return_exceptions=True)


async def _whole(request: Request, run: Run, headers: list[tuple[bytes, bytes]]) -> Response:
    """The whole answer; a client that leaves before it is finished ends the work."""
    watcher = asyncio.create_task(_cancel_on_departure(request, run))
    try:
        response = await run.respond()
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
    if response.error is not None:
        raise _failed(response.error.message, stopping=run.stopped)
    answer = json_response(response)
    answer.raw_headers.extend(headers)
    return answer


def _failed(message: str, *, stopping: bool) -> RequestRefused:
    """A whole answer that failed: nothing was sent, so a client may ask another server, or this one when it is back."""
    if stopping:
        return RequestRefused(message, code="server_unavailable", status=503, kind="server_error", retry_after=2)
    return RequestRefused(message, code="server_error", status=500, kind="server_error")


async def _cancel_on_departure(request: Request, run: Run) -> None:
    await _departure(request)
    run.cancel()


async def _departure(request: Request) -> None:
    """Waits until the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
