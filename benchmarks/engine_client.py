"""The client of the engine benchmark: one HTTP and event-stream reader for all servers, two ways of asking.

Every request is greedy and asks for a fixed number of tokens; a server that returns another number, or that fails, ends
the benchmark: unequal work must not be compared.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct

REQUEST_SECONDS = 1800.0
"""Longest wait for an answer: the slowest load of a rival takes seven minutes."""

LINE_LIMIT = 1 << 20
"""Bytes of a line of a server's answer; `response.completed` repeats the whole text."""


class BenchmarkError(Exception):
    """The comparison does not hold: a server failed, or did other work than it was asked for."""


class Message(NamedTuple):
    role: str
    content: str


class Usage(NamedTuple):
    prompt: int
    cached: int
    output: int


class Api(Protocol):
    """How one kind of server is asked."""

    path: str

    def body(self, messages: Sequence[Message], output: int) -> dict[str, Any]:
        """The request for `output` tokens, no fewer and no more."""
        ...

    def text(self, event: dict[str, Any]) -> str:
        """What the event adds to the answer's text; empty if nothing. Raises `BenchmarkError` for a failure."""
        ...

    def usage(self, event: dict[str, Any]) -> Usage | None: ...


class ResponsesApi:
    """The product. `end_tokens` are the token ids that would end an answer early."""

    path = "/v1/responses"

    def __init__(self, end_tokens: Sequence[int]) -> None:
        self._bias = {str(token): -100 for token in end_tokens}

    def body(self, messages: Sequence[Message], output: int) -> dict[str, Any]:
        return {
            "input": [message._asdict() for message in messages],
            "max_output_tokens": output,
            "temperature": 0,
            "logit_bias": self._bias,
            "stream": True,
            "store": False,
        }

    def text(self, event: dict[str, Any]) -> str:
        if event["type"] in ("error", "response.failed"):
            raise BenchmarkError(f"the server failed: {json.dumps(event)[:500]}")
        return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""

    def usage(self, event: dict[str, Any]) -> Usage | None:
        if event["type"] not in ("response.completed", "response.incomplete"):
            return None
        usage = event["response"]["usage"]
        return Usage(usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"])


class ChatApi:
    """A rival. `extra` are the fields that only this kind of server knows."""

    path = "/v1/chat/completions"

    def __init__(self, extra: Mapping[str, Any]) -> None:
        self._extra = dict(extra)

    def body(self, messages: Sequence[Message], output: int) -> dict[str, Any]:
        return {
            "messages": [message._asdict() for message in messages],
            "max_tokens": output,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._extra,
        }

    def text(self, event: dict[str, Any]) -> str:
        if "error" in event:
            raise BenchmarkError(f"the server failed: {json.dumps(event)[:500]}")
        return "".join(choice["delta"].get("content") or "" for choice in event["choices"])

    def usage(self, event: dict[str, Any]) -> Usage | None:
        usage = event.get("usage")
        if not usage:
            return None
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Usage(usage["prompt_tokens"], cached, usage["completion_tokens"])


class Reply(Struct):
    """One answer. Times are those of `time.perf_counter`; `times` has one for each piece of text."""

    sent: float
    times: list[float]
    text: str
    usage: Usage
    ended: float

    @property
    def first(self) -> float:
        """Seconds to the first piece of text."""
        return self.times[0] - self.sent

    def worst_gap(self, since: float = 0.0) -> float:
        """The longest silence between two pieces of text, of silences that ended after `since`; in seconds."""
        return max((late - early for early, late in pairwise(self.times) if late > since), default=0.0)


OnText = Callable[[int], None]
"""Called at each piece of text with the number of pieces so far."""


async def ask(port: int, api: Api, messages: Sequence[Message], output: int, on_text: OnText | None = None) -> Reply:
    """Asks for `output` tokens. Raises `BenchmarkError` unless exactly these come."""
    async with asyncio.timeout(REQUEST_SECONDS):
        sent = time.perf_counter()
        times: list[float] = []
        texts: list[str] = []
        usage: Usage | None = None
        async for event in _post(port, api.path, api.body(messages, output)):
            if text := api.text(event):
                times.append(time.perf_counter())
                texts.append(text)
                if on_text is not None:
                    on_text(len(times))
            usage = api.usage(event) or usage
        ended = time.perf_counter()
    if usage is None or not times:
        raise BenchmarkError(f"{api.path}: the stream ended without {'text' if usage else 'usage'}")
    if usage.output != output:
        raise BenchmarkError(f"{api.path}: {usage.output} tokens came, {output} were asked for")
    return Reply(sent, times, "".join(texts), usage, ended)


async def get(port: int, path: str) -> tuple[int, str]:
    """Status and body. Raises `OSError` if nobody listens."""
    return await _simple(port, f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())


async def post(port: int, path: str, body: dict[str, Any]) -> tuple[int, str]:
    return await _simple(port, _request(path, body))


def _request(path: str, body: dict[str, Any]) -> bytes:
    data = msgspec.json.encode(body)
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


async def _simple(port: int, request: bytes) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LINE_LIMIT)
    try:
        writer.write(request)
        status, chunked = await _head(reader)
        body = b"".join([chunk async for chunk in _chunks(reader)]) if chunked else await reader.read()
        return status, body.decode("utf-8", "replace")
    finally:
        writer.close()


async def _post(port: int, path: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The events of a streamed answer. A connection of its own for each request, as many clients have."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LINE_LIMIT)
    try:
        writer.write(_request(path, body))
        status, chunked = await _head(reader)
        if status != 200 or not chunked:
            raise BenchmarkError(f"{path}: {status} {(await reader.read(2000)).decode('utf-8', 'replace')}")
        async for data in _data_lines(_chunks(reader)):
            yield msgspec.json.decode(data)
    except asyncio.IncompleteReadError as error:
        raise BenchmarkError(f"{path}: the server cut the stream") from error
    finally:
        writer.close()


async def _head(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """Status, and whether the body comes in chunks."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    return int(head.split(" ", 2)[1]), "transfer-encoding: chunked" in head


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]


async def _data_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The JSON of server-sent events; other lines, and the closing `[DONE]`, are left out."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and not line.startswith(b"data: [DONE]"):
                yield line[5:]
