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
from antiphon.check import EventChecker
from antiphon.engine.base import Engine
from antiphon.engine.script_file import load_script
from antiphon.engine.scripted import ScriptedEngine
from antiphon.serving.service import Options, Report, Service

SPECIAL = ["<|im_start|>", "<|im_end|>"]


class LiveStream:
    """A streamed answer that is being read. What has arrived has passed the event checker, whether or not it ended."""

    def __init__(self, answer: httpx.Response, chunks: AsyncIterator[bytes], checker: EventChecker) -> None:
        self.answer = answer
        self.data = b""
        self._chunks = chunks
        self._checker = checker

    async def until(self, marker: bytes, times: int = 1) -> None:
        """Reads until `marker` has come so many times."""
        while self.data.count(marker) < times:
            self._take(await anext(self._chunks))

    async def rest(self) -> bytes:
        """Reads to the end; the whole stream, which is valid."""
        async for chunk in self._chunks:
            self._take(chunk)
        assert not self._checker.close(), self._checker.violations
        return self.data

    def _take(self, chunk: bytes) -> None:
        self.data += chunk
        self._checker.feed(chunk)
        assert not self._checker.violations, self._checker.violations


class RunningServer:
    """`url` has no slash at the end; `client` is an HTTP client for it; `engine` is set once it is ready.

    `checker` makes the checker that every stream passes.
    """

    def __init__(
        self, url: str, client: httpx.AsyncClient, service: Service, checker: Callable[[], EventChecker]
    ) -> None:
        self.url = url
        self.client = client
        self.service = service
        self.stop = asyncio.Event()
        self._checker = checker

    @property
    def engine(self) -> Engine:
        return self.service.model.engine

    @property
    def running(self) -> int:
        """Sequences that the scripted engine has not ended."""
        engine = self.engine
        assert isinstance(engine, ScriptedEngine)
        return engine.running

    async def idle(self) -> None:
        """Waits until the engine has no sequence; the test's time limit bounds it."""
        while self.running:  # noqa: ASYNC110  # an engine has no event for it, and needs none
            await asyncio.sleep(0)

    async def busy(self) -> None:
        """Waits until the engine has a sequence."""
        while not self.running:  # noqa: ASYNC110
            await asyncio.sleep(0)

    @asynccontextmanager
    async def live(
        self, body: dict[str, Any], *, client: httpx.AsyncClient | None = None, **kwargs: Any
    ) -> AsyncIterator[LiveStream]:
        """A streamed answer, read piece by piece; the connection is closed at the end of the block."""
        body = {"stream": True, **body}
        async with (client or self.client).stream("POST", "/v1/responses", json=body, **kwargs) as answer:
            assert answer.status_code == 200, await answer.aread()
            yield LiveStream(answer, answer.aiter_bytes(), self._checker())

    async def stream(self, body: dict[str, Any], **kwargs: Any) -> bytes:
        """The bytes of a streamed answer, which is valid."""
        async with self.live(body, **kwargs) as stream:
            return await stream.rest()

    async def events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of a streamed answer."""
        return parse_events(await self.stream(body))

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """A whole answer."""
        answer = await self.post(body)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def post(self, body: dict[str, Any], **kwargs: Any) -> httpx.Response:
        """The answer to a request, whatever it is."""
        return await self.client.post("/v1/responses", json=body, **kwargs)


def text_of(response: dict[str, Any]) -> str:
    """The visible text of a response."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for message in messages for part in message["content"])


def parse_events(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream, without `[DONE]`."""
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error object of an answer, after checking that it has the one shape of errors."""
    assert answer.headers["content-type"] == "application/json", answer.text
    assert answer.headers["x-request-id"]
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and error["type"] and error["code"]
    return error


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
    send_buffer: int | None = None,
) -> AsyncIterator[RunningServer]:
    """Serves until the block ends. With `wait`, the model is loaded when the block starts.

    `send_buffer`: bytes that the kernel holds of each connection's answers, for tests of slow readers.
    """
    options, settings = options or Options(), settings or ApiSettings()
    sock = _listening(send_buffer)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    headers = {"authorization": f"Bearer {settings.api_keys[0]}"} if settings.api_keys else {}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, limits=NO_LIMITS) as client:
        server = RunningServer(url, client, service or Service(options), _checkers(options, settings))
        ready = asyncio.Event()
        serving = serve(server.service, settings, sock, engine, on_ready=ready.set, stop=server.stop)
        task = asyncio.create_task(serving)
        try:
            if wait:
                waiting = asyncio.create_task(ready.wait())
                await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            yield server
        finally:
            server.stop.set()
            await task
            sock.close()


NO_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)


def _listening(send_buffer: int | None) -> socket.socket:
    # The protocol is named, since asyncio turns Nagle's algorithm off only for sockets that do: 40 ms an answer.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if send_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)  # accepted sockets inherit it
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    return sock


def _checkers(options: Options, settings: ApiSettings) -> Callable[[], EventChecker]:
    comments = not settings.keepalive_events
    return lambda: EventChecker(reasoning_events=options.reasoning_events, keepalive_comments=comments)


@asynccontextmanager
async def untouched(server: RunningServer) -> AsyncIterator[RunningServer]:
    """A shared server for one test, which leaves nothing behind in the engine."""
    yield server
    await server.idle()


@asynccontextmanager
async def scripted_server(
    tmp_path: Path, turns: list[dict[str, Any]], *, top: dict[str, Any] | None = None, **kwargs: Any
) -> AsyncIterator[RunningServer]:
    """A server that plays these turns."""

    async def load(report: Report) -> Engine:
        return ScriptedEngine(load_script(script(tmp_path, turns, **(top or {}))))

    async with running_server(load, **kwargs) as server:
        yield server
