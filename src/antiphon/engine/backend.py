"""What the worker asks of a backend: to carry out a planned step. Synchronous, called from one thread only.

A slot is one of the backend's sequence ids, 0 to `slots` - 1. A cell holds the keys and values of one token at one
position; the cells are one pool for all slots, and a cell that several slots hold counts once. The first `lanes` slots
are for sequences that run, from position 0 without a gap. The others hold pieces of prefixes: any range of positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from antiphon.engine.base import EngineFailure, ModelInfo, Sampling, Tokenizer, TokenLogprob


class CellsExhausted(Exception):
    """No room in the KV cache for this batch. Nothing of the batch was computed; the plan must free cells and retry."""


class RestoreFailed(Exception):
    """A parcel could not be put into its slot, which is empty now. The moves before it are done, nothing after it."""

    def __init__(self, slot: int) -> None:
        super().__init__(f"the state for slot {slot} cannot be restored")
        self.slot = slot


class ContextLost(EngineFailure):
    """What is in the cache cannot be known any more: every slot is lost until `reset`."""


class Sampler(Protocol):
    """The sampling state of one sequence (random generator, penalty history). Outlives a change of slots."""

    def close(self) -> None: ...


class Parcel:
    """The state of a slot outside of the cache. Opaque bytes; None until `Save` has filled it, and if there was no
    memory for it."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | bytearray | memoryview | None = None) -> None:
        self.data = data


class Share(Struct, frozen=True):
    """Positions `start` to `end` - 1 of slot `source` become those of slot `target` too, without computing, in place of
    its own. They leave no gap in it."""

    source: int
    target: int
    start: int
    end: int


class Trim(Struct, frozen=True):
    """A slot keeps only its positions before `end`; 0 empties it."""

    slot: int
    end: int


class Save(Struct, frozen=True):
    """The state of a slot goes into the parcel; the slot stays as it is."""

    slot: int
    parcel: Parcel


class Restore(Struct, frozen=True):
    """Positions `start` to `end` - 1 of a saved state, which may hold more, go into an empty slot, into own cells.
    For the moment, there must be cells for the whole state."""

    slot: int
    parcel: Parcel
    start: int
    end: int


Move = Trim | Share | Save | Restore


class Entry(Struct, frozen=True):
    """Tokens to compute for a slot, at positions `start`, `start` + 1, ... With `sampler`, the token after the last one
    of them is sampled."""

    slot: int
    start: int
    tokens: Sequence[int]
    sampler: Sampler | None = None


class Batch(Struct, frozen=True):
    """One step: the moves in their order, then all entries in one decode. Either may be empty."""

    moves: tuple[Move, ...] = ()
    entries: tuple[Entry, ...] = ()


class Sampled(Struct, frozen=True, gc=False):
    """A sampled token; `end` says that it is an end-of-generation token."""

    token: int
    end: bool
    logprob: TokenLogprob | None = None


class Backend(Protocol):
    """A model's computing part."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def lanes(self) -> int:
        """How many sequences can run at once."""
        ...

    @property
    def slots(self) -> int:
        """All slots: `lanes` and those that hold prefixes, which may be none."""
        ...

    @property
    def cells(self) -> int: ...

    @property
    def cell_bytes(self) -> int:
        """Bytes of one cell in a parcel, nearly."""
        ...

    @property
    def fingerprint(self) -> str:
        """Names the model, its build and every setting that a parcel depends on: parcels may be restored only where the
        fingerprint is the same."""
        ...

    @property
    def batch_tokens(self) -> int:
        """How many tokens the entries of one batch may hold together."""
        ...

    @property
    def can_trim(self) -> bool:
        """Whether a part of a slot can be kept, shared or saved; if not (recurrent, sliding window), only
        `Trim(slot, 0)` is allowed."""
        ...

    @property
    def threads(self) -> int: ...

    @property
    def native_seconds(self) -> float:
        """Seconds spent so far in the machine code that computes and samples: the rest of a step is Python."""
        ...

    def set_threads(self, threads: int) -> None:
        """From the next `execute` on, 1 or more."""
        ...

    def sampler(self, sampling: Sampling, prompt: Sequence[int]) -> Sampler:
        """A new sampling state; the prompt counts for the repetition penalty."""
        ...

    def execute(self, batch: Batch) -> list[Sampled | EngineFailure]:
        """Carries out a batch: one result for each entry with a sampler, in the order of the entries. A failure among
        them concerns its own sequence only.

        Raises `CellsExhausted` (the moves are done, nothing is computed), `RestoreFailed`, `ContextLost`, or
        `EngineFailure` (the moves are done, the slots of the entries end where the entries started).
        """
        ...

    def reset(self) -> None:
        """Makes the context anew after it was lost: every slot is empty. Raises `EngineFailure` if that fails too."""
        ...

    def abort(self) -> None:
        """Ends a running `execute` soon, with an `EngineFailure`. The only method that any thread may call."""
        ...

    def close(self) -> None: ...
