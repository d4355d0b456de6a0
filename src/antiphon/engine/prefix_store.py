"""The folder in which an engine keeps computed prefixes over a restart: one file a node of the prefix tree.

Rules
* Files are a cache. Whatever is wrong with one, its tokens are computed again: no fault of a disk is ever more than a
  line in the log.
* What was read and found damaged or foreign is removed. What cannot be opened or read now is left alone: the fault may
  be the machine's (no descriptor, no memory, a folder that is away), and the file good.
* No file under a final name is half written: it is written under another name in the same folder, then renamed. It
  is not synced: what a loss of power tears is found by the checksums.
* One server to a folder; a lock says so. Only files with our suffixes are touched, and links are never followed.
* One thread does the work, in the order it was asked for. `done` is called on that thread; only what is refused at once
  is answered on the caller's.
"""

from __future__ import annotations

import contextlib
import enum
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

__all__ = [
    "PENDING_BYTES",
    "PathHash",
    "PrefixStore",
    "PrefixStoreError",
    "Record",
    "Unreadable",
    "path_key",
]

# Data that waits to be written is held in memory. A disk of 500 MB a second writes this much in a second or two; if
# it cannot, prefixes come faster than it can take them, and it is better to keep fewer.
PENDING_BYTES = 2**30

SUFFIX = ".antiphon-prefix"
PARTIAL = ".antiphon-partial"
LOCK = ".antiphon-lock"

log = logging.getLogger(__name__)


class PrefixStoreError(Exception):
    """The folder cannot be used. The message is one line for whoever starts the server."""


class Unreadable(enum.Enum):
    """Told in the place of data."""

    NOW = "the file could not be read now, and was left alone"


class _Write(Struct, frozen=True):
    record: Record
    data: memoryview  # of bytes; while it lives, a bytearray behind it cannot change its size
    done: Callable[[bool], None]


class _Read(Struct, frozen=True):
    record: Record
    done: Callable[[bytes | Unreadable | None], None]


class _Remove(Struct, frozen=True):
    key: bytes


class _Stop(Struct, frozen=True):
    pass


