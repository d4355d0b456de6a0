"""Prefixes in files: what is written, read, removed and found again, when disks are full, slow or broken."""

from __future__ import annotations

import pytest

from antiphon.engine.prefix_shelf import Kind
from antiphon.engine.prefix_tree import Node
from antiphon.engine.state import Compute, Fetch, Idle, Persist
from tests.engine.drive import (
    Drive,
    answers,
    beside,
    busy,
    decided,
    drive,
    known,
    lengths,
    push_out,
    put_out,
    refuse_none,
    right,
    silent,
    text,
    written,
)


def refuse_all(d: Drive) -> None:
    d.refuses = lambda key: True


def refuse_file(d: Drive, node: Node) -> None:
    """The one that holds the node."""
    assert node.copy is not None and node.copy.record is not None
    bad = node.copy.record.key
    d.refuses = lambda key: key == bad


# From memory to files and back


def test_without_memory_a_prefix_goes_to_a_file_and_comes_back() -> None:
    d = drive(disk=100)
    node = known(d, text(50))
    put_out(d, node)
    assert (d.shelf.in_ram, d.shelf.on_disk, written(d)) == (0, 50, [50])
    assert node.copy is not None and node.copy.parcel is None
    computed = d.backend.computed
    sequence = d.add(text(50), max_tokens=1)
    assert decided(d.state) == Fetch(node)
    d.run()
    assert sequence.cached == 49
    assert d.backend.computed == computed + 1
    assert node.copy.parcel is None  # Its file is enough.


def test_what_memory_cannot_hold_goes_to_files() -> None:
    d = drive(ram=50, disk=1000)
    busy(d)
    first, second = beside(d, text(30)), beside(d, text(40, start=100))
    push_out(d, first)
    assert (written(d), d.shelf.in_ram) == ([], 30)
    push_out(d, second)
    assert (written(d), d.shelf.in_ram, d.shelf.on_disk) == ([30], 40, 30)
    assert answers(d, text(30)) == 29
    assert answers(d, text(40, start=100)) == 39


def test_files_are_bounded_and_the_coldest_goes() -> None:
    d = drive(disk=50)
    busy(d)
    first, second, third = (beside(d, text(20 + n, start=50 * n)) for n in range(3))
    push_out(d, second, first, third)
    d.step()
    assert (written(d), d.shelf.on_disk) == ([21, 22], 43)
    assert not any(first is node for node in d.cache.tree.nodes())


def test_what_does_not_fit_on_the_disk_is_not_written() -> None:
    d = drive(disk=49)
    put_out(d, known(d, text(50)))
    assert written(d) == []
    assert lengths(d) == []


def test_a_copy_in_memory_outlives_its_file() -> None:
    d = drive(ram=50, disk=60)
    busy(d)
    node = beside(d, text(40))
    push_out(d, node)
    silent(d)
    assert 40 in written(d)
    known(d, text(45, start=100))
    assert 40 not in written(d)
    assert node.copy is not None and node.copy.counted and not node.copy.stored
    assert answers(d, text(40)) == 39


def test_memory_is_given_back_at_once_where_there_is_a_file() -> None:
    d = drive(ram=50, disk=1000)
    busy(d)
    node = beside(d, text(40))
    push_out(d, node)
    silent(d)
    assert node.copy is not None and node.copy.stored and node.copy.parcel is not None
    busy(d)
    push_out(d, beside(d, text(30, start=100)))
    assert node.copy.parcel is None and not node.copy.counted
    assert answers(d, text(40)) == 39


def test_memory_that_runs_over_while_it_is_written_is_given_back_behind_that() -> None:
    d = drive(ram=50, disk=1000, delay=3)
    busy(d)
    node = beside(d, text(40))
    push_out(d, node)
    d.state.apply(Persist(node))
    push_out(d, beside(d, text(30, start=100)))
    assert node.copy is not None and node.copy.leaving and node.copy.parcel is not None
    assert d.shelf.in_ram == 30
    d.run()
    assert node.copy.stored and node.copy.parcel is None
    assert sum(len(file.record.tokens) == 40 for file in d.files.values()) == 1


# Reading takes its time


def test_who_runs_goes_on_while_a_file_is_read() -> None:
    d = drive(disk=1000, delay=3)
    node = known(d, text(50))
    put_out(d, node)
    talking = d.add(text(5, start=100), max_tokens=20)
    d.step()
    sequence = d.add([*text(50), 7], max_tokens=2)
    assert d.step() == [Fetch(node), Compute(((talking, 1),))]
    for _ in range(3):
        assert sequence in d.state.waiting
        assert d.step()[-1] == Compute(((talking, 1),)) or sequence in d.state.running
    d.run()
    assert sequence.cached == 50
    assert right(d, talking, sequence)


