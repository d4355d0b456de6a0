"""A constraint that is a plain set of texts."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.engine.base import EngineFailure


class OneOf:
    """`engine.base.Constraint`: the tokens are those of one of the given sequences."""

    def __init__(self, sequences: Sequence[Sequence[int]], size: int, end: Sequence[int] = ()) -> None:
        self._sequences = [tuple(sequence) for sequence in sequences]
        self._size = size
        self._end = end
        self.taken: tuple[int, ...] = ()

    def allowed(self) -> bytes:
        at = len(self.taken)
        mask = bytearray(self._size)
        for sequence in self._open():
            if len(sequence) > at:
                mask[sequence[at]] = 1
        for token in self._end if self.may_end else ():
            mask[token] = 1
        return bytes(mask)

    def accept(self, token: int) -> bool:
        self.taken = (*self.taken, token)
        return bool(self._open())

    @property
    def may_end(self) -> bool:
        return self.taken in self._sequences

    def _open(self) -> list[tuple[int, ...]]:
        return [sequence for sequence in self._sequences if sequence[: len(self.taken)] == self.taken]


class Unknowing(OneOf):
    """One that cannot tell."""

    def allowed(self) -> bytes:
        raise EngineFailure("it cannot be told")
