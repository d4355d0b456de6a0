"""Whole runs of the scheduler: whatever comes, each answer is the one that the request gets alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Seq
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from antiphon.engine.base import EngineFailure, Finish
from antiphon.engine.scheduler import decide
from antiphon.engine.sequence import Sequence
from antiphon.engine.state import Evict
from tests.engine.arithmetic_backend import ArithmeticBackend, Hook, alone, checksum
from tests.engine.drive import Drive, text


class Arrival(NamedTuple):
    """A request, the step before which it arrives, and after how many steps its client goes away."""

    prompt: list[int]
    max_tokens: int | None
    seed: int
    step: int
    patience: int | None
    owner: str


class World(Struct):
    lanes: int
    nodes: int
    cells: int
    batch_tokens: int
    context_length: int
    can_trim: bool
    ram: int
    disk: int | None
    delay: int
    refuses: bool  # every third file cannot be written or read
    faulty: bool
    losses: frozenset[int]  # the context is lost before these steps
    arrivals: list[Arrival]


class Faulty(Hook):
    """A model that cannot go on behind some texts."""

    def fails(self, tokens: Seq[int]) -> bool:
        return checksum(tokens) % 37 == 0


def rarely_ends(tokens: Seq[int]) -> bool:
    return checksum(tokens) % 41 == 0


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Few stems, so that prompts share prefixes; a cache that is seldom large enough for all."""
    context = draw(st.sampled_from([2, 5, 40, 80, 120]))
    lanes = draw(st.integers(1, 5))

    def arrival() -> Arrival:
        stem = text(draw(st.integers(0, context)), start=draw(st.sampled_from([0, 0, 100])))
        tail = draw(st.lists(st.integers(0, 1), max_size=4))
        prompt = (stem + tail)[: context - 1] or [0]
        limit = draw(st.none() | st.integers(1, context))
        patience = draw(st.none() | st.none() | st.integers(0, 30))
        owner = draw(st.sampled_from(["", "", "other"]))
        return Arrival(prompt, limit, draw(st.integers(0, 2)), draw(st.integers(0, 60)), patience, owner)

    return World(
        lanes=lanes,
        nodes=draw(st.sampled_from([0, 1, 2, 3, 5, 24])),
        cells=context + draw(st.integers(0, 2 * context)),
        batch_tokens=lanes + draw(st.sampled_from([0, 1, 10, 200])),
        context_length=context,
        can_trim=draw(st.sampled_from([True, True, True, False])),
        ram=draw(st.sampled_from([0, 10, 50, 1_000])),
        disk=draw(st.sampled_from([None, 0, 60, 1_000])),
        delay=draw(st.integers(0, 3)),
        refuses=draw(st.booleans()),
        faulty=draw(st.booleans()),
        losses=draw(st.frozensets(st.integers(0, 80), max_size=2)),
        arrivals=sorted((arrival() for _ in range(draw(st.integers(1, 9)))), key=lambda one: one.step),
    )


def live_through(world: World) -> Drive:
    """Every arrival and every cancellation at its time, then until all is done."""
    backend = ArithmeticBackend(
        lanes=world.lanes,
        nodes=world.nodes,
        cells=world.cells,
        batch_tokens=world.batch_tokens,
        context_length=world.context_length,
        can_trim=world.can_trim,
        ends=rarely_ends,
        hook=Faulty() if world.faulty else None,
    )
    d = Drive(backend, ram=world.ram, disk=world.disk, delay=world.delay)
    if world.refuses:
        d.refuses = lambda key: key[0] % 3 == 0
    coming = deque(world.arrivals)
    leaving: list[tuple[int, Sequence]] = []
    now = 0
    while coming or d.state.running or d.state.waiting:
        while coming and coming[0].step <= now:
            arrival = coming.popleft()
            sequence = d.add(arrival.prompt, arrival.max_tokens, arrival.seed, arrival.owner)
            if arrival.patience is not None:
                leaving.append((now + arrival.patience, sequence))
        for at, sequence in leaving:
            if at == now and sequence not in d.ended:
                d.cancel(sequence)
        if now in world.losses:
            d.lose()
        d.step()
        now += 1
        assert now < 10_000, "no end of steps"
    return d


def check_outputs(d: Drive) -> None:
    """Everybody ended, and was answered as if nobody else had been there."""
    context = d.backend.info.context_length
    for sequence in d.arrived:
        generation, output = sequence.generation, d.outputs[sequence]
        room = context - len(generation.prompt)
        limit = room if generation.max_tokens is None else min(room, generation.max_tokens)
        right = alone(generation.prompt, limit, d.backend.ends, generation.sampling.seed or 0)
        finish = d.ended[sequence]
        if finish is None or isinstance(finish, EngineFailure):
            assert output == right[: len(output)]
        else:
            assert output == right
            assert finish is (Finish.LENGTH if len(right) == limit else Finish.STOP)
        assert (sequence.cached or 0) < len(generation.prompt)
    assert d.backend.open_samplers == set()


def nothing_is_lost(d: Drive) -> None:
    """When all is evicted, every cell and every slot is free."""
    while (cold := d.cache.coldest()) is not None:
        d.state.apply(Evict(cold))
    d.step()
    assert d.state.free == d.backend.cells
    assert d.backend.used == 0


@settings(deadline=None, max_examples=100)
@given(worlds())
def test_whatever_comes_everybody_is_answered_as_if_alone(world: World) -> None:
    d = live_through(world)
    check_outputs(d)
    d.run()
    nothing_is_lost(d)


@pytest.mark.parametrize("can_trim", [True, False])
def test_three_hundred_requests_on_a_cache_that_is_too_small(can_trim: bool) -> None:
    backend = ArithmeticBackend(lanes=8, cells=260, context_length=120, can_trim=can_trim)
    d = Drive(backend, decide)
    for n in range(300):
        d.add([*text(n % 60), n % 7, n % 256], max_tokens=1 + n % 70, seed=n % 5)
    d.run()
    assert len(d.ended) == 300
    assert d.state.preempted
    check_outputs(d)
