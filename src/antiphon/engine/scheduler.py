"""What to do next, decided by a pure function over plain state: `decide` reads, `State.apply` and `complete` change.

Rules
* Nothing here computes, waits, locks or knows a model: a step is decided, carried out elsewhere, and booked.
* A step is a row of decisions that ends in `Compute` (or `Idle`): room is made and requests are admitted one by one.
* Decoding sequences and prompts take turns, so a long prompt never stalls a running answer: prompts are computed in
  chunks. In one batch they would cost more on a CPU, where every token of a tile of attention reads the cells of all.
* First come, first served; a sequence that was preempted goes back to the front. The oldest running sequence is never
  preempted, so something always gets done.
* What nobody uses leaves the cache while others compute, if memory has room: they step over its cells.
* What a running sequence is just computing for a prompt that waits is waited for, not computed twice.
* Every sequence is at any moment in exactly one of: waiting, running, gone.
"""

from __future__ import annotations

from msgspec import Struct

from antiphon.engine.pace import TILE
from antiphon.engine.prefix_tree import Node, common_prefix
from antiphon.engine.sequence import Sequence
from antiphon.engine.state import (
    Admit,
    Compute,
    Decision,
    Evict,
    Fetch,
    Idle,
    Persist,
    Preempt,
    Publish,
    State,
)

HEADROOM = 32
"""Free cells for each running sequence before another one is admitted; without it, who was preempted comes back at once
and is preempted again."""

WORTH_WAITING = 32
"""A prefix that is just being computed is waited for if it saves so many tokens: less costs no more than the wait."""


Parts = list[tuple[Sequence, int]]


class _Prefix(Struct, frozen=True):
    """What the first waiting sequence finds: `length` tokens of the path to `leaf`."""

    leaf: Node
    length: int

    @property
    def away(self) -> list[Node]:
        return [node for node in self.leaf.path() if not node.resident]

    @property
    def tail(self) -> int:
        """Cells of the leaf that are not wanted, and free to go when it is cut."""
        return self.leaf.end - self.length if self.leaf.resident and not self.leaf.users else 0


def decide(state: State) -> Decision:
    """The next decision. Changes nothing."""
    return _admission(state) or _leaving(state) or _computing(state)


def relief(state: State) -> Evict | Preempt | None:
    """What gives cells back: the coldest cached prefix, then the youngest of several running sequences."""
    cold = state.cache.coldest()
    if cold is not None:
        return Evict(cold)
    return Preempt() if len(state.running) > 1 else None


def _admission(state: State) -> Decision | None:
    if not state.admits:
        return None
    sequence = state.waiting[0]
    limit = len(sequence.tokens) - 1  # One token at least is left to compute.
    prefix = _readable(_Prefix(*state.cache.tree.match(sequence.generation.owner, sequence.tokens, limit)))
    source, common = _being_computed(state, sequence, prefix.length)
    if source is not None:
        return Publish(source, common) if common <= source.computed else None
    absent = [node.copy for node in prefix.away if node.copy is not None and node.copy.parcel is None]
    if absent:
        return None if any(copy.busy for copy in absent) else Fetch(prefix.leaf)
    need = _need(state, sequence, prefix)
    if need <= state.free:
        return Admit(prefix.leaf, prefix.length)
    return _room(state, sequence, prefix, need)


def _readable(prefix: _Prefix) -> _Prefix:
    """As much of a prefix as comes before a file that cannot be read."""
    for node in prefix.away:
        if node.copy is not None and node.copy.unreadable and node.parent is not None:
            return _Prefix(node.parent, node.start)
    return prefix


def _need(state: State, sequence: Sequence, prefix: _Prefix) -> int:
    """Free cells that the sequence wants, beside those that running ones were promised. Nodes come back one by one; for
    a moment, each takes as much as the copy that it is cut out of."""
    held = peak = 0
    for node in prefix.away:
        peak = max(peak, held + (len(node.copy) if node.copy is not None else 0))
        held += len(node)
    promised = sum(running.pending + HEADROOM for running in state.running)
    return max(peak, held + len(sequence.tokens) - prefix.length) + promised


