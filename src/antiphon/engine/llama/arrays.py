"""The arrays in which a batch is handed to llama.cpp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from antiphon.engine.backend import Entry
from antiphon.engine.llama.binding import Library


class BatchArrays:
    """One `llama_batch` for all steps, each array seen by numpy and by C. Slot 0 has the sequence id `first_id`."""

    def __init__(self, library: Library, capacity: int, first_id: int) -> None:
        ffi: Any = library.ffi  # the stubs want a type name that ABI mode can do without
        self._first_id = first_id
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._ids = np.zeros(capacity, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        counts = np.ones(capacity, np.int32)  # every token belongs to one sequence
        ids = ffi.cast("int32_t *", ffi.from_buffer(self._ids))
        id_of = ffi.new("int32_t *[]", [ids + i for i in range(capacity)])
        self._kept = (counts, id_of)
        self.batch: Any = ffi.new("llama_batch *")
        self.batch.token = ffi.cast("int32_t *", ffi.from_buffer(self._tokens))
        self.batch.pos = ffi.cast("int32_t *", ffi.from_buffer(self._positions))
        self.batch.n_seq_id = ffi.cast("int32_t *", ffi.from_buffer(counts))
        self.batch.seq_id = id_of
        self.batch.logits = ffi.cast("int8_t *", ffi.from_buffer(self._outputs))

    def fill(self, entries: Sequence[Entry]) -> list[int]:
        """Writes the entries one after the other; for each the index of its last token, whose logits are wanted."""
        at, outputs = 0, []
        self._outputs[:] = 0
        for entry in entries:
            end = at + len(entry.tokens)
            self._tokens[at:end] = entry.tokens
            self._positions[at:end] = np.arange(entry.start, entry.start + len(entry.tokens))
            self._ids[at:end] = entry.slot + self._first_id
            at = end
            self._outputs[end - 1] = 1
            outputs.append(end - 1)
        self.batch.n_tokens = at
        return outputs
