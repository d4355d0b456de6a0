"""A real server on a loopback port, in this process: uvicorn, the whole application, an engine of the test's choice."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from antiphon.api.server import serve
from antiphon.api.settings import ApiSettings
from antiphon.engine.base import Engine
from antiphon.engine.script_file import load_script
from antiphon.engine.scripted import ScriptedEngine
from antiphon.serving.service import Options, Report, Service

SPECIAL = ["<|im_start|>", "<|im_end|>"]


class RunningServer:
    """`url` has no slash at the end; `client` is an HTTP client for it; `engine` is set once it is ready."""

    def __init__(self, url: str, client: httpx.AsyncClient, service: Service) -> None:
        self.url = url
        self.client = client
        self.service = service

    @property
    def engine(self) -> Engine:
        return self.service.model.engine

    async def stream(self, body: dict[str, Any], **kwargs: Any) -> bytes:
        """The bytes of a streamed answer."""
        answer = await self.client.post("/v1/responses", json={"stream": True, **body}, **kwargs)
        assert answer.status_code == 200, answer.text
        return answer.content

    async def events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of a streamed answer."""
        return parse_events(await self.stream(body))

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """A whole answer."""
        answer = await self.client.post("/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result


def parse_events(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream, without `[DONE]`."""
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def script(tmp_path: Path, turns: list[dict[str, Any]], **top: Any) -> Path:
    """A script file with these turns."""
    path = tmp_path / "script.json"
    content = {"model": "scripted-1", "dialect": "hermes", "special_tokens": SPECIAL, **top, "turns": turns}
    path.write_text(json.dumps(content))
    return path


@asynccontextmanager
async def running_server(
    engine: Callable[[Report], Awaitable[Engine]],
    *,
    options: Options | None = None,
    settings: ApiSettings | None = None,
    service: Service | None = None,
    wait: bool = True,
) -> AsyncIterator[RunningServer]:
    """Serves until the block ends. With `wait`, the model is loaded when the block starts."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    service = service or Service(options)
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(serve(service, settings or ApiSettings(), sock, engine, on_ready=ready.set, stop=stop))
    headers = {"authorization": f"Bearer {settings.api_keys[0]}"} if settings and settings.api_keys else {}
    try:
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            if wait:
                waiting = asyncio.create_task(ready.wait())
                await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            yield RunningServer(url, client, service)
    finally:
        stop.set()
        await task
        sock.close()


@asynccontextmanager
async def scripted_server(
    tmp_path: Path, turns: list[dict[str, Any]], *, top: dict[str, Any] | None = None, **kwargs: Any
) -> AsyncIterator[RunningServer]:
    """A server that plays these turns."""

    async def load(report: Report) -> Engine:
        return ScriptedEngine(load_script(script(tmp_path, turns, **(top or {}))))

    async with running_server(load, **kwargs) as server:
        yield server
