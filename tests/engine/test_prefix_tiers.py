"""Prefixes that leave the cache for memory, and come back: what is kept, how much, and in what state."""

from __future__ import annotations

from antiphon.engine.backend import Move, Restore, Save
from antiphon.engine.state import Admit, Evict
from tests.engine.drive import Drive, drive, known, lengths, put_out, right, text


def moves_of(d: Drive, *kinds: type[Move]) -> list[Move]:
    return [move for move in d.cache.moves if isinstance(move, kinds)]


def test_an_evicted_prefix_comes_back_without_being_computed() -> None:
    d = drive(ram=100)
    node = known(d, text(50))
    put_out(d, node)
    assert (d.backend.used, d.shelf.in_ram) == (0, 50)
    computed = d.backend.computed
    sequence = d.add([*text(50), 7, 8], max_tokens=3)
    assert d.step()[0] == Admit(node, 50)
    d.run()
    assert right(d, sequence)
    assert sequence.cached == 50
    assert d.backend.computed == computed + 2 + 2
    assert d.cache.restored == 50


def test_without_memory_an_evicted_prefix_is_forgotten() -> None:
    d = drive()
    node = known(d, text(50))
    d.state.apply(Evict(node))
    assert not moves_of(d, Save)
    d.run()
    assert lengths(d) == []


def test_what_does_not_fit_into_memory_is_not_saved() -> None:
    d = drive(ram=49)
    node = known(d, text(50))
    d.state.apply(Evict(node))
    assert not moves_of(d, Save)
    assert lengths(d) == []


def test_memory_is_bounded_and_the_coldest_copy_goes() -> None:
    d = drive(ram=60)
    first, second, third = (known(d, text(20 + n, start=50 * n)) for n in range(3))
    for node in (second, first, third):
        put_out(d, node)
    assert d.shelf.in_ram == 21 + 22
    assert lengths(d) == [21, 22]  # The first was used longest ago, though it came in later.


def test_a_copy_is_made_once_and_kept_while_the_prefix_is_back() -> None:
    d = drive(ram=100)
    node = known(d, text(50))
    put_out(d, node)
    copy = node.copy
    d.add([*text(50), 7], max_tokens=1)
    d.run()
    leaf = d.node([*text(50), 7])
    assert node.resident and node.copy is copy
    d.state.apply(Evict(leaf))
    d.state.apply(Evict(node))
    assert len(moves_of(d, Save)) == 1  # Of the leaf.
    d.run()
    assert d.shelf.in_ram == 51


def test_a_branch_cuts_a_node_that_is_outside() -> None:
    """Both parts keep the copy of the whole, and each can come back from it alone."""
    d = drive(ram=100)
    node = known(d, text(50))
    put_out(d, node)
    branch = d.add([*text(20), 255], max_tokens=2)
    d.step()
    upper = d.node(text(20))
    assert branch.leaf is upper
    assert upper.copy is node.copy is not None
    assert (len(upper), len(node), len(node.copy)) == (20, 30, 50)
    d.run()
    for one in (d.node([*text(20), 255]), node):
        put_out(d, one)
    d.state.apply(Evict(upper))
    assert not moves_of(d, Save)
    d.run()
    assert d.shelf.in_ram == 50 + 2
    again = d.add([*text(50), 7], max_tokens=2)
    d.step()
    assert again.cached == 50
    d.run()
    assert right(d, branch, again)
    assert d.cache.restored == 50 + 20 + 30


def test_a_part_comes_back_from_the_copy_of_the_whole() -> None:
    d = drive(ram=100)
    node = known(d, text(50))
    put_out(d, node)
    d.add([*text(20), 255], max_tokens=1)
    d.run()
    put_out(d, node)
    sequence = d.add(text(50), max_tokens=2)
    d.state.apply(Admit(node, 49))
    [restore] = moves_of(d, Restore)
    assert isinstance(restore, Restore) and (restore.start, restore.end) == (20, 50)
    d.run()
    assert right(d, sequence)


def test_a_copy_that_goes_takes_all_its_parts_and_what_is_below() -> None:
    d = drive(ram=60)
    node = known(d, text(50))
    put_out(d, node)
    d.add([*text(20), 255, 254], max_tokens=1)
    d.run()
    for one in (d.node([*text(20), 255, 254]), node, d.node(text(20))):
        put_out(d, one)
    assert sorted(lengths(d)) == [2, 20, 30]
    put_out(d, known(d, text(40, start=100)))
    assert lengths(d) == [40]
    assert d.shelf.in_ram == 40


def test_several_nodes_of_a_path_come_back_together() -> None:
    d = drive(ram=200)
    put_out(d, *reversed([known(d, text(length)) for length in (30, 60, 90)]))
    sequence = d.add([*text(90), 7], max_tokens=2)
    d.step()
    assert sequence.cached == 90
    assert d.cache.restored == 90
    d.run()
    assert right(d, sequence)


def test_with_too_few_slots_only_the_first_part_of_a_path_comes_back() -> None:
    d = drive(nodes=3, ram=200, lanes=4)
    put_out(d, *reversed([known(d, text(length)) for length in (30, 60)]))
    holding = [known(d, text(20, start=start)) for start in (100, 150)]
    users = [d.add([*node.tokens, 7], max_tokens=9) for node in holding]
    d.step()
    assert [node.users for node in holding] == [1, 1]
    sequence = d.add([*text(60), 7], max_tokens=2)
    d.step()
    assert sequence.cached == 30
    d.run()
    assert right(d, sequence, *users)


def test_the_copies_that_are_wanted_next_stay_while_room_is_made() -> None:
    d = drive(nodes=2, ram=60)
    wanted = known(d, text(40))
    put_out(d, wanted)
    for start in (100, 150):
        known(d, text(12, start=start))
    sequence = d.add([*text(40), 7], max_tokens=2)
    d.step()
    assert sequence.cached == 40
    d.run()
    assert right(d, sequence)


def test_merging_gives_the_copies_of_both_parts_up() -> None:
    d = drive(nodes=2, ram=200)
    put_out(d, *reversed([known(d, text(length)) for length in (30, 60)]))
    d.add([*text(60), 7], max_tokens=1)
    d.run()
    assert 60 in lengths(d)
    joint = d.node(text(60))
    assert joint.copy is None or len(joint.copy) == len(joint)


def test_a_spoiled_copy_is_forgotten_with_the_cache() -> None:
    d = drive(ram=100)
    node = known(d, text(50))
    put_out(d, node)
    sequence = d.add([*text(50), 7], max_tokens=2)
    d.state.apply(Admit(node, 50))
    d.cache.spoiled(node.slot)
    d.lose()
    assert lengths(d) == []
    d.run()
    assert right(d, sequence)


def test_a_copy_that_was_spoiled_is_found_though_the_prefix_has_left_the_cache_again() -> None:
    """Between the decision to bring it back and the batch that does, a sequence may end and its prefix be evicted."""
    d = drive(ram=100)
    node = known(d, text(50))
    put_out(d, node)
    sequence = d.add([*text(50), 7], max_tokens=2)
    d.state.apply(Admit(node, 50))
    slot = node.slot
    d.cancel(sequence)
    d.state.apply(Evict(node))
    d.cache.spoiled(slot)
    assert node.copy is None
    d.lose()
    assert lengths(d) == []


def test_a_slot_that_nothing_was_restored_into_spoils_nothing() -> None:
    d = drive(ram=100)
    node = known(d, text(50))
    put_out(d, node)
    d.cache.spoiled(0)
    assert node.copy is not None
