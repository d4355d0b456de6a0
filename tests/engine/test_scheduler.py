"""The scheduler without threads: single decisions in chosen states, and whole runs against the arithmetic backend."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from tests.engine.arithmetic_backend import ArithmeticBackend, Ends, alone, checksum, never

from antiphon.engine.backend import Sampled, Trim
from antiphon.engine.base import Finish, Generation, Sampling, Step
from antiphon.engine.cells import CellPool
from antiphon.engine.scheduler import (
    HEADROOM,
    MIXED_PREFILL,
    Admit,
    Compute,
    Decision,
    Evict,
    Idle,
    Preempt,
    Sequence,
    Slot,
    State,
    common_prefix,
    decide,
    relief,
)


def picture(thing: object) -> object:
    """A deep copy of a state in plain values, to see whether anything in it has changed."""
    if isinstance(thing, State | Slot | Sequence | CellPool):
        return [type(thing), id(thing), *((name, picture(value)) for name, value in vars(thing).items())]
    if isinstance(thing, list | tuple | deque):
        return [part if isinstance(part, int) else picture(part) for part in thing]
    return thing


def decided(state: State) -> Decision:
    """`decide`, and the proof that it only looked."""
    before = picture(state)
    decision = decide(state)
    assert picture(state) == before
    assert decide(state) == decision
    return decision


class Drive:
    """What the worker does with a state and a backend, without its thread; it checks every rule at every step.

    `decide` is `decided`, unless a long run would copy its whole state too often.
    """

    def __init__(self, backend: ArithmeticBackend, decide: Callable[[State], Decision] = decided) -> None:
        self.backend = backend
        self.decide = decide
        self.state = State(
            slots=backend.slots,
            cells=backend.cells,
            batch_tokens=backend.batch_tokens,
            context_length=backend.info.context_length,
            can_trim=backend.can_trim,
        )
        self.arrived: list[Sequence] = []
        self.outputs: dict[Sequence, list[int]] = {}
        self.ended: dict[Sequence, Finish | None] = {}
        self.preempted = 0

    def add(self, prompt: Seq[int], max_tokens: int | None = None, seed: int = 0) -> Sequence:
        sampling = Sampling(seed=seed)
        generation = Generation(id=f"resp_{len(self.arrived)}", prompt=prompt, max_tokens=max_tokens, sampling=sampling)
        sequence = self.state.add(generation)
        self.arrived.append(sequence)
        self.outputs[sequence] = []
        return sequence

    def cancel(self, sequence: Sequence) -> None:
        self.state.remove(sequence)
        self._end(sequence, None)

    def step(self) -> list[Decision]:
        """One row of decisions, carried out."""
        row: list[Decision] = []
        while not isinstance(decision := self.decide(self.state), Compute):
            row.append(decision)
            if isinstance(decision, Idle):
                assert not self.state.running and not self.state.waiting
                return row
            self._book(decision)
            assert len(row) <= 3 * self.backend.slots, "no end of decisions"
        self._check_parts(decision)
        self._compute(decision)
        return [*row, decision]

    def run(self) -> None:
        """Until nothing is left to do."""
        while not isinstance(self.step()[-1], Idle):
            pass

    def _book(self, decision: Admit | Evict | Preempt) -> None:
        if isinstance(decision, Preempt):
            self.preempted += 1
            assert len(self.state.running) > 1, "the oldest was preempted"
        self.state.apply(decision)
        self._check_state()

    def _check_parts(self, decision: Compute) -> None:
        decoding = [sequence for sequence in self.state.running if sequence.pending == 1]
        prompts = decision.parts[len(decoding) :]
        assert [sequence for sequence, _ in decision.parts[: len(decoding)]] == decoding
        assert decision.parts and all(0 < count <= sequence.pending for sequence, count in decision.parts)
        if decoding:
            assert sum(count for _, count in prompts) <= MIXED_PREFILL
        arrivals = [self.arrived.index(sequence) for sequence, _ in prompts]
        assert arrivals == sorted(arrivals)

    def _check_state(self) -> None:
        state = self.state
        alive = [*state.running, *state.waiting]
        assert set(alive) == set(self.arrived) - set(self.ended)
        # Nobody overtakes: who runs came before who waits, whatever was preempted in between.
        assert alive == [sequence for sequence in self.arrived if sequence not in self.ended]
        owners = {slot.owner: slot.index for slot in state.slots if slot.owner is not None}
        assert owners == {sequence: sequence.slot for sequence in state.running}
        assert [state.pool.length(slot.index) for slot in state.slots] == [len(slot.tokens) for slot in state.slots]
        for sequence in state.running:
            assert state.slots[sequence.slot].tokens == sequence.tokens[: sequence.computed]

    def _compute(self, decision: Compute) -> None:
        for sequence, _ in decision.parts:
            if sequence.sampler is None:
                generation = sequence.generation
                sequence.sampler = self.backend.sampler(generation.sampling, generation.prompt)
        sampled = self.backend.execute(self.state.batch(decision))
        steps = self.state.complete(decision, sampled)
        for sequence, step in steps:
            self.outputs[sequence] += step.tokens
            if step.finish is not None:
                self._end(sequence, step.finish)
        self._check_state()
        self._check_cache()

    def _check_cache(self) -> None:
        """The books and the cache agree; what was given back since the batch is still in the cache."""
        state = self.state
        if state.can_trim:
            assert self.backend.used == self.backend.cells - state.pool.free
            assert [self.backend.tokens(slot.index) for slot in state.slots] == [slot.tokens for slot in state.slots]
        for sequence in state.running:
            assert self.backend.tokens(sequence.slot) == sequence.tokens[: sequence.computed]

    def _end(self, sequence: Sequence, finish: Finish | None) -> None:
        self.ended[sequence] = finish
        if sequence.sampler is not None:
            sequence.sampler.close()


def drive(
    *,
    slots: int = 3,
    cells: int = 2048,
    batch_tokens: int = 512,
    context_length: int = 1024,
    can_trim: bool = True,
    ends: Ends = never,
) -> Drive:
    return Drive(
        ArithmeticBackend(
            slots=slots,
            cells=cells,
            batch_tokens=batch_tokens,
            context_length=context_length,
            can_trim=can_trim,
            ends=ends,
        )
    )


def text(length: int, start: int = 0) -> list[int]:
    """A prompt; two with different starts have no prefix in common."""
    return [(start + place) % 251 for place in range(length)]


# What is computed


def test_without_requests_there_is_nothing_to_do() -> None:
    assert decided(drive().state) == Idle()


@pytest.mark.parametrize("can_trim", [True, False])
def test_a_prompt_of_one_token_decodes_at_once(can_trim: bool) -> None:
    d = drive(can_trim=can_trim)
    sequence = d.add([7], max_tokens=1)
    assert d.step() == [Admit(0, 0, 0), Compute(((sequence, 1),))]
    assert d.ended == {sequence: Finish.LENGTH}
    assert d.outputs[sequence] == alone([7], 1)


@pytest.mark.parametrize("max_tokens", [None, 1, 5])
@pytest.mark.parametrize("can_trim", [True, False])
def test_a_prompt_of_the_context_minus_one_has_room_for_one_token(max_tokens: int | None, can_trim: bool) -> None:
    d = drive(cells=64, context_length=64, batch_tokens=16, can_trim=can_trim)
    sequence = d.add(text(63), max_tokens)
    d.run()
    assert d.ended == {sequence: Finish.LENGTH}
    assert d.outputs[sequence] == alone(text(63), 1)


def test_an_end_of_generation_token_is_not_part_of_the_output() -> None:
    d = drive(ends=lambda tokens: len(tokens) == 12)
    sequence = d.add(text(10))
    d.run()
    assert d.ended == {sequence: Finish.STOP}
    assert d.outputs[sequence] == alone(text(10), 2)


def test_log_probabilities_are_passed_on() -> None:
    d = drive()
    sequence = d.state.add(Generation(id="r", prompt=[1], sampling=Sampling(top_logprobs=2)))
    d.state.apply(Admit(0, 0, 0))
    sampler = d.backend.sampler(sequence.generation.sampling, [1])
    sequence.sampler = sampler
    compute = Compute(((sequence, 1),))
    [sampled] = d.backend.execute(d.state.batch(compute))
    assert sampled.logprob is not None
    assert d.state.complete(compute, [sampled]) == [(sequence, Step((sampled.token,), None, (sampled.logprob,)))]


def test_alone_a_prompt_fills_the_batch() -> None:
    d = drive(batch_tokens=512)
    sequence = d.add(text(600))
    assert d.step()[-1] == Compute(((sequence, 512),))
    assert d.step()[-1] == Compute(((sequence, 88),))
    assert d.step()[-1] == Compute(((sequence, 1),))


def test_decoding_goes_first_and_a_prompt_gets_the_mixed_bound() -> None:
    d = drive(batch_tokens=512)
    short = d.add(text(3))
    d.step()
    long = d.add(text(300, start=100))
    assert d.step()[-1] == Compute(((short, 1), (long, MIXED_PREFILL)))
    assert d.step()[-1] == Compute(((short, 1), (long, MIXED_PREFILL)))
    assert d.step()[-1] == Compute(((short, 1), (long, 300 - 2 * MIXED_PREFILL)))
    assert d.step()[-1] == Compute(((short, 1), (long, 1)))


def test_decoding_goes_first_even_if_the_prompt_is_older() -> None:
    d = drive(batch_tokens=40)
    long = d.add(text(39))
    short = d.add(text(1, start=100))
    assert d.step()[-1] == Compute(((short, 1), (long, 39)))


def test_a_small_batch_is_shared_in_the_order_of_arrival() -> None:
    d = drive(batch_tokens=64)
    first, second, third = (d.add(text(40, start), max_tokens=3) for start in (0, 50, 100))
    assert d.step()[-1] == Compute(((first, 40), (second, 24)))
    assert d.step()[-1] == Compute(((first, 1), (second, 16), (third, 40)))
    assert d.step()[-1] == Compute(((first, 1), (second, 1), (third, 1)))


def test_a_batch_full_of_decoding_sequences_still_takes_prompt_tokens() -> None:
    d = drive(slots=3, batch_tokens=3)
    first, second, third = (d.add(text(3, start)) for start in (0, 50, 100))
    assert d.step()[-1] == Compute(((first, 3),))
    assert d.step()[-1] == Compute(((first, 1), (second, 2)))
    assert d.step()[-1] == Compute(((first, 1), (second, 1), (third, 1)))
    assert d.step()[-1] == Compute(((first, 1), (second, 1), (third, 1)))


# Who is admitted, and where


def test_first_come_first_served_when_the_slots_are_full() -> None:
    d = drive(slots=2)
    first, second, third, fourth = (d.add(text(10, 20 * n), max_tokens=5 - n) for n in range(4))
    d.step()
    assert d.state.running == [first, second]
    assert list(d.state.waiting) == [third, fourth]
    d.run()
    assert list(d.ended) == [second, first, third, fourth]


def test_a_second_turn_takes_its_slot_over() -> None:
    d = drive()
    first = d.add(text(20), max_tokens=5)
    d.run()
    prompt = [*text(20), *d.outputs[first], *text(4, start=200)]
    second = d.add(prompt, max_tokens=2)
    assert d.step()[0] == Admit(0, 0, 24)  # The last sampled token was never computed.
    assert second.cached == 24
    d.run()
    assert d.outputs[second] == alone(prompt, 2)


def test_a_branch_gets_a_slot_of_its_own() -> None:
    d = drive()
    d.add(text(40), max_tokens=1)
    d.run()
    d.add([*text(20), 255], max_tokens=1)
    assert d.step()[0] == Admit(1, 0, 20)
    d.add([*text(40), 7], max_tokens=1)
    assert d.step()[0] == Admit(0, 0, 40)  # The longer prefix is still whole.


def test_a_branch_takes_the_slot_over_if_there_is_no_other() -> None:
    d = drive(slots=1)
    d.add(text(40), max_tokens=1)
    d.run()
    sequence = d.add([*text(5), 255], max_tokens=3)
    assert d.step()[0] == Admit(0, 0, 5)
    d.run()
    assert d.outputs[sequence] == alone([*text(5), 255], 3)


def test_more_than_half_is_a_continuation() -> None:
    d = drive()
    d.add(text(40), max_tokens=1)
    d.run()
    d.add([*text(21), 255], max_tokens=1)
    assert d.step()[0] == Admit(0, 0, 21)


def test_a_running_sequence_lends_its_prefix() -> None:
    d = drive()
    first = d.add(text(40))
    d.step()
    second = d.add([*text(30), 255])
    assert d.step() == [Admit(1, 0, 30), Compute(((first, 1), (second, 1)))]
    assert d.backend.used == 40 + 1 + 1


def test_the_same_prompt_again_computes_one_token() -> None:
    d = drive()
    d.add(text(40), max_tokens=3)
    d.run()
    again = d.add(text(40), max_tokens=3)
    assert d.step() == [Admit(0, 0, 39), Compute(((again, 1),))]
    assert again.cached == 39


def test_without_trimming_nothing_is_shared_or_kept() -> None:
    d = drive(can_trim=False)
    for slot in (0, 1):  # Empty slots have no order that matters: the least recently used.
        d.add(text(40), max_tokens=3)
        assert d.step()[0] == Admit(slot, slot, 0)
        d.run()
    assert d.state.pool.free == d.backend.cells


def test_the_coldest_prefix_makes_way_when_the_slots_are_taken() -> None:
    d = drive(slots=2)
    for start in (0, 50):
        d.add(text(10, start), max_tokens=1)
        d.run()
    d.add(text(12), max_tokens=1)  # Slot 0 is warm again.
    d.run()
    d.add(text(10, start=150), max_tokens=1)
    assert d.step()[0] == Admit(1, 1, 0)


# Room


def test_the_coldest_prefix_is_evicted_first_and_only_as_many_as_needed() -> None:
    d = drive(slots=4, cells=100, context_length=100)
    for start in (0, 50, 100):
        d.add(text(30, start), max_tokens=1)
        d.run()
    d.add(text(40, start=150), max_tokens=1)
    assert d.step()[:-1] == [Evict(0), Admit(3, 3, 0)]
    assert [len(slot.tokens) for slot in d.state.slots] == [0, 30, 30, 40]


def test_the_wanted_prefix_is_kept_though_it_is_the_coldest() -> None:
    d = drive(slots=3, cells=100, context_length=100)
    for start in (0, 100):
        d.add(text(40, start), max_tokens=1)
        d.run()
    sequence = d.add([*text(40), *text(30, start=200)], max_tokens=1)
    assert d.step()[:-1] == [Evict(1), Admit(0, 0, 40)]
    assert sequence.cached == 40


def test_a_tail_behind_the_wanted_prefix_is_dropped_for_room() -> None:
    d = drive(slots=2, cells=100, context_length=100)
    d.add(text(80), max_tokens=1)
    d.run()
    d.add([*text(30), *text(60, start=100)], max_tokens=1)
    assert d.step()[0] == Admit(0, 0, 30)  # A branch, but there is no room for both.


@pytest.mark.parametrize("missing", [0, 1])
def test_nobody_is_admitted_on_promised_cells(missing: int) -> None:
    """The first needs 1 and its headroom, the second 20: all of it must be free."""
    d = drive(slots=2, cells=100, context_length=100)
    first = d.add(text(100 - 1 - HEADROOM - 20 + missing))
    d.step()
    second = d.add(text(20, start=200))
    if missing:
        assert decided(d.state) == Compute(((first, 1),))
        assert list(d.state.waiting) == [second]
    else:
        assert decided(d.state) == Admit(1, 1, 0)


def test_prefixes_stay_if_even_all_of_them_are_too_little() -> None:
    d = drive(slots=3, cells=100, context_length=100)
    d.add(text(20), max_tokens=1)
    d.run()
    first = d.add(text(30, start=50))
    d.step()
    d.add(text(60, start=120))
    assert d.step() == [Compute(((first, 1),))]
    assert len(d.state.slots[0].tokens) == 20


def test_who_waits_for_room_is_not_overtaken() -> None:
    d = drive(slots=3, cells=100, context_length=100)
    first = d.add(text(30), max_tokens=3)
    d.step()
    large, small = d.add(text(60, start=50), max_tokens=2), d.add([255], max_tokens=1)
    assert d.step() == [Compute(((first, 1),))]
    d.run()
    assert list(d.ended) == [first, small, large]  # Admitted in one step; the small one has less to say.
    assert d.state.waiting == deque()


def test_a_cold_prefix_goes_before_a_running_sequence() -> None:
    d = drive(slots=3, cells=100, context_length=100)
    d.add(text(30), max_tokens=1)
    d.run()
    first = d.add(text(69, start=100))
    d.step()
    assert d.state.pool.free == 1
    d.step()
    assert d.step() == [Evict(0), Compute(((first, 1),))]


def test_the_youngest_is_preempted_and_comes_back_to_the_front() -> None:
    d = drive(slots=3, cells=120, context_length=120)
    first, second = d.add(text(30)), d.add(text(30, start=100))
    third = d.add([255], max_tokens=2)
    while not d.preempted:
        row = d.step()
    assert row == [Preempt(), Compute(((first, 1),))]
    assert d.state.running == [first]
    assert list(d.state.waiting) == [second, third]
    d.run()
    assert d.outputs[first] == alone(text(30), 90)
    assert d.outputs[second] == alone(text(30, start=100), 90)
    assert d.backend.open_samplers == set()


def test_a_prompt_takes_what_is_left_before_anybody_is_preempted() -> None:
    d = drive(slots=2, cells=100, context_length=100, batch_tokens=10)
    old, young = d.add(text(40)), d.add(text(10, start=100))
    for _ in range(4):
        d.step()
    assert (old.pending, young.pending) == (1, 10)
    d.state.pool.extend(1, d.state.pool.free - 3)  # Somebody else's cells: three are left.
    assert decided(d.state) == Compute(((old, 1), (young, 2)))
    d.state.pool.extend(1, 2)
    assert decided(d.state) == Compute(((old, 1),))
    d.state.pool.extend(1, 1)
    assert decided(d.state) == Preempt()


def test_relief_is_the_coldest_prefix_then_the_youngest_and_never_the_oldest() -> None:
    d = drive(slots=4)
    for start in (0, 50):
        d.add(text(10, start), max_tokens=1)
        d.run()
    assert relief(d.state) == Evict(0)
    d.state.apply(Evict(0))
    d.state.apply(Evict(1))
    assert relief(d.state) is None
    d.add(text(5))
    d.step()
    assert relief(d.state) is None
    d.add(text(5, start=100))
    d.step()
    assert relief(d.state) == Preempt()


# Ends from outside


def test_removing_is_idempotent_in_every_phase() -> None:
    d = drive(slots=1)
    running, waiting = d.add(text(10)), d.add(text(10, start=100))
    d.step()
    for sequence in (waiting, running, running, waiting):
        d.state.remove(sequence)
        assert sequence not in d.state.running
        assert sequence not in d.state.waiting
    assert d.state.slots[0].tokens == text(10)
    assert decided(d.state) == Idle()


def test_a_cancelled_prompt_leaves_what_it_computed_as_a_prefix() -> None:
    d = drive(batch_tokens=16)
    first = d.add(text(40))
    d.step()
    d.cancel(first)
    again = d.add(text(40), max_tokens=2)
    assert d.step()[0] == Admit(0, 0, 16)
    d.run()
    assert d.outputs[again] == alone(text(40), 2)


@pytest.mark.parametrize("steps", [0, 1])
def test_dropping_empties_the_slot_even_where_the_count_says_it_is_empty(steps: int) -> None:
    """A batch that failed may have left half of itself in the cache."""
    d = drive()
    sequence = d.add(text(10))
    for _ in range(steps):
        d.step()
    if not steps:
        d.state.apply(Admit(0, 0, 0))
    d.state.drop(sequence)
    d.state.drop(sequence)
    assert d.state.slots[0].tokens == []
    assert d.state.pool.free == d.backend.cells
    assert Trim(0, 0) in d.state.batch(Compute(())).moves


def test_dropping_who_waits_touches_no_slot() -> None:
    d = drive(slots=1)
    d.add(text(10))
    d.step()
    waiting = d.add(text(20, start=100))
    d.state.drop(waiting)
    assert d.state.slots[0].tokens == text(10)
    assert not d.state.waiting


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold 4 decoding"):
        State(slots=4, cells=10, batch_tokens=3, context_length=10, can_trim=True)
    with pytest.raises(ValueError, match="does not fit"):
        State(slots=4, cells=10, batch_tokens=4, context_length=11, can_trim=True)


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_the_common_prefix(stem: list[int], one: list[int], other: list[int]) -> None:
    a, b = stem + one, stem + other
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    assert common_prefix(a, b) == common_prefix(b, a) == length


# The backend says that there is no room


def exhaust(d: Drive) -> bool:
    """Decides until there is a batch, and lets the backend refuse it."""
    while not isinstance(decision := decided(d.state), Compute):
        assert not isinstance(decision, Idle)
        d.state.apply(decision)
    d.state.batch(decision)
    return d.state.exhausted()


def test_an_exhausted_backend_gets_cold_prefixes_then_the_youngest_back() -> None:
    d = drive()
    d.add(text(10), max_tokens=1)
    d.run()
    first, second = d.add(text(10, start=50)), d.add(text(10, start=100))
    assert exhaust(d)
    assert d.state.slots[0].tokens == []
    assert d.state.running == [first, second]
    assert exhaust(d)
    assert d.state.running == [first]
    assert exhaust(d) is False
    assert d.state.running == [first]


def test_who_was_preempted_for_the_backend_does_not_come_back_before_a_batch_got_through() -> None:
    d = drive()
    first, second = d.add(text(10)), d.add(text(10, start=100))
    exhaust(d)
    compute = decided(d.state)
    assert compute == Compute(((first, 10),))
    assert isinstance(compute, Compute)
    d.state.batch(compute)
    d.state.complete(compute, [Sampled(1, False)])
    assert decided(d.state) == Admit(2, 2, 0)
    d.state.apply(Admit(2, 2, 0))
    assert d.state.running == [first, second]


def test_who_was_preempted_for_the_backend_comes_back_when_nobody_runs() -> None:
    d = drive()
    first, second = d.add(text(10)), d.add(text(10, start=100))
    exhaust(d)
    d.state.remove(first)
    assert decided(d.state) == Admit(2, 2, 0)
    d.state.apply(Admit(2, 2, 0))
    assert d.state.running == [second]


# Whole runs


class Arrival(NamedTuple):
    """A request, the step before which it arrives, and after how many steps its client goes away."""

    prompt: list[int]
    max_tokens: int | None
    seed: int
    step: int
    patience: int | None


class World(Struct):
    slots: int
    cells: int
    batch_tokens: int
    context_length: int
    can_trim: bool
    arrivals: list[Arrival]


def rarely_ends(tokens: Seq[int]) -> bool:
    return checksum(tokens) % 41 == 0


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Few stems, so that prompts share prefixes; a cache that is seldom large enough for all."""
    context = draw(st.sampled_from([2, 5, 40, 80, 120]))
    slots = draw(st.integers(1, 5))

    def arrival() -> Arrival:
        stem = text(draw(st.integers(0, context)), start=draw(st.sampled_from([0, 0, 100])))
        tail = draw(st.lists(st.integers(0, 1), max_size=4))
        prompt = (stem + tail)[: context - 1] or [0]
        limit = draw(st.none() | st.integers(1, context))
        patience = draw(st.none() | st.none() | st.integers(0, 30))
        return Arrival(prompt, limit, draw(st.integers(0, 2)), draw(st.integers(0, 60)), patience)

    return World(
        slots=slots,
        cells=context + draw(st.integers(0, 2 * context)),
        batch_tokens=slots + draw(st.sampled_from([0, 1, 10, 200])),
        context_length=context,
        can_trim=draw(st.booleans()),
        arrivals=sorted((arrival() for _ in range(draw(st.integers(1, 9)))), key=lambda one: one.step),
    )


