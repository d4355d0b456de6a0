"""What the worker asks of a backend: to carry out a planned step. Synchronous, called from one thread only.

A slot is one of the backend's sequence ids, 0 to `slots` - 1. A cell holds the keys and values of one token; the cells
are one pool for all slots, and a cell that two slots share by copy counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from antiphon.engine.base import ModelInfo, Sampling, Tokenizer, TokenLogprob


class CellsExhausted(Exception):
    """No room in the KV cache for this batch. Nothing of the batch was computed; the plan must free cells and retry."""


class Sampler(Protocol):
    """The sampling state of one sequence (random generator, penalty history). Outlives a change of slots."""

    def close(self) -> None: ...


class Copy(Struct, frozen=True):
    """Share the first `length` positions of slot `source` with the (empty) slot `target`, without computing."""

    source: int
    target: int
    length: int


class Trim(Struct, frozen=True):
    """Keep only the first `length` positions of a slot; 0 empties it."""

    slot: int
    length: int


class Entry(Struct, frozen=True):
    """Tokens to compute for a slot, at positions `start`, `start` + 1, ... With `sampler`, the token after the last one
    of them is sampled."""

    slot: int
    start: int
    tokens: Sequence[int]
    sampler: Sampler | None = None


class Batch(Struct, frozen=True):
    """One step: the moves in their order, then all entries in one decode."""

    moves: tuple[Trim | Copy, ...] = ()
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
    def slots(self) -> int: ...

    @property
    def cells(self) -> int: ...

    @property
    def batch_tokens(self) -> int:
        """How many tokens the entries of one batch may hold together."""
        ...

    @property
    def can_trim(self) -> bool:
        """Whether a part of a slot can be kept or shared; if not (recurrent), only `Trim(slot, 0)` is allowed."""
        ...

    def sampler(self, sampling: Sampling, prompt: Sequence[int]) -> Sampler:
        """A new sampling state; the prompt counts for the repetition penalty."""
        ...

    def execute(self, batch: Batch) -> list[Sampled]:
        """Carries out a batch: one `Sampled` for each entry with a sampler, in the order of the entries.

        Raises `CellsExhausted` (the moves are done, nothing is computed) or `EngineFailure`.
        """
        ...

    def abort(self) -> None:
        """Ends a running `execute` soon, with an `EngineFailure`. The only method that any thread may call."""
        ...

    def close(self) -> None: ...
