"""Python's share of the product's steps, from its `/metrics`."""

from __future__ import annotations

import asyncio

from benchmarks.engine_client import Message, ask, get
from benchmarks.engine_servers import Room, Server
from benchmarks.engine_workloads import Source
from msgspec import Struct

STEP_SECONDS = "antiphon_step_duration_seconds_sum"
STEPS = "antiphon_step_duration_seconds_count"
NATIVE_SECONDS = "antiphon_engine_native_seconds_total"

SEQUENCES = 8
TOKENS = 128
SHARE_ROOM = Room(SEQUENCES, 512)


class Share(Struct):
    """Of steps in which `SEQUENCES` sequences were each given a token. `python` is a part of the whole, 0 to 1."""

    steps: int
    step_seconds: float
    python: float


def share_line(share: Share | None) -> str:
    if share is None:
        return f"Python's share of a step at {SEQUENCES} sequences: not told"
    steps = f"{share.steps} steps of {share.step_seconds * 1e3:.1f} ms"
    return f"Python's share of a step at {SEQUENCES} sequences: {share.python:.2%} ({steps})"


async def python_share(server: Server, source: Source) -> Share | None:
    """None if the server tells no such figures.

    Read when every sequence has begun to write, and again when the first has ended: no prompt is computed in between.
    """
    begun: asyncio.Event = asyncio.Event()
    behind = SEQUENCES

    def on_text(pieces: int) -> None:
        nonlocal behind
        behind -= pieces == 1
        if behind == 0:
            begun.set()

    prompts = [[Message("user", source.text(f"share {n}", 16))] for n in range(SEQUENCES)]
    tasks = [asyncio.create_task(ask(server.port, server.api, each, TOKENS, on_text)) for each in prompts]
    try:
        started = asyncio.create_task(begun.wait())
        await asyncio.wait([*tasks, started], return_when=asyncio.FIRST_COMPLETED)
        before = await _scrape(server.port)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        after = await _scrape(server.port)
        await asyncio.gather(*tasks)
    finally:
        for task in (*tasks, started):
            task.cancel()
    return _share(before, after)


def _share(before: dict[str, float], after: dict[str, float]) -> Share | None:
    if any(name not in after for name in (STEP_SECONDS, STEPS, NATIVE_SECONDS)):
        return None
    whole, native, steps = (after[n] - before.get(n, 0.0) for n in (STEP_SECONDS, NATIVE_SECONDS, STEPS))
    return Share(int(steps), whole / steps, 1 - native / whole) if steps and whole else None


async def _scrape(port: int) -> dict[str, float]:
    """Each figure by name, summed over its labels; nothing if there is no such route."""
    status, text = await get(port, "/metrics")
    found: dict[str, float] = {}
    if status != 200:
        return found
    for line in text.splitlines():
        if line.startswith("antiphon_") and "_bucket" not in line:
            labelled, _, value = line.rpartition(" ")
            name = labelled.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found
