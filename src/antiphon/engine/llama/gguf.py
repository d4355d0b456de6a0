"""A model file looked at before it is loaded: llama.cpp maps weights into memory, and reading a page behind the end of
a cut file kills the process instead of raising an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from antiphon.engine.llama.binding import Library
from antiphon.engine.llama.errors import ModelLoadError

MAGIC = b"GGUF"

# llama.cpp's own limit for the number of parts is 16 bits; a file that claims more is damaged.
MAX_PARTS = 65_535

# f16: two bytes for each key and value element.
KV_ELEMENT_BYTES = 2

# `gguf_get_val_*` ends the process when asked for another type than the stored one.
SCALARS = {"GGUF_TYPE_UINT16": "u16", "GGUF_TYPE_UINT32": "u32", "GGUF_TYPE_INT32": "i32", "GGUF_TYPE_UINT64": "u64"}
ARRAYS = {"GGUF_TYPE_UINT32": "uint32_t *", "GGUF_TYPE_INT32": "int32_t *"}


class ModelFile(Struct, frozen=True):
    """A readable and complete model. Sizes in bytes."""

    path: Path
    weights: int
    cell: int  # keys and values of one token in all layers
    trained_context: int  # tokens; 0: the file does not say
    original_context: int = 0  # before the context was stretched; 0: it was not
    parts: tuple[Path, ...] = ()  # all files, in their order


class Gguf:
    """The header of one GGUF file, as llama.cpp's own reader sees it. Raises `ModelLoadError`."""

    def __init__(self, library: Library, path: Path) -> None:
        self.path = path
        self._library = library
        self._ffi, self._c = library.ffi, library.c
        self._handle = self._open()

    def _open(self) -> Any:
        check_magic(self.path)
        params = self._ffi.new("struct gguf_init_params *", {"no_alloc": True})
        handle = self._c.gguf_init_from_file(os.fsencode(self.path), params[0])
        if not handle:
            raise ModelLoadError(f"{self.path.name} is damaged or cut short: its header cannot be read")
        return self._ffi.gc(handle, self._c.gguf_free)

    @property
    def tensors_end(self) -> int:
        """How long the file must at least be."""
        start: int = self._c.gguf_get_data_offset(self._handle)
        return start + max((offset + size for offset, size in self._tensors()), default=0)

    def _tensors(self) -> Iterator[tuple[int, int]]:
        """Where in the data each one begins, and its length in bytes."""
        for tensor in range(self._c.gguf_get_n_tensors(self._handle)):
            yield (
                self._c.gguf_get_tensor_offset(self._handle, tensor),
                self._c.gguf_get_tensor_size(self._handle, tensor),
            )

    def integers(self, key: str) -> list[int]:
        """A number, or an array of numbers; empty if there is none under this key."""
        at = self._c.gguf_find_key(self._handle, key.encode())
        if at < 0:
            return []
        kind = self._kind(self._c.gguf_get_kv_type(self._handle, at))
        if kind == "GGUF_TYPE_ARRAY":
            return self._array(at)
        return [getattr(self._c, f"gguf_get_val_{SCALARS[kind]}")(self._handle, at)] if kind in SCALARS else []

    def _array(self, at: int) -> list[int]:
        kind = self._kind(self._c.gguf_get_arr_type(self._handle, at))
        if kind not in ARRAYS:
            return []
        data = self._ffi.cast(ARRAYS[kind], self._c.gguf_get_arr_data(self._handle, at))
        return list(self._ffi.unpack(data, self._c.gguf_get_arr_n(self._handle, at)))

    def string(self, key: str) -> str:
        at = self._c.gguf_find_key(self._handle, key.encode())
        if at < 0 or self._kind(self._c.gguf_get_kv_type(self._handle, at)) != "GGUF_TYPE_STRING":
            return ""
        return self._library.text(self._c.gguf_get_val_str(self._handle, at))

    def _kind(self, number: int) -> str:
        return str(self._ffi.typeof("enum gguf_type").elements[number])


def check_magic(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except FileNotFoundError:
        raise ModelLoadError(f"there is no model file {path}") from None
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from error
    if start != MAGIC:
        raise ModelLoadError(f"{path.name} is not a GGUF file")


def inspect(library: Library, path: Path) -> ModelFile:
    """Looks at every part of a model. Raises `ModelLoadError` if one is missing, damaged or cut short."""
    first = Gguf(library, path)
    weights, paths = 0, list[Path]()
    for part in parts(library, first):
        size = part.path.stat().st_size
        if part.tensors_end > size:
            raise ModelLoadError(f"{part.path.name} is cut short: {size:,} of {part.tensors_end:,} bytes are there")
        weights += size
        paths.append(part.path)
    return ModelFile(
        path,
        weights,
        cell_bytes(first),
        model_number(first, "context_length"),
        model_number(first, "rope.scaling.original_context_length"),
        tuple(paths),
    )


def parts(library: Library, first: Gguf) -> Iterator[Gguf]:
    """The file itself, and the others if it is the first of several (`...-00001-of-00003.gguf`)."""
    yield first
    count = (first.integers("split.count") or [1])[0]
    if not 0 <= count <= MAX_PARTS:
        raise ModelLoadError(f"{first.path.name} is damaged: it claims to have {count} parts")
    if count > 1:
        name_of = part_names(library, first.path, count)
        for number in range(1, count):
            yield Gguf(library, name_of(number))


def part_names(library: Library, path: Path, count: int) -> Callable[[int], Path]:
    ffi, name = library.ffi, os.fsencode(path)
    buffer = ffi.new("char[]", len(name) + 32)
    if not library.c.llama_split_prefix(buffer, len(buffer), name, 0, count):
        raise ModelLoadError(f"{path.name} is not the first of its {count} parts; name that one")
    prefix: Any = ffi.string(buffer)

    def name_of(number: int) -> Path:
        library.c.llama_split_path(buffer, len(buffer), prefix, number, count)
        part: Any = ffi.string(buffer)
        return Path(os.fsdecode(part))

    return name_of


def model_number(header: Gguf, key: str, default: int = 0) -> int:
    """A number of the model's own architecture; of one for each layer, the largest."""
    return max(header.integers(f"{header.string('general.architecture')}.{key}") or [default])


def cell_bytes(header: Gguf) -> int:
    """Memory of one token in the cache, from the attention's shape; 0 for a model without attention."""
    heads = model_number(header, "attention.head_count")
    width = model_number(header, "embedding_length") // heads if heads else 0
    pair = model_number(header, "attention.key_length", width) + model_number(header, "attention.value_length", width)
    shared = header.integers(f"{header.string('general.architecture')}.attention.head_count_kv") or [heads]
    # One number for all layers, or one for each (0 in layers without attention).
    total = sum(shared) if len(shared) > 1 else shared[0] * model_number(header, "block_count")
    return total * pair * KV_ELEMENT_BYTES
