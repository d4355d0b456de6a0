"""The cells of the KV cache, counted exactly: who holds how many, and what a copy shares.

A mirror of the backend's unified cache in plain numbers. A cell that several slots hold by copy is one cell.
"""

from __future__ import annotations

from collections.abc import Iterable


class CellPool:
    """`total` cells and, for each slot, the cells of its positions in order."""

    def __init__(self, total: int, slots: int) -> None:
        self.total = total
        self._free = list(range(total))
        self._holders = [0] * total
        self._slots: list[list[int]] = [[] for _ in range(slots)]

    @property
    def free(self) -> int:
        return len(self._free)

    def length(self, slot: int) -> int:
        """How many positions of the slot are in the cache."""
        return len(self._slots[slot])

    def extend(self, slot: int, count: int) -> None:
        """New cells for the next `count` positions of a slot. Raises `ValueError` if there are not enough."""
        if count > len(self._free):
            raise ValueError(f"{count} cells wanted, {len(self._free)} free")
        for _ in range(count):
            cell = self._free.pop()
            self._holders[cell] = 1
            self._slots[slot].append(cell)

    def share(self, source: int, target: int, length: int) -> None:
        """The first `length` positions of `source` become those of the empty slot `target` too."""
        if self._slots[target] or length > len(self._slots[source]):
            raise ValueError(f"cannot share {length} positions of slot {source} with slot {target}")
        shared = self._slots[source][:length]
        for cell in shared:
            self._holders[cell] += 1
        self._slots[target] = shared

    def trim(self, slot: int, length: int) -> None:
        """Keeps the first `length` positions of a slot; cells that nobody else holds are free again."""
        dropped = self._slots[slot][length:]
        del self._slots[slot][length:]
        for cell in dropped:
            self._holders[cell] -= 1
            if not self._holders[cell]:
                self._free.append(cell)

    def held_by(self, slots: Iterable[int]) -> int:
        """How many different cells these slots hold together."""
        return len({cell for slot in slots for cell in self._slots[slot]})
