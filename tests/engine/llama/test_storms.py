"""Thousands of short requests, many of them cancelled, through llama.cpp: nothing may pile up.

What is looked at in the end: the engine's books, llama.cpp's own view of every slot, threads, memory.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.engine.base import Generation, Sampling, StepStream
from antiphon.engine.llama import LlamaBackend
from antiphon.engine.llama.binding import open_library
from antiphon.engine.llama.context import Context, Shape
from antiphon.engine.llama.gguf import inspect
from antiphon.engine.llama.model import Model
from antiphon.engine.llama.sampling import NumpySampler
from antiphon.engine.sequence import Sequence
from antiphon.engine.state import State
from antiphon.engine.stepper import Options
from antiphon.engine.worker import WorkerEngine
from tests.engine.worker_support import Idleness
from tests.footprint import GROWTH, held, left_behind, on_linux, resident, threads
from tests.tiny_model import Tiny, write_tiny_model

LANES, SLOTS, CELLS, LENGTH = 8, 24, 512, 64

AT_ONCE = 50
"""Requests: six times as many as lanes."""

RAM_TOKENS = 300

HELD = (Sequence, StepStream, NumpySampler)


def requests(chance: random.Random) -> Iterator[tuple[Generation, int]]:
    """Prompts that share a beginning, continue each other, or have nothing in common; and how many times a reader
    looks before it leaves."""
    while True:
        stem = [chance.choice([5, 90]) + place % 150 for place in range(chance.choice([0, 6, 25]))]
        prompt = [*stem, *(5 + chance.randrange(200) for _ in range(chance.randint(1, 5)))]
        sampling = Sampling(
            temperature=chance.choice([0.0, 1.0]),
            seed=chance.randrange(1_000),
            repetition_penalty=chance.choice([1.0, 1.1]),
            top_logprobs=chance.choice([None, 1]),
        )
        owner = chance.choice(["", "somebody"])
        limit = chance.randint(1, 3)
        yield (
            Generation(id="resp_storm", prompt=prompt, max_tokens=limit, sampling=sampling, owner=owner),
            chance.choice([0, 1, 2, 3, 3, 3]),
        )


async def one(engine: WorkerEngine, generation: Generation, patience: int) -> None:
    stream = engine.submit(generation)
    for _ in range(patience):
        if not stream.closed:
            await stream.take()
    stream.cancel()
    assert stream.closed


async def answered(engine: WorkerEngine, idle: Idleness) -> None:
    """One more request, behind all others; then the engine has nothing to do."""
    idle.forget()
    await one(engine, Generation(id="resp_last", prompt=[7, 8, 9], max_tokens=2), 2)
    await idle.wait()


def check_books(state: State, context: Context, slots: range) -> None:
    """All cells are those of prefixes, one prefix each, in the slots where llama.cpp has them."""
    nodes = [node for node in state.cache.tree.nodes() if node.resident]
    assert not state.running
    assert not state.waiting
    assert not any(node.users for node in nodes)
    expected = {node.slot: range(node.start, node.end) for node in nodes}
    assert len(expected) == len(nodes)
    assert {slot: held for slot in slots if (held := context.held(slot))} == expected
    assert state.cells - state.free == sum(map(len, expected.values())) <= state.cells


@on_linux
@pytest.mark.parametrize(("family", "count"), [("llama", 10_000), ("jamba", 2_000)])
async def test_thousands_of_requests_leave_nothing_behind(tmp_path: Path, family: str, count: int) -> None:
    library = open_library()
    path = write_tiny_model(tmp_path / "tiny.gguf", Tiny(family=family))
    model = Model(library, inspect(library, path), 0, None)
    shape = Shape(cells=CELLS, lanes=LANES, slots=SLOTS if model.can_trim else LANES, batch_tokens=64)
    context = Context(model, shape, 1)
    backend = LlamaBackend(model, context, shape, LENGTH)
    before, others, idle = left_behind(*HELD), held(State), Idleness()
    engine = WorkerEngine(backend, options=Options(prefix_ram=RAM_TOKENS * backend.cell_bytes), observe=idle)
    await answered(engine, idle)
    running, half = threads(), 0
    generations = requests(random.Random(11))
    for round in range(count // AT_ONCE):
        if round == count // AT_ONCE // 2:
            half = resident()
        await asyncio.gather(*(one(engine, *next(generations)) for _ in range(AT_ONCE)))
        assert engine.running == 0
    await answered(engine, idle)
    assert resident() - half < GROWTH
    assert threads() == running
    assert left_behind(*HELD) == before
    (state,) = [state for state in held(State) if state not in others]
    # Below the slots: where a prefix is shared to while it is written into memory.
    check_books(state, context, range(-1 if model.can_trim else 0, shape.slots))
    assert idle.last is not None
    assert idle.last.ram_bytes <= RAM_TOKENS * backend.cell_bytes
    await engine.aclose()
