"""Streams over a real connection: framing, silence, clients that leave or do not read, and the end of the server."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.api.settings import ApiSettings
from antiphon.api.streaming import EventStream, KeepAlivePolicy
from antiphon.check import assert_valid
from antiphon.engine.base import Engine, Finish, Step
from antiphon.protocol.request import parse_request
from antiphon.serving.run import Run
from antiphon.serving.service import Options, Service
from tests.engines import GivenEngine
from tests.server import RunningServer, error_of, parse_events, running_server, scripted_server, text_of

SOON = 0.02
"""Seconds of silence before a keep-alive: short, since tests wait for it."""

HANG: list[dict[str, Any]] = [
    {"when": "text", "steps": ["x", {"hang": True}]},
    {"when": "thinking", "steps": ["<think>x", {"hang": True}]},
    {"when": "prefill", "steps": [{"prefill_ms": 86_400_000}, "x"]},
    {"when": "pause", "steps": ["x", {"wait_ms": 86_400_000}]},
    {"when": "nothing", "steps": [{"hang": True}]},
    {"steps": ["Hello", " there"]},
]
WAYS_TO_HANG = [turn["when"] for turn in HANG if "when" in turn]


async def test_the_answer_says_that_it_is_a_stream(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, HANG) as server, server.live({"input": "Hi"}) as stream:
        headers = stream.answer.headers
        data = await stream.rest()
    assert headers["content-type"].partition(";")[0] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-request-id"].startswith("req_")
    assert "content-length" not in headers
    assert data.endswith(b"\n\ndata: [DONE]\n\n")
    assert b"\r" not in data
    assert b"\nid:" not in data


async def test_without_stream_the_same_answer_comes_whole(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, HANG) as server:
        for stream in (False, None):
            answer = await server.post({"input": "Hi", "stream": stream})
            assert answer.headers["content-type"] == "application/json"
            assert text_of(answer.json()) == "Hello there"


async def test_silence_is_filled_with_events_that_count_for_nothing(tmp_path: Path) -> None:
    settings = ApiSettings(keepalive_seconds=SOON)
    async with scripted_server(tmp_path, HANG, settings=settings) as server:
        for way in WAYS_TO_HANG:
            async with server.live({"input": way}) as stream:
                await stream.until(b"event: keepalive\n", 2)
            numbers = [json.loads(line[6:])["sequence_number"] for line in data_lines(stream.data)]
            assert numbers[-2:] == [max(numbers)] * 2
            await server.idle()


async def test_silence_is_filled_with_comments_for_strict_readers(tmp_path: Path) -> None:
    settings = ApiSettings(keepalive_seconds=SOON, keepalive_events=False)
    async with scripted_server(tmp_path, HANG, settings=settings) as server:
        async with server.live({"input": "text"}) as stream:
            await stream.until(b": keep-alive\n\n", 2)
        assert b"event: keepalive" not in stream.data
        await server.idle()


def data_lines(data: bytes) -> list[str]:
    return [line for line in data.decode().split("\n") if line.startswith("data: {")]


@pytest.mark.parametrize("way", WAYS_TO_HANG)
async def test_a_client_that_leaves_a_stream_frees_the_engine(tmp_path: Path, way: str) -> None:
    async with scripted_server(tmp_path, HANG) as server:
        async with server.live({"input": way}) as stream:
            await stream.until(b"response.in_progress")
            await server.busy()
        await server.idle()
        assert (await server.create({"input": "Hi"}))["status"] == "completed"


@pytest.mark.parametrize("way", WAYS_TO_HANG)
async def test_a_client_that_leaves_before_its_whole_answer_frees_the_engine(tmp_path: Path, way: str) -> None:
    async with scripted_server(tmp_path, HANG) as server:
        waiting = asyncio.create_task(server.create({"input": way}))
        await server.busy()
        waiting.cancel()
        await asyncio.wait([waiting])
        await server.idle()
        assert (await server.create({"input": "Hi"}))["status"] == "completed"


async def test_the_end_of_the_server_ends_every_answer(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, HANG) as server:
        whole = asyncio.create_task(server.post({"input": "text"}))
        streams = [asyncio.create_task(read_to_the_end(server, way)) for way in WAYS_TO_HANG]
        while server.running <= len(streams):  # noqa: ASYNC110
            await asyncio.sleep(0)
        server.stop.set()
        for stream in streams:
            last = parse_events(await stream)[-1]
            assert last["type"] == "response.failed"
            assert last["response"]["error"]["code"] == "server_error"
        answer = await whole
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert error_of(answer)["code"] == "server_unavailable"


async def read_to_the_end(server: RunningServer, way: str) -> bytes:
    return await server.stream({"input": way})


async def test_a_fault_in_the_middle_of_a_stream_ends_it_as_failed() -> None:
    nobody_s_token = 10_000
    engine = GivenEngine([Step(tuple(b"Hello")), Step((nobody_s_token,))])
    async with running_server(engine.load) as server:
        events = await server.events({"input": "Hi"})
        whole = await server.post({"input": "Hi"})
    assert events[-1]["type"] == "response.failed"
    assert text_of(events[-1]["response"]) == "Hello"
    assert events[-1]["response"]["usage"]["output_tokens"] == 5
    assert whole.status_code == 500
    assert "10000" not in error_of(whole)["message"]


async def test_many_streams_at_once_are_all_valid(tmp_path: Path) -> None:
    steps: list[Any] = ["<think>so", " it", " is</think>", {"wait_ms": 0}, "He", "llo", {"wait_ms": 0}, " there"]
    async with scripted_server(tmp_path, [{"steps": steps}]) as server:
        streams = await asyncio.gather(*(server.events({"input": f"Hi {n}"}) for n in range(200)))
        await server.idle()
    assert {text_of(events[-1]["response"]) for events in streams} == {"Hello there"}
    ids = [event["item"]["id"] for events in streams for event in events if "item" in event]
    assert len(set(ids)) == 2 * len(streams)


SMALL = 32768
"""Bytes of the kernel's buffers, which would hold megabytes otherwise."""

