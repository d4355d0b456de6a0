"""A GGUF in a file type for which llama.cpp has fast kernels on CPUs.

Rules
* Tensors of the types in `SLOW` become Q8_0; all else, the metadata too, is copied byte by byte.
* Q8_0 replaces only coarser types: what its own rounding adds, 1/254 of a block's largest value at most, is small
  beside theirs.
* Memory is bounded by `CHUNK`, not by the model.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType, quants
from msgspec import Struct

from antiphon.hub.gguf_header import DamagedGguf, Header, TensorInfo, padding, read_header
from antiphon.hub.names import FAST_TYPE
from antiphon.hub.wheel import need_room

FAST = GGMLQuantizationType[FAST_TYPE]
FAST_FILE_TYPE = LlamaFileType[f"MOSTLY_{FAST_TYPE}"]

SLOW = frozenset(
    {
        GGMLQuantizationType.Q4_0,
        GGMLQuantizationType.Q4_1,
        GGMLQuantizationType.Q5_0,
        GGMLQuantizationType.Q5_1,
    }
)

CHUNK = 1 << 20
"""Elements that are converted at once: 4 MB as floats, and a step of the progress."""


class Job(Struct, frozen=True):
    """One tensor: as it is, and how many bytes it takes before and after."""

    info: TensorInfo
    before: int
    after: int

    @property
    def converted(self) -> bool:
        return self.info.kind in SLOW


def rewrite(source: Path, target: Path, report: Callable[[int, int], None]) -> str:
    """Writes `source` anew to `target` (a temporary name) and returns the SHA-256 in hex of what was written.

    `report` is called with bytes written and in all. Raises `DamagedGguf`, or `HubError` if there is no room; what is
    then left under `target` is for the caller to delete.
    """
    digest, done = hashlib.sha256(), 0
    with source.open("rb") as original:
        header = read_header(original)
        size = os.fstat(original.fileno()).st_size - header.data_start
        jobs = [_job(tensor, size) for tensor in header.tensors]
        start = _new_header(header, jobs).encode()
        total = len(start) + sum(job.after + padding(job.after, header.alignment) for job in jobs)
        need_room(target.parent, total)
        with target.open("xb") as sink:
            for piece in _pieces(original, header, jobs, start):
                digest.update(piece)
                sink.write(piece)
                done += len(piece)
                report(done, total)
            sink.flush()
            os.fsync(sink.fileno())
    return digest.hexdigest()


def _job(info: TensorInfo, data_size: int) -> Job:
    if info.kind not in GGML_QUANT_SIZES:
        raise DamagedGguf(f"a tensor of type {info.kind}")
    before = _bytes(info, info.kind)
    if info.offset + before > data_size:
        raise DamagedGguf("it is cut short")
    return Job(info, before, _bytes(info, FAST) if info.kind in SLOW else before)


def _bytes(info: TensorInfo, kind: int) -> int:
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    if info.shape[0] % elements:
        raise DamagedGguf(f"rows of {info.shape[0]} elements in blocks of {elements}")
    return prod(info.shape) // elements * size


def _new_header(header: Header, jobs: list[Job]) -> Header:
    tensors, offset = [], 0
    for job in jobs:
        kind = int(FAST) if job.converted else job.info.kind
        tensors.append(TensorInfo(job.info.name, job.info.shape, kind, offset))
        offset += job.after + padding(job.after, header.alignment)
    metadata = bytearray(header.metadata)
    if header.file_type_at is not None:
        struct.pack_into("<I", metadata, header.file_type_at, FAST_FILE_TYPE)
    return msgspec.structs.replace(header, metadata=bytes(metadata), tensors=tuple(tensors))


def _pieces(original: BinaryIO, header: Header, jobs: list[Job], start: bytes) -> Iterator[bytes]:
    """The new file from its beginning to its end."""
    yield start
    for job in jobs:
        original.seek(header.data_start + job.info.offset)
        yield from _converted(original, job) if job.converted else _copied(original, job)
        yield bytes(padding(job.after, header.alignment))


def _converted(original: BinaryIO, job: Job) -> Iterator[bytes]:
    kind, columns = GGMLQuantizationType(job.info.kind), job.info.shape[0]
    rows = prod(job.info.shape[1:])
    width = job.before // rows
    at_once = max(1, CHUNK // columns)
    for first in range(0, rows, at_once):
        count = min(at_once, rows - first)
        packed = np.frombuffer(original.read(count * width), np.uint8).reshape(count, width)
        yield quants.quantize(quants.dequantize(packed, kind), FAST).tobytes()


def _copied(original: BinaryIO, job: Job) -> Iterator[bytes]:
    for first in range(0, job.before, CHUNK):
        yield original.read(min(CHUNK, job.before - first))
