"""One llama.cpp context: the KV cache, its slots, and one decode at a time.

Called from one thread, but for `abort`.

Sequence ids. With one pool of cells llama.cpp takes any id below 256, but reserves logits and writes states only for
those below `n_seq_max`. So `n_seq_max` counts the lanes, the ids of prefixes lie above it and cost nothing, and one id,
`STATE_ID`, is where a slot's cells are shared to for as long as its state is written.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from antiphon.engine.backend import CellsExhausted, ContextLost, Entry, Restore, RestoreFailed, Save, Share, Trim
from antiphon.engine.base import EngineClosed, EngineFailure
from antiphon.engine.llama.abort import AbortFlag
from antiphon.engine.llama.arrays import BatchArrays
from antiphon.engine.llama.candidates import Floats
from antiphon.engine.llama.errors import ModelLoadError
from antiphon.engine.llama.model import Model
from antiphon.engine.llama.stopwatch import Stopwatch

logger = logging.getLogger(__name__)

# llama.cpp's own limit (LLAMA_MAX_SEQ) less `STATE_ID`.
MAX_SLOTS = 255

STATE_ID = 0

# The first and last position of a sequence that has none.
EMPTY = -1

# What `llama_decode` returns besides 0 and negative errors.
NO_CELLS = 1

# Tokens that llama.cpp computes at once. Its default; more needs memory for the intermediate values and gains nothing
# on a CPU.
UBATCH_TOKENS = 512

# llama.cpp makes the number of cells a multiple of this, but bounds a batch by what was asked for.
CELLS_STEP = 256


class Shape(Struct, frozen=True, kw_only=True):
    """How large a context is; see `engine.backend`."""

    cells: int
    lanes: int
    slots: int
    batch_tokens: int


class Context:
    """`cells` is what the cache really holds: up to `CELLS_STEP` - 1 more than asked for."""

    def __init__(self, model: Model, shape: Shape, threads: int) -> None:
        self.native = Stopwatch()
        self.threads = threads
        self._model, self._shape = model, shape
        self._ffi, self._c = model.library.ffi, model.library.c
        # A model whose slots cannot be saved needs no `STATE_ID`, and keeps a state for each id.
        self._first_id = STATE_ID + 1 if model.can_trim else 0
        self._stop = AbortFlag(model.library)
        self._size: int = self._c.llama_vocab_n_tokens(model.vocab)
        self._batch = BatchArrays(model.library, shape.batch_tokens, self._first_id)
        self._handle: Any = None
        self.reset()
        self.cells: int = self._c.llama_n_ctx(self._handle)

    @property
    def params(self) -> Any:
        """The `llama_context_params` of a new context."""
        params = self._c.llama_context_default_params()
        params.n_ctx = math.ceil(self._shape.cells / CELLS_STEP) * CELLS_STEP
        params.n_batch = self._shape.batch_tokens
        params.n_ubatch = min(self._shape.batch_tokens, UBATCH_TOKENS)
        # Logits are kept for that many tokens of a batch; the default is all of them, and fewer than ids are refused.
        params.n_seq_max = params.n_outputs_max = self._shape.lanes + self._first_id
        params.n_threads = params.n_threads_batch = self.threads
        # One pool of cells: `seq_cp` shares them, and an idle slot holds none back.
        params.kv_unified = True
        # With a smaller window cache `seq_rm` says yes and the context is silently gone.
        params.swa_full = True
        # On wherever the device has the kernels, which the CPU always has.
        params.flash_attn_type = self._c.LLAMA_FLASH_ATTN_TYPE_AUTO
        params.abort_callback = self._stop.callback
        params.abort_callback_data = self._stop.data
        return params

    def reset(self) -> None:
        """Gives the cache's memory back and makes a new one. Raises `ModelLoadError`; there is no context then."""
        self.close()
        self._handle = _create(self._model, self.params)
        self._memory = self._c.llama_get_memory(self._handle)

    def close(self) -> None:
        if self._handle is not None:
            self._ffi.release(self._handle)
            self._handle = self._memory = None

    def abort(self) -> None:
        """Ends the decode that runs, and every later one. Any thread."""
        self._stop.set()

    def set_threads(self, threads: int) -> None:
        self.threads = threads
        if self._handle is not None:
            self._c.llama_set_n_threads(self._handle, threads, threads)

    def held(self, slot: int) -> range:
        """The positions of a slot: of a recurrent one the last, of one with a window those not overwritten yet."""
        first = self._c.llama_memory_seq_pos_min(self._memory, slot + self._first_id)
        last = self._c.llama_memory_seq_pos_max(self._memory, slot + self._first_id)
        return range(0) if first == last == EMPTY else range(first, last + 1)

    def share(self, move: Share) -> None:
        self._require(move.source, range(move.start, move.end))
        if (held := self.held(move.target)) and not (held.start <= move.end and move.start <= held.stop):
            raise ContextLost(f"positions {move.start} to {move.end - 1} do not join {_told(held)} of {move.target}")
        source, target = move.source + self._first_id, move.target + self._first_id
        with self.native:
            # Its own cells of these positions go: a sequence has one a position.
            self._c.llama_memory_seq_rm(self._memory, target, move.start, move.end)
            self._c.llama_memory_seq_cp(self._memory, source, target, move.start, move.end)

    def trim(self, move: Trim) -> None:
        if move.end:
            self._require(move.slot, range(move.end - 1, move.end))
        with self.native:
            removed = self._remove(move.slot, move.end)
        if not removed:
            raise ContextLost(f"slot {move.slot} cannot be cut to {move.end} positions")

    def save(self, move: Save) -> None:
        if not self.held(move.slot):
            raise ContextLost(f"slot {move.slot} is empty, nothing can be saved")
        with self.native:
            try:
                move.parcel.data = self._state(move.slot)
            except MemoryError:
                logger.warning("there is no memory to save a prefix of %d tokens", len(self.held(move.slot)))

    def restore(self, move: Restore) -> None:
        data = move.parcel.data or b""
        self._require_empty(move.slot)
        slot_id = move.slot + self._first_id
        with self.native, self._ffi.from_buffer(data) as view:
            source = self._ffi.cast("uint8_t *", view)
            read = self._c.llama_state_seq_set_data(self._handle, source, len(data), slot_id)
        wanted = range(move.start, move.end)
        if read == len(data) and _holds(self.held(move.slot), wanted):
            self._remove(move.slot, move.end)
            self._c.llama_memory_seq_rm(self._memory, slot_id, 0, move.start)
        if read != len(data) or self.held(move.slot) != wanted:
            self._remove(move.slot, 0)
            self._require_empty(move.slot)  # positions below 0, from a damaged state, cannot be removed
            raise RestoreFailed(move.slot)

    def cell_bytes(self) -> int:
        """By how much a state grows with one more token. Computes two, in slot 0, which must be empty."""
        sizes = []
        for position in range(2):
            self.decode([Entry(0, position, (0,))])
            sizes.append(len(self._state(0)))
        self._remove(0, 0)
        return sizes[1] - sizes[0]

    def decode(self, entries: Sequence[Entry]) -> list[int]:
        """Computes all entries; for each the index in the batch at which its last token's logits are.

        Raises `CellsExhausted` or `EngineFailure`, the slots then end where the entries would have started, or
        `ContextLost`.
        """
        for entry in entries:
            if not self._goes_on(entry.slot, entry.start):
                held = _told(self.held(entry.slot))
                raise ContextLost(f"slot {entry.slot} holds {held} and cannot go on at position {entry.start}")
        outputs = self._batch.fill(entries)
        with self.native:
            status = self._c.llama_decode(self._handle, self._batch.batch[0])
        if status == 0:
            return outputs
        whole = self.take_back(entries)
        if self._stop.is_set():
            raise EngineClosed("aborted")
        if not whole:
            raise ContextLost(f"llama_decode failed with status {status}, and its slots cannot be cut")
        if status == NO_CELLS:
            raise CellsExhausted(f"no cells for {self._batch.batch.n_tokens} tokens")
        raise EngineFailure(f"llama_decode failed with status {status}")

    def take_back(self, entries: Sequence[Entry]) -> bool:
        """Forgets what was computed of the entries; whether all slots can go on where the entries started."""
        back = [self._remove(entry.slot, entry.start) and self._goes_on(entry.slot, entry.start) for entry in entries]
        return all(back)

    def drop(self, entry: Entry) -> None:
        """Takes back an entry whose sequence ends with it; a slot that cannot be cut is emptied."""
        if not self.take_back([entry]):
            self._remove(entry.slot, 0)

    def logits(self, output: int) -> Floats:
        """A view, valid until the next decode."""
        row = self._c.llama_get_logits_ith(self._handle, output)
        memory: Any = self._ffi.buffer(row, self._size * 4)
        return np.frombuffer(memory, np.float32)

    def _remove(self, slot: int, start: int) -> bool:
        return bool(self._c.llama_memory_seq_rm(self._memory, slot + self._first_id, start, -1))

    def _state(self, slot: int) -> bytearray:
        """The state of a slot, as `llama_state_seq_set_data` takes it. Raises `MemoryError`."""
        c = self._c
        c.llama_memory_seq_cp(self._memory, slot + self._first_id, STATE_ID, -1, -1)
        try:
            data = bytearray(c.llama_state_seq_get_size(self._handle, STATE_ID))
            with self._ffi.from_buffer(data) as view:
                target = self._ffi.cast("uint8_t *", view)
                written = c.llama_state_seq_get_data(self._handle, target, len(data), STATE_ID)
        finally:
            c.llama_memory_seq_rm(self._memory, STATE_ID, -1, -1)
        if not data or written != len(data):
            raise ContextLost(f"the state of slot {slot} cannot be read")
        return data

    def _goes_on(self, lane: int, position: int) -> bool:
        """Whether a token at this position can be computed: with all that it sees before it."""
        held = self.held(lane)
        return held.stop == position and held.start <= self._model.first_needed(position)

    def _require(self, slot: int, wanted: range) -> None:
        held = self.held(slot)
        if not _holds(held, wanted):
            raise ContextLost(f"slot {slot} holds {_told(held)}, not {_told(wanted)}")

    def _require_empty(self, slot: int) -> None:
        if held := self.held(slot):
            raise ContextLost(f"slot {slot} holds {_told(held)} and should be empty")


def _holds(held: range, wanted: range) -> bool:
    return held.start <= wanted.start and wanted.stop <= held.stop


def _told(positions: range) -> str:
    return f"positions {positions.start} to {positions.stop - 1}" if positions else "nothing"


def _create(model: Model, params: Any) -> Any:
    library = model.library
    library.log.first_error = ""
    handle = library.c.llama_init_from_model(model.handle, params)
    if not handle:
        reason = library.log.first_error or "no reason given"
        raise ModelLoadError(f"no context of {params.n_ctx} tokens for {model.file.path.name}: {reason}")

    def free(context: Any, _model: Model = model) -> None:
        # Holds the model, which has to outlive its context.
        library.c.llama_free(context)

    return library.ffi.gc(handle, free)
