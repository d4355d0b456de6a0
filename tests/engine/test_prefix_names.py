"""A file is named for the path to its end, so of copies that end together there is one."""

from __future__ import annotations

from antiphon.engine.prefix_tree import Node
from tests.engine.drive import Drive, beside, busy, drive, known, push_out, refuse_none, restarted, silent, text

PROMPT = text(8)


def cut_twice(d: Drive) -> Node:
    """Three nodes of one path that share the copy of the whole; the branch at the second cut is kept nowhere."""
    known(d, PROMPT)
    busy(d)
    beside(d, [*PROMPT[:2], 240])
    branch = beside(d, [*PROMPT[:4], 241])
    d.refuses = lambda key: True
    push_out(d, branch)
    refuse_none(d)
    d.shelf.retry()
    upper, middle, lower = d.node(PROMPT).path()
    assert upper.copy is middle.copy is lower.copy is not None
    return lower


def without_slots(d: Drive, lower: Node) -> None:
    """Others take all slots, until the second and the third node are one."""
    for place in range(10):
        beside(d, [200 + place])
        if lower.start == 2:
            return
    raise AssertionError("nothing was joined")


def test_nodes_that_become_one_keep_the_copy_that_holds_both() -> None:
    d = drive(nodes=6, disk=100)
    lower = cut_twice(d)
    copy = lower.copy
    without_slots(d, lower)
    assert lower.copy is copy


def test_a_copy_takes_the_name_of_one_that_ends_where_it_does() -> None:
    """The one that a node above still holds, which is in the cache."""
    d = drive(nodes=6, disk=100)
    lower = cut_twice(d)
    above, copy = lower.path()[0], lower.copy
    d.shelf.let_go(lower)
    push_out(d, lower)
    assert lower.copy is not None and lower.copy is not copy
    assert above.copy is None and above.resident
    silent(d)
    again = restarted(d)
    assert again.node(PROMPT).end == 8


def test_what_was_written_for_nobody_is_not_removed_from_under_its_heir() -> None:
    d = drive(nodes=6, disk=100, delay=3)
    busy(d)
    lower = beside(d, PROMPT)
    d.cache.persist(lower)
    d.step()
    d.shelf.let_go(lower)
    d.cache.persist(lower)
    silent(d)
    assert lower.copy is not None and lower.copy.stored
    assert lower.copy.record is not None and lower.copy.record.key in d.files
