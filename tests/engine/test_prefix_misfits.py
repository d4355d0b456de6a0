"""Prefixes that no file or no memory is long enough for, and files that cannot be read now: each costs only itself."""

from __future__ import annotations

import json

from antiphon.engine.prefix_store import Unreadable
from tests.engine.arithmetic_backend import Hook
from tests.engine.drive import (
    Drive,
    answers,
    beside,
    busy,
    drive,
    known,
    lengths,
    push_out,
    put_out,
    silent,
    text,
    written,
)

# Too long, and no memory


def two_prefixes(d: Drive) -> None:
    """Of 30 and, used last, 50 tokens, in the cache beside somebody who talks."""
    busy(d)
    beside(d, text(30))
    beside(d, text(50, start=100))


def only_the_shorter_is_written(d: Drive) -> bool:
    silent(d)
    return 30 in written(d) and 50 not in written(d)


def test_what_is_too_long_for_a_file_holds_nobody_up() -> None:
    d = drive(disk=49)
    two_prefixes(d)
    assert only_the_shorter_is_written(d)


def test_what_does_not_fit_beside_warmer_files_holds_nobody_up() -> None:
    d = drive(disk=100)
    busy(d)
    for length, start in ((20, 200), (60, 100), (70, 0)):
        beside(d, text(length, start=start))
    silent(d)
    assert {20, 70} <= set(written(d))
    assert 60 not in written(d)


def test_the_length_of_a_file_is_that_of_the_whole_copy() -> None:
    d = drive(ram=100, disk=1000)
    d.shelf.bound(59)
    tried: list[bytes] = []

    def notice(key: bytes) -> bool:
        tried.append(key)
        return False

    d.refuses = notice
    busy(d)
    put = beside(d, text(60))
    push_out(d, put)
    beside(d, [*text(30), 255])
    push_out(d, put)
    assert put.copy is not None and put.copy.record is not None and (len(put), len(put.copy)) == (30, 60)
    silent(d)
    assert put.copy.record.key not in tried


def test_a_file_that_turns_out_too_long_is_not_tried_again() -> None:
    d = drive(ram=100, disk=1000)
    two_prefixes(d)
    long = d.node(text(50, start=100))
    assert d.cache.unsaved() is long
    d.cache.persist(long)
    (transfer,) = d.cache.shelf.transfers
    d.shelf.bound(49)
    d.cache.write_done(transfer.copy, False)
    d.shelf.transfers.clear()
    assert only_the_shorter_is_written(d)


class Scarce(Hook):
    """No memory for states of `length` tokens and more."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.tried: list[int] = []

    def saved(self, data: bytes) -> bytes | None:
        self.tried.append(len(json.loads(data)))
        return data if self.tried[-1] < self.length else None


def test_a_prefix_that_there_is_no_memory_for_holds_nobody_up() -> None:
    hook = Scarce(50)
    d = drive(disk=1000, hook=hook)
    two_prefixes(d)
    assert only_the_shorter_is_written(d)
    assert hook.tried.count(50) == 1
    hook.length = 1000
    known(d, text(9, start=240))
    assert 50 in written(d)


def test_a_prefix_that_there_is_no_memory_for_is_computed_again() -> None:
    d = drive(ram=1000, hook=Scarce(50))
    long, short = known(d, text(50)), known(d, text(40, start=100))
    put_out(d, long, short)
    assert (lengths(d), d.shelf.in_ram) == ([40], 40)
    assert answers(d, text(50)) == 0
    assert answers(d, text(40, start=100)) == 39


def test_what_is_saved_in_the_next_batch_is_written_behind_it() -> None:
    """Two sequences end with one batch, and there is one slot: who comes second pushes the first one out."""
    d = drive(disk=1000, nodes=1)
    for start in (0, 100):
        d.add(text(30, start), max_tokens=1)
    d.run()
    assert written(d) == [30]
    assert answers(d, [*text(30), 7]) == 30


# Files that cannot be read now


def test_a_file_that_cannot_be_read_now_is_tried_again_when_its_tokens_left_the_cache_anew() -> None:
    d = drive(disk=1000)
    nodes = [known(d, text(length)) for length in (30, 60)]
    put_out(d, *reversed(nodes))
    before = dict(d.files)
    d.unreadable = lambda key: True
    assert answers(d, [*text(60), 7]) == 0
    assert {key: d.files[key] for key in before} == before
    d.unreadable = lambda key: False
    put_out(d, *reversed([node for node in d.cache.tree.nodes() if node.resident]))
    assert answers(d, [*text(60), 8]) == 60


def test_a_path_whose_end_cannot_be_read_now_goes_on_from_its_start() -> None:
    d = drive(disk=1000)
    first, second = (known(d, text(length)) for length in (30, 60))
    put_out(d, second, first)
    assert second.copy is not None and second.copy.record is not None
    bad = second.copy.record.key
    d.unreadable = lambda key: key == bad
    assert answers(d, [*text(60), 7]) == 30
    assert bad in d.files


def test_a_file_that_cannot_be_read_now_and_is_wanted_no_more() -> None:
    d = drive(disk=1000)
    node = known(d, text(50))
    assert node.copy is not None
    copy = node.copy
    d.cache.shelf.discard(copy)
    d.cache.read_done(copy, Unreadable.NOW)
    assert not copy.unreadable


def test_files_that_cannot_be_used_take_their_room() -> None:
    d = drive(disk=100)
    d.shelf.set_aside(60)
    d.disk = 40
    busy(d)
    beside(d, text(20))
    beside(d, text(50, start=100))
    silent(d)
    assert 20 in written(d)
    assert 50 not in written(d)
    d.shelf.set_aside(60)
    assert not d.shelf.has_room(1)
