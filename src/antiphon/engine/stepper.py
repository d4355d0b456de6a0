"""Carries out what the scheduler decides, on the thread that owns the backend: one step at a time.

Faults
* A batch that fails is tried again sequence by sequence, so that only those end that fail twice, and alone.
* If the context is lost, it is made anew and everybody is computed again; who loses it alone twice, ends.
* A prefix that cannot be restored is forgotten.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq

from msgspec import Struct

from antiphon.engine.backend import Backend, CellsExhausted, ContextLost, RestoreFailed
from antiphon.engine.base import EngineClosed, EngineFailure, Generation
from antiphon.engine.observe import Observe, StepReport
from antiphon.engine.pace import Pace
from antiphon.engine.prefix_cache import PrefixCache
from antiphon.engine.prefix_shelf import Kind, Shelf, Transfer
from antiphon.engine.prefix_store import PrefixStore
from antiphon.engine.scheduler import decide, relief
from antiphon.engine.sequence import Sequence
from antiphon.engine.state import Compute, Idle, Outcome, State

log = logging.getLogger(__name__)

SAVING_SECONDS = 9.5
"""How long the end of the process may be put off by writing prefixes to files."""

CLOSING_SECONDS = 0.5
"""How long it may be put off after that, for the file that is just being written."""


class Options(Struct, frozen=True, kw_only=True):
    """`prefix_ram`, `prefix_disk` in bytes (`prefix_disk` counts only with a store); `step_target` in seconds."""

    prefix_ram: int = 0
    prefix_disk: int = 8 << 30
    step_target: float = 0.25
    clock: Callable[[], float] = time.perf_counter


Post = Callable[[Callable[["Stepper"], None]], None]
"""Has something done on the stepper's thread. Any thread."""

Wait = Callable[[float], None]
"""Handles what is posted within so many seconds; returns as soon as something was."""

Parts = Seq[tuple[Sequence, int]]


