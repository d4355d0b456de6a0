"""What is shared when the backend has few slots for prefixes: less, never wrongly; chains become one node."""

from __future__ import annotations

import pytest

from antiphon.engine.backend import Trim
from antiphon.engine.prefix_cache import PrefixCache
from antiphon.engine.prefix_tree import Node
from antiphon.engine.state import Admit, Idle, Publish
from tests.engine.drive import Drive, decided, drive, lengths, right, text

COMMON = text(200)


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


def test_what_all_use_alike_is_merged_and_cut_again() -> None:
    d = drive(lanes=4, nodes=2)
    for length in (40, 80):
        d.add(text(length), max_tokens=1)
        d.run()
    node = d.node(text(80))
    holding = d.add([*text(80), 7], max_tokens=20)
    d.step()
    assert holding.leaf is node
    assert lengths(d) == [80]
    branch = d.add([*text(60), 255], max_tokens=2)
    assert d.step()[0] == Admit(node, 60)
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