class PrefixStore:
    """The prefixes of one model with one set of settings, which `fingerprint` names.

    Raises `PrefixStoreError` if the folder cannot be made, written to or locked. `pending_bytes` bounds the data that
    waits to be written, and so that of each file. `clock` gives the nanoseconds that order the files by use.
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
        self.pending_bytes = pending_bytes
        self.left_bytes = 0  # in files that the scan left alone
        self._clock = clock
        self._lock = _locked(directory)
        for name in self._names(PARTIAL):
            self._unlink(name)
        self._gate = threading.Lock()  # over the three below
        self._jobs: queue.SimpleQueue[_Write | _Read | _Remove | _Stop] = queue.SimpleQueue()
        self._pending = 0
        self._closed = False
        self._abandoned = False  # by `close`; what is queued is not worth finishing
        self._thread = threading.Thread(target=self._run, name="antiphon-prefix-store", daemon=True)
        self._thread.start()

    def scan(self) -> list[tuple[Record, int]]:
        """Every usable file's record and its size in bytes, least recently used first.

        Those that are no good are removed, for want of the prefix before them too. Those that cannot be read now are
        left alone, with all that stands on them. Reads headers only, on the caller's thread: to be called before
        anything is written or removed.
        """
        listed = self._list()
        usable = [
            listed.found.pop(record.key) for record in list(rooted(file.record for file in listed.found.values()))
        ]
        for file in sorted(listed.found.values(), key=lambda file: file.record.start):
            if file.record.parent in listed.left:
                listed.leave(file.record.key, file.size, "behind another one")
            else:
                listed.removed["without the prefix before it, or misnamed"] += 1
                self._unlink(_name(file.record))
        listed.tell()
        self.left_bytes = sum(listed.left.values())
        usable.sort(key=lambda file: file.used)
        return [(file.record, file.size) for file in usable]

    def write(self, record: Record, data: Data, done: Callable[[bool], None]) -> None:
        """Keeps a record and its data, which must not change until `done` is told whether they are in a file.

        Data beyond `pending_bytes`, or after `close`, is refused at once.
        """
        job = _Write(record, memoryview(data).cast("B"), done)
        with self._gate:
            accepted = not self._closed and self._pending + len(job.data) <= self.pending_bytes
            if accepted:
                self._pending += len(job.data)
                self._jobs.put(job)
        if not accepted:
            done(False)

    def read(self, record: Record, done: Callable[[bytes | Unreadable | None], None]) -> None:
        """Reads a record's data, and marks it as used.

        `done` is told None if the file is gone, damaged or not of this record: then it is removed. So it is after
        `close`, with nothing removed.
        """
        job = _Read(record, done)
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

    def close(self, patience: float | None = None) -> None:
        """Finishes what is queued, then ends the thread and lets go of the folder. Idempotent; not for a `done`.

        `patience` in seconds; None: for ever. When it is over, the thread is left behind with the file that it is at,
        and keeps the folder until it, or the process, ends. What was queued is dropped, and nobody is told.
        """
        with self._gate:
            if not self._closed:
                self._closed = True
                self._jobs.put(_Stop())
        self._thread.join(patience)
        if self._thread.is_alive():
            self._abandoned = True
            log.warning(
                "the folder of prefixes is too slow: what is not written yet is dropped, its thread left behind"
            )

    def _run(self) -> None:
        while self._carry_out_next():
            pass
        self._lock.release()

    def _carry_out_next(self) -> bool:
        """A function of its own, so that nothing holds a job's data while the next one is waited for."""
        job = self._jobs.get()
        if self._abandoned or isinstance(job, _Stop):
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
        name = job.record.key.hex()
        partial, final = self._directory / (name + PARTIAL), self._directory / (name + SUFFIX)
        try:
            header = encode_header(job.record, self._fingerprint)
            with open(partial, "xb", opener=_open_private) as file:
                write_prefix(file, header, job.data)
            os.replace(partial, final)
        except (OSError, MemoryError, ValueError) as error:
            log.warning("prefix %s is not kept in a file: %s", name, _reason(error))
            self._unlink(name + PARTIAL)
            return False
        self._mark_used(final)
        return True

    def _read_file(self, job: _Read) -> bytes | Unreadable | None:
        name = _name(job.record)
        try:
            header = encode_header(job.record, self._fingerprint)
            with _opened(self._directory / name) as (file, status):
                data = read_data(file, status.st_size, header)
        except (FileNotFoundError, FileRefused) as error:
            log.warning("prefix file %s cannot be used: %s", name, _reason(error))
            self._unlink(name)
            return None
        except (OSError, MemoryError) as error:
            log.warning("prefix file %s cannot be read now: %s", name, _reason(error))
            return Unreadable.NOW
        self._mark_used(self._directory / name)
        return data

    def _list(self) -> _Listed:
        """What is in the folder, looked at file by file."""
        listed = _Listed()
        for name in self._names(SUFFIX):
            try:
                key = _key(name)
                listed.found[key] = self._inspect(name, key)
            except FileRefused as error:
                listed.removed[_reason(error)] += 1
                self._unlink(name)
            except (OSError, MemoryError) as error:
                listed.leave(key, self._size(name), _reason(error))
        return listed

    def _size(self, name: str) -> int:
        """0 if the file is gone."""
        with contextlib.suppress(OSError):
            return os.lstat(self._directory / name).st_size
        return 0

    def _inspect(self, name: str, key: bytes) -> _Found:
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


class _Listed:
    """What a scan saw, by key: files that have been read, and the bytes of those left alone."""

    def __init__(self) -> None:
        self.found: dict[bytes, _Found] = {}
        self.left: dict[bytes, int] = {}
        self.removed: Counter[str] = Counter()  # reasons, as those below
        self._unread: Counter[str] = Counter()

    def leave(self, key: bytes, size: int, reason: str) -> None:
        self.left[key] = size
        self._unread[reason] += 1

    def tell(self) -> None:
        """A line for the log of each kind."""
        if self.removed:
            log.info("prefix files removed: %s", _counted(self.removed))
        if self._unread:
            log.warning("prefix files left alone, which cannot be read now: %s", _counted(self._unread))


def _counted(reasons: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())


def _name(record: Record) -> str:
    return record.key.hex() + SUFFIX


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
    """A regular file and what the system says of it. Raises `OSError`, or `FileRefused` for a link and all else."""
    _require_regular(os.lstat(path))
    with open(path, "rb", opener=_open_plain) as file:
        status = os.fstat(file.fileno())
        _require_regular(status)  # What the name stands for may have changed.
        yield file, status


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FileRefused("no regular file")


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
