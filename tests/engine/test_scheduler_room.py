"""Single decisions when cells are short, by the scheduler's own count or because the backend says so."""

from __future__ import annotations

from collections import deque

import pytest

from antiphon.engine.backend import Sampled
from antiphon.engine.scheduler import (
    HEADROOM,
    Admit,
    Compute,
    Evict,
    Idle,
    Preempt,
    relief,
)
from tests.engine.arithmetic_backend import alone
from tests.engine.drive import Drive, decided, drive, text

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


def test_a_wanted_prefix_does_not_count_as_room() -> None:
    """The first holds 30 and is promised 33, the second wants 30 beside the 20 that are there: 113 of 100."""
    d = drive(slots=3, cells=100, context_length=100)
    d.add(text(20, start=100), max_tokens=1)
    d.run()
    first = d.add(text(30))
    d.step()
    second = d.add([*text(20, start=100), *text(30, start=200)])
    assert decided(d.state) == Compute(((first, 1),))
    assert list(d.state.waiting) == [second]


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


def test_a_cold_prefix_goes_before_a_prompt_is_cut_short() -> None:
    d = drive(slots=3, cells=100, context_length=100, batch_tokens=10)
    d.add(text(5, start=200), max_tokens=1)
    d.run()
    old, young = d.add(text(40)), d.add(text(10, start=100))
    for _ in range(4):
        d.step()
    assert (old.pending, young.pending) == (1, 10)
    d.state.pool.extend(2, d.state.pool.free - 3)
    assert decided(d.state) == Evict(0)


def test_prompts_without_any_room_preempt_too() -> None:
    d = drive(slots=2, cells=100, context_length=100, batch_tokens=10)
    old, young = d.add(text(20)), d.add(text(20, start=100))
    d.step()
    assert (old.pending, young.pending) == (10, 20)
    d.state.pool.extend(1, d.state.pool.free - 1)
    assert decided(d.state) == Compute(((old, 1),))
    d.state.pool.extend(1, 1)
    assert decided(d.state) == Preempt()


def test_what_was_cached_is_what_was_found_at_first() -> None:
    """Admitted together, neither finds the other's prefix; the preempted one does when it comes back."""
    d = drive(slots=2, cells=120, context_length=120)
    first, second = d.add([*text(20), 254]), d.add([*text(20), 255])
    while not d.preempted:
        d.step()
    while second not in d.state.running:
        d.step()
    assert second.computed > 20
    d.run()
    assert (first.cached, second.cached) == (0, 0)
    assert d.outputs[second] == alone([*text(20), 255], 99)


def test_who_is_preempted_before_the_first_token_is_told_what_was_found_at_last() -> None:
    d = drive(slots=2, cells=120, context_length=120, batch_tokens=30)
    d.add([*text(20), 254], max_tokens=2)
    second = d.add([*text(20), 255], max_tokens=2)
    d.step()
    assert second in d.state.running
    assert not second.answered
    d.state.apply(Preempt())
    d.run()
    assert second.cached == 20


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