STEP = "A step of the script has about a hundred characters, so that a few thousand fill every buffer between. "


def slow_client(server: RunningServer) -> httpx.AsyncClient:
    """A client for which the kernel holds little that was not read."""
    receive_little = [(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)]
    transport = httpx.AsyncHTTPTransport(socket_options=receive_little)
    return httpx.AsyncClient(base_url=server.url, transport=transport, timeout=60)


async def test_steps_that_pile_up_for_a_slow_reader_become_fewer_deltas(tmp_path: Path) -> None:
    count = 4000
    turns = [{"steps": [STEP, {"wait_ms": 0}], "repeat": count}]
    top = {"context_length": 10**7, "dialect": "plain"}
    async with (
        scripted_server(tmp_path, turns, top=top, send_buffer=SMALL) as server,
        slow_client(server) as client,
        server.live({"input": "Hi"}, client=client) as stream,
    ):
        await stream.until(b"output_text.delta")
        await server.idle()  # the script has said all of it, and nobody read
        events = parse_events(await stream.rest())
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == STEP * count
    assert events[-1]["response"]["usage"]["output_tokens"] == len(STEP) * count
    assert deltas[0] == STEP
    assert len(deltas) < count // 2
    assert max(map(len, deltas)) > 100 * len(STEP)


async def test_a_client_that_does_not_read_is_noticed_when_it_leaves(tmp_path: Path) -> None:
    turns: list[dict[str, Any]] = [{"steps": [STEP, {"wait_ms": 0}], "repeat": 1_000_000}]
    async with scripted_server(tmp_path, turns, top={"context_length": 2**31 - 1}, send_buffer=SMALL) as server:
        async with server.live({"input": "Hi"}) as stream:
            await stream.until(b"output_text.delta")
        await server.idle()


async def test_a_client_that_does_not_read_cannot_hold_up_the_end_of_the_server(tmp_path: Path) -> None:
    turns: list[dict[str, Any]] = [{"steps": [STEP, {"wait_ms": 0}], "repeat": 4000}]
    settings = ApiSettings(shutdown_seconds=1)
    top = {"context_length": 10**7}
    async with scripted_server(tmp_path, turns, top=top, settings=settings, send_buffer=SMALL) as server:
        client = slow_client(server)
        request = client.build_request("POST", "/v1/responses", json={"input": "Hi", "stream": True})
        answer = await client.send(request, stream=True)
        await server.idle()
    await answer.aclose()
    await client.aclose()


class Wire:
    """What stands between the application and a client: it takes messages only while it is `open`."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.data = b""
        self.writes: list[bytes] = []
        self.waiting = 0
        self.looks = 0

    async def send(self, message: Any) -> None:
        self.waiting += 1
        await self.open.wait()
        self.waiting -= 1
        self.data += message.get("body", b"")
        self.writes.append(message.get("body", b""))

    async def said(self, marker: bytes) -> None:
        """Waits until the client could have read `marker`."""
        while marker not in self.data:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def receive(self) -> Any:
        """The client never leaves."""
        self.looks += 1
        await asyncio.get_running_loop().create_future()


async def run_of(engine: Engine) -> Run:
    """A response of a service without HTTP."""
    service = Service(Options())

    async def load(report: object) -> Engine:
        return engine

    await service.load(load)
    return await service.create(parse_request(b'{"input": "Hi"}'))


async def test_every_write_holds_whole_events() -> None:
    wire = Wire()
    wire.open.set()
    run = await run_of(GivenEngine([Step(tuple(b"a")), Step(tuple(b"b")), Step(tuple(b"c"), Finish.STOP)]))
    await EventStream(run, [], KeepAlivePolicy(15, events=True), time.monotonic)({}, wire.receive, wire.send)
    assert_valid(wire.data)
    assert wire.writes[0] == b""  # the headers
    assert all(write.endswith(b"\n\n") for write in wire.writes[1:])
    assert wire.writes[-1] == b"data: [DONE]\n\n"


async def test_nothing_overtakes_what_waits_for_a_slow_reader() -> None:
    """A keep-alive that was made while an event waited would come behind later events, with a number of the past."""
    wire = Wire()
    wire.open.set()
    engine = GivenEngine([Step(tuple(b"a"))])
    stream = EventStream(await run_of(engine), [], KeepAlivePolicy(0.001, events=True), time.monotonic)
    task = asyncio.create_task(stream({}, wire.receive, wire.send))
    await wire.said(b'"delta":"a"')
    wire.open.clear()
    engine.live[0].put(Step(tuple(b"b")))
    looks = wire.looks
    while wire.waiting < 2 and wire.looks < looks + 3:  # noqa: ASYNC110  # until the watcher has seen the silence
        await asyncio.sleep(0)
    engine.live[0].put(Step(tuple(b"c")))
    wire.open.set()
    await wire.said(b'"delta":"c"')
    engine.live[0].put(Step(tuple(b"d"), Finish.STOP))
    await task
    assert_valid(wire.data)