class Stepper:
    def __init__(
        self, backend: Backend, options: Options, store: PrefixStore | None, post: Post, observe: Observe | None
    ) -> None:
        self._backend = backend
        self._store = store
        self._post = post
        self._observe = observe
        self._clock = options.clock
        self._cell_bytes = max(1, backend.cell_bytes)
        self._pace = Pace(step_target=options.step_target, batch_tokens=backend.batch_tokens, threads=backend.threads)
        disk = options.prefix_disk // self._cell_bytes if store is not None else None
        shelf = Shelf(ram=options.prefix_ram // self._cell_bytes, disk=disk)
        slots = range(backend.lanes, backend.slots) if backend.can_trim else ()
        self._cache = PrefixCache(slots, shelf)
        self._state = State(
            self._cache,
            lanes=backend.lanes,
            cells=backend.cells,
            batch_tokens=backend.batch_tokens,
            context_length=backend.info.context_length,
        )

    def open(self) -> None:
        """Takes in what an earlier process left in files, and tells how things are at the start. Before anything else,
        on the stepper's thread."""
        if self._store is not None:
            records, shelf = [record for record, _ in self._store.scan()], self._cache.shelf
            shelf.set_aside(math.ceil(self._store.left_bytes / self._cell_bytes))
            shelf.bound(self._store.pending_bytes // self._cell_bytes)
            self._cache.adopt(records)
            self._transfer()
        self._tell(0, 0, 0.0, 0.0)

    def add(self, generation: Generation) -> Sequence:
        return self._state.add(generation)

    def cancel(self, sequence: Sequence) -> None:
        """Nobody waits for the sequence any more; what was computed stays as a prefix."""
        self._state.remove(sequence)
        _close(sequence)

    def step(self) -> list[Outcome] | None:
        """Decides and carries out one step. None: there is nothing to do until something arrives."""
        start, native = self._clock(), self._backend.native_seconds
        while not isinstance(decision := decide(self._state), Compute | Idle):
            self._state.apply(decision)
        if isinstance(decision, Idle):
            self._tidy()
            self._tell(0, 0, 0.0, 0.0)
            return None
        decoding = sum(sequence.pending == 1 for sequence, _ in decision.parts)
        prefilled = sum(count for _, count in decision.parts) - decoding
        threads = self._pace.prefill_threads if prefilled else self._pace.threads
        if threads != self._backend.threads:
            self._backend.set_threads(threads)
        outcomes = self._compute(decision.parts)
        self._transfer()
        seconds = self._clock() - start
        self._adapt(decoding, prefilled, seconds)
        self._tell(decoding, prefilled, seconds, self._backend.native_seconds - native)
        return outcomes

    def close(self, wait: Wait | None) -> None:
        """Ends every sequence. With `wait`, prefixes that are not in a file yet are written, as far as time allows."""
        for sequence in [*self._state.running, *self._state.waiting]:
            self.cancel(sequence)
        if self._store is not None:
            if wait is not None:
                self._save_all(wait)
                self._transfer()  # What was written last may have taken the place of others.
            self._store.close(CLOSING_SECONDS)

    # Computing

    def _compute(self, parts: Parts, *, again: bool = False) -> list[Outcome]:
        """Carries parts out as one batch; `again`: they failed before."""
        failed = self._make_samplers(parts)
        if failed:
            return failed
        try:
            return self._run(parts)
        except CellsExhausted:
            # The backend found no room where the count says there is some: give back more and try again.
            if self._state.exhausted(relief(self._state)):
                return []
            return self._failed(parts, EngineFailure("the KV cache has no room for one sequence"))
        except RestoreFailed as failure:
            self._cache.spoiled(failure.slot)
            return self._lost((), failure)
        except ContextLost as failure:
            return self._lost(parts, failure)
        except EngineClosed as failure:
            return self._failed(parts, failure, trusted=True)
        except EngineFailure as failure:
            return self._failed(parts, failure) if again else self._one_by_one(parts, failure)

    def _run(self, parts: Parts) -> list[Outcome]:
        sampled = self._backend.execute(self._state.batch(parts))
        outcomes = self._state.complete(parts, sampled)
        for sequence, outcome in outcomes:
            if isinstance(outcome, EngineFailure):
                log.error("%s: the engine failed: %s", sequence.generation.id, outcome)
            if isinstance(outcome, EngineFailure) or outcome.finish is not None:
                _close(sequence)
        return outcomes

    def _one_by_one(self, parts: Parts, failure: EngineFailure) -> list[Outcome]:
        log.warning("a batch of %d failed and is tried again one by one: %s", len(parts), failure)
        outcomes: list[Outcome] = []
        for part in parts:
            # The context may be lost on the way, and everybody with it: they are computed again.
            if part[0] in self._state.running:
                outcomes += self._compute([part], again=True)
        return outcomes

    def _lost(self, parts: Parts, failure: Exception) -> list[Outcome]:
        outcomes: list[Outcome] = []
        if len(parts) == 1:
            [(sequence, _)] = parts
            if sequence.lost_alone:
                outcomes = self._failed(parts, EngineFailure(str(failure)))
            sequence.lost_alone = True
        count = len(self._state.running)
        self._state.lost([sequence for sequence, _ in parts])
        self._backend.reset()
        log.error("the context was lost and made anew; %d sequences are computed again: %s", count, failure)
        return outcomes

    def _make_samplers(self, parts: Parts) -> list[Outcome]:
        """Whose sampling cannot be set up fails alone."""
        for part in parts:
            sequence, generation = part[0], part[0].generation
            if sequence.sampler is None:
                try:
                    sequence.sampler = self._backend.sampler(generation.sampling, generation.prompt)
                except EngineFailure as failure:
                    return self._failed([part], failure, trusted=True)
        return []

    def _failed(self, parts: Parts, failure: EngineFailure, *, trusted: bool = False) -> list[Outcome]:
        """`trusted`: nothing that was computed is to blame, so it stays as a prefix."""
        if isinstance(failure, EngineClosed):
            log.info("%d sequences end with the engine: %s", len(parts), failure)
        else:
            log.error("the engine failed: %s", failure)
        for sequence, _ in parts:
            if trusted:
                self._state.remove(sequence)
            else:
                self._state.drop(sequence)
            _close(sequence)
        return [(sequence, failure) for sequence, _ in parts]

    # Prefixes outside of the cache

    def _tidy(self) -> None:
        """Nobody runs: what was booked is done now, since no batch will come."""
        if self._cache.moves:
            try:
                self._backend.execute(self._state.batch())
            except RestoreFailed as failure:
                self._cache.spoiled(failure.slot)
                self._lost((), failure)
            except ContextLost as failure:
                self._lost((), failure)
        self._transfer()

    def _transfer(self) -> None:
        for transfer in self._cache.transfers():
            self._begin(transfer)

    def _begin(self, transfer: Transfer) -> None:
        copy, store, post = transfer.copy, self._store, self._post
        assert store is not None and copy.record is not None
        match transfer.kind:
            case Kind.READ:
                store.read(copy.record, lambda data: post(lambda me: me._cache.read_done(copy, data)))
            case Kind.WRITE if copy.parcel is not None and copy.parcel.data is not None:
                if len(copy.parcel.data) > store.pending_bytes:  # `cell_bytes` is nearly right.
                    self._cache.shelf.bound(len(copy) - 1)
                store.write(copy.record, copy.parcel.data, lambda ok: post(lambda me: me._cache.write_done(copy, ok)))
            case Kind.WRITE:  # Nobody wants it any more, or it could not be made. Another one may be.
                post(lambda me: me._cache.write_done(copy, False))
            case Kind.REMOVE:
                store.remove(copy.record.key)

    def _save_all(self, wait: Wait) -> None:
        shelf, until = self._cache.shelf, self._clock() + SAVING_SECONDS
        while (left := until - self._clock()) > 0:
            unsaved = self._cache.unsaved()
            if unsaved is not None:
                self._cache.persist(unsaved)
                self._tidy()
            elif not shelf.busy:
                return
            if shelf.busy:
                wait(left)
        log.warning("not all prefixes could be written in %.0f s", SAVING_SECONDS)

    # What steps teach, and what is told of them

    def _adapt(self, decoding: int, prefilled: int, seconds: float) -> None:
        self._pace.note(decoding=decoding, prefilled=prefilled, seconds=seconds)
        beside = sum(sequence.pending == 1 for sequence in self._state.running)
        self._state.prefill_chunk = self._pace.prefill_budget(beside)
        self._state.prefill_end = self._pace.prefill_end(beside)

    def _tell(self, decoding: int, prefilled: int, seconds: float, native: float) -> None:
        if self._observe is None:
            return
        state, shelf = self._state, self._cache.shelf
        report = StepReport(
            seconds=seconds,
            native_seconds=native,
            decoding=decoding,
            prefilled=prefilled,
            threads=self._backend.threads,
            running=len(state.running),
            waiting=len(state.waiting),
            cells_used=state.cells - state.free,
            cells_total=state.cells,
            prompt_tokens=state.prompt_tokens,
            cached_tokens=state.cached_tokens,
            preempted=state.preempted,
            restored=self._cache.restored,
            ram_bytes=shelf.in_ram * self._cell_bytes,
            disk_bytes=shelf.on_disk * self._cell_bytes,
        )
        self._observe(report)


def _close(sequence: Sequence) -> None:
    if sequence.sampler is not None:
        sequence.sampler.close()
        sequence.sampler = None
