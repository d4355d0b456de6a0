"""The file of one computed prefix: which tokens of which path it holds, and their state as the backend saved it.

    offset  bytes  (little-endian)
         0      8  magic
         8      4  version of this layout
        12      4  length of the header, H
        16      8  length of the data, D
        24      4  CRC-32 of the data
        28     16  BLAKE2b of the bytes before it and of the header
        44      H  header: MessagePack, an array in the order of `_Header`
      44+H      D  data

A reader believes nothing. Every byte is covered by a checksum, and the file must end where its lengths say. The
checksums find damage, not forgery: who may write to the folder can make a file that passes.

The data has the cheap checksum because it is long. Measured for 100 MB on one core of a small server, Python 3.11:
CRC-32 27 ms (zlib's, which needs no special instructions), SHA-1 and SHA-256 60 ms (over 200 for the latter where the
processor has none for it), BLAKE2b 123 ms, MD5 150 ms; reading the file takes 63 ms. A CRC-32 finds each burst of up to
32 bits, and misses one in 4 billion of other damages. The header, which decides what the data is taken for, has the
strong one.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import msgspec
from msgspec import Struct

MAGIC = b"\x89prefix\n"
VERSION = 1
KEY_BYTES = 16
# 4 million tokens of 4 bytes: several times the longest context that a model has today. More is a broken length.
MAX_HEADER_BYTES = 16 * 2**20

_LAYOUT = struct.Struct("<8sIIQI")
_HEAD_BYTES = _LAYOUT.size + KEY_BYTES

Data = bytes | bytearray | memoryview


class FileRefused(Exception):
    """The file cannot be used. The message is one of a few fixed phrases, so that a log can count them."""


class Record(Struct, frozen=True):
    """One node of the prefix tree: the tokens at positions `start` to `start` + len(tokens) - 1 of a path."""

    owner: str  # whose; it is written to the file as it is, so it must not be a secret
    tokens: tuple[int, ...]  # at least one, each of 32 bits with a sign
    start: int
    parent: bytes  # key of the path up to `start`; b"" where that is 0
    key: bytes  # key of the path up to the end of `tokens`


class PathHash:
    """The key of a path that grows: depends on the owner and on all tokens, not on how the path is cut into nodes."""

    __slots__ = ("_hash",)

    def __init__(self, owner: str) -> None:
        name = owner.encode()
        self._hash = hashlib.blake2b(digest_size=KEY_BYTES, person=b"antiphon.prefix")
        self._hash.update(struct.pack("<Q", len(name)) + name)

    @property
    def key(self) -> bytes:
        """The key of the path so far, `KEY_BYTES` long."""
        return self._hash.digest()

    def copy(self) -> PathHash:
        """The same path, to be extended apart from this one."""
        twin = PathHash.__new__(PathHash)
        twin._hash = self._hash.copy()
        return twin

    def extend(self, tokens: Sequence[int]) -> PathHash:
        """Appends tokens, and returns itself."""
        self._hash.update(_pack(tokens))
        return self


def path_key(owner: str, tokens: Sequence[int]) -> bytes:
    """The key of the path that is all of `tokens`, from position 0."""
    return PathHash(owner).extend(tokens).key


def encode_header(record: Record, fingerprint: str) -> bytes:
    """The header of a record's file, always the same for the same record.

    Raises `ValueError` if it is longer than `MAX_HEADER_BYTES`, `struct.error` for a token that has no 32 bits.
    """
    header = _Header(fingerprint, record.owner, record.start, record.parent, _pack(record.tokens))
    encoded = msgspec.msgpack.encode(header)
    if len(encoded) > MAX_HEADER_BYTES:
        raise ValueError(f"a prefix of {len(record.tokens)} tokens is too long for a file")
    return encoded


def write_prefix(file: BinaryIO, header: bytes, data: Data) -> None:
    """Writes a whole file. Raises `OSError` as the file does. The data is not copied."""
    layout = _LAYOUT.pack(MAGIC, VERSION, len(header), memoryview(data).nbytes, zlib.crc32(data))
    file.write(layout + _checksum(layout, header) + header)
    file.write(data)


def read_record(file: BinaryIO, size: int, key: bytes, fingerprint: str) -> Record:
    """The record of a file of `size` bytes, without a look at its data. `key` is what its name says; see `rooted`.

    Raises `FileRefused`, or `OSError` as the file does. Reads no more than `MAX_HEADER_BYTES` and the bytes before it.
    """
    head = _read_head(file, size)
    try:
        header = _DECODER.decode(head.header)
    except msgspec.DecodeError as error:
        raise FileRefused("damaged") from error
    if header.fingerprint != fingerprint:
        raise FileRefused("of another model or settings")
    if not header.tokens or len(header.tokens) % 4:
        raise FileRefused("damaged")
    tokens = struct.unpack(f"<{len(header.tokens) // 4}i", header.tokens)
    return Record(header.owner, tokens, header.start, header.parent, key)


def read_data(file: BinaryIO, size: int, header: bytes) -> bytes:
    """The data of a file of `size` bytes whose header must be `header`, read into place in one go.

    Bytes, because Python fills a `bytearray` with zeros first: 63 ms for 100 MB against 105.
    Raises `FileRefused`, `OSError` as the file does, or `MemoryError`.
    """
    head = _read_head(file, size)
    if head.header != header:
        raise FileRefused("of something else")
    data = file.read(head.data_bytes)
    if len(data) != head.data_bytes or zlib.crc32(data) != head.data_checksum:
        raise FileRefused("damaged")
    return data


def rooted(records: Iterable[Record]) -> Iterator[Record]:
    """The records whose whole path is among them and whose keys are right, each after its parent."""
    paths: dict[bytes, tuple[Record, PathHash]] = {}
    for record in sorted(records, key=lambda record: record.start):
        path = _path_before(record, paths)
        if path is not None and path.extend(record.tokens).key == record.key:
            paths[record.key] = record, path
            yield record


class _Header(Struct, array_like=True, forbid_unknown_fields=True):
    fingerprint: str
    owner: str
    start: int
    parent: bytes
    tokens: bytes  # 4 bytes each, little-endian


_DECODER = msgspec.msgpack.Decoder(_Header)


class _Head(Struct, frozen=True):
    """What stands before the data, checked."""

    header: bytes
    data_bytes: int
    data_checksum: int


def _read_head(file: BinaryIO, size: int) -> _Head:
    start = file.read(_HEAD_BYTES)
    if len(start) < _HEAD_BYTES:
        raise FileRefused("damaged")
    layout, checksum = start[: _LAYOUT.size], start[_LAYOUT.size :]
    magic, version, header_bytes, data_bytes, data_checksum = _LAYOUT.unpack(layout)
    if magic != MAGIC:
        raise FileRefused("damaged")
    if version != VERSION:
        raise FileRefused("of another version")
    if header_bytes > MAX_HEADER_BYTES or size != _HEAD_BYTES + header_bytes + data_bytes:
        raise FileRefused("damaged")
    header = file.read(header_bytes)
    if checksum != _checksum(layout, header):
        raise FileRefused("damaged")
    return _Head(header, data_bytes, data_checksum)


def _path_before(record: Record, paths: dict[bytes, tuple[Record, PathHash]]) -> PathHash | None:
    """The path that the record's tokens go on, or None if it is not there."""
    if not record.parent:
        return PathHash(record.owner) if record.start == 0 else None
    parent, path = paths.get(record.parent, (None, None))
    if parent is None or path is None:
        return None
    joined = parent.owner == record.owner and parent.start + len(parent.tokens) == record.start
    return path.copy() if joined else None


def _pack(tokens: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}i", *tokens)


def _checksum(layout: bytes, header: bytes) -> bytes:
    return hashlib.blake2b(layout + header, digest_size=KEY_BYTES).digest()
