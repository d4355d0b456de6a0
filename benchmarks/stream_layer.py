"""What the stream layer costs: the whole server on the scripted engine, against a raw ASGI application that writes the
same bytes under the same uvicorn.

    .venv/bin/python benchmarks/stream_layer.py [--streams 1 64 512] [--steps 1000] [--rounds 3]

Each server runs in a process of its own; the two take turns. CPU time is the server's (user and system), memory the
growth of its resident set while all streams are open. Prints medians and ratios (ours / raw). Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from msgspec import Struct

from antiphon.api.server import serve
from antiphon.api.settings import ApiSettings
from antiphon.cli.serve import event_loop_factory
from antiphon.engine.base import Engine
from antiphon.engine.script_file import load_script
from antiphon.engine.scripted import ScriptedEngine
from antiphon.serving.service import Report, Service

Send = Callable[[dict[str, Any]], Awaitable[None]]

SETTLE = 5
"""Responses before the first measurement: imports, caches and the allocator warm up."""


class Measured(Struct):
    """One round. `cpu` in seconds, `first` and `wall` in seconds, `memory` in bytes."""

    events: int
    cpu: float
    wall: float
    first: float
    memory: int


# The servers, each in a process of its own.


def serve_product(sock: socket.socket, script: Path) -> None:
    async def load(report: Report) -> Engine:
        return ScriptedEngine(load_script(script))

    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        runner.run(serve(Service(), ApiSettings(), sock, load))


def serve_raw(sock: socket.socket, frames: Sequence[bytes]) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]

    async def app(scope: dict[str, Any], receive: Any, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for frame in frames:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    config = uvicorn.Config(app, http="auto", ws="none", lifespan="off", access_log=False, log_config=None)
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[sock]))


class Child:
    """A server process that inherits a listening socket."""

    def __init__(self, kind: str, file: Path) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen(2048)
            self.port: int = sock.getsockname()[1]
            fd = str(sock.fileno())
            command = [sys.executable, __file__, "--child", kind, "--fd", fd, "--file", str(file)]
            self.process = subprocess.Popen(command, pass_fds=[sock.fileno()])

    def cpu(self) -> float:
        # Nanoseconds on a processor, all threads: finer than the ticks of /proc/PID/stat.
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory(self) -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


# The client.


async def read_stream(port: int, on_first: Callable[[], None]) -> bytes:
    """One streamed response. `on_first` is called when the first delta has come."""
    body = json.dumps({"input": "go", "stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % len(body) + body)
    chunks: list[bytes] = []
    seen = False
    while chunk := await reader.read(1 << 16):
        chunks.append(chunk)
        if not seen and b"output_text.delta" in b"".join(chunks[-2:]):
            seen = True
            on_first()
    writer.close()
    return b"".join(chunks)


async def load(child: Child, streams: int) -> Measured:
    idle, cpu, start = child.memory(), child.cpu(), time.perf_counter()
    firsts: list[float] = []
    peak = idle

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, child.memory())
            await asyncio.sleep(0.02)

    watcher = asyncio.create_task(watch())
    answers = await asyncio.gather(
        *(read_stream(child.port, lambda: firsts.append(time.perf_counter() - start)) for _ in range(streams))
    )
    wall = time.perf_counter() - start
    watcher.cancel()
    if any(b"[DONE]" not in answer for answer in answers):
        raise RuntimeError("a stream was cut")
    events = sum(answer.count(b"event: ") for answer in answers)
    return Measured(events, child.cpu() - cpu, wall, statistics.median(firsts), peak - idle)


def frames_of(raw: bytes) -> list[bytes]:
    """The events of an HTTP answer in chunked encoding, each as the bytes that it is."""
    body, rest = b"", raw.partition(b"\r\n\r\n")[2]
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return [frame + b"\n\n" for frame in body.split(b"\n\n") if frame]


def script_file(folder: Path, steps: int) -> Path:
    path = folder / "script.json"
    path.write_text(json.dumps({"turns": [{"steps": list("abcdefghij"), "repeat": steps // 10}]}))
    return path


async def measure(folder: Path, streams: Sequence[int], steps: int, rounds: int) -> None:
    children = [Child("product", script_file(folder, steps))]
    try:
        await asyncio.to_thread(wait_ready, children[0].port)
        frames = frames_of(await read_stream(children[0].port, lambda: None))
        (folder / "frames.json").write_text(json.dumps([frame.decode() for frame in frames]))
        children.append(Child("raw", folder / "frames.json"))
        for child in children:
            await asyncio.to_thread(wait_ready, child.port)
            for _ in range(SETTLE):
                await read_stream(child.port, lambda: None)
        print(f"{steps} one-token steps a stream, {rounds} rounds, medians")
        for count in streams:
            results = [[await load(child, count) for child in children] for _ in range(rounds)]
            report(count, [row[0] for row in results], [row[1] for row in results])
    finally:
        for child in children:
            child.stop()


def wait_ready(port: int) -> None:
    """Until the server answers anything but 503."""
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
                if b" 503 " not in sock.recv(64):
                    return
        except OSError:
            pass
        time.sleep(0.05)


def report(streams: int, ours: Sequence[Measured], raw: Sequence[Measured]) -> None:
    def median(rows: Sequence[Measured], figure: Callable[[Measured], float]) -> float:
        return statistics.median(figure(row) for row in rows)

    def cost(row: Measured) -> float:
        return row.cpu / row.events * 1e6

    us, them = median(ours, cost), median(raw, cost)
    rate, raw_rate = (median(rows, lambda row: row.events / row.wall) for rows in (ours, raw))
    first, raw_first = (median(rows, lambda row: row.first) for rows in (ours, raw))
    memory, raw_memory = (max(row.memory for row in rows) / streams / 1000 for rows in (ours, raw))
    print(
        f"{streams:4} streams  CPU {us:6.2f} us an event (raw {them:.2f}), ratio {us / them if them else 0:.2f}"
        f"   {rate:8.0f} events/s (raw {raw_rate:.0f})"
        f"   first delta {first * 1e3:7.1f} ms (raw {raw_first * 1e3:.1f})"
        f"   memory {memory:6.1f} kB a stream (raw {raw_memory:.1f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 64, 512])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=["product", "raw"], help=argparse.SUPPRESS)
    parser.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is None:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(Path(folder), arguments.streams, arguments.steps, arguments.rounds))
        return
    sock = socket.socket(fileno=arguments.fd)
    if arguments.child == "product":
        serve_product(sock, arguments.file)
    else:
        serve_raw(sock, [frame.encode() for frame in json.loads(arguments.file.read_text())])


if __name__ == "__main__":
    main()
