"""One llama.cpp context: the KV cache, its slots, and one decode at a time.

Called from one thread, but for `abort`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from antiphon.engine.backend import CellsExhausted, Entry
from antiphon.engine.base import EngineClosed, EngineFailure
from antiphon.engine.llama.errors import ModelLoadError
from antiphon.engine.llama.model import Model
from antiphon.engine.llama.sampling import Logits

# What `llama_decode` returns besides 0 and negative errors.
NO_CELLS = 1

# Tokens that llama.cpp computes at once. Its default; more needs memory for the intermediate values and gains nothing
# on a CPU.
UBATCH_TOKENS = 512


class Context:
    def __init__(self, model: Model, *, cells: int, slots: int, threads: int, batch_tokens: int) -> None:
        self.library = model.library
        self._ffi, self._c = model.library.ffi, model.library.c
        self._stop = AbortFlag(model)
        params = self._params(cells, slots, threads, batch_tokens)
        self._handle: Any = _create(model, params)
        self._memory = self._c.llama_get_memory(self._handle)
        self._size: int = self._c.llama_vocab_n_tokens(model.vocab)
        self._batch = BatchArrays(model, batch_tokens)
        self.cells: int = self._c.llama_n_ctx(self._handle)

    def _params(self, cells: int, slots: int, threads: int, batch_tokens: int) -> Any:
        params = self._c.llama_context_default_params()
        params.n_ctx = cells
        params.n_batch = batch_tokens
        params.n_ubatch = min(batch_tokens, UBATCH_TOKENS)
        params.n_seq_max = slots
        # One sampled token a slot; the default reserves logits for every token of a batch.
        params.n_outputs_max = slots
        params.n_threads = params.n_threads_batch = threads
        # One pool of cells: `seq_cp` shares them, and an idle slot holds none back.
        params.kv_unified = True
        # With a smaller window cache `seq_rm` says yes and the context is silently gone.
        params.swa_full = True
        # On wherever the device has the kernels, which the CPU always has.
        params.flash_attn_type = self._c.LLAMA_FLASH_ATTN_TYPE_AUTO
        params.abort_callback = self._stop.callback
        params.abort_callback_data = self._stop.data
        return params

    def close(self) -> None:
        if self._handle is not None:
            self._ffi.release(self._handle)
            self._handle = self._memory = None

    def abort(self) -> None:
        """Ends the decode that runs, and every later one. Any thread."""
        self._stop.set()

    def trim(self, slot: int, length: int) -> None:
        if length:
            self._require(slot, length)
        if not self._c.llama_memory_seq_rm(self._memory, slot, length, -1):
            raise EngineFailure(f"slot {slot} cannot be cut to {length} positions")

    def copy(self, source: int, target: int, length: int) -> None:
        self._require(source, length)
        self._c.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def _require(self, slot: int, length: int) -> None:
        first = self._c.llama_memory_seq_pos_min(self._memory, slot)
        last = self._c.llama_memory_seq_pos_max(self._memory, slot)
        if first != 0 or last + 1 < length:
            raise EngineFailure(f"slot {slot} holds positions {first} to {last}, not the first {length}")

    def _require_end(self, slot: int, position: int) -> None:
        end = self._c.llama_memory_seq_pos_max(self._memory, slot) + 1
        if end != position:
            raise EngineFailure(f"slot {slot} goes on at position {end}, not {position}")

    @property
    def closed(self) -> bool:
        return self._handle is None

    def decode(self, entries: Sequence[Entry]) -> list[int]:
        """Computes all entries; the batch indices at which logits are, in the order of the entries with a sampler.

        Raises `CellsExhausted` or `EngineFailure`; the slots then end where the entries would have started.
        """
        for entry in entries:
            self._require_end(entry.slot, entry.start)
        outputs = self._batch.fill(entries)
        status = self._c.llama_decode(self._handle, self._batch.batch[0])
        if status == 0:
            return outputs
        whole = self.take_back(entries)
        if status == NO_CELLS and whole:
            raise CellsExhausted(f"no cells for {self._batch.batch.n_tokens} tokens")
        if self._stop.is_set():
            raise EngineClosed("aborted")
        raise EngineFailure(f"llama_decode failed with status {status}")

    def take_back(self, entries: Sequence[Entry]) -> bool:
        """Forgets what was computed of the entries. What cannot be cut is emptied: then the answer is False."""
        whole = True
        for entry in entries:
            if not self._c.llama_memory_seq_rm(self._memory, entry.slot, entry.start, -1):
                self._c.llama_memory_seq_rm(self._memory, entry.slot, 0, -1)
                whole = False
        return whole

    def logits(self, output: int) -> Logits:
        """A view, valid until the next decode."""
        row = self._c.llama_get_logits_ith(self._handle, output)
        memory: Any = self._ffi.buffer(row, self._size * 4)
        return np.frombuffer(memory, np.float32)

    def sample(self, chain: Any, output: int) -> int:
        return int(self._c.llama_sampler_sample(chain, self._handle, output))


class BatchArrays:
    """One `llama_batch` for all steps, each array seen by numpy and by C."""

    def __init__(self, model: Model, capacity: int) -> None:
        ffi: Any = model.library.ffi  # the stubs want a type name that ABI mode can do without
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._slots = np.zeros(capacity, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        counts = np.ones(capacity, np.int32)  # every token belongs to one slot
        slots = ffi.cast("int32_t *", ffi.from_buffer(self._slots))
        slot_of = ffi.new("int32_t *[]", [slots + i for i in range(capacity)])
        self._kept = (counts, slot_of)
        self.batch: Any = ffi.new("llama_batch *")
        self.batch.token = ffi.cast("int32_t *", ffi.from_buffer(self._tokens))
        self.batch.pos = ffi.cast("int32_t *", ffi.from_buffer(self._positions))
        self.batch.n_seq_id = ffi.cast("int32_t *", ffi.from_buffer(counts))
        self.batch.seq_id = slot_of
        self.batch.logits = ffi.cast("int8_t *", ffi.from_buffer(self._outputs))

    def fill(self, entries: Sequence[Entry]) -> list[int]:
        """Writes the entries one after the other; the indices of the tokens whose logits are wanted."""
        at, outputs = 0, []
        self._outputs[:] = 0
        for entry in entries:
            end = at + len(entry.tokens)
            self._tokens[at:end] = entry.tokens
            self._positions[at:end] = np.arange(entry.start, entry.start + len(entry.tokens))
            self._slots[at:end] = entry.slot
            at = end
            if entry.sampler is not None:
                self._outputs[end - 1] = 1
                outputs.append(end - 1)
        self.batch.n_tokens = at
        return outputs


class AbortFlag:
    """What llama.cpp asks before every operation whether to go on.

    A callback into Python would wait for the GIL a thousand times a step, so the question goes to a C function that
    reads a boolean and nothing else: `ggml_get_no_alloc`, of a small ggml context made for this.
    """

    def __init__(self, model: Model) -> None:
        ffi, self._c = model.library.ffi, model.library.c
        params = ffi.new("struct ggml_init_params *", {"mem_size": 1024, "no_alloc": False})
        self._context = ffi.gc(self._c.ggml_init(params[0]), self._c.ggml_free)
        self.callback = ffi.cast("ggml_abort_callback", ffi.addressof(self._c, "ggml_get_no_alloc"))
        self.data = ffi.cast("void *", self._context)

    def set(self) -> None:
        self._c.ggml_set_no_alloc(self._context, True)

    def is_set(self) -> bool:
        return bool(self._c.ggml_get_no_alloc(self._context))


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
