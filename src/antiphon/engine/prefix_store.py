"""The folder in which an engine keeps computed prefixes over a restart: one file a node of the prefix tree.

Rules
* Files are a cache. Whatever is wrong with one, it is removed and its tokens are computed again: no fault of a disk is
  ever more than a line in the log.
* No file under a final name is half written: it is written under another name in the same folder, then renamed. It
  is not synced: what a loss of power tears is found by the checksums.
* One server to a folder; a lock says so. Only files with our suffixes are touched, and links are never followed.
* One thread does the work, in the order it was asked for. `done` is called on that thread; only what is refused at once
  is answered on the caller's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from antiphon.engine.prefix_file import (
    KEY_BYTES,
    Data,
    FileRefused,
    PathHash,
    Record,
    encode_header,
    path_key,
    read_data,
    read_record,
    rooted,
    write_prefix,
)

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["PENDING_BYTES", "PathHash", "PrefixStore", "PrefixStoreError", "Record", "path_key"]

# Data that waits to be written is held in memory. A disk of 500 MB a second writes this much in a second or two; if
# it cannot, prefixes come faster than it can take them, and it is better to keep fewer.
PENDING_BYTES = 2**30

SUFFIX = ".antiphon-prefix"
PARTIAL = ".antiphon-partial"
LOCK = ".antiphon-lock"

log = logging.getLogger(__name__)


class PrefixStoreError(Exception):
    """The folder cannot be used. The message is one line for whoever starts the server."""


class _Write(Struct, frozen=True):
    key: bytes
    header: bytes
    data: memoryview  # of bytes; while it lives, a bytearray behind it cannot change its size
    done: Callable[[bool], None]


class _Read(Struct, frozen=True):
    key: bytes
    header: bytes
    done: Callable[[bytes | None], None]


class _Remove(Struct, frozen=True):
    key: bytes


class _Stop(Struct, frozen=True):
    pass


class PrefixStore:
    """The prefixes of one model with one set of settings, which `fingerprint` names.

    Raises `PrefixStoreError` if the folder cannot be made, written to or locked. `pending_bytes` bounds the data that
    waits to be written. `clock` gives the nanoseconds that order the files by use.
    """

    def __init__(
        self,
        directory: Path,
        fingerprint: str,
        *,
        pending_bytes: int = PENDING_BYTES,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._directory = directory
        self._fingerprint = fingerprint
        self._limit = pending_bytes
        self._clock = clock
        self._lock = _locked(directory)
        for name in self._names(PARTIAL):
            self._unlink(name)
        self._gate = threading.Lock()  # over the three below
        self._jobs: queue.SimpleQueue[_Write | _Read | _Remove | _Stop] = queue.SimpleQueue()
        self._pending = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="antiphon-prefix-store", daemon=True)
        self._thread.start()

    def scan(self) -> list[tuple[Record, int]]:
        """Every usable file's record and its size in bytes, least recently used first; the others are removed.

        Reads headers only, on the caller's thread: to be called before anything is written or removed.
        """
        found: dict[bytes, _Found] = {}
        refused: Counter[str] = Counter()
        for name in self._names(SUFFIX):
            try:
                file = self._inspect(name)
                found[file.record.key] = file
            except (OSError, FileRefused) as error:
                refused[_reason(error)] += 1
                self._unlink(name)
        usable = [found.pop(record.key) for record in list(rooted(file.record for file in found.values()))]
        for key in found:
            refused["without the prefix before it, or misnamed"] += 1
            self._unlink(key.hex() + SUFFIX)
        if refused:
            reasons = ", ".join(f"{count} {reason}" for reason, count in refused.items())
            log.info("prefix files removed: %s", reasons)
        usable.sort(key=lambda file: file.used)
        return [(file.record, file.size) for file in usable]

    def write(self, record: Record, data: Data, done: Callable[[bool], None]) -> None:
        """Keeps a record and its data, which must not change until `done` is told whether they are in a file.

        Data beyond `pending_bytes`, or after `close`, is refused at once.
        """
        job = _Write(record.key, encode_header(record, self._fingerprint), memoryview(data).cast("B"), done)
        with self._gate:
            accepted = not self._closed and self._pending + len(job.data) <= self._limit
            if accepted:
                self._pending += len(job.data)
                self._jobs.put(job)
        if not accepted:
            done(False)

    def read(self, record: Record, done: Callable[[bytes | None], None]) -> None:
        """Reads a record's data, and marks it as used.

        `done` is told None if the file is gone, damaged or not of this record: then it is removed. So it is after
        `close`, with nothing removed.
        """
        job = _Read(record.key, encode_header(record, self._fingerprint), done)
        with self._gate:
            accepted = not self._closed
            if accepted:
                self._jobs.put(job)
        if not accepted:
            done(None)

    def remove(self, key: bytes) -> None:
        """Removes a file, if it is there. Those of longer paths are orphans then: remove them first."""
        with self._gate:
            if not self._closed:
                self._jobs.put(_Remove(key))

    def close(self) -> None:
        """Finishes what is queued, then ends the thread and lets go of the folder. Idempotent; not for a `done`."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._jobs.put(_Stop())
        self._thread.join()
        self._lock.release()

    def _run(self) -> None:
        while self._carry_out_next():
            pass

    def _carry_out_next(self) -> bool:
        """A function of its own, so that nothing holds a job's data while the next one is waited for."""
        job = self._jobs.get()
        if isinstance(job, _Stop):
            return False
        try:
            self._carry_out(job)
        except Exception:  # of a `done`: the jobs behind it are not to blame
            log.exception("a job of the prefix store failed")
        return True

    def _carry_out(self, job: _Write | _Read | _Remove) -> None:
        if isinstance(job, _Write):
            written = self._write_file(job)
            with self._gate:
                self._pending -= len(job.data)
            job.done(written)
        elif isinstance(job, _Read):
            job.done(self._read_file(job))
        else:
            self._unlink(job.key.hex() + SUFFIX)

    def _write_file(self, job: _Write) -> bool:
        name = job.key.hex()
        partial, final = self._directory / (name + PARTIAL), self._directory / (name + SUFFIX)
        try:
            with open(partial, "xb", opener=_open_private) as file:
                write_prefix(file, job.header, job.data)
            os.replace(partial, final)
        except OSError as error:
            log.warning("prefix %s is not kept in a file: %s", name, _reason(error))
            self._unlink(name + PARTIAL)
            return False
        self._mark_used(final)
        return True

    def _read_file(self, job: _Read) -> bytes | None:
        name = job.key.hex() + SUFFIX
        try:
            with _opened(self._directory / name) as (file, status):
                data = read_data(file, status.st_size, job.header)
        except (OSError, FileRefused, MemoryError) as error:
            log.warning("prefix file %s cannot be used: %s", name, _reason(error))
            self._unlink(name)
            return None
        self._mark_used(self._directory / name)
        return data

    def _inspect(self, name: str) -> _Found:
        key = _key(name)
        with _opened(self._directory / name) as (file, status):
            record = read_record(file, status.st_size, key, self._fingerprint)
        return _Found(record, status.st_size, status.st_mtime_ns)

    def _names(self, suffix: str) -> list[str]:
        try:
            return [name for name in os.listdir(self._directory) if name.endswith(suffix)]
        except OSError as error:
            log.warning("the folder of prefixes cannot be listed: %s", _reason(error))
            return []

    def _mark_used(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # The order of use is a hint; the data is what was asked for.
            now = self._clock()
            os.utime(path, ns=(now, now))

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(self._directory / name)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("prefix file %s cannot be removed: %s", name, _reason(error))


class _Found(Struct, frozen=True):
    record: Record
    size: int
    used: int  # nanoseconds


def _locked(directory: Path) -> BaseFileLock:
    """Makes the folder, and takes its lock."""
    from filelock import FileLock, Timeout  # takes 90 ms to load, and most servers keep no files

    # Not bound to a thread: whichever closes the store may not be the one that opened it.
    lock = FileLock(directory / LOCK, mode=0o600, thread_local=False)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout as error:
        raise PrefixStoreError(f"{directory}: another server keeps its prefixes there") from error
    except (OSError, NotImplementedError) as error:
        raise PrefixStoreError(f"{directory}: prefixes cannot be kept there: {_reason(error)}") from error
    return lock


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """A regular file and what the system says of it. Raises `OSError`, for a link too, or `FileRefused`."""
    with open(path, "rb", opener=_open_plain) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileRefused("no regular file")
        yield file, status


# Windows has neither flag, and needs a privilege to make a link.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # else a pipe in the folder would hold the thread for ever


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | _NO_LINK | _NO_WAIT)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | _NO_LINK, 0o600)


def _key(name: str) -> bytes:
    """The key that a file is named after."""
    with contextlib.suppress(ValueError):
        key = bytes.fromhex(name.removesuffix(SUFFIX))
        if len(key) == KEY_BYTES and key.hex() + SUFFIX == name:
            return key
    raise FileRefused("misnamed")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
