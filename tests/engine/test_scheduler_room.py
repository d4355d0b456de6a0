"""Single decisions when cells are short, by the scheduler's own count or because the backend says so."""

from __future__ import annotations

from collections import deque

import pytest

from antiphon.engine.backend import Sampled
from antiphon.engine.prefix_tree import Node
from antiphon.engine.scheduler import HEADROOM, relief
from antiphon.engine.sequence import Sequence
from antiphon.engine.state import Admit, Compute, Evict, Idle, Preempt
from tests.engine.arithmetic_backend import alone
from tests.engine.drive import Drive, decided, drive, right, text


def small(*, lanes: int = 3, batch_tokens: int = 512, ram: int = 0) -> Drive:
    return drive(lanes=lanes, cells=100, context_length=100, batch_tokens=batch_tokens, ram=ram)


def known(d: Drive, *prompts: list[int]) -> list[Node]:
    """Prefixes in the cache, the coldest first."""
    for prompt in prompts:
        d.add(prompt, max_tokens=1)
        d.run()
    return [d.node(prompt) for prompt in prompts]


def root(d: Drive) -> Node:
    return d.cache.tree.root("")


# Room


def test_the_coldest_prefix_is_evicted_first_and_only_as_many_as_needed() -> None:
    d = small()
    first, second, third = known(d, text(30), text(30, start=50), text(30, start=100))
    d.add(text(40, start=150), max_tokens=1)
    assert d.step()[:-1] == [Evict(first), Admit(root(d), 0)]
    assert (first.resident, second.resident, third.resident) == (False, True, True)


def test_use_makes_warm() -> None:
    d = small()
    first, second = known(d, text(30), text(30, start=50))
    known(d, text(30))
    assert relief(d.state) == Evict(second)
    assert first.resident


def test_leaves_are_evicted_before_what_they_stand_on() -> None:
    d = small()
    known(d, text(30))
    known(d, [*text(30), *text(20, start=100)])
    upper, lower = d.node(text(30)), d.node([*text(30), *text(20, start=100)])
    assert relief(d.state) == Evict(lower)
    d.state.apply(Evict(lower))
    assert relief(d.state) == Evict(upper)


def test_the_wanted_prefix_is_kept_though_it_is_the_coldest() -> None:
    d = small()
    wanted, other = known(d, text(40), text(40, start=100))
    sequence = d.add([*text(40), *text(30, start=200)], max_tokens=1)
    assert d.step()[:-1] == [Evict(other), Admit(wanted, 40)]
    assert sequence.cached == 40


def test_a_tail_behind_the_wanted_prefix_is_dropped_for_room() -> None:
    d = small(lanes=2)
    [node] = known(d, text(80))
    sequence = d.add([*text(30), *text(60, start=100)], max_tokens=1)
    assert d.step()[:2] == [Admit(node, 30), Evict(node)]
    assert not node.resident
    assert d.node(text(30)).resident
    assert sequence.cached == 30
    assert right(d, sequence)


def test_a_tail_that_somebody_uses_is_not_counted_as_room() -> None:
    d = small(lanes=2)
    known(d, text(60))
    first = d.add([*text(60), 7])
    d.step()
    d.add([*text(30), *text(10, start=100)])
    assert d.step() == [Compute(((first, 1),))]


@pytest.mark.parametrize("missing", [0, 1])
def test_nobody_is_admitted_on_promised_cells(missing: int) -> None:
    """The first needs 1 and its headroom, the second 20: all of it must be free."""
    d = small(lanes=2)
    first = d.add(text(100 - 1 - HEADROOM - 20 + missing))
    d.step()
    second = d.add(text(20, start=200))
    if missing:
        assert decided(d.state) == Compute(((first, 1),))
        assert list(d.state.waiting) == [second]
    else:
        assert decided(d.state) == Admit(root(d), 0)


def test_prefixes_stay_if_even_all_of_them_are_too_little() -> None:
    d = small()
    [node] = known(d, text(20))
    first = d.add(text(30, start=50))
    d.step()
    d.add(text(60, start=120))
    assert d.step() == [Compute(((first, 1),))]
    assert node.resident


