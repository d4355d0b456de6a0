"""A backend that computes with plain numbers and checks every move as a real KV cache would suffer it.

The next token is a function of everything in the slot, so a wrong prefix shows in the output. The cache is kept as the
simplest thing that can be right: each slot maps positions to cell objects, and sharing puts the same objects into
another slot. A plan that a real cache could not carry out raises `AssertionError`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence

from antiphon.engine.backend import (
    Batch,
    CellsExhausted,
    ContextLost,
    Entry,
    Move,
    Restore,
    RestoreFailed,
    Sampled,
    Sampler,
    Save,
    Share,
    Trim,
)
from antiphon.engine.base import EngineClosed, EngineFailure, ModelInfo, Sampling, TokenLogprob
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

    def refuses(self, tokens: Sequence[int]) -> Exception | None:
        """What a batch fails of that computes these tokens of a sequence."""
        return None

    def saved(self, data: bytes) -> bytes | None:
        """What a saved state is when it is asked for again; None: there is no memory for it."""
        return data

    def fails(self, tokens: Sequence[int]) -> bool:
        """Whether the machine cannot sample behind these tokens: that sequence's own fault."""
        return False

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
    says. `refused_bias` is a token that no sampler can be made for. `nodes` slots hold prefixes, beside `lanes`."""

    cell_bytes = 16
    fingerprint = "arithmetic"

    def __init__(
        self,
        *,
        cells: int = 512,
        lanes: int = 4,
        nodes: int = 24,
        batch_tokens: int = 64,
        context_length: int = 128,
        can_trim: bool = True,
        ends: Ends = never,
        hook: Hook | None = None,
        missing: int = 0,
        refused_bias: int = 1_000,
        threads: int = 2,
    ) -> None:
        self.cells = cells
        self.lanes = lanes
        self.slots = lanes + (nodes if can_trim else 0)
        self.batch_tokens = batch_tokens
        self.can_trim = can_trim
        self.info = ModelInfo(name="arithmetic", context_length=context_length)
        self.tokenizer = ByteTokenizer(CONTROL)
        self.executions = 0
        self.computed = 0  # tokens so far
        self.resets = 0
        self.threads = threads
        self.native_seconds = 0.0
        self.open_samplers: set[ArithmeticSampler] = set()
        self.closed = False
        self.ends = ends
        self._hook = hook or Hook()
        self._missing = missing
        self._refused_bias = refused_bias
        self._slots: list[dict[int, Cell]] = [{} for _ in range(self.slots)]
        self._lost = False
        self._aborted = threading.Event()
        self._thread: int | None = None

    def set_threads(self, threads: int) -> None:
        self._enter()
        self.threads = threads

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

    def execute(self, batch: Batch) -> list[Sampled | EngineFailure]:
        self._enter()
        assert not self._lost, "a lost context was used"
        for move in batch.moves:
            self._move(move)
        if not batch.entries:
            return []
        self.executions += 1
        self._check(batch.entries)
        try:
            self._hook.before(self.executions - 1)
            if self._aborted.is_set():
                raise EngineClosed("aborted")
            for error in (self._hook.refuses(entry.tokens) for entry in batch.entries):
                if error is not None:
                    raise error
        except ContextLost:
            self._lost = True
            raise
        if self.used + sum(len(entry.tokens) for entry in batch.entries) > self.cells - self._missing:
            raise CellsExhausted
        for entry in batch.entries:
            self._slots[entry.slot] |= {entry.start + at: Cell(token) for at, token in enumerate(entry.tokens)}
            self.computed += len(entry.tokens)
        return [self._sample(entry.slot, entry.sampler) for entry in batch.entries if entry.sampler is not None]

    def reset(self) -> None:
        self._enter()
        self._slots = [{} for _ in range(self.slots)]
        self._lost = False
        self.resets += 1

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
        return len({id(cell) for slot in self._slots for cell in slot.values()})

    def tokens(self, slot: int) -> list[int]:
        """What the slot holds, in order."""
        return [cell.token for _, cell in sorted(self._slots[slot].items())]

    def positions(self, slot: int) -> list[int]:
        return sorted(self._slots[slot])

    def _enter(self) -> None:
        assert not self.closed, "the backend is closed"
        self._thread = self._thread or threading.get_ident()
        assert self._thread == threading.get_ident(), "called from a second thread"

    def _move(self, move: Move) -> None:
        if isinstance(move, Trim):
            assert self.can_trim or move.end == 0, f"{move}: slots can only be emptied"
            slot = self._slots[move.slot]
            self._slots[move.slot] = {at: cell for at, cell in slot.items() if at < move.end}
            return
        assert self.can_trim, f"{move}: nothing can be shared or saved"
        if isinstance(move, Share):
            self._share(move)
        elif isinstance(move, Save):
            assert self._slots[move.slot], f"{move} of an empty slot"
            held = sorted((at, cell.token) for at, cell in self._slots[move.slot].items())
            move.parcel.data = self._hook.saved(json.dumps(held).encode())
        else:
            self._restore(move)

    def _share(self, move: Share) -> None:
        """A real cache gives the target's own cells of that range up."""
        wanted = range(move.start, move.end)
        assert wanted and all(at in self._slots[move.source] for at in wanted), f"{move} of what is not there"
        self._slots[move.target] |= {at: self._slots[move.source][at] for at in wanted}
        held = self.positions(move.target)
        assert held == list(range(held[0], held[0] + len(held))), f"{move} leaves a gap"

    def _restore(self, move: Restore) -> None:
        assert not self._slots[move.slot], f"{move} into a slot that is not empty"
        assert move.parcel.data is not None, f"{move} of nothing"
        try:
            held = dict(json.loads(bytes(move.parcel.data)))
        except ValueError:
            raise RestoreFailed(move.slot) from None
        assert self.used + len(held) <= self.cells, f"{move} takes {len(held)} cells"
        self._slots[move.slot] = {at: Cell(held[at]) for at in range(move.start, move.end)}

    def _check(self, entries: Sequence[Entry]) -> None:
        """Every rule that a batch of entries must keep."""
        wanted = sum(len(entry.tokens) for entry in entries)
        assert 0 < wanted <= self.batch_tokens, f"a batch of {wanted} tokens"
        assert self.used + wanted <= self.cells, f"{wanted} more cells than {self.used} do not fit into {self.cells}"
        assert len({entry.slot for entry in entries}) == len(entries), "two entries for one slot"
        for entry in entries:
            held = len(self._slots[entry.slot])
            assert entry.slot < self.lanes, "an entry for a prefix's slot"
            assert self.positions(entry.slot) == list(range(held)), f"slot {entry.slot} has a gap"
            assert entry.tokens, "an entry without tokens"
            assert entry.start == held, f"slot {entry.slot} ends at {held}, the entry starts at {entry.start}"
            assert held + len(entry.tokens) <= self.info.context_length, "the slot is longer than the context"

    def _sample(self, slot: int, sampler: Sampler) -> Sampled | EngineFailure:
        assert isinstance(sampler, ArithmeticSampler)
        assert sampler in self.open_samplers, "a closed sampler was used"
        tokens = self.tokens(slot)
        assert tokens == sampler.history, f"slot {slot} holds something else than its sequence"
        if self._hook.fails(tokens):
            return EngineFailure("the model computed logits that are no numbers")
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
