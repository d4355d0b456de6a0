"""Thousands of short requests over HTTP, many cut off by their clients: nothing may pile up.

The client is a few lines on sockets: a real one takes longer than the server.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from antiphon.engine.base import StepStream
from antiphon.serving.run import Run
from tests.footprint import GROWTH, left_behind, on_linux, resident, threads
from tests.server import RunningServer, scripted_server

REQUESTS, CLIENTS = 10_000, 20

TURNS: list[dict[str, Any]] = [
    {"when": "hang", "steps": ["Hel", {"hang": True}]},
    {"when": "fail", "steps": ["Hel", {"fail": "broken"}]},
    {"steps": ["Hel", "lo"]},
]

HELD = (Run, StepStream)


class Client:
    """One connection at a time; a new one when it has cut one off."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self._port = port
        self._chance = chance
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def one(self) -> None:
        kind = self._chance.choice(["Hi", "Hi", "hang", "fail"])
        stream = self._chance.random() < 0.7
        if self._open is None:
            self._open = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._open
        writer.write(_request({"input": kind, "stream": stream}))
        if kind == "hang" or self._chance.random() < 0.2:
            if stream and self._chance.random() < 0.7:
                await reader.readuntil(b"response.output_text.delta")
            await self.close()
        elif stream:
            await reader.readuntil(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        else:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            await reader.readexactly(length)

    async def close(self) -> None:
        if self._open is not None:
            _, writer = self._open
            self._open = None
            writer.close()
            await writer.wait_closed()


def _request(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST /v1/responses HTTP/1.1\r\nhost: storm\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)


async def calm(server: RunningServer, ended: int) -> None:
    """Waits until so many requests have come to an end."""
    while sum(server.service.metrics.ended.values()) < ended:  # noqa: ASYNC110  # figures have no event for it
        await asyncio.sleep(0)
    await server.idle()


@on_linux
async def test_ten_thousand_requests_leave_nothing_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")  # Thousands of failures that a test keeps would look like a leak.
    async with scripted_server(tmp_path, TURNS) as server:
        port = int(server.url.rpartition(":")[2])
        clients = [Client(port, random.Random(seed)) for seed in range(CLIENTS)]

        async def send(client: Client) -> None:
            for _ in range(REQUESTS // CLIENTS // 2):
                await client.one()
            await client.close()

        before, tasks = left_behind(*HELD), len(asyncio.all_tasks())
        await asyncio.gather(*map(send, clients))
        await calm(server, REQUESTS // 2)
        half, running = resident(), threads()
        await asyncio.gather(*map(send, clients))
        await calm(server, REQUESTS)
        assert resident() - half < GROWTH
        assert threads() == running
        assert left_behind(*HELD) == before
        assert len(asyncio.all_tasks()) == tasks
        metrics = server.service.metrics
        assert metrics.open == 0
        assert sum(metrics.ended.values()) == REQUESTS
        assert min(metrics.ended[end] for end in ("completed", "failed", "cancelled")) > REQUESTS / 10
