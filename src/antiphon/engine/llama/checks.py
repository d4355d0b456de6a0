"""What can be told of a batch without asking the cache. llama.cpp ends the process on some of it."""

from __future__ import annotations

from msgspec import Struct

from antiphon.engine.backend import Batch, Entry, Move, Restore, Save, Share, Trim
from antiphon.engine.base import EngineFailure


class BatchRules(Struct, frozen=True, kw_only=True):
    lanes: int
    slots: int
    batch_tokens: int
    vocabulary: int
    can_trim: bool

    def check(self, batch: Batch) -> None:
        """Raises `EngineFailure`."""
        tokens = sum(len(entry.tokens) for entry in batch.entries)
        if tokens > self.batch_tokens:
            raise EngineFailure(f"a batch of {tokens} tokens, of {self.batch_tokens} at most")
        for move in batch.moves:
            self._check_slots(move)
            self._check_move(move)
        taken: set[int] = set()
        for entry in batch.entries:
            if entry.slot in taken:
                raise EngineFailure(f"a batch has two entries for slot {entry.slot}")
            taken.add(entry.slot)
            self._check_entry(entry)

    def _check_slots(self, move: Move) -> None:
        slots = (move.source, move.target) if isinstance(move, Share) else (move.slot,)
        if not all(0 <= slot < self.slots for slot in slots) or len(set(slots)) < len(slots):
            raise EngineFailure(f"{type(move).__name__} with slots {slots}: there are {self.slots}")

    def _check_move(self, move: Move) -> None:
        if not self.can_trim and not (isinstance(move, Trim) and move.end == 0):
            raise EngineFailure("this model's slots can only be emptied")
        match move:
            case Trim(end=end) if end < 0:
                raise EngineFailure(f"a slot cannot end at {end}")
            case Share(start=start, end=end) | Restore(start=start, end=end) if not 0 <= start < end:
                raise EngineFailure(f"positions from {start} to before {end} are none")
            case Trim() | Share() | Save() | Restore():
                pass

    def _check_entry(self, entry: Entry) -> None:
        if not 0 <= entry.slot < self.lanes:
            raise EngineFailure(f"slot {entry.slot} is none of the {self.lanes} lanes")
        if not entry.tokens or not 0 <= min(entry.tokens) <= max(entry.tokens) < self.vocabulary:
            raise EngineFailure(f"the entry for slot {entry.slot} is empty or has a token that does not exist")
