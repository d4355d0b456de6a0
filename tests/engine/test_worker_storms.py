"""The worker with its real thread when everything happens at once, and for long: nothing may pile up."""

from __future__ import annotations

import asyncio
import gc
import random
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.backend import CellsExhausted
from antiphon.engine.base import EngineBusy, StepStream
from antiphon.engine.sequence import Sequence
from antiphon.engine.stepper import Options
from antiphon.engine.worker import WorkerEngine
from tests.engine.arithmetic_backend import ArithmeticBackend, Hook, alone
from tests.engine.worker_support import Idleness, output, serving, submit, text, works


@st.composite
def storms(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]], list[int], list[int]]:
    requests = st.tuples(st.integers(1, 40), st.integers(1, 60), st.sampled_from([0, 0, 100]))
    places = st.integers(0, 40)
    return (
        draw(st.integers(128, 300)),
        draw(st.lists(requests, min_size=1, max_size=12)),
        draw(st.lists(places, max_size=6)),
        draw(st.lists(st.integers(0, 11), max_size=4)),
    )


@settings(deadline=None, max_examples=40)
@given(storms(), st.booleans())
def test_exhaustion_and_cancelling_in_any_company(
    storm: tuple[int, list[tuple[int, int, int]], list[int], list[int]], can_trim: bool
) -> None:
    cells, requests, exhausted, cancelled = storm

    class Refusal(Hook):
        def before(self, execution: int) -> None:
            # Never when one sequence has all: that one would fail, and rightly.
            if execution in exhausted and sum(bool(backend.tokens(slot)) for slot in range(backend.lanes)) > 1:
                raise CellsExhausted

    backend = ArithmeticBackend(cells=cells, batch_tokens=16, can_trim=can_trim, hook=Refusal())

    async def one(engine: WorkerEngine, number: int, length: int, limit: int, start: int) -> list[int]:
        stream = submit(engine, text(length, start), limit)
        if number in cancelled:
            await stream.take()
            stream.cancel()
            return []
        return await output(stream)

    async def all_of_them() -> list[list[int]]:
        async with serving(backend) as engine:
            return await asyncio.gather(*(one(engine, n, *request) for n, request in enumerate(requests)))

    outputs = asyncio.run(all_of_them())
    for number, ((length, limit, start), said) in enumerate(zip(requests, outputs, strict=True)):
        assert said == ([] if number in cancelled else alone(text(length, start), limit))


def alive() -> int:
    """Sequences and streams that somebody still holds."""
    gc.collect()
    return sum(isinstance(thing, Sequence | StepStream) for thing in gc.get_objects())


def engine_threads() -> int:
    return sum(thread.name.startswith("antiphon") for thread in threading.enumerate())


async def test_ten_thousand_requests_leave_nothing_behind() -> None:
    chance = random.Random(5)
    backend = ArithmeticBackend(lanes=8, nodes=12, cells=300, context_length=64)
    options = Options(prefix_ram=200 * backend.cell_bytes)
    before, threads = alive(), engine_threads()
    idle = Idleness()

    async def one(engine: WorkerEngine, prompt: list[int], limit: int, patience: int) -> None:
        stream = submit(engine, prompt, limit)
        for _ in range(patience):
            if not stream.closed:
                await stream.take()
        stream.cancel()

    def request() -> tuple[list[int], int, int]:
        stem = text(chance.choice([0, 5, 20]), chance.choice([0, 100]))
        return [*stem, *text(1 + chance.randrange(4), chance.randrange(250))], chance.randint(1, 4), chance.randrange(5)

    async with serving(backend, options=options, observe=idle) as engine:
        for _ in range(200):
            await asyncio.gather(*(one(engine, *request()) for _ in range(50)))
            assert engine.running == 0
        await works(engine)  # Behind all that was cancelled.
        idle.forget()
        await works(engine)
        last = await idle.wait()
        assert alive() == before
        assert engine_threads() == threads + 1
        assert not backend.open_samplers
        assert [backend.tokens(lane) for lane in range(backend.lanes)] == [[]] * backend.lanes
        assert last.cells_used == backend.used <= 300
        assert last.ram_bytes <= 200 * backend.cell_bytes
    assert engine_threads() == threads


async def test_a_flood_beyond_the_queue_is_refused_and_the_rest_is_answered() -> None:
    backend = ArithmeticBackend(lanes=2)
    async with serving(backend, max_queue=10) as engine:
        streams, refused = [], 0
        for n in range(1_000):
            try:
                streams.append((n, submit(engine, [n % 250, n // 250], 2)))
            except EngineBusy as busy:
                refused += 1
                assert busy.retry_after == 1
            if n % 100 == 0:
                await asyncio.sleep(0)
        assert refused
        for n, stream in streams:
            assert await output(stream) == alone([n % 250, n // 250], 2)
