"""The header of a GGUF file, read to write it again: what stays as it is is kept as bytes.

The layout is that of ggml's docs/gguf.md, versions 2 and 3, little-endian: magic, version, number of tensors, number of
key-value pairs; the pairs; name, shape, type and offset of each tensor; padding; the tensors' data. Not the reader of
the gguf package: that makes two arrays of each word of the vocabulary, which takes seconds and 160 MB.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

from msgspec import Struct

from antiphon.hub.base import GGUF_MAGIC

VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MOST_DIMENSIONS = 4  # GGML_MAX_DIMS

_U32, _STRING, _ARRAY = 4, 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, _U32: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # by type of value


class DamagedGguf(Exception):
    """The file is cut short, or says what cannot be."""


class TensorInfo(Struct, frozen=True):
    """One tensor. `shape` has the length of a row first; `offset` counts from the start of the data."""

    name: bytes
    shape: tuple[int, ...]
    kind: int  # a GGMLQuantizationType
    offset: int

    def encode(self) -> bytes:
        numbers = struct.pack(f"<I{len(self.shape)}QIQ", len(self.shape), *self.shape, self.kind, self.offset)
        return struct.pack("<Q", len(self.name)) + self.name + numbers


class Header(Struct, frozen=True, kw_only=True):
    """All before the tensors' data, which starts at `data_start` and of which each tensor is padded to `alignment`."""

    version: int
    pairs: int
    metadata: bytes  # the pairs as they stand in the file
    file_type_at: int | None  # where in them the number of general.file_type stands
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data_start: int

    def encode(self) -> bytes:
        """The header as bytes, padded: the data follows."""
        start = GGUF_MAGIC + struct.pack("<IQQ", self.version, len(self.tensors), self.pairs)
        whole = b"".join([start, self.metadata, *(tensor.encode() for tensor in self.tensors)])
        return whole + bytes(padding(len(whole), self.alignment))


def padding(size: int, alignment: int) -> int:
    return -size % alignment


def read_header(file: BinaryIO) -> Header:
    """Raises `DamagedGguf`. Reads no more than the file has, whatever numbers stand in it."""
    reader = _Reader(file)
    if reader.take(4) != GGUF_MAGIC:
        raise DamagedGguf("no GGUF file")
    version = reader.number("I")
    if version not in VERSIONS:
        raise DamagedGguf(f"version {version:#x} of the format is not known")
    tensors = reader.count(least_bytes=24)
    pairs = reader.count(least_bytes=13)
    start = reader.at
    places = dict(reader.pair() for _ in range(pairs))
    metadata = reader.again(start)
    alignment = _u32(metadata, places.get(b"general.alignment"), start) or DEFAULT_ALIGNMENT
    if alignment & (alignment - 1):
        raise DamagedGguf(f"an alignment of {alignment}")
    infos = tuple(reader.tensor() for _ in range(tensors))
    file_type = places.get(b"general.file_type")
    return Header(
        version=version,
        pairs=pairs,
        metadata=metadata,
        file_type_at=file_type - start if file_type else None,
        tensors=infos,
        alignment=alignment,
        data_start=reader.at + padding(reader.at, alignment),
    )


def _u32(metadata: bytes, place: int | None, start: int) -> int | None:
    return None if place is None else int(struct.unpack_from("<I", metadata, place - start)[0])


class _Reader:
    """Goes through a file, never behind its end."""

    def __init__(self, file: BinaryIO) -> None:
        self.at = 0
        self._file = file
        self._size = os.fstat(file.fileno()).st_size

    def take(self, size: int) -> bytes:
        self._check(size)
        self.at += size
        return self._file.read(size)

    def skip(self, size: int) -> None:
        self._check(size)
        self.at += size
        self._file.seek(self.at)

    def again(self, start: int) -> bytes:
        """What has been passed since `start`."""
        self._file.seek(start)
        return self._file.read(self.at - start)

    def _check(self, size: int) -> None:
        if size > self._size - self.at:
            raise DamagedGguf("it is cut short")

    def number(self, kind: str) -> int:
        return int(struct.unpack(f"<{kind}", self.take(struct.calcsize(kind)))[0])

    def count(self, least_bytes: int) -> int:
        """A number of things of which each takes so many bytes at least."""
        count = self.number("Q")
        self._check(count * least_bytes)
        return count

    def string(self) -> bytes:
        return self.take(self.number("Q"))

    def pair(self) -> tuple[bytes, int | None]:
        """A key, and where its value stands in the file if it is a 32-bit number."""
        key, kind, at = self.string(), self.number("I"), self.at
        self._skip_value(kind)
        return key, at if kind == _U32 else None

    def _skip_value(self, kind: int) -> None:
        if kind == _ARRAY:
            self._skip_array()
        elif kind == _STRING:
            self.skip(self.number("Q"))
        elif kind in _SCALAR_BYTES:
            self.skip(_SCALAR_BYTES[kind])
        else:
            raise DamagedGguf(f"a value of type {kind}")

    def _skip_array(self) -> None:
        kind = self.number("I")
        if kind == _STRING:
            for _ in range(self.count(least_bytes=8)):
                self.take(self.number("Q"))
        elif kind in _SCALAR_BYTES:
            self.skip(self.number("Q") * _SCALAR_BYTES[kind])
        else:  # Nested arrays are allowed, but no known model has one.
            raise DamagedGguf(f"an array of type {kind}")

    def tensor(self) -> TensorInfo:
        name, dimensions = self.string(), self.number("I")
        if not 0 < dimensions <= MOST_DIMENSIONS:
            raise DamagedGguf(f"a tensor of {dimensions} dimensions")
        shape = tuple(self.number("Q") for _ in range(dimensions))
        if not all(shape):
            raise DamagedGguf("a tensor without elements")
        return TensorInfo(name, shape, self.number("I"), self.number("Q"))
