"""Prefixes that nobody uses leave the cache while others compute, as long as memory is free."""

from __future__ import annotations

from antiphon.engine.prefix_cache import IDLE_TOKENS
from antiphon.engine.prefix_tree import Node
from antiphon.engine.state import Evict
from tests.engine.drive import Drive, drive, known, restarted, right, text

LONG = IDLE_TOKENS + 8


def leaving(d: Drive) -> list[Node]:
    """The nodes that each step lets go, until all is done."""
    left: list[Node] = []
    while d.state.running or d.state.waiting:
        prompt = any(sequence.pending > 1 for sequence in [*d.state.running, *d.state.waiting])
        gone = [decision.node for decision in d.step() if isinstance(decision, Evict)]
        assert len(gone) <= 1 or prompt, "two in one step"
        left += gone
    return left


def test_an_idle_prefix_leaves_and_comes_back_without_being_computed() -> None:
    d = drive(ram=200)
    node = known(d, text(50))
    d.add(text(8, start=100), max_tokens=LONG)
    assert leaving(d) == [node]
    assert (node.resident, d.shelf.in_ram) == (False, 50)
    again = d.add([*text(50), 7], max_tokens=2)
    d.run()
    assert again.cached == 50 and right(d, again)


def test_prompt_tokens_count_as_well() -> None:
    d = drive(ram=200)
    node = known(d, text(50))
    d.add(text(LONG, start=100), max_tokens=2)
    assert leaving(d) == [node]


def test_a_prefix_stays_for_a_while() -> None:
    d = drive(ram=200)
    node = known(d, text(50))
    d.add(text(4, start=100), max_tokens=IDLE_TOKENS - 8)
    assert leaving(d) == []
    assert node.resident


def test_a_prefix_in_use_stays() -> None:
    d = drive(ram=200)
    node = known(d, text(50))
    d.add([*text(50), 7], max_tokens=LONG)
    assert leaving(d) == []
    assert node.resident


def test_they_leave_one_in_a_step_the_coldest_first() -> None:
    d = drive(ram=200)
    nodes = [known(d, text(20, start=50 * n)) for n in range(3)]
    d.add(text(8, start=200), max_tokens=LONG)
    assert leaving(d) == nodes


def test_all_leave_before_a_long_prompt_is_computed() -> None:
    d = drive(ram=200)
    nodes = [known(d, text(20, start=50 * n)) for n in range(3)]
    d.add(text(LONG, start=200), max_tokens=1)
    assert [decision.node for decision in d.step() if isinstance(decision, Evict)] == nodes


def test_nobody_leaves_at_the_cost_of_another_copy() -> None:
    """Between the cache and memory together, as much is kept as both can hold."""
    d = drive(ram=60)
    nodes = [known(d, text(50, start=50 * n)) for n in range(2)]
    d.add(text(8, start=200), max_tokens=LONG)
    assert leaving(d) == [nodes[0]]
    assert nodes[1].resident


def test_what_has_a_copy_already_needs_no_more_memory() -> None:
    d = drive(ram=51)
    node = known(d, text(50))
    d.state.apply(Evict(node))
    d.run()
    d.add([*text(50), 7], max_tokens=1)
    d.run()
    leaf = d.node([*text(50), 7])
    assert node.resident
    d.add(text(8, start=100), max_tokens=LONG)
    assert leaving(d) == [leaf, node]
    assert d.shelf.in_ram == 51


def test_what_is_only_in_a_file_stays_in_the_cache() -> None:
    """A disk is slow, and may be gone."""
    d = drive(disk=200)
    node = known(d, text(50))
    assert node.copy is not None and node.copy.stored
    d.add(text(8, start=100), max_tokens=LONG)
    assert leaving(d) == []
    assert node.resident


def test_one_that_has_to_stay_holds_nobody_up() -> None:
    d = drive(ram=40)
    long, short = known(d, text(50)), known(d, text(30, start=100))
    d.add(text(8, start=200), max_tokens=LONG)
    assert leaving(d) == [short]
    assert long.resident


def test_what_came_from_a_file_stays_in_memory_and_can_leave() -> None:
    d = drive(ram=200, disk=200)
    known(d, text(50))
    again = restarted(d)
    node = known(again, [*text(50), 7]).path()[0]
    assert node.resident and again.shelf.in_ram >= 50
    again.add(text(8, start=100), max_tokens=LONG)
    assert node in leaving(again)


def test_without_memory_prefixes_stay_in_the_cache() -> None:
    d = drive()
    node = known(d, text(50))
    d.add(text(8, start=100), max_tokens=LONG)
    assert leaving(d) == []
    assert node.resident
