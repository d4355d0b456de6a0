"""A backend that computes with plain numbers and checks every move as a real KV cache would suffer it.

The next token is a function of everything in the slot, so a wrong prefix shows in the output. The cache is kept as the
simplest thing that can be right: each slot is a list of cell objects, and a copy puts the same objects into another
list. A plan that a real cache could not carry out raises `AssertionError`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from antiphon.engine.backend import Batch, CellsExhausted, Copy, Entry, Sampled, Sampler, Trim
from antiphon.engine.base import EngineFailure, ModelInfo, Sampling, TokenLogprob
from antiphon.engine.byte_tokenizer import ByteTokenizer

CONTROL = ("<|im_start|>", "<|im_end|>")
MODULUS = 1_000_003

Ends = Callable[[Sequence[int]], bool]
"""Whether the model, having read these tokens, ends its answer."""


class Hook:
    """What happens beside the computing. This one is a machine without faults."""

    def before(self, execution: int) -> None:
        """Called in each `execute`, after the moves and before anything is computed, with its number (from 0).

        It may block, or raise `CellsExhausted`, `EngineFailure` or anything else.
        """

    def abort(self) -> None:
        """Called by `abort`: who blocks goes on. On any thread."""


def never(_: Sequence[int]) -> bool:
    """A model that talks until it is stopped."""
    return False


def checksum(tokens: Sequence[int], seed: int = 0) -> int:
    """Depends on every token and on their order."""
    value = seed
    for token in tokens:
        value = (value * 31 + token + 1) % MODULUS
    return value


def next_token(tokens: Sequence[int], seed: int = 0) -> int:
    """What the model says after these tokens."""
    return checksum(tokens, seed) % 256


class Cell:
    """The keys and values of one token: an object, so that two slots can hold the same one."""

    __slots__ = ("token",)

    def __init__(self, token: int) -> None:
        self.token = token


class ArithmeticSampler:
    """Remembers what its sequence has read and said; the backend compares that with the slot at every sample."""

    def __init__(self, backend: ArithmeticBackend, sampling: Sampling, prompt: Sequence[int]) -> None:
        self.seed = sampling.seed or 0
        self.top_logprobs = sampling.top_logprobs
        self.history = list(prompt)
        self._backend = backend

    def close(self) -> None:
        self._backend.closed_sampler(self)


class ArithmeticBackend:
    """`missing` cells are promised in `cells` but not there: the way a real cache can turn out to be smaller than it
    says. `refused_bias` is a token that no sampler can be made for."""

    def __init__(
        self,
        *,
        cells: int = 512,
        slots: int = 4,
        batch_tokens: int = 64,
        context_length: int = 128,
        can_trim: bool = True,
        ends: Ends = never,
        hook: Hook | None = None,
        missing: int = 0,
        refused_bias: int = 1_000,
    ) -> None:
        self.cells = cells
        self.slots = slots
        self.batch_tokens = batch_tokens
        self.can_trim = can_trim
        self.info = ModelInfo(name="arithmetic", context_length=context_length)
        self.tokenizer = ByteTokenizer(CONTROL)
        self.executions = 0
        self.open_samplers: set[ArithmeticSampler] = set()
        self.closed = False
        self.ends = ends
        self._hook = hook or Hook()
        self._missing = missing
        self._refused_bias = refused_bias
        self._slots: list[list[Cell]] = [[] for _ in range(slots)]
        self._aborted = threading.Event()
        self._thread: int | None = None

    def sampler(self, sampling: Sampling, prompt: Sequence[int]) -> ArithmeticSampler:
        self._enter()
        if self._refused_bias in sampling.logit_bias:
            raise EngineFailure(f"there is no token {self._refused_bias}")
        sampler = ArithmeticSampler(self, sampling, prompt)
        self.open_samplers.add(sampler)
        return sampler

    def closed_sampler(self, sampler: ArithmeticSampler) -> None:
        """The sampler's own `close`."""
        self._enter()
        assert sampler in self.open_samplers, "a sampler was closed twice"
        self.open_samplers.remove(sampler)

    def execute(self, batch: Batch) -> list[Sampled]:
        self._enter()
        self.executions += 1
        for move in batch.moves:
            self._move(move)
        self._check(batch.entries)
        try:
            self._hook.before(self.executions - 1)
            if self._aborted.is_set():
                raise EngineFailure("aborted")
        except EngineFailure:
            self._spoil(batch.entries)
            raise
        if self.used + sum(len(entry.tokens) for entry in batch.entries) > self.cells - self._missing:
            raise CellsExhausted
        for entry in batch.entries:
            self._slots[entry.slot] += map(Cell, entry.tokens)
        return [self._sample(entry.slot, entry.sampler) for entry in batch.entries if entry.sampler is not None]

    def abort(self) -> None:
        self._aborted.set()
        self._hook.abort()

    def close(self) -> None:
        self._enter()
        assert not self.open_samplers, f"{len(self.open_samplers)} samplers outlive their backend"
        self.closed = True

    @property
    def used(self) -> int:
        """Cells that hold something, each counted once."""
        return len({id(cell) for slot in self._slots for cell in slot})

    def tokens(self, slot: int) -> list[int]:
        """What the slot has read, in order."""
        return [cell.token for cell in self._slots[slot]]

    def _enter(self) -> None:
        assert not self.closed, "the backend is closed"
        self._thread = self._thread or threading.get_ident()
        assert self._thread == threading.get_ident(), "called from a second thread"

    def _move(self, move: Trim | Copy) -> None:
        if isinstance(move, Trim):
            assert self.can_trim or move.length == 0, f"{move}: slots can only be emptied"
            assert 0 <= move.length <= len(self._slots[move.slot]), f"{move} keeps more than there is"
            del self._slots[move.slot][move.length :]
            return
        assert self.can_trim, f"{move}: nothing can be shared"
        assert not self._slots[move.target], f"{move} into a slot that is not empty"
        assert 0 < move.length <= len(self._slots[move.source]), f"{move} copies more than there is"
        self._slots[move.target] = self._slots[move.source][: move.length]

    def _check(self, entries: Sequence[Entry]) -> None:
        """Every rule that a batch of entries must keep."""
        wanted = sum(len(entry.tokens) for entry in entries)
        assert 0 < wanted <= self.batch_tokens, f"a batch of {wanted} tokens"
        assert self.used + wanted <= self.cells, f"{wanted} more cells than {self.used} do not fit into {self.cells}"
        assert len({entry.slot for entry in entries}) == len(entries), "two entries for one slot"
        for entry in entries:
            held = len(self._slots[entry.slot])
            assert entry.tokens, "an entry without tokens"
            assert entry.start == held, f"slot {entry.slot} ends at {held}, the entry starts at {entry.start}"
            assert held + len(entry.tokens) <= self.info.context_length, "the slot is longer than the context"

    def _spoil(self, entries: Sequence[Entry]) -> None:
        """A failure in the middle of a batch leaves half of it in the cache."""
        for entry in entries:
            self._slots[entry.slot] += map(Cell, entry.tokens[: len(entry.tokens) // 2 + 1])

    def _sample(self, slot: int, sampler: Sampler) -> Sampled:
        assert isinstance(sampler, ArithmeticSampler)
        assert sampler in self.open_samplers, "a closed sampler was used"
        tokens = self.tokens(slot)
        assert tokens == sampler.history, f"slot {slot} holds something else than its sequence"
        if self.ends(tokens):
            return Sampled(self.tokenizer.size - 1, True)
        token = next_token(tokens, sampler.seed)
        sampler.history.append(token)
        return Sampled(token, False, _logprob(token, sampler.top_logprobs))


def _logprob(token: int, top: int | None) -> TokenLogprob | None:
    if top is None:
        return None
    return TokenLogprob(token, -1.0, tuple(((token + rank) % 256, -1.0 - rank) for rank in range(top)))


def alone(prompt: Sequence[int], limit: int, ends: Ends = never, seed: int = 0) -> list[int]:
    """What a request must be answered with, whatever else runs: up to `limit` tokens, computed without any cache."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit and not ends(tokens):
        tokens.append(next_token(tokens, seed))
    return tokens[len(prompt) :]
