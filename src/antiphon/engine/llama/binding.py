"""The C functions of llama.cpp, through cffi in ABI mode.

Rules
* `declaration.h` is generated from the headers of exactly one build. Nothing in the machine code tells a wrong
  layout from a right one, so a library is used only if its versions and all its default parameters are the declared.
* Calls release the GIL. Callbacks into Python take it, so none may sit on the path of a decode.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.metadata
import importlib.resources
import importlib.util
import re
from pathlib import Path
from typing import Any

from cffi import FFI

from antiphon.engine.llama.errors import ModelLoadError
from antiphon.engine.llama.log import LogLines

PACKAGE = "xllamacpp"

# The library has one log for the whole process, so there is one here.
LOG = LogLines()

# What llama.cpp's `llama_model_default_params` and `llama_context_default_params` return, pointers left out. A moved
# or resized field shows as a wrong value in one of these.
MODEL_DEFAULTS: dict[str, int | float] = {
    "n_gpu_layers": -1,
    "split_mode": 1,
    "load_mode": -1,
    "lazy_mode": 1,
    "main_gpu": 0,
    "vocab_only": False,
    "check_tensors": False,
    "use_extra_bufts": True,
    "no_host": False,
    "no_alloc": False,
    "load_mtp": False,
}
CONTEXT_DEFAULTS: dict[str, int | float] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_rs_seq": 0,
    "n_outputs_max": 0,
    "n_outputs_max_per_seq": 1,
    "n_threads": 4,
    "n_threads_batch": 4,
    "ctx_type": 0,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "rope_freq_base": 0.0,
    "rope_freq_scale": 0.0,
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": -1.0,
    "yarn_beta_fast": -1.0,
    "yarn_beta_slow": -1.0,
    "yarn_orig_ctx": 0,
    "defrag_thold": -1.0,
    "type_k": 1,
    "type_v": 1,
    "moe_cache_size": 0,
    "embeddings": False,
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "swa_full": True,
    "kv_unified": False,
    "n_samplers": 0,
}


class Declaration:
    """The generated header and the versions that it names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.package = self._version(PACKAGE)
        self.llama = self._version("llama.cpp")
        self.ggml = self._version("ggml")

    def _version(self, name: str) -> str:
        match = re.search(rf"^// {re.escape(name)} (\S+)$", self.text, re.MULTILINE)
        if match is None:
            raise ModelLoadError(f"the C declaration names no version of {name}")
        return match[1]


class Library:
    """An opened and checked libllama. `c` calls its functions, `ffi` makes and reads its types."""

    def __init__(self, path: Path, declaration: Declaration) -> None:
        self.path = path
        self.build = f"{PACKAGE} {declaration.package} llama.cpp {declaration.llama} ggml {declaration.ggml}"
        self.ffi = FFI()
        self.ffi.cdef(declaration.text)
        self.log = LOG
        self.c: Any = None
        try:
            self.c = self.ffi.dlopen(str(path))
            check_versions(self, declaration)
            check_layout(self)
            self._route_log()
            self.c.llama_backend_init()
        except (OSError, AttributeError) as error:
            raise ModelLoadError(f"{path.name} is no libllama that can be opened here: {one_line(error)}") from error

    def text(self, pointer: Any) -> str:
        """A C string as text; the empty one for NULL."""
        raw: Any = self.ffi.string(pointer) if pointer else b""
        return str(raw, "utf-8", "replace")

    def _route_log(self) -> None:
        def write(level: int, text: Any, _user_data: Any) -> None:
            self.log.feed(level, self.text(text))

        # The closure must live as long as the library may call it.
        self._write = self.ffi.callback("void(enum ggml_log_level, const char *, void *)", write)
        self.c.llama_log_set(self._write, self.ffi.NULL)


def one_line(error: object, limit: int = 200) -> str:
    return " ".join(str(error).split())[:limit]


def check_versions(library: Library, declaration: Declaration) -> None:
    """`-dev` and the like after the numbers are not compared: the same build calls itself both."""
    found = {
        "llama.cpp": (library.text(library.c.llama_version()), declaration.llama),
        "ggml": (library.text(library.c.ggml_version()), declaration.ggml),
    }
    for name, (have, want) in found.items():
        if have.partition("-")[0] != want:
            raise ModelLoadError(f"{library.path.name} has {name} {have}, this version of antiphon needs {want}")


def check_layout(library: Library) -> None:
    checks = [
        (library.c.llama_model_default_params(), MODEL_DEFAULTS),
        (library.c.llama_context_default_params(), CONTEXT_DEFAULTS),
    ]
    for params, defaults in checks:
        for field, want in defaults.items():
            if _read(params, field) != want:
                raise ModelLoadError(f"{library.path.name} lays out its parameters otherwise than declared ({field})")


def _read(params: Any, field: str) -> int | float | None:
    try:
        value: int | float = getattr(params, field)
    except (ValueError, AttributeError):  # a _Bool that is neither 0 nor 1; a field that is not declared
        return None
    return value


def packaged_library() -> Path:
    """The extension module of the installed xllamacpp, which also exports llama.cpp's own functions."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = Path(folder) / f"{PACKAGE}{suffix}"
            if path.is_file():
                return path
    raise ModelLoadError(f"the package {PACKAGE} is not installed")


def read_declaration() -> Declaration:
    return Declaration((importlib.resources.files(__package__) / "declaration.h").read_text())


@functools.cache
def open_library(path: Path | None = None) -> Library:
    """libllama at `path`, or the one that came with the package. Raises `ModelLoadError`."""
    declaration = read_declaration()
    if path is not None:
        library = Library(path, declaration)
        # Builds outside of the package keep their compute backends (CPU, CUDA, ...) in files beside them.
        library.c.ggml_backend_load_all()
        return library
    packaged = packaged_library()
    installed = importlib.metadata.version(PACKAGE)
    if installed != declaration.package:
        raise ModelLoadError(f"{PACKAGE} {installed} is installed, this version needs exactly {declaration.package}")
    return Library(packaged, declaration)
