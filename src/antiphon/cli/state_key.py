"""The key that seals what clients carry for the server: out of a file, or made once and kept for this user.

Rules
* A file of a key is refused as ssh refuses one of a private key: if it is ours, and others may read or write it. One
  that belongs to somebody else, as the mounted secrets of a container do, is their business.
* Servers that start at once agree on a key: it is written whole under a name of its own and then linked to the right
  one, which one server alone can do.
* A key is never shown. Messages name the file.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from antiphon.cli.errors import CommandError, UsageError
from antiphon.serving.sealed import KEY_BYTES

log = logging.getLogger(__name__)

LARGEST_FILE = 256  # bytes: a key in base64 has 44, and what is much larger is something else


class _Unfit(Exception):
    """A file that holds no key, or not safely. The text names it."""


def state_key(given: Path | None, environment: Mapping[str, str]) -> bytes:
    """The key in the file `given`, or else this user's own, which is made if there is none.

    Raises `CommandError` for a file that is unfit, and for a given one that cannot be read. Where none can be kept for
    the user, the key is one that is good until the process ends, and a warning says so: not every server has a home.
    """
    if given is not None:
        return _given(given)
    try:
        return _kept(own_file(environment))
    except _Unfit as error:
        raise CommandError(f"{error}; remove it to have a new one made, or name another by --state-key") from error
    except (OSError, RuntimeError) as error:
        what = "encrypted reasoning can be sent back until this server ends, and not to another"
        log.warning("no state key can be kept (%s): %s; see --state-key", error, what)
        return os.urandom(KEY_BYTES)


def own_file(environment: Mapping[str, str], *, windows: bool = os.name == "nt") -> Path:
    """`$XDG_STATE_HOME/antiphon/state-key`, else below `~/.local/state`; on Windows below `%LOCALAPPDATA%`.

    Raises `RuntimeError` if the user has no home.
    """
    # The XDG specification: a relative path is invalid and is to be ignored.
    folder = Path(environment.get("LOCALAPPDATA" if windows else "XDG_STATE_HOME") or "")
    if not folder.is_absolute():
        folder = Path.home() / ("AppData/Local" if windows else ".local/state")
    return folder / "antiphon" / "state-key"


def _given(file: Path) -> bytes:
    where = "--state-key (ANTIPHON_STATE_KEY)"
    try:
        return _read(file)
    except _Unfit as error:
        raise UsageError(f"{where}: {error}") from error
    except OSError as error:
        raise UsageError(f"{where}: {file} cannot be read: {error.strerror}") from error


def _kept(file: Path) -> bytes:
    """The key in the file, made if need be. Raises `_Unfit` and `OSError`."""
    try:
        return _read(file)
    except FileNotFoundError:
        _make(file)
    return _read(file)


def _read(file: Path) -> bytes:
    """Raises `_Unfit` and `OSError`."""
    if not stat.S_ISREG(file.stat().st_mode):  # a pipe would hold us up
        raise _Unfit(f"{file} is no regular file")
    with file.open("rb") as stream:
        if _exposed(os.fstat(stream.fileno())):
            raise _Unfit(f"{file} is open to other users (chmod 600 ends that)")
        data = stream.read(LARGEST_FILE + 1)
    key = data if len(data) == KEY_BYTES else _decoded(data)
    if len(key) != KEY_BYTES:
        raise _Unfit(f"{file} holds no key, which is {KEY_BYTES} random bytes, as they are or in base64")
    return key


def _decoded(data: bytes) -> bytes:
    if len(data) > LARGEST_FILE:
        return b""
    try:
        return base64.b64decode(data.strip(), validate=True)
    except ValueError:
        return b""


def _exposed(status: os.stat_result) -> bool:
    # Windows has no such bits; there the folder is its user's alone.
    return os.name == "posix" and status.st_uid == os.getuid() and bool(status.st_mode & 0o077)


def _make(file: Path) -> None:
    """Writes a new key, unless another server is faster. Raises `OSError`."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)  # its owner's alone
    try:
        with open(descriptor, "wb") as stream:
            stream.write(base64.b64encode(os.urandom(KEY_BYTES)) + b"\n")
            stream.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
    finally:
        os.unlink(draft)
