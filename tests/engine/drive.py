"""The scheduler's state and a backend, driven step by step without a thread, with every rule checked on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq

from antiphon.engine.base import Finish, Generation, Sampling
from antiphon.engine.cells import CellPool
from antiphon.engine.scheduler import (
    MIXED_PREFILL,
    Admit,
    Compute,
    Decision,
    Evict,
    Idle,
    Preempt,
    Sequence,
    Slot,
    State,
    decide,
)
from tests.engine.arithmetic_backend import ArithmeticBackend, Ends, never


def picture(thing: object) -> object:
    """A deep copy of a state in plain values, to see whether anything in it has changed."""
    if isinstance(thing, State | Slot | Sequence | CellPool):
        return [type(thing), id(thing), *((name, picture(value)) for name, value in vars(thing).items())]
    if isinstance(thing, list | tuple | deque):
        return [part if isinstance(part, int) else picture(part) for part in thing]
    return thing


def decided(state: State) -> Decision:
    """`decide`, and the proof that it only looked."""
    before = picture(state)
    decision = decide(state)
    assert picture(state) == before
    assert decide(state) == decision
    return decision


class Drive:
    """What the worker does with a state and a backend, without its thread; it checks every rule at every step.

    `decide` is `decided`, unless a long run would copy its whole state too often.
    """

    def __init__(self, backend: ArithmeticBackend, decide: Callable[[State], Decision] = decided) -> None:
        self.backend = backend
        self.decide = decide
        self.state = State(
            slots=backend.slots,
            cells=backend.cells,
            batch_tokens=backend.batch_tokens,
            context_length=backend.info.context_length,
            can_trim=backend.can_trim,
        )
        self.arrived: list[Sequence] = []
        self.outputs: dict[Sequence, list[int]] = {}
        self.ended: dict[Sequence, Finish | None] = {}
        self.preempted = 0

    def add(self, prompt: Seq[int], max_tokens: int | None = None, seed: int = 0) -> Sequence:
        sampling = Sampling(seed=seed)
        generation = Generation(id=f"resp_{len(self.arrived)}", prompt=prompt, max_tokens=max_tokens, sampling=sampling)
        sequence = self.state.add(generation)
        self.arrived.append(sequence)
        self.outputs[sequence] = []
        return sequence

    def cancel(self, sequence: Sequence) -> None:
        self.state.remove(sequence)
        self._end(sequence, None)

    def step(self) -> list[Decision]:
        """One row of decisions, carried out."""
        row: list[Decision] = []
        while not isinstance(decision := self.decide(self.state), Compute):
            row.append(decision)
            if isinstance(decision, Idle):
                assert not self.state.running and not self.state.waiting
                return row
            self._book(decision)
            assert len(row) <= 3 * self.backend.slots, "no end of decisions"
        self._check_parts(decision)
        self._compute(decision)
        return [*row, decision]

    def run(self) -> None:
        """Until nothing is left to do."""
        while not isinstance(self.step()[-1], Idle):
            pass

    def _book(self, decision: Admit | Evict | Preempt) -> None:
        if isinstance(decision, Preempt):
            self.preempted += 1
            assert len(self.state.running) > 1, "the oldest was preempted"
        self.state.apply(decision)
        self._check_state()

    def _check_parts(self, decision: Compute) -> None:
        decoding = [sequence for sequence in self.state.running if sequence.pending == 1]
        prompts = decision.parts[len(decoding) :]
        assert [sequence for sequence, _ in decision.parts[: len(decoding)]] == decoding
        assert decision.parts and all(0 < count <= sequence.pending for sequence, count in decision.parts)
        if decoding:
            assert sum(count for _, count in prompts) <= MIXED_PREFILL
        arrivals = [self.arrived.index(sequence) for sequence, _ in prompts]
        assert arrivals == sorted(arrivals)

    def _check_state(self) -> None:
        state = self.state
        alive = [*state.running, *state.waiting]
        assert set(alive) == set(self.arrived) - set(self.ended)
        # Nobody overtakes: who runs came before who waits, whatever was preempted in between.
        assert alive == [sequence for sequence in self.arrived if sequence not in self.ended]
        owners = {slot.owner: slot.index for slot in state.slots if slot.owner is not None}
        assert owners == {sequence: sequence.slot for sequence in state.running}
        assert [state.pool.length(slot.index) for slot in state.slots] == [len(slot.tokens) for slot in state.slots]
        for sequence in state.running:
            assert state.slots[sequence.slot].tokens == sequence.tokens[: sequence.computed]

    def _compute(self, decision: Compute) -> None:
        for sequence, _ in decision.parts:
            if sequence.sampler is None:
                generation = sequence.generation
                sequence.sampler = self.backend.sampler(generation.sampling, generation.prompt)
        sampled = self.backend.execute(self.state.batch(decision))
        steps = self.state.complete(decision, sampled)
        for sequence, step in steps:
            self.outputs[sequence] += step.tokens
            if step.finish is not None:
                self._end(sequence, step.finish)
        self._check_state()
        self._check_cache()

    def _check_cache(self) -> None:
        """The books and the cache agree; what was given back since the batch is still in the cache."""
        state = self.state
        if state.can_trim:
            assert self.backend.used == self.backend.cells - state.pool.free
            assert [self.backend.tokens(slot.index) for slot in state.slots] == [slot.tokens for slot in state.slots]
        for sequence in state.running:
            assert self.backend.tokens(sequence.slot) == sequence.tokens[: sequence.computed]

    def _end(self, sequence: Sequence, finish: Finish | None) -> None:
        self.ended[sequence] = finish
        if sequence.sampler is not None:
            sequence.sampler.close()


def drive(
    *,
    slots: int = 3,
    cells: int = 2048,
    batch_tokens: int = 512,
    context_length: int = 1024,
    can_trim: bool = True,
    ends: Ends = never,
) -> Drive:
    return Drive(
        ArithmeticBackend(
            slots=slots,
            cells=cells,
            batch_tokens=batch_tokens,
            context_length=context_length,
            can_trim=can_trim,
            ends=ends,
        )
    )


def text(length: int, start: int = 0) -> list[int]:
    """A prompt; two with different starts have no prefix in common."""
    return [(start + place) % 251 for place in range(length)]
