"""What is computed once and used by many: turns, branches, requests that come together, and too few slots for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from antiphon.engine.backend import Share, Trim
from antiphon.engine.prefix_cache import PrefixCache
from antiphon.engine.prefix_tree import Node
from antiphon.engine.scheduler import WORTH_WAITING
from antiphon.engine.sequence import Sequence
from antiphon.engine.state import Admit, Compute, Idle, Preempt, Publish
from tests.engine.arithmetic_backend import alone
from tests.engine.drive import Drive, decided, drive, text

COMMON = text(200)


def lengths(d: Drive) -> list[int]:
    return [len(node) for node in d.cache.tree.nodes()]


def right(d: Drive, *sequences: Sequence) -> bool:
    """Whether each said what it says alone."""
    said = [(d.outputs[one], one.generation.prompt) for one in sequences]
    return all(output and output == alone(prompt, len(output)) for output, prompt in said)


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
    assert row[-1] == Compute(((first, 1), *((other, 10) for other in others)))
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


def test_who_has_most_in_common_is_waited_for() -> None:
    d = drive(batch_tokens=110)
    less, most = d.add([*text(50), *text(60, start=100)]), d.add([*text(20, start=1), *text(80, start=30)])
    d.step()
    assert d.state.running == [less, most]
    waiting = d.add([*text(20, start=1), *text(80, start=30), 255])
    d.step()
    assert list(d.state.waiting) == [waiting]
    d.run()
    assert waiting.cached == 100


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
        d.state.drop(sequence)
        leaves(d, sequence)


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


# Too few slots


@pytest.mark.parametrize("nodes", [0, 1, 2])
def test_without_slots_less_is_shared_and_nothing_breaks(nodes: int) -> None:
    d = drive(lanes=4, nodes=nodes)
    sequences = [d.add([*COMMON, *text(30, start=210 + n)], max_tokens=4) for n in range(6)]
    d.run()
    assert right(d, *sequences)
    assert sequences[-1].cached == (200 if nodes else 0)
    again = [d.add([*COMMON[:150], n], max_tokens=2) for n in range(3)]
    d.run()
    assert right(d, *again)


def test_without_slots_nobody_waits_longer_than_for_the_first_refusal() -> None:
    d = drive(nodes=0)
    first, second = d.add(COMMON, max_tokens=9), d.add(COMMON, max_tokens=9)
    d.step()
    assert d.step()[0] == Publish(first, 199)
    assert not first.publishable
    assert second in d.state.running


def three_on_a_full_chain(d: Drive) -> tuple[Node, Node]:
    """Two nodes that are both used, but not by the same sequences."""
    d.add(text(40), max_tokens=1)
    d.run()
    long = [*text(40), *text(40, start=100)]
    for prompt in (long, [*long, 7], [*text(40), 8]):
        d.add(prompt, max_tokens=20)
        d.step()
    upper, lower = d.node(text(40)), d.node(long)
    assert (upper.users, lower.users, lengths(d)) == (3, 2, [40, 40])
    return upper, lower


def test_a_cut_that_has_no_slot_shares_what_is_above_it() -> None:
    d = drive(lanes=4, nodes=2)
    upper, lower = three_on_a_full_chain(d)
    branch = d.add([*text(40), *text(20, start=100), 255], max_tokens=2)
    assert d.step()[0] == Admit(lower, 60)
    assert branch.leaf is upper
    assert branch.cached == 40
    d.run()
    assert right(d, *d.arrived)


def test_what_sequences_stand_on_is_not_merged() -> None:
    d = drive(lanes=4, nodes=2)
    upper, lower = three_on_a_full_chain(d)
    d.add(text(30, start=150), max_tokens=1)
    d.step()
    assert (upper.tokens, lower.start) == (text(40), 40)
    assert lengths(d) == [40, 40]  # What ended found no slot.
    d.run()
    assert right(d, *d.arrived)


def test_what_all_use_alike_is_merged() -> None:
    d = drive(lanes=4, nodes=2)
    for length in (40, 80):
        d.add(text(length), max_tokens=1)
        d.run()
    holding = d.add([*text(80), 7], max_tokens=20)
    d.step()
    assert lengths(d) == [40, 40]
    branch = d.add([*text(60), 255], max_tokens=2)
    assert d.step()[0] == Admit(d.node(text(80)), 60)
    assert branch.cached == 60
    assert lengths(d) == [60, 20]
    d.run()
    assert right(d, holding, branch)


def test_a_long_conversation_needs_few_slots() -> None:
    d = drive(nodes=3)
    prompt: list[int] = []
    for turn in range(100):
        known = max(0, len(prompt) - 1)
        prompt += text(4, start=turn)
        sequence = d.add(prompt, max_tokens=3)
        d.run()
        assert sequence.cached == known
        prompt = [*prompt, *d.outputs[sequence]]
        assert right(d, sequence)
    assert d.backend.computed == len(prompt) - 1
    assert lengths(d)[1:] and sum(lengths(d)) == len(prompt) - 1


def test_a_merged_node_holds_exactly_its_positions() -> None:
    d = drive(nodes=2)
    for length in (20, 40, 60):
        d.add(text(length), max_tokens=1)
        d.run()
    assert lengths(d) == [40, 20]
    joint = d.node(text(40))
    assert d.backend.positions(joint.slot) == list(range(40))


def test_chains_are_merged_before_anything_is_evicted() -> None:
    d = drive(nodes=3)
    d.add(text(20, start=100), max_tokens=1)
    d.run()
    for length in (20, 40, 60):
        d.add(text(length), max_tokens=1)
        d.run()
    assert sorted(lengths(d)) == [20, 20, 40]
    assert d.node(text(20, start=100)).tokens == text(20, start=100)


def test_nothing_can_be_cut_where_nothing_is_free() -> None:
    """With one slot, a node that is used whole cannot be used in part as well."""
    d = drive(nodes=1)
    d.add(text(40), max_tokens=1)
    d.run()
    node = d.node(text(40))
    whole = d.add([*text(40), 7])
    d.step()
    part = d.add([*text(20), 255], max_tokens=2)
    assert d.step()[0] == Admit(node, 20)
    assert part.cached == 0
    assert node.users == 1
    d.cancel(whole)
    d.run()
    assert right(d, part)


def test_the_books_of_an_empty_cache() -> None:
    cache = PrefixCache(())
    root = cache.tree.root("")
    assert isinstance(root, Node)
    assert cache.insert(root, [1, 2], 2, 0, keep=False) is root
    assert cache.use(root, 0, 0) is root
    assert (cache.coldest(), cache.cold(), cache.unsaved(), cache.moves) == (None, 0, None, [])


def test_a_lane_is_empty_before_it_is_used_again() -> None:
    d = drive(lanes=1)
    d.add(text(10), max_tokens=1)
    d.step()
    assert d.cache.moves[-1] == Trim(0, 0)
    d.add(text(10, start=50), max_tokens=1)
    d.run()
    assert isinstance(decided(d.state), Idle)