def live_through(world: World) -> Drive:
    """Every arrival and every cancellation at its time, then until all is done."""
    d = drive(
        slots=world.slots,
        cells=world.cells,
        batch_tokens=world.batch_tokens,
        context_length=world.context_length,
        can_trim=world.can_trim,
        ends=rarely_ends,
    )
    coming = deque(world.arrivals)
    leaving: list[tuple[int, Sequence]] = []
    now = 0
    while coming or d.state.running or d.state.waiting:
        while coming and coming[0].step <= now:
            arrival = coming.popleft()
            sequence = d.add(arrival.prompt, arrival.max_tokens, arrival.seed)
            if arrival.patience is not None:
                leaving.append((now + arrival.patience, sequence))
        for at, sequence in leaving:
            if at == now and sequence not in d.ended:
                d.cancel(sequence)
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
        if finish is None:
            assert output == right[: len(output)]
        else:
            assert output == right
            assert finish is (Finish.LENGTH if len(right) == limit else Finish.STOP)
        assert (sequence.cached or 0) < len(generation.prompt)
    assert d.backend.open_samplers == set()


@settings(deadline=None, max_examples=100)
@given(worlds())
def test_whatever_comes_everybody_is_answered_as_if_alone(world: World) -> None:
    d = live_through(world)
    check_outputs(d)
    for slot in d.state.slots:
        if slot.tokens:
            d.state.apply(Evict(slot.index))
    assert d.state.pool.free == d.backend.cells


@pytest.mark.parametrize("can_trim", [True, False])
def test_three_hundred_requests_on_a_cache_that_is_too_small(can_trim: bool) -> None:
    backend = ArithmeticBackend(slots=8, cells=260, context_length=120, can_trim=can_trim)
    d = Drive(backend, decide)
    for n in range(300):
        d.add([*text(n % 60), n % 7, n % 256], max_tokens=1 + n % 70, seed=n % 5)
    d.run()
    assert len(d.ended) == 300
    assert d.preempted
    check_outputs(d)