def _being_computed(state: State, sequence: Sequence, length: int) -> tuple[Sequence | None, int]:
    """The running sequence that shares most of the waiting one's prompt, if that is clearly more than the tree has."""
    best, longest = None, 0
    tokens, limit = sequence.tokens, len(sequence.tokens) - 1
    start = length + WORTH_WAITING
    for running in state.running if start <= limit else ():
        others = running.tokens
        same = running.generation.owner == sequence.generation.owner and running.publishable
        if same and others[length:start] == tokens[length:start] and others[:length] == tokens[:length]:
            common = start + common_prefix(others[start:], tokens, start, limit)
            if running.pending == 1:  # Its newest token is never computed yet: to wait for it is to wait to its end.
                common = min(common, running.computed)
            if common >= start and common > longest:
                best, longest = running, common
    return best, longest


def _room(state: State, sequence: Sequence, prefix: _Prefix, need: int) -> Decision | None:
    """Makes room for the first waiting sequence if what is cold is enough; otherwise it waits for a running one."""
    path = prefix.leaf.path()
    if state.free + state.cache.cold(apart=path) + prefix.tail < need:
        return None if state.running else _with_less(state, sequence, prefix)
    cold = state.cache.coldest(apart=path)
    # All that is cold now is the leaf's own tail behind the shared prefix: it is cut off, and evicted next.
    return Evict(cold) if cold is not None else Admit(prefix.leaf, prefix.length)


def _with_less(state: State, sequence: Sequence, prefix: _Prefix) -> Decision | None:
    """Nobody will give cells back: what is outside of the cache would take too many to come back, and is left there."""
    inside = [node for node in prefix.leaf.path() if node.resident]
    leaf = inside[-1] if inside else state.cache.tree.root(sequence.generation.owner)
    less = _Prefix(leaf, min(leaf.end, prefix.length))
    need = _need(state, sequence, less)
    return Admit(leaf, less.length) if need <= state.free else _room(state, sequence, less, need)


def _leaving(state: State) -> Evict | None:
    """Idle prefixes leave before the tokens are computed that would step over them: all of them before a prompt, which
    takes long anyway, else one a step, so that answers go on."""
    pending = [sequence.pending for sequence in state.running]
    if not pending or (state.cache.moves and max(pending) == 1):
        return None
    idle = state.cache.idle(sum(pending))
    return Evict(idle) if idle is not None else None


def _computing(state: State) -> Decision:
    decoding = [(sequence, 1) for sequence in state.running if sequence.pending == 1]
    prefilling = any(sequence.pending > 1 for sequence in state.running)
    if decoding and not (prefilling and state.prefill_next):
        return _within(state, decoding, len(decoding))
    if prefilling:
        return _within(state, _prefill(state, _budget(state) if decoding else state.batch_tokens), 1)
    return _leisure(state)


def _budget(state: State) -> int:
    """Prompt tokens of a step between two of others' answers; the end of a prompt may fill no tile."""
    left = sum(sequence.pending for sequence in state.running if sequence.pending > 1)
    return min(state.prefill_end if left < TILE else state.prefill_chunk, state.batch_tokens)


def _within(state: State, parts: Parts, least: int) -> Decision:
    """The parts, or what makes room for them: cold prefixes go first; then prompts take what is left; only a step that
    could not do the `least` preempts."""
    if sum(count for _, count in parts) <= state.free:
        return Compute(tuple(parts))
    relieved = relief(state)
    if relieved and (isinstance(relieved, Evict) or state.free < least):
        return relieved
    return Compute(tuple(_prefill(state, state.free)))


def _prefill(state: State, budget: int) -> Parts:
    """Prompts in the order of their arrival, as far as the budget of tokens goes."""
    parts = []
    for sequence in state.running:
        if sequence.pending > 1 and budget > 0:
            parts.append((sequence, min(sequence.pending, budget)))
            budget -= parts[-1][1]
    return parts


def _leisure(state: State) -> Decision:
    unsaved = state.cache.unsaved()
    return Persist(unsaved) if unsaved is not None and not state.waiting else Idle()
