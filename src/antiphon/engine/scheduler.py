"""What to do next, decided by a pure function over plain state: `decide` reads, `State.apply` and `complete` change.

Rules
* Nothing here computes, waits, locks or knows a model: a step is decided, carried out elsewhere, and booked.
* A step is a row of decisions that ends in `Compute` (or `Idle`): room is made and requests are admitted one by one.
* Decoding sequences go first, so a long prompt never stalls a running answer; prompts follow in chunks.
* First come, first served; a sequence that was preempted goes back to the front. The oldest running sequence is never
  preempted, so something always gets done.
* Every sequence is at any moment in exactly one of: waiting, running, gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Seq

from msgspec import Struct

from antiphon.engine.backend import Batch, Copy, Entry, Sampled, Sampler, Trim
from antiphon.engine.base import Finish, Generation, Step
from antiphon.engine.cells import CellPool

MIXED_PREFILL = 128
"""Prompt tokens a step while somebody is decoding: about 0.35 s on two CPU cores, where 512 would take 1.3 s."""

HEADROOM = 32
"""Free cells for each running sequence before another one is admitted; without it, who was preempted comes back at once
and is preempted again."""


class Sequence:
    """A request on its way through the engine. `computed` of its tokens are in the cache of its slot."""

    def __init__(self, generation: Generation, context_length: int) -> None:
        self.generation = generation
        self.tokens = list(generation.prompt)
        room = context_length - len(self.tokens)
        self.limit = len(self.tokens) + (room if generation.max_tokens is None else min(generation.max_tokens, room))
        self.slot = -1
        self.computed = 0
        self.cached: int | None = None
        self.sampler: Sampler | None = None

    @property
    def answered(self) -> bool:
        """Whether a first token has been sampled."""
        return len(self.tokens) > len(self.generation.prompt)

    @property
    def pending(self) -> int:
        """Tokens that must be computed before the next one can be sampled; 1 while decoding."""
        return len(self.tokens) - self.computed


class Slot:
    """One of the backend's sequence ids: the tokens in its cache, who uses it, when it was last used."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.tokens: list[int] = []
        self.owner: Sequence | None = None
        self.used = 0


class Admit(Struct, frozen=True):
    """The first waiting sequence gets `slot`; `shared` tokens come from slot `source` (itself: they stay)."""

    slot: int
    source: int
    shared: int


class Evict(Struct, frozen=True):
    """The cached prefix of an idle slot is dropped."""

    slot: int


class Preempt(Struct, frozen=True):
    """The youngest running sequence gives its cells back, waits at the front and is computed again later."""


class Compute(Struct, frozen=True):
    """So many pending tokens of these running sequences, in this order."""

    parts: tuple[tuple[Sequence, int], ...]


class Idle(Struct, frozen=True):
    """Nothing to do."""


Decision = Admit | Evict | Preempt | Compute | Idle


