"""The process: one socket, one event loop, one service; loading beside serving; an orderly end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Literal

import uvicorn

from antiphon.api.app import create_app
from antiphon.api.settings import ApiSettings
from antiphon.serving.service import Loader, Service

log = logging.getLogger(__name__)

BACKLOG = 2048
"""Connections that may wait to be accepted: bursts of agents connect at once."""


class _Server(uvicorn.Server):
    """Ends running responses before it closes their connections, so that no stream just stops."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.close()
        await super().shutdown(sockets)


async def serve(
    service: Service,
    settings: ApiSettings,
    sock: socket.socket,
    loader: Loader,
    *,
    on_ready: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Listens at once, loads, serves until SIGINT, SIGTERM or `stop`.

    Raises what the loader raises, after an orderly stop. Otherwise the figures are logged in one line at the end.
    """
    config = uvicorn.Config(
        create_app(service, settings),
        http=_http(settings.request_seconds),
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    server = _Server(config, service)
    loading = asyncio.create_task(_load(service, loader, server, on_ready))
    stopping = asyncio.create_task(_stop(stop, server)) if stop else None
    try:
        await server.serve(sockets=[sock])
    finally:
        if stopping is not None:
            stopping.cancel()
        if not loading.done():
            loading.cancel()
        if not _failed(loading):
            log.info("%s", service.metrics.summary())
    if loading.done():
        loading.result()


def _failed(loading: asyncio.Task[None]) -> bool:
    return loading.done() and not loading.cancelled() and loading.exception() is not None


def _http(request_seconds: float) -> type[asyncio.Protocol] | Literal["auto"]:
    try:
        from antiphon.api.http import bounded_http
    except ImportError:  # No httptools on Windows: uvicorn's own pure Python reader bounds heads itself.
        return "auto"
    return bounded_http(request_seconds)


async def _stop(stop: asyncio.Event, server: uvicorn.Server) -> None:
    await stop.wait()
    server.should_exit = True


async def _load(service: Service, loader: Loader, server: uvicorn.Server, on_ready: Callable[[], None]) -> None:
    try:
        await service.load(loader)
    except BaseException:
        server.should_exit = True
        raise
    on_ready()
