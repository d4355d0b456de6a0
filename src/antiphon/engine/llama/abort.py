"""Ending a computation from another thread."""

from __future__ import annotations

from antiphon.engine.llama.binding import Library


class AbortFlag:
    """What llama.cpp asks before every operation whether to go on.

    A callback into Python would wait for the GIL a thousand times a step, so the question goes to a C function that
    reads a boolean and nothing else: `ggml_get_no_alloc`, of a small ggml context made for this.
    """

    def __init__(self, library: Library) -> None:
        ffi, self._c = library.ffi, library.c
        params = ffi.new("struct ggml_init_params *", {"mem_size": 1024, "no_alloc": False})
        self._context = ffi.gc(self._c.ggml_init(params[0]), self._c.ggml_free)
        self.callback = ffi.cast("ggml_abort_callback", ffi.addressof(self._c, "ggml_get_no_alloc"))
        self.data = ffi.cast("void *", self._context)

    def set(self) -> None:
        self._c.ggml_set_no_alloc(self._context, True)

    def is_set(self) -> bool:
        return bool(self._c.ggml_get_no_alloc(self._context))