def test_a_wanted_prefix_does_not_count_as_room() -> None:
    """The first holds 30 and is promised 33, the second wants 30 beside the 20 that are there: 113 of 100."""
    d = small()
    known(d, text(20, start=100))
    first = d.add(text(30))
    d.step()
    second = d.add([*text(20, start=100), *text(30, start=200)])
    assert decided(d.state) == Compute(((first, 1),))
    assert list(d.state.waiting) == [second]


def test_who_waits_for_room_is_not_overtaken() -> None:
    d = small()
    first = d.add(text(30), max_tokens=3)
    d.step()
    large, little = d.add(text(60, start=50), max_tokens=2), d.add([255], max_tokens=1)
    assert d.step() == [Compute(((first, 1),))]
    d.run()
    assert list(d.ended) == [first, large, little]  # Admitted in one step, and it was the turn of prompts.
    assert d.state.waiting == deque()


def test_a_cold_prefix_goes_before_a_running_sequence() -> None:
    d = small()
    [node] = known(d, text(30))
    first = d.add(text(69, start=100))
    d.step()
    assert d.state.free == 1
    d.step()
    assert d.step() == [Evict(node), Compute(((first, 1),))]


# Preemption


def run_until_preempted(d: Drive) -> list[object]:
    while not d.state.preempted:
        row = d.step()
    return list(row)


def test_the_youngest_is_preempted_and_comes_back_to_the_front() -> None:
    d = drive(lanes=3, cells=120, context_length=120)
    first, second = d.add(text(30)), d.add(text(30, start=100))
    third = d.add([255], max_tokens=2)
    row = run_until_preempted(d)
    assert row[0] == Preempt()
    assert d.state.running == [first]
    assert list(d.state.waiting) == [second, third]
    d.run()
    assert d.outputs[first] == alone(text(30), 90)
    assert d.outputs[second] == alone(text(30, start=100), 90)
    assert d.backend.open_samplers == set()


@pytest.mark.parametrize("ram", [0, 1000])
def test_who_was_preempted_comes_back_from_memory(ram: int) -> None:
    d = drive(lanes=2, cells=120, context_length=120, ram=ram)
    first, second = d.add(text(30)), d.add(text(30, start=100))
    run_until_preempted(d)
    assert d.outputs[second]
    d.run()
    assert right(d, first, second)
    assert (d.backend.computed == 2 * (30 + 89)) is bool(ram)
    assert bool(d.cache.restored) is bool(ram)


def test_what_was_cached_is_what_was_found_at_first() -> None:
    """Admitted together, neither finds the other's prefix; the preempted one finds its own when it comes back."""
    d = drive(lanes=2, cells=120, context_length=120)
    first, second = d.add([*text(20), 254]), d.add([*text(20), 255])
    run_until_preempted(d)
    while second not in d.state.running:
        d.step()
    assert second.computed > 20
    d.run()
    assert (first.cached, second.cached) == (0, 0)
    assert d.outputs[second] == alone([*text(20), 255], 99)


def crowd(d: Drive, cells: int) -> None:
    """Somebody else's cells: so many are left."""
    d.state.cells -= d.state.free - cells


def test_a_prompt_takes_what_is_left_before_anybody_is_preempted() -> None:
    d = small(lanes=2, batch_tokens=10)
    old, young = d.add(text(40)), d.add(text(10, start=100))
    for _ in range(4):
        d.step()
    assert (old.pending, young.pending) == (1, 10)
    crowd(d, 3)
    d.state.prefill_next = True
    assert decided(d.state) == Compute(((young, 3),))
    crowd(d, 1)
    assert decided(d.state) == Compute(((young, 1),))
    d.state.prefill_next = False
    assert decided(d.state) == Compute(((old, 1),))
    crowd(d, 0)
    assert decided(d.state) == Preempt()


def test_a_cold_prefix_goes_before_a_prompt_is_cut_short() -> None:
    d = small(batch_tokens=10)
    [node] = known(d, text(5, start=200))
    old, young = d.add(text(40)), d.add(text(10, start=100))
    for _ in range(4):
        d.step()
    assert (old.pending, young.pending) == (1, 10)
    crowd(d, 3)
    d.state.prefill_next = True
    assert decided(d.state) == Evict(node)


