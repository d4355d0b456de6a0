"""Bodies: bounded before and after decompression, refused in one shape; the server lives."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
import zstandard

from antiphon.api.settings import ApiSettings
from tests.server import RunningServer, error_of, scripted_server, untouched

LIMIT = 1024 * 1024
MIB = 1024 * 1024
JSON = json.dumps({"input": "Hi"}).encode()
ENCODE: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    turns = [{"steps": ["Hello"]}]
    settings = ApiSettings(body_limit=LIMIT)
    async with scripted_server(tmp_path_factory.mktemp("body"), turns, settings=settings) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def server(shared: RunningServer) -> AsyncIterator[RunningServer]:
    """After each test it still answers."""
    async with untouched(shared):
        yield shared
        assert (await shared.create({"input": "Hi"}))["status"] == "completed"


async def refusal(server: RunningServer, content: Any, encoding: str | None = None) -> tuple[int, str]:
    """Status and code of the answer to a body."""
    headers = {"content-encoding": encoding} if encoding else {}
    answer = await server.client.post("/v1/responses", content=content, headers=headers)
    return answer.status_code, error_of(answer)["code"]


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "GZIP", "Zstd"])
async def test_a_compressed_body_is_read(server: RunningServer, encoding: str) -> None:
    body = ENCODE[encoding.lower()](JSON)
    answer = await server.client.post("/v1/responses", content=body, headers={"content-encoding": encoding})
    assert answer.json()["output"][0]["content"][0]["text"] == "Hello"


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, zstd", "x" * 1000])
async def test_an_unknown_encoding_is_a_415(server: RunningServer, encoding: str) -> None:
    assert await refusal(server, JSON, encoding) == (415, "unsupported_encoding")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_damaged_body_is_a_400(server: RunningServer, encoding: str) -> None:
    whole = ENCODE[encoding](JSON)
    cut = [whole[:size] for size in range(len(whole))]
    damaged = [*cut, whole + b"x", whole + whole, b"x" + whole, JSON, b"\0" + whole[1:]]
    for body in damaged:
        assert await refusal(server, body, encoding) == (400, "invalid_body"), body


async def test_a_body_at_the_limit_is_read_and_one_byte_more_is_a_413(server: RunningServer) -> None:
    filled = JSON + b" " * (LIMIT - len(JSON))
    assert (await server.client.post("/v1/responses", content=filled)).status_code == 200
    assert await refusal(server, filled + b" ") == (413, "request_too_large")
    for encoding, encode in ENCODE.items():
        headers = {"content-encoding": encoding}
        answer = await server.client.post("/v1/responses", content=encode(filled), headers=headers)
        assert answer.status_code == 200
        assert await refusal(server, encode(filled + b" "), encoding) == (413, "request_too_large")


async def test_a_body_without_a_length_is_counted(server: RunningServer) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(LIMIT // 65536 + 1):
            yield b" " * 65536

    assert await refusal(server, chunks()) == (413, "request_too_large")


async def test_a_length_that_promises_too_much_is_refused_before_the_body(server: RunningServer) -> None:
    for length in (LIMIT + 1, 100 * MIB, 2**62):
        answer = await exchange(server, f"Content-Length: {length}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 413 "), answer
        assert b"connection: close" in answer.lower()
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_too_large"


async def test_a_length_that_is_no_number_is_refused(server: RunningServer) -> None:
    """Below the application: the HTTP parser's own refusal."""
    for length in ("-1", "1e3", "9" * 5000, "1, 2"):
        assert (await exchange(server, f"Content-Length: {length}\r\n\r\n".encode())).startswith(b"HTTP/1.1 400 ")


async def exchange(server: RunningServer, rest: bytes) -> bytes:
    """The whole answer to a request whose headers end with `rest`; the server closes the connection."""
    port = int(server.url.rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n" + rest)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def gzip_bomb(size: int) -> bytes:
    encoder = zlib.compressobj(1, wbits=31)
    return b"".join(encoder.compress(bytes(MIB)) for _ in range(size // MIB)) + encoder.flush()


def zstd_bomb(size: int) -> bytes:
    encoder = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join(encoder.compress(bytes(MIB)) for _ in range(size // MIB)) + encoder.flush()


@pytest.mark.parametrize(
    ("encoding", "bomb", "allowed"),
    [
        ("gzip", gzip_bomb(64 * MIB), 8 * MIB),
        ("zstd", zstd_bomb(256 * MIB), 80 * MIB),  # one piece may unfold to 32 MiB, which are copied once
    ],
    ids=["gzip", "zstd"],
)
async def test_a_bomb_is_stopped_while_it_unfolds(
    server: RunningServer, encoding: str, bomb: bytes, allowed: int
) -> None:
    assert len(bomb) < LIMIT
    tracemalloc.start()
    try:
        assert await refusal(server, bomb, encoding) == (413, "request_too_large")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < allowed


BAD_JSON = [
    b"",
    b"{",
    b"nope",
    b'{"input": "Hi"',
    b'{"input": "Hi"} x',
    b'{"input": "\xff"}',
    b'{"input": "\\ud800"}',
    b'{"input": NaN}',
    b'{"input": "Hi", "temperature": 1e999}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"input": [' + b"[" * 100_000,
    b"\xef\xbb\xbf{}",
]


@pytest.mark.parametrize("number", range(len(BAD_JSON)))
async def test_what_is_no_json_is_a_400(server: RunningServer, number: int) -> None:
    assert await refusal(server, BAD_JSON[number]) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"[]", None),
        (b"null", None),
        (b'"input"', None),
        (b"{}", "input"),
        (b'{"input": null}', "input"),
        (b'{"input": 7}', "input"),
        (b'{"input": "Hi", "max_output_tokens": 0}', "max_output_tokens"),
        (b'{"input": "Hi", "max_output_tokens": ' + b"9" * 400 + b"}", "max_output_tokens"),
        (b'{"input": "Hi", "seed": ' + b"9" * 5000 + b"}", None),  # the JSON reader's own bound
        (b'{"input": "Hi", "stream": 1}', "stream"),
        (b'{"input": "Hi", "stream": "yes"}', "stream"),
        (b'{"input": "Hi", "temperature": 2.5}', "temperature"),
        (b'{"input": [{"role": "user", "content": [{"type": "input_text"}]}]}', "input[0].content[0].text"),
    ],
)
async def test_what_is_no_request_is_a_400_that_names_the_place(
    server: RunningServer, body: bytes, param: str | None
) -> None:
    answer = await server.client.post("/v1/responses", content=body)
    assert answer.status_code == 400
    assert error_of(answer)["param"] == param


@pytest.mark.parametrize("key", ["tools", "chat_template_kwargs", "nonsense", "conversation"])
async def test_deep_values_are_refused_or_carried_but_never_crash(server: RunningServer, key: str) -> None:
    deep: Any = {}
    for _ in range(500):
        deep = {"a": deep}
    value = [{"type": "function", "name": "f", "parameters": deep}] if key == "tools" else deep
    answer = await server.post({"input": "Hi", key: value})
    assert answer.status_code == (200 if key == "nonsense" else 400)
