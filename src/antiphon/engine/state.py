"""The engine's books: who waits, who runs, what the cache holds, and what each decision changes in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Seq

from msgspec import Struct

from antiphon.engine.backend import Batch, Entry, Sampled, Trim
from antiphon.engine.base import EngineFailure, Finish, Generation, Step
from antiphon.engine.pace import FIRST_CHUNK
from antiphon.engine.prefix_cache import PrefixCache
from antiphon.engine.prefix_tree import Node
from antiphon.engine.sequence import Sequence


class Admit(Struct, frozen=True):
    """The first waiting sequence gets a lane, and the first `length` tokens of the path to `leaf` into it."""

    leaf: Node
    length: int


class Publish(Struct, frozen=True):
    """What a running sequence has computed of its first `length` tokens becomes a prefix that others can use."""

    sequence: Sequence
    length: int


class Fetch(Struct, frozen=True):
    """The files that the path to `leaf` needs are read."""

    leaf: Node


class Evict(Struct, frozen=True):
    """A cold prefix leaves the cache."""

    node: Node


class Preempt(Struct, frozen=True):
    """The youngest running sequence gives its lane back and waits at the front; its prefix stays as long as it can."""


class Persist(Struct, frozen=True):
    """There is nothing else to do: a prefix is written to a file as well."""

    node: Node


class Compute(Struct, frozen=True):
    """So many pending tokens of these running sequences, in this order."""

    parts: tuple[tuple[Sequence, int], ...]


class Idle(Struct, frozen=True):
    """Nothing to do, until something arrives."""


Change = Admit | Publish | Fetch | Evict | Preempt | Persist
Decision = Change | Compute | Idle

Outcome = tuple[Sequence, Step | EngineFailure]


class State:
    """Everything that `decide` reads. Moves that were booked wait for the next batch."""

    def __init__(self, cache: PrefixCache, *, lanes: int, cells: int, batch_tokens: int, context_length: int) -> None:
        if batch_tokens < lanes:
            raise ValueError(f"a batch of {batch_tokens} tokens cannot hold {lanes} decoding sequences")
        if context_length > cells:
            raise ValueError(f"a context of {context_length} tokens does not fit into {cells} cells")
        self.cache = cache
        self.cells = cells
        self.batch_tokens = batch_tokens
        self.context_length = context_length
        self.prefill_chunk = FIRST_CHUNK
        self.prefill_end = FIRST_CHUNK  # the same for the end of a prompt that fills no tile
        self.prefill_next = False  # whose turn it is, when some decode and others have a prompt to be computed
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.prompt_tokens = 0  # of all that were admitted so far
        self.cached_tokens = 0  # of these not computed
        self.preempted = 0
        self._lanes = deque(range(lanes))
        self._strained = False
        self._suspects: set[Sequence] = set()

    @property
    def free(self) -> int:
        """Cells that nobody holds."""
        return self.cells - self.cache.resident - sum(sequence.own for sequence in self.running)

    @property
    def admits(self) -> bool:
        """Whether a waiting sequence may be admitted: not between a batch that found no room and one that did, and
        only one at a time while it is sought who breaks the context."""
        return bool(self.waiting and self._lanes) and not (self.running and (self._strained or self._suspects))

    def add(self, generation: Generation) -> Sequence:
        """A new request, at the end of the queue."""
        sequence = Sequence(generation, self.context_length)
        self.cache.tree.root(generation.owner)
        self.waiting.append(sequence)
        return sequence

    def remove(self, sequence: Sequence) -> None:
        """A sequence ended or was cancelled, in whatever phase; what it computed stays as a prefix. Idempotent."""
        self._suspects.discard(sequence)
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence in self.running:
            self.running.remove(sequence)
            self._leave(sequence)

    def drop(self, sequence: Sequence) -> None:
        """As `remove`, for a sequence whose cells cannot be trusted any more, nor the prefix that nobody else uses."""
        leaf = sequence.leaf
        if leaf is not None:
            sequence.computed = leaf.end
        self.remove(sequence)
        if leaf is not None:
            self.cache.distrust(leaf)

    def apply(self, change: Change) -> None:
        """Books a decision; what the backend must do for it goes into the next batch."""
        match change:
            case Admit():
                self._admit(change)
            case Publish(sequence, length):
                self._publish(sequence, length)
            case Fetch(leaf):
                self.cache.fetch(leaf)
            case Evict(node):
                self.cache.evict(node)
            case Preempt():
                self._preempt()
            case _:
                self.cache.persist(change.node)

    def batch(self, parts: Seq[tuple[Sequence, int]] = ()) -> Batch:
        """The backend's work for these parts, with all moves that were booked before it."""
        moves = tuple(self.cache.moves)
        self.cache.moves.clear()
        return Batch(moves=moves, entries=tuple(_entry(sequence, count) for sequence, count in parts))

    def complete(self, parts: Seq[tuple[Sequence, int]], sampled: Seq[Sampled | EngineFailure]) -> list[Outcome]:
        """Books what a batch computed; gives what each sampled sequence got. Ended sequences are removed."""
        self._strained = False
        self.prefill_next = parts[0][0].pending == 1
        self.cache.passed(sum(count for _, count in parts))
        samples = iter(sampled)
        outcomes: list[Outcome] = []
        for sequence, count in parts:
            self._suspects.discard(sequence)
            last = count == sequence.pending
            sequence.computed += count
            if last:
                outcomes.append((sequence, self._sampled(sequence, next(samples))))
        return outcomes

    def exhausted(self, relieved: Evict | Preempt | None) -> bool:
        """The backend found no room for a batch where the count says that there is some: gives cells back.

        Nobody is admitted before a batch got through, or who was preempted would come back at once, for ever. False:
        there is nothing to give back.
        """
        self._strained = relieved is not None
        if relieved is not None:
            self.apply(relieved)
        return self._strained

    def lost(self, suspects: Seq[Sequence]) -> None:
        """The KV cache is empty: who runs is computed again, the suspects and everybody else one by one until each of
        them got through a batch."""
        for sequence in reversed(self.running):
            self._lanes.append(sequence.lane)
            sequence.leaf, sequence.computed = None, 0
            self.waiting.appendleft(sequence)
        self.running.clear()
        self._suspects |= set(suspects)
        self.cache.lost()

    def _admit(self, change: Admit) -> None:
        sequence = self.waiting.popleft()
        sequence.lane = self._lanes.popleft()
        sequence.leaf = self.cache.use(change.leaf, change.length, sequence.lane)
        sequence.computed = sequence.leaf.end
        self._count(sequence)
        self.running.append(sequence)

    def _count(self, sequence: Sequence) -> None:
        if sequence.cached is None:
            sequence.cached = sequence.computed
            self.prompt_tokens += len(sequence.generation.prompt)
            self.cached_tokens += sequence.computed
        else:  # What was found computed then, and is computed now that the cache was lost, was not cached.
            sequence.cached = min(sequence.cached, sequence.computed)

    def _publish(self, sequence: Sequence, length: int) -> None:
        assert sequence.leaf is not None
        sequence.leaf = self.cache.insert(sequence.leaf, sequence.tokens, length, sequence.lane, keep=True)
        sequence.publishable = sequence.leaf.end == length

    def _preempt(self) -> None:
        sequence = self.running.pop()
        self._leave(sequence)
        self.preempted += 1
        self.waiting.appendleft(sequence)

    def _leave(self, sequence: Sequence) -> None:
        assert sequence.leaf is not None
        leaf = self.cache.insert(sequence.leaf, sequence.tokens, sequence.computed, sequence.lane, keep=False)
        self.cache.moves.append(Trim(sequence.lane, 0))
        self.cache.release(leaf)
        self._lanes.append(sequence.lane)
        sequence.leaf, sequence.computed, sequence.lane = None, 0, -1

    def _sampled(self, sequence: Sequence, sampled: Sampled | EngineFailure) -> Step | EngineFailure:
        if isinstance(sampled, EngineFailure):
            self.drop(sequence)
            return sampled
        step = _step(sequence, sampled)
        if step.finish is not None:
            self.remove(sequence)
        return step


def _entry(sequence: Sequence, count: int) -> Entry:
    start, last = sequence.computed, count == sequence.pending
    tokens = sequence.tokens[start : start + count]
    return Entry(sequence.lane, start, tokens, sequence.sampler if last else None)


def _step(sequence: Sequence, sampled: Sampled) -> Step:
    if sampled.end:
        return Step((), Finish.STOP)
    sequence.tokens.append(sampled.token)
    finish = Finish.LENGTH if len(sequence.tokens) >= sequence.limit else None
    return Step((sampled.token,), finish, (sampled.logprob,) if sampled.logprob else ())
