"""What is computed once and used by many: turns, branches, requests that come together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from antiphon.engine.backend import Share
from antiphon.engine.scheduler import WORTH_WAITING
from antiphon.engine.sequence import Sequence
from antiphon.engine.state import Admit, Compute, Preempt, Publish
from tests.engine.arithmetic_backend import alone
from tests.engine.drive import Drive, decided, drive, known, lengths, put_out, right, text

COMMON = text(200)


# What ended before


def test_a_second_turn_goes_on_from_the_first() -> None:
    d = drive()
    first = d.add(text(20), max_tokens=5)
    d.run()
    prompt = [*text(20), *d.outputs[first], *text(4, start=200)]
    second = d.add(prompt, max_tokens=2)
    node = d.node(prompt)
    assert d.step()[0] == Admit(node, 24)  # The last sampled token was never computed.
    assert second.cached == 24
    d.run()
    assert d.outputs[second] == alone(prompt, 2)
    assert d.backend.computed == 24 + 1 + 4 + 1
    assert lengths(d) == [24, 6]


def test_the_same_prompt_again_computes_one_token() -> None:
    d = drive()
    d.add(text(40), max_tokens=3)
    d.run()
    node = d.node(text(40))
    again = d.add(text(40), max_tokens=3)
    assert d.step() == [Admit(node, 39), Compute(((again, 1),))]
    assert again.cached == 39
    d.run()
    assert lengths(d) == [39, 3]  # Their common end is there once.


def test_a_branch_splits_a_node() -> None:
    d = drive()
    d.add(text(40), max_tokens=1)
    d.run()
    node = d.node(text(40))
    sequence = d.add([*text(20), 255], max_tokens=2)
    assert d.step() == [Admit(node, 20), Compute(((sequence, 1),))]
    assert sequence.leaf is node.parent
    assert (node.tokens, node.start) == (text(20, start=20), 20)
    assert d.node(text(40)) is node
    assert d.backend.used == 40 + 1
    d.run()
    assert right(d, sequence)


def test_a_branch_at_the_end_of_a_node_splits_nothing() -> None:
    d = drive()
    d.add(text(40), max_tokens=1)
    d.run()
    node = d.node(text(40))
    sequence = d.add([*text(40), 7], max_tokens=2)
    assert d.step()[0] == Admit(node, 40)
    d.run()
    assert lengths(d) == [40, 2]
    assert right(d, sequence)


def test_a_branch_at_the_root_shares_nothing() -> None:
    d = drive()
    d.add(text(40), max_tokens=1)
    d.run()
    sequence = d.add(text(40, start=1), max_tokens=1)
    assert d.step()[0] == Admit(d.cache.tree.root(""), 0)
    assert sequence.cached == 0
    assert lengths(d) == [40, 40]


def test_two_owners_never_share() -> None:
    d = drive()
    for owner in ("a", "b"):
        sequence = d.add(text(40), max_tokens=3, owner=owner)
        assert d.step()[0] == Admit(d.cache.tree.root(owner), 0)
        assert sequence.cached == 0
        d.run()
    assert d.backend.computed == 2 * 42


def test_an_owner_does_not_wait_for_what_another_computes() -> None:
    """Or the time until the first token would tell what others have asked."""
    d = drive(batch_tokens=64)
    first, second = (d.add(COMMON, max_tokens=2, owner=owner) for owner in ("a", "b"))
    d.step()
    assert d.state.running == [first, second]
    d.run()
    assert d.backend.computed == 2 * 201
    assert right(d, first, second)


# What is just being computed


def test_requests_that_come_together_compute_their_common_prefix_once() -> None:
    d = drive(lanes=5)
    first, *others = [d.add([*COMMON, *text(10, start=210 + n)], max_tokens=4) for n in range(5)]
    assert d.step() == [Admit(d.cache.tree.root(""), 0), Compute(((first, 210),))]
    row = d.step()
    node = d.node(COMMON)
    assert row[:2] == [Publish(first, 200), Admit(node, 200)]
    assert row[-1] == Compute(((first, 1),))
    assert d.step()[-1] == Compute(tuple((other, 10) for other in others))
    d.run()
    assert d.backend.computed == 200 + 5 * (10 + 3)
    assert [sequence.cached for sequence in d.arrived] == [0, 200, 200, 200, 200]
    assert (d.state.prompt_tokens, d.state.cached_tokens) == (5 * 210, 4 * 200)
    assert right(d, *d.arrived)


def test_the_same_prompt_at_the_same_time_is_computed_once() -> None:
    d = drive(batch_tokens=64)
    sequences = [d.add(COMMON, max_tokens=2, seed=n) for n in range(3)]
    d.run()
    assert d.backend.computed == 200 + 2 * 1 + 3 * 1  # Each samples its own first token, behind the same last one.
    assert [sequence.cached for sequence in sequences] == [0, 199, 199]


def test_a_running_answer_lends_its_prefix_too() -> None:
    d = drive()
    first = d.add(text(60))
    for _ in range(41):
        d.step()
    second = d.add([*first.tokens[:90], 255], max_tokens=2)
    assert decided(d.state) == Publish(first, 90)
    d.run()
    assert second.cached == 90
    assert right(d, second)


@pytest.mark.parametrize("most", [0, 1])
def test_who_has_most_in_common_is_waited_for(most: int) -> None:
    """Both began before the tree had anything that they share."""
    d = drive(batch_tokens=512)
    prompts = [[*text(20), *text(60, start=100)], [*text(20), *text(15, start=100), *text(60, start=200)]]
    running = [d.add(prompts[most]), d.add(prompts[1 - most])]
    for sequence in running:
        d.state.apply(Admit(d.cache.tree.root(""), 0))
        assert sequence in d.state.running
    d.step()
    waiting = d.add([*prompts[0], 255], max_tokens=2)
    assert d.step()[0] == Publish(running[most], 80)
    assert waiting.cached == 80
    d.run()
    assert right(d, *running, waiting)


@pytest.mark.parametrize("common", [WORTH_WAITING - 1, WORTH_WAITING])
def test_a_short_common_prefix_is_not_waited_for(common: int) -> None:
    d = drive(batch_tokens=16)
    first = d.add([*text(common), *text(50, start=100)])
    second = d.add([*text(common), *text(50, start=200)])
    d.step()
    assert (second in d.state.running) is (common < WORTH_WAITING)
    d.run()
    assert second.cached == (0 if common < WORTH_WAITING else common)
    assert right(d, first, second)


def test_what_the_tree_has_already_is_not_waited_for() -> None:
    """Only what a running sequence has more than the tree counts."""
    d = drive(batch_tokens=32)
    d.add(text(60), max_tokens=1)
    d.run()
    first, second = (d.add([*text(60), *text(20), *text(50, start=100 + n)]) for n in range(2))
    d.step()
    assert d.state.running == [first, second]
    assert second.cached == 60


def test_the_last_token_of_a_prompt_is_not_waited_for() -> None:
    d = drive(batch_tokens=16)
    first = d.add([*text(40), *text(9, start=100)])
    second = d.add(text(WORTH_WAITING))
    d.step()
    assert d.state.running == [first, second]


STEPS = 24


def leaves(d: Drive, sequence: Sequence) -> None:
    if sequence not in d.ended:
        d.cancel(sequence)


def fails(d: Drive, sequence: Sequence) -> None:
    if sequence not in d.ended:
        d.fail(sequence)


def is_preempted(d: Drive, sequence: Sequence) -> None:
    if sequence in d.state.running[1:]:
        while sequence in d.state.running:
            d.state.apply(Preempt())


@pytest.mark.parametrize("steps", range(STEPS))
@pytest.mark.parametrize("trouble", [leaves, fails, is_preempted])
def test_who_waits_goes_on_whatever_happens_to_who_computes(
    trouble: Callable[[Drive, Sequence], None], steps: int
) -> None:
    d = drive(lanes=4, batch_tokens=24)
    older = d.add(text(5, start=100), max_tokens=STEPS)
    computing, *waiting = [d.add([*COMMON, 210 + n], max_tokens=3) for n in range(3)]
    for _ in range(steps):
        d.step()
    trouble(d, computing)
    d.run()
    assert right(d, older, *waiting)
    assert trouble is not is_preempted or right(d, computing)
    common = d.backend.computed - (5 + STEPS - 1) - sum(1 + max(0, len(d.outputs[one]) - 1) for one in d.arrived[1:])
    # What a failure leaves is not trusted; and the last part of a prefix is not waited for.
    assert common <= (400 if trouble is fails else 200) + 2 * WORTH_WAITING


# What the tree has already


def two_with_a_short_common_prefix(d: Drive) -> tuple[Sequence, Sequence]:
    """Both compute the first 20 tokens."""
    first, second = d.add([*text(20), *text(60, start=100)]), d.add([*text(20), *text(60, start=200)])
    d.step()
    assert d.state.running == [first, second]
    assert d.backend.used == 160
    return first, second


def test_who_publishes_what_is_there_already_gives_its_own_cells_up() -> None:
    d = drive()
    first, second = two_with_a_short_common_prefix(d)
    third, fourth = d.add([*first.tokens[:70], 255]), d.add([*second.tokens[:70], 255])
    d.state.apply(Publish(first, 70))
    free = d.state.free
    d.state.apply(Publish(second, 70))
    assert d.state.free == free + 20
    shared, own = d.node(text(20)), second.leaf
    assert own is not None and own.path() == [shared, own]
    assert d.cache.moves[-2:] == [Share(shared.slot, second.lane, 0, 20), Share(second.lane, own.slot, 20, 70)]
    d.run()
    assert d.backend.used == d.state.cells - d.state.free
    assert right(d, first, second, third, fourth)


def test_who_publishes_what_was_evicted_meanwhile_brings_it_back() -> None:
    d = drive(ram=1000)
    first, second = two_with_a_short_common_prefix(d)
    d.cancel(first)
    node = d.node(first.generation.prompt)
    d.cache.evict(node)
    assert not node.resident
    third = d.add([*second.tokens[:70], 255], max_tokens=2)
    assert d.step()[:2] == [Publish(second, 70), Admit(d.node(second.tokens[:70]), 70)]
    shared = d.node(text(20))
    assert shared.resident and shared.copy is node.copy
    assert not node.resident and node.parent is shared
    d.cancel(second)
    d.run()
    assert right(d, third)


def test_who_says_what_a_waiting_prompt_goes_on_with_holds_up_nobody() -> None:
    """Its newest token is always one that is not computed yet."""
    d = drive(lanes=3)
    first = d.add(text(40))
    for _ in range(50):
        d.step()
    second = d.add([*text(40), *alone(text(40), 300), 7], max_tokens=2)
    third = d.add(text(5, start=200), max_tokens=2)
    d.step()
    assert d.state.running == [first, second, third]
    assert second.cached is not None and second.cached >= 40 + 48
    d.cancel(first)
    d.run()
    assert right(d, second, third)


def test_the_pieces_of_one_copy_come_back_one_by_one() -> None:
    """Each takes the cells of the whole copy for a moment, not all of them at once."""
    d = drive(lanes=2, cells=320, context_length=320, ram=1000)
    put_out(d, known(d, text(200)))
    known(d, [*text(100), *text(20, start=210)])
    while (cold := d.cache.coldest()) is not None:
        put_out(d, cold)
    last = d.add([*text(200), 255], max_tokens=2)
    d.run()
    assert last.cached == 200
    assert right(d, last)