def test_prompts_without_any_room_preempt_too() -> None:
    d = small(lanes=2, batch_tokens=10)
    old, young = d.add(text(20)), d.add(text(20, start=100))
    d.step()
    assert (old.pending, young.pending) == (10, 20)
    crowd(d, 1)
    assert decided(d.state) == Compute(((old, 1),))
    crowd(d, 0)
    assert decided(d.state) == Preempt()


def test_the_oldest_is_never_preempted() -> None:
    d = small(batch_tokens=10)
    d.add(text(40))
    d.step()
    assert relief(d.state) is None
    d.add(text(10, start=100))
    d.step()
    assert relief(d.state) == Preempt()


# What would come back is too much


def test_a_copy_that_is_larger_than_the_room_is_left_outside() -> None:
    """Cut to 10 of 90 tokens, the copy still comes back whole: 90 cells beside the 50 of the prompt."""
    d = small(lanes=1, ram=200)
    [node] = known(d, text(90))
    d.state.apply(Evict(node))
    d.run()
    sequence = d.add([*text(10), *text(40, start=100)], max_tokens=2)
    assert d.step()[0] == Admit(root(d), 0)
    assert sequence.cached == 0
    d.run()
    assert right(d, sequence)


def test_what_is_inside_is_still_used_when_the_rest_is_left_outside() -> None:
    d = small(lanes=1, ram=200)
    prompt = [*text(20), *text(70, start=100)]
    known(d, text(20), prompt)
    upper, lower = d.node(text(20)), d.node(prompt)
    d.state.apply(Evict(lower))
    d.run()
    sequence = d.add([*prompt[:30], *text(40, start=200)], max_tokens=2)
    assert d.step()[0] == Admit(upper, 20)
    assert sequence.cached == 20
    d.run()
    assert right(d, sequence)


def test_room_is_made_even_so() -> None:
    """What would come back is left outside, and what is cold must still go."""
    d = small(lanes=1, ram=200)
    [wanted] = known(d, text(70))
    d.state.apply(Evict(wanted))
    d.run()
    [other] = known(d, text(60, start=100))
    sequence = d.add([*text(10), *text(50, start=200)], max_tokens=2)
    assert d.step()[:2] == [Evict(other), Admit(root(d), 0)]
    d.run()
    assert right(d, sequence)


# The backend says that there is no room


def exhaust(d: Drive) -> bool:
    """Decides until there is a batch, and lets the backend refuse it after the moves."""
    while not isinstance(decision := decided(d.state), Compute):
        assert not isinstance(decision, Idle)
        d.state.apply(decision)
    d.state.batch(decision.parts)
    return d.state.exhausted(relief(d.state))


def compute(d: Drive) -> list[Sequence]:
    decision = decided(d.state)
    assert isinstance(decision, Compute)
    d.state.batch(decision.parts)
    d.state.complete(decision.parts, [Sampled(1, False)] * len(decision.parts))
    return [sequence for sequence, _ in decision.parts]


def test_an_exhausted_backend_gets_cold_prefixes_then_the_youngest_back() -> None:
    d = drive()
    [node] = known(d, text(10))
    first, second = d.add(text(10, start=50)), d.add(text(10, start=100))
    assert exhaust(d)
    assert not node.resident
    assert d.state.running == [first, second]
    assert exhaust(d)
    assert d.state.running == [first]
    assert exhaust(d) is False
    assert d.state.running == [first]


def test_who_was_preempted_for_the_backend_does_not_come_back_before_a_batch_got_through() -> None:
    d = drive()
    first, second = d.add(text(10)), d.add(text(10, start=100))
    exhaust(d)
    assert list(d.state.waiting) == [second]
    assert compute(d) == [first]
    assert decided(d.state) == Admit(root(d), 0)
    d.state.apply(Admit(root(d), 0))
    assert d.state.running == [first, second]


def test_who_was_preempted_for_the_backend_comes_back_when_nobody_runs() -> None:
    d = drive()
    first, second = d.add(text(10)), d.add(text(10, start=100))
    exhaust(d)
    d.state.remove(first)
    while not isinstance(decision := decided(d.state), Compute):
        assert not isinstance(decision, Idle)
        d.state.apply(decision)
    assert d.state.running == [second]