class State:
    """Everything that `decide` reads. Moves that were booked wait for the next batch."""

    def __init__(self, *, slots: int, cells: int, batch_tokens: int, context_length: int, can_trim: bool) -> None:
        if batch_tokens < slots:
            raise ValueError(f"a batch of {batch_tokens} tokens cannot hold {slots} decoding sequences")
        if context_length > cells:
            raise ValueError(f"a context of {context_length} tokens does not fit into {cells} cells")
        self.batch_tokens = batch_tokens
        self.context_length = context_length
        self.can_trim = can_trim
        self.pool = CellPool(cells, slots)
        self.slots = [Slot(index) for index in range(slots)]
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self._moves: list[Trim | Copy] = []
        self._strained = False
        self._clock = 0

    @property
    def admits(self) -> bool:
        """Whether a waiting sequence may be admitted: not between a batch that found no room and one that did."""
        return bool(self.waiting) and not (self._strained and self.running)

    @property
    def idle_slots(self) -> list[Slot]:
        """Slots without an owner: empty ones, then the least recently used first."""
        idle = (slot for slot in self.slots if slot.owner is None)
        return sorted(idle, key=lambda slot: (bool(slot.tokens), slot.used))

    def add(self, generation: Generation) -> Sequence:
        """A new request, at the end of the queue."""
        sequence = Sequence(generation, self.context_length)
        self.waiting.append(sequence)
        return sequence

    def remove(self, sequence: Sequence) -> None:
        """A sequence ended or was cancelled, in whatever phase; its cells stay as a cached prefix. Idempotent."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence in self.running:
            self.running.remove(sequence)
            self._release(sequence)
            if not self.can_trim:
                self._trim(sequence.slot, 0)

    def drop(self, sequence: Sequence) -> None:
        """As `remove`, for a sequence whose cells cannot be trusted any more."""
        held = sequence in self.running
        self.remove(sequence)
        if held:
            self._trim(sequence.slot, 0)
            # Also where the count says that the slot is empty: half of a failed batch may be in it.
            self._moves.append(Trim(sequence.slot, 0))

    def apply(self, decision: Admit | Evict | Preempt) -> None:
        """Books a decision; what the backend must do for it goes into the next batch."""
        if isinstance(decision, Admit):
            self._admit(decision)
        elif isinstance(decision, Evict):
            self._trim(decision.slot, 0)
        else:
            self._preempt()

    def batch(self, decision: Compute) -> Batch:
        """The backend's work for a decision, with all moves that were booked before it."""
        entries = tuple(_entry(sequence, count) for sequence, count in decision.parts)
        moves, self._moves = tuple(self._moves), []
        return Batch(moves=moves, entries=entries)

    def complete(self, decision: Compute, sampled: Seq[Sampled]) -> list[tuple[Sequence, Step]]:
        """Books what a batch computed; gives each sampled sequence's step. Ended sequences are removed."""
        self._strained = False
        samples = iter(sampled)
        steps = []
        for sequence, count in decision.parts:
            last = count == sequence.pending
            self._computed(sequence, count)
            if last:
                step = _step(sequence, next(samples))
                steps.append((sequence, step))
                if step.finish is not None:
                    self.remove(sequence)
        return steps

    def exhausted(self) -> bool:
        """The backend found no room for a batch where the count says that there is some: gives cells back.

        Nobody is admitted before a batch got through, or who was preempted would come back at once, for ever. False:
        there is nothing to give back.
        """
        relieved = relief(self)
        self._strained = relieved is not None
        if relieved is not None:
            self.apply(relieved)
        return self._strained

    def _admit(self, decision: Admit) -> None:
        sequence = self.waiting.popleft()
        slot = self.slots[decision.slot]
        if decision.source == decision.slot:
            self._trim(decision.slot, decision.shared)
        else:
            self._trim(decision.slot, 0)
            self._moves.append(Copy(decision.source, decision.slot, decision.shared))
            self.pool.share(decision.source, decision.slot, decision.shared)
            slot.tokens = self.slots[decision.source].tokens[: decision.shared]
        slot.owner = sequence
        sequence.slot, sequence.computed = decision.slot, decision.shared
        if sequence.cached is None:
            sequence.cached = decision.shared
        self.running.append(sequence)

    def _preempt(self) -> None:
        sequence = self.running.pop()
        self._release(sequence)
        self._trim(sequence.slot, 0)
        sequence.computed = 0
        if not sequence.answered:  # What the first step took from the cache is what counts.
            sequence.cached = None
        self.waiting.appendleft(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._clock += 1
        slot = self.slots[sequence.slot]
        slot.owner, slot.used = None, self._clock

    def _trim(self, slot: int, length: int) -> None:
        if self.pool.length(slot) > length:
            self._moves.append(Trim(slot, length))
            self.pool.trim(slot, length)
            del self.slots[slot].tokens[length:]

    def _computed(self, sequence: Sequence, count: int) -> None:
        self.pool.extend(sequence.slot, count)
        end = sequence.computed + count
        self.slots[sequence.slot].tokens += sequence.tokens[sequence.computed : end]
        sequence.computed = end


def _entry(sequence: Sequence, count: int) -> Entry:
    start, last = sequence.computed, count == sequence.pending
    tokens = sequence.tokens[start : start + count]
    return Entry(sequence.slot, start, tokens, sequence.sampler if last else None)


def _step(sequence: Sequence, sampled: Sampled) -> Step:
    if sampled.end:
        return Step((), Finish.STOP)
    sequence.tokens.append(sampled.token)
    finish = Finish.LENGTH if len(sequence.tokens) >= sequence.limit else None
    return Step((sampled.token,), finish, (sampled.logprob,) if sampled.logprob else ())


def decide(state: State) -> Decision:
    """The next decision. Changes nothing."""
    return _admission(state) or _computing(state)


def relief(state: State) -> Evict | Preempt | None:
    """What gives cells back: the coldest cached prefix, then the youngest of several running sequences."""
    cold = [slot for slot in state.idle_slots if slot.tokens]
    if cold:
        return Evict(cold[0].index)
    return Preempt() if len(state.running) > 1 else None


def _admission(state: State) -> Decision | None:
    idle = state.idle_slots if state.admits else []
    if not idle:
        return None
    sequence = state.waiting[0]
    source, shared = _longest_prefix(state, sequence)
    promised = sum(running.pending + HEADROOM for running in state.running)
    need = len(sequence.tokens) - shared + promised
    if need > state.pool.free:
        return _room(state, source, shared, need)
    if source is None:
        return Admit(idle[0].index, idle[0].index, 0)
    # A slot that the new prompt goes on from is taken over; a branch gets a slot of its own, so that both stay.
    others = [slot for slot in idle if slot is not source]
    if source.owner is None and (not others or shared * 2 > len(source.tokens)):
        return Admit(source.index, source.index, shared)
    return Admit(others[0].index, source.index, shared)


def _longest_prefix(state: State, sequence: Sequence) -> tuple[Slot | None, int]:
    """The slot whose cache starts with most of the sequence's tokens. One token at least is left to compute."""
    best, longest = None, 0
    if state.can_trim:
        for slot in state.slots:
            shared = common_prefix(slot.tokens, sequence.tokens)
            if shared > longest:
                best, longest = slot, shared
    shared = min(longest, len(sequence.tokens) - 1)
    return (best, shared) if shared else (None, 0)


def common_prefix(a: Seq[int], b: Seq[int]) -> int:
    """How many leading tokens two sequences share, by halving: slices compare in C."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _room(state: State, source: Slot | None, shared: int, need: int) -> Decision | None:
    """Makes room for the first waiting sequence if what is cold is enough; otherwise it waits for a running one."""
    busy = state.pool.held_by(slot.index for slot in state.slots if slot.owner is not None)
    wanted = source if source is not None and source.owner is None else None
    if state.pool.total - busy - (shared if wanted else 0) < need:
        return None
    cold = [slot for slot in state.idle_slots if slot.tokens and slot is not wanted]
    if cold:
        return Evict(cold[0].index)
    # All that is cold now is the wanted slot's own tail behind the shared prefix: taking the slot over drops it.
    return Admit(wanted.index, wanted.index, shared) if wanted else None


def _computing(state: State) -> Decision:
    decoding = [(sequence, 1) for sequence in state.running if sequence.pending == 1]
    budget = min(state.batch_tokens - len(decoding), MIXED_PREFILL if decoding else state.batch_tokens)
    wanted = len(decoding) + min(budget, sum(s.pending for s in state.running if s.pending > 1))
    if not wanted:
        return Idle()
    if wanted > state.pool.free:
        # Cold prefixes go first; then prompts take what is left; only a step that can do nothing preempts.
        relieved = relief(state)
        if relieved and (isinstance(relieved, Evict) or state.pool.free < max(1, len(decoding))):
            return relieved
        budget = state.pool.free - len(decoding)
    return Compute((*decoding, *_prefill(state, budget)))


def _prefill(state: State, budget: int) -> list[tuple[Sequence, int]]:
    """Prompts in the order of their arrival, as far as the budget of tokens goes."""
    parts = []
    for sequence in state.running:
        if sequence.pending > 1 and budget > 0:
            parts.append((sequence, min(sequence.pending, budget)))
            budget -= parts[-1][1]
    return parts
