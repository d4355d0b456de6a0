"""What is no HTTP, or never ends its head: the one error shape, a closed connection, a living server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from antiphon.api.http import MAX_HEAD
from antiphon.api.settings import ApiSettings
from tests.server import RunningServer, scripted_server

TURNS = [{"steps": ["a"]}]


async def answer_to(server: RunningServer, pieces: list[bytes]) -> tuple[int, dict[str, dict[str, object]]]:
    """Status and body of the answer to these bytes; the server closes the connection."""
    port = int(server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"x-request-id: req_" in head
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([b"no http at all\r\n\r\n"], 400),
        ([b"POST /v1/responses HTTP/1.1\r\ncontent-length: many\r\n\r\n"], 400),
        ([b"GET / HTTP/1.1\r\nhost: x\r\nx: ", *[b"a" * 1024] * (MAX_HEAD // 1024)], 431),
        ([b"GET / HTTP/1.1\r\nhost: x\r\n", *[b"x: a\r\n" * 128] * (MAX_HEAD // 768 + 1)], 431),
    ],
    ids=["no HTTP", "no number", "one endless header", "endless headers"],
)
async def test_it_is_refused_in_the_one_shape(tmp_path: Path, pieces: list[bytes], status: int) -> None:
    async with scripted_server(tmp_path, TURNS) as server:
        got, body = await answer_to(server, pieces)
        assert got == status
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert (await server.create({"input": "Hi"}))["status"] == "completed"


UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
REQUEST = b'{"input":"hi"}'


@pytest.mark.parametrize("apart", [True, False])
async def test_an_upgrade_that_is_not_done_is_ignored(tmp_path: Path, apart: bool) -> None:
    head = b"POST /v1/responses HTTP/1.1\r\nhost: x\r\n" + UPGRADE + b"content-length: 14\r\n\r\n"
    async with scripted_server(tmp_path, TURNS) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        for piece in [head, REQUEST] if apart else [head + REQUEST]:
            writer.write(piece)
            await writer.drain()
            await server.client.get("/health")  # The server has seen this piece before the next one.
        answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /v1/resp", b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 14\r\n\r\n{"],
    ids=["nothing", "half a head", "half a body"],
)
async def test_who_never_finishes_a_request_is_cut_off(tmp_path: Path, sent: bytes) -> None:
    settings = ApiSettings(request_seconds=0.05)
    async with scripted_server(tmp_path, TURNS, settings=settings) as server:
        status, body = await answer_to(server, [sent])
        assert (status, body["error"]["code"]) == (408, "request_timeout")
        assert (await server.create({"input": "Hi"}))["status"] == "completed"


async def test_a_slash_too_much_is_not_found(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, TURNS) as server:
        answer = await server.client.post("/v1/responses/", json={"input": "Hi"})
    assert answer.status_code == 404


async def test_a_large_request_is_served(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, TURNS, top={"context_length": 1 << 20}) as server:
        response = await server.create({"input": "a" * 300_000})
    assert response["usage"]["input_tokens"] > 300_000