def test_with_nobody_running_there_is_nothing_to_do_but_wait() -> None:
    d = drive(disk=1000, delay=3)
    put_out(d, known(d, text(50)))
    sequence = d.add([*text(50), 7], max_tokens=2)
    d.step()
    assert d.step() == [Idle()]
    d.run()
    assert sequence.cached == 50


def test_what_was_read_for_who_went_away_is_given_up() -> None:
    d = drive(disk=1000)
    first, second = known(d, text(50)), known(d, text(40, start=100))
    put_out(d, first, second)
    gone = d.add([*text(50), 7])
    d.step()
    d.cancel(gone)
    assert first.copy is not None and first.copy.parcel is not None
    assert answers(d, [*text(40, start=100), 7]) == 40
    assert first.copy.parcel is None
    assert answers(d, [*text(50), 7]) == 50


def test_a_longer_path_keeps_what_was_read_for_its_start() -> None:
    d = drive(disk=1000)
    prompts = [text(30), text(60)]
    put_out(d, *reversed([known(d, prompt) for prompt in prompts]))
    gone = d.add([*text(30), 255])
    d.step()
    d.cancel(gone)
    assert answers(d, [*text(60), 7]) == 60
    assert d.cache.restored == 60


def test_a_file_that_is_removed_when_it_was_read_already() -> None:
    """Before it is put back into the cache, warmer ones take its room on the disk."""
    d = drive(cells=100, context_length=100, disk=60)
    wanted = known(d, text(50))
    put_out(d, wanted)
    talking = d.add(text(30, start=60), max_tokens=69)
    d.step()
    beside(d, text(20, start=100))
    d.add([*text(20, start=100), 7], max_tokens=3)
    d.step()
    waiting = d.add([*text(50), 7], max_tokens=2)
    assert d.step()[0] == Fetch(wanted)
    while d.shelf.on_disk != 23:
        assert waiting in d.state.waiting
        d.step()
    assert wanted.copy is None
    d.run()
    assert right(d, talking, waiting)
    put_out(d, *reversed([node for node in d.cache.tree.nodes() if node.resident]))
    answers(d, [*text(50), 8])


# Broken disks


def test_a_file_that_cannot_be_read_is_computed_again() -> None:
    d = drive(disk=1000)
    put_out(d, known(d, text(50)))
    refuse_all(d)
    assert answers(d, [*text(50), 7]) == 0
    assert d.shelf.on_disk == 0
    refuse_none(d)
    assert answers(d, [*text(50), 8]) == 50


def test_a_path_whose_start_cannot_be_read_is_computed_again() -> None:
    d = drive(disk=1000)
    first, second = (known(d, text(length)) for length in (30, 60))
    put_out(d, second, first)
    refuse_file(d, first)
    assert answers(d, [*text(60), 7]) == 0
    refuse_none(d)
    d.run()
    assert sum(written(d)) == d.shelf.on_disk


def test_a_path_whose_end_cannot_be_read_goes_on_from_its_start() -> None:
    d = drive(disk=1000)
    first, second = (known(d, text(length)) for length in (30, 60))
    put_out(d, second, first)
    refuse_file(d, second)
    assert answers(d, [*text(60), 7]) == 30


def test_a_prefix_that_cannot_be_written_is_lost_when_it_leaves_the_cache() -> None:
    d = drive(disk=1000)
    refuse_all(d)
    busy(d)
    push_out(d, beside(d, text(50)))
    assert written(d) == []
    assert not any(len(node) == 50 for node in d.cache.tree.nodes())


def test_a_prefix_that_cannot_be_written_stays_in_memory() -> None:
    d = drive(ram=100, disk=1000)
    busy(d)
    node = beside(d, text(50))
    push_out(d, node)
    refuse_all(d)
    silent(d)
    assert written(d) == []
    assert node.copy is not None and node.copy.counted


def test_after_a_failed_write_nothing_is_written_until_something_new_was_computed() -> None:
    d = drive(disk=1000)
    tried: list[bytes] = []

    def refuse(key: bytes) -> bool:
        tried.append(key)
        return True

    d.refuses = refuse
    known(d, text(50))
    d.run()
    assert len(tried) == 1
    d.run()
    assert len(tried) == 1
    node = known(d, text(40, start=100))
    assert len(tried) == 2
    put_out(d, node)
    assert len(tried) == 2  # It is not even saved: there is no memory, and the disk is broken.
    assert not any(len(node) == 40 for node in d.cache.tree.nodes())


@pytest.mark.parametrize("ok", [True, False])
def test_a_write_that_ends_when_its_copy_is_gone(ok: bool) -> None:
    d = drive(disk=1000)
    node = known(d, text(50))
    assert node.copy is not None
    copy = node.copy
    d.cache.shelf.discard(copy)
    d.shelf.transfers.clear()
    d.cache.write_done(copy, ok)
    assert [(transfer.kind, transfer.copy) for transfer in d.shelf.transfers] == [(Kind.REMOVE, copy)] * ok
    assert d.shelf.accepts
