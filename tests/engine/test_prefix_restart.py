"""What an earlier process left in files: found again, put in order, and removed where it is of no use."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.prefix_cache import PrefixCache
from antiphon.engine.prefix_shelf import Kind, Shelf
from antiphon.engine.prefix_store import Record, path_key
from antiphon.engine.state import Evict
from tests.engine.drive import Drive, drive, known, lengths, put_out, restarted, right, text


def record(tokens: list[int], start: int = 0, owner: str = "") -> Record:
    """The file of the last part of a path."""
    parent = path_key(owner, tokens[:start]) if start else b""
    return Record(owner, tuple(tokens[start:]), start, parent, path_key(owner, tokens))


def adopted(*records: Record, disk: int = 1000) -> tuple[PrefixCache, list[bytes]]:
    """A cache of these files, the least recently used first, and those that it has removed."""
    shelf = Shelf(disk=disk)
    cache = PrefixCache(range(4), shelf)
    cache.adopt(records)
    assert all(transfer.kind is Kind.REMOVE for transfer in shelf.transfers)
    return cache, [transfer.copy.record.key for transfer in shelf.transfers if transfer.copy.record]


def shape(cache: PrefixCache) -> list[tuple[int, int]]:
    return sorted((node.start, node.end) for node in cache.tree.nodes())


def answers(d: Drive, prompt: list[int], owner: str = "") -> int:
    """Asks, and gives how many tokens were computed for the first one of the answer."""
    computed = d.backend.computed
    sequence = d.add(prompt, max_tokens=1, owner=owner)
    d.run()
    assert right(d, sequence)
    return d.backend.computed - computed


# The next process


def test_idle_times_are_used_to_write_the_start_of_a_path_before_its_end() -> None:
    d = drive(disk=1000, delay=1)
    for length in (20, 40, 60):
        known(d, text(length))
    assert [file.record.start for file in d.files.values()] == [0, 20, 40]


def test_what_is_cut_again_and_again_is_in_files_once() -> None:
    d = drive(disk=1000)
    known(d, text(90))
    for length in (80, 60, 40, 20):
        known(d, [*text(length), 255])
    starts = sorted(
        (file.record.start, len(file.record.tokens)) for file in d.files.values() if 255 not in file.record.tokens
    )
    assert starts == [(0, 20), (20, 20), (40, 20), (60, 20), (80, 10)]
    assert d.shelf.on_disk == 90 + 4


@pytest.mark.parametrize("delay", [0, 2])
def test_a_known_prompt_computes_one_token(delay: int) -> None:
    d = drive(disk=1000, delay=delay)
    for length in (30, 60, 90):
        known(d, text(length))
    d = restarted(d)
    assert answers(d, text(90)) == 1


def test_a_conversation_goes_on_in_the_next_process() -> None:
    d = drive(ram=50, disk=2000)
    prompt = text(20)
    for turn in range(6):
        sequence = d.add(prompt, max_tokens=5)
        d.run()
        assert right(d, sequence)
        assert sequence.cached == (len(prompt) - 5 if turn else 0)
        prompt = [*prompt, *d.outputs[sequence], *text(4, start=10 * turn)]
        d = restarted(d)


def test_owners_are_kept_apart_over_a_restart() -> None:
    d = drive(disk=1000)
    d.add(text(50), max_tokens=1, owner="a")
    d.run()
    d = restarted(d)
    assert answers(d, text(50), owner="b") == 50
    assert answers(d, text(50), owner="a") == 1


def test_branches_are_found_again() -> None:
    """Each file holds the one path that it was computed in; the common part of two has a file of its own."""
    d = drive(disk=1000)
    known(d, text(60))
    for start in (100, 200):
        known(d, [*text(40), *text(30, start=start)])
    d = restarted(d)
    assert answers(d, text(60)) == 1
    for start in (100, 200):
        assert answers(d, [*text(40), *text(30, start=start)]) == 1


def test_branches_of_branches_are_found_again() -> None:
    d = drive(disk=5000, nodes=30)
    prompts = [[*text(20 * n), *text(25, start=100 + 10 * n)] for n in range(6)]
    for prompt in prompts:
        known(d, prompt)
    d = restarted(d)
    assert [answers(d, prompt) for prompt in prompts] == [1] * 6


def test_a_copy_that_was_cut_in_memory_is_written_whole() -> None:
    d = drive(ram=1000, disk=1000)
    talking = d.add([250], max_tokens=300)
    d.step()
    for prompt in (text(60), [*text(20), *text(30, start=100)]):
        sequence = d.add(prompt, max_tokens=1)
        while sequence not in d.ended:
            d.step()
        while (cold := d.cache.coldest()) is not None:
            d.state.apply(Evict(cold))
        d.step()
    d.cancel(talking)
    d.run()
    assert sorted(len(file.record.tokens) for file in d.files.values())[-1] == 60
    assert answers(restarted(d), text(60)) == 1


def test_a_file_that_was_used_is_warm_in_the_next_process() -> None:
    d = drive(disk=100)
    first, second = known(d, text(30)), known(d, text(30, start=100))
    put_out(d, first, second)
    answers(d, text(30))
    d = restarted(d)
    d.run()
    known(d, text(45, start=200))
    assert answers(d, text(30)) == 1
    assert answers(d, text(30, start=100)) > 1


# What is found


def test_paths_are_joined_in_whatever_order_they_were_used() -> None:
    files = [record(text(30)), record(text(60), 30), record(text(90), 60)]
    for order in itertools.permutations(files):
        cache, removed = adopted(*order)
        assert shape(cache) == [(0, 30), (30, 60), (60, 90)]
        assert removed == []
        assert cache.shelf.on_disk == 90


def test_an_orphan_is_removed() -> None:
    orphan = record(text(60), 30)
    cache, removed = adopted(record(text(20)), orphan)
    assert shape(cache) == [(0, 20)]
    assert removed == [orphan.key]
    assert cache.shelf.on_disk == 20


def test_what_is_there_twice_is_removed() -> None:
    whole = record(text(60))
    cache, removed = adopted(record(text(30)), record(text(60), 30), whole)
    assert shape(cache) == [(0, 30), (30, 60)]
    assert removed == [whole.key] or cache.shelf.on_disk == 90


@pytest.mark.parametrize("swapped", [False, True])
def test_overlapping_paths_are_cut_where_they_branch(swapped: bool) -> None:
    one, other = record([*text(30), *text(10, start=100)]), record([*text(30), *text(20, start=200)])
    cache, removed = adopted(*((other, one) if swapped else (one, other)))
    assert sorted(len(node) for node in cache.tree.nodes()) == [10, 20, 30]
    assert removed == []
    assert cache.shelf.on_disk == 40 + 50


def test_what_stands_on_the_start_of_a_longer_file_finds_it() -> None:
    """The start was written on its own as well; which of the two was used last does not matter."""
    start, long, branch = record(text(40)), record(text(60)), record([*text(40), *text(30, start=100)], 40)
    for order in itertools.permutations([start, long, branch]):
        cache, removed = adopted(*order)
        assert sorted(len(node) for node in cache.tree.nodes()) == [20, 30, 40]
        assert removed == []


def test_the_bound_holds_from_the_start_and_the_coldest_go() -> None:
    cold, warm = record(text(30)), record(text(40, start=100))
    cache, removed = adopted(cold, warm, disk=60)
    assert shape(cache) == [(0, 40)]
    assert removed == [cold.key]


@pytest.mark.parametrize("attempt", range(8))
def test_the_end_of_a_path_goes_before_what_it_stands_on(attempt: int) -> None:
    """Both count as used at the same time."""
    start, end, other = record(text(30)), record(text(40), 30), record(text(20, start=100 + attempt))
    cache, removed = adopted(start, end, other, disk=50)
    assert removed == [end.key]
    assert shape(cache) == [(0, 20), (0, 30)]


def test_a_path_is_as_warm_as_its_last_part() -> None:
    start, other, end = record(text(30)), record(text(30, start=100)), record(text(40), 30)
    cache, removed = adopted(start, other, end, disk=50)
    assert removed == [other.key]
    assert shape(cache) == [(0, 30), (30, 40)]


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), max_size=8), st.integers(0, 30), st.data())
def test_whatever_is_found_is_a_tree_within_its_bound(paths: list[list[int]], disk: int, data: st.DataObject) -> None:
    records: dict[bytes, Record] = {}
    for path in paths:
        cuts = sorted({0, *data.draw(st.lists(st.integers(0, len(path) - 1), max_size=2))})
        for start, end in zip(cuts, [*cuts[1:], len(path)], strict=True):
            one = record(path[:end], start)
            records.setdefault(one.key, one)
    cache, removed = adopted(*data.draw(st.permutations(list(records.values()))), disk=disk)
    nodes = list(cache.tree.nodes())
    copies = {node.copy for node in nodes}
    assert None not in copies
    kept = {copy.record.key for copy in copies if copy is not None and copy.record is not None}
    assert kept | set(removed) == set(records)
    assert not kept & set(removed)
    assert sum(len(copy) for copy in copies if copy is not None) == cache.shelf.on_disk <= disk
    assert all(node.copy is not None and node.copy.start <= node.start <= node.end <= node.copy.end for node in nodes)


def test_nothing_is_found_where_nothing_was() -> None:
    d = drive(disk=100)
    assert lengths(restarted(d)) == []
