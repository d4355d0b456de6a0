"""`CellPool` against a model without counters: every slot is a list of objects, and a copy holds the same objects."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from antiphon.engine.cells import CellPool

SLOTS = 4
TOTAL = 24

slots = st.integers(0, SLOTS - 1)
lengths = st.integers(0, TOTAL + 1)


class Cells(RuleBasedStateMachine):
    """Any row of calls, the refused ones too, which must change nothing."""

    @initialize(total=st.integers(1, TOTAL))
    def start(self, total: int) -> None:
        self.total = total
        self.pool = CellPool(total, SLOTS)
        self.model: list[list[object]] = [[] for _ in range(SLOTS)]

    def distinct(self, *chosen: int) -> int:
        return len({id(cell) for slot in chosen for cell in self.model[slot]})

    @rule(slot=slots, count=lengths)
    def extend(self, slot: int, count: int) -> None:
        if count > self.total - self.distinct(*range(SLOTS)):
            with pytest.raises(ValueError, match="wanted"):
                self.pool.extend(slot, count)
        else:
            self.pool.extend(slot, count)
            self.model[slot] += [object() for _ in range(count)]

    @rule(source=slots, into=slots, length=lengths)
    def share(self, source: int, into: int, length: int) -> None:
        if self.model[into] or length > len(self.model[source]):
            with pytest.raises(ValueError, match="cannot share"):
                self.pool.share(source, into, length)
        else:
            self.pool.share(source, into, length)
            self.model[into] = self.model[source][:length]

    @rule(slot=slots, length=lengths)
    def trim(self, slot: int, length: int) -> None:
        self.pool.trim(slot, length)
        del self.model[slot][length:]

    @invariant()
    def the_counts_are_those_of_the_model(self) -> None:
        assert [self.pool.length(slot) for slot in range(SLOTS)] == [len(held) for held in self.model]
        assert self.pool.free == self.total - self.distinct(*range(SLOTS))
        for size in range(SLOTS + 1):
            for chosen in combinations(range(SLOTS), size):
                assert self.pool.held_by(chosen) == self.distinct(*chosen)


TestCells = Cells.TestCase
TestCells.settings = settings(deadline=None)  # no test depends on how busy the machine is


def test_a_shared_cell_is_free_only_when_its_last_holder_lets_go() -> None:
    pool = CellPool(10, 3)
    pool.extend(0, 6)
    pool.share(0, 1, 4)
    pool.share(1, 2, 2)
    assert pool.free == 4
    pool.trim(0, 0)
    assert pool.free == 6
    pool.trim(1, 1)
    assert pool.free == 8
    pool.trim(2, 0)
    pool.trim(1, 0)
    assert pool.free == 10


def test_what_is_refused_changes_nothing() -> None:
    pool = CellPool(5, 2)
    pool.extend(0, 3)
    pool.extend(1, 1)
    calls: list[Callable[[], None]] = [
        lambda: pool.extend(0, 2),
        lambda: pool.share(0, 1, 1),
        lambda: pool.share(1, 1, 1),
        lambda: pool.share(0, 0, 3),
    ]
    for refused in calls:
        with pytest.raises(ValueError, match=r"wanted|cannot share"):
            refused()
    assert (pool.length(0), pool.length(1), pool.free) == (3, 1, 1)
