"""GGUF files of the Hugging Face Hub, in huggingface_hub's own cache and under its own rules.

Its environment variables count: `HF_TOKEN`, `HF_HOME`, `HF_ENDPOINT`, `HF_HUB_OFFLINE`. It is imported inside the
functions that need it: its parts take long to load, and most models come from elsewhere.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from antiphon.hub import selection
from antiphon.hub.base import CachedModel, HubError, ModelFile, Progress, Report
from antiphon.hub.names import HuggingFace, canonical

if TYPE_CHECKING:
    from huggingface_hub import CachedFileInfo, CachedRepoInfo

METADATA_TIMEOUT = 10.0  # seconds; what huggingface_hub itself waits for the description of a file

_SHA256 = re.compile(r"[0-9a-f]{64}")


def resolve_hugging_face(source: HuggingFace, served: str, report: Report, *, offline: bool) -> ModelFile:
    """The chosen GGUF, from huggingface_hub's cache or fetched into it. Raises `HubError`."""
    from huggingface_hub import constants, errors

    if offline or constants.HF_HUB_OFFLINE:
        return _from_cache(source, served, "downloads are off (offline)")
    try:
        return _online(source, served, report)
    except (errors.HTTPError, OSError, ValueError, RuntimeError) as error:  # type: ignore[attr-defined]
        # HTTPError is that of the HTTP library below, which changed between versions; RuntimeError comes from hf_xet.
        if _is_outage(error):
            return _from_cache(source, served, "the Hugging Face Hub cannot be reached")
        raise HubError(_reason(error, source)) from error


def list_hugging_face() -> list[CachedModel]:
    """The GGUF models in huggingface_hub's cache, of all revisions."""
    found = []
    for repo in _cached_repos():
        files = dict(_gguf_files(repo))
        for first, parts in selection.group(files).items():
            size = sum(files[part].size_on_disk for part in parts)
            name = canonical(HuggingFace(repo.repo_id, first))
            path = files[first].file_path
            found.append(CachedModel(name=name, alias=None, path=path, size=size, digest=_digest(path)))
    return found


def remove_hugging_face(source: HuggingFace) -> int:
    """Deletes the GGUF files that the name means, in all revisions; returns the bytes freed. Raises `HubError`.

    Without a file or quantisation these are all GGUF files of the repository. Other files of it stay.
    """
    doomed: list[CachedFileInfo] = []
    for repo in _cached_repos():
        if repo.repo_id == source.repo:
            doomed += [file for inside, file in _gguf_files(repo) if selection.matches(inside, source.selector)]
    if not doomed:
        raise HubError(f"{canonical(source)} is not cached")
    blobs = {file.blob_path: file.size_on_disk for file in doomed}
    try:
        for path in [file.file_path for file in doomed] + list(blobs):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise HubError(f"cannot remove {canonical(source)}: {error.strerror or error}") from error
    return sum(blobs.values())


def _online(source: HuggingFace, served: str, report: Report) -> ModelFile:
    from huggingface_hub import HfApi, hf_hub_download

    # Not list_repo_files: that tries for half a minute without a network before what is cached can be used.
    info = HfApi().model_info(source.repo, timeout=METADATA_TIMEOUT)
    names = [file.rfilename for file in info.siblings or ()]
    files = selection.choose(names, source.selector, f"hf:{source.repo}")
    paths = [Path(hf_hub_download(source.repo, file, tqdm_class=_bar(file, report))) for file in files]
    return _model_file(paths, served)


def _from_cache(source: HuggingFace, served: str, why: str) -> ModelFile:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(source.repo, local_files_only=True, allow_patterns="*.gguf"))
    except LocalEntryNotFoundError as error:
        raise HubError(f"{canonical(source)} is not cached, and {why}") from error
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf")]
    if not names:
        raise HubError(f"{canonical(source)} is not cached, and {why}")
    chosen = selection.choose(names, source.selector, f"the cache of hf:{source.repo}")
    return _model_file([folder / name for name in chosen], served)


def _model_file(paths: list[Path], served: str) -> ModelFile:
    return ModelFile(
        path=paths[0], name=served, digest=_digest(paths[0]), size=sum(path.stat().st_size for path in paths)
    )


def _digest(path: Path) -> str | None:
    """The Hub names the stored copy of a large file by its SHA-256."""
    blob = path.resolve().name
    return f"sha256:{blob}" if _SHA256.fullmatch(blob) else None


def _bar(file: str, report: Report) -> Any:
    """What huggingface_hub takes for its progress bar: the part of tqdm's interface that it uses."""

    class Bar:
        def __init__(self, *args: object, total: int | None = None, initial: int = 0, **others: object) -> None:
            self.total = total
            self.n = initial

        def update(self, n: int | float | None = 1) -> None:
            self.n += int(n or 0)
            report(Progress("downloading", file, self.n, self.total))

        def __enter__(self) -> Bar:
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            self.close()

        def close(self) -> None:
            """Nothing is held."""

    return Bar


def _cached_repos() -> Iterator[CachedRepoInfo]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        yield from sorted(scan_cache_dir().repos, key=lambda repo: repo.repo_id)
    except CacheNotFound:
        return


def _gguf_files(repo: CachedRepoInfo) -> Iterator[tuple[str, CachedFileInfo]]:
    """With their paths inside the repository; of all revisions, the newest last."""
    if repo.repo_type == "model":
        for revision in sorted(repo.revisions, key=lambda revision: revision.last_modified):
            for file in revision.files:
                if file.file_name.lower().endswith(".gguf"):
                    yield file.file_path.relative_to(revision.snapshot_path).as_posix(), file


def _status(error: Exception) -> int | None:
    """The HTTP status behind an error of huggingface_hub, if an answer was behind it."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _is_outage(error: Exception) -> bool:
    """Whether the Hub did not answer, or not as itself: what is cached may then be used."""
    from huggingface_hub import errors

    if isinstance(error, errors.HfHubHTTPError):
        status = _status(error)
        return status is not None and status >= 500
    silent = (errors.HTTPError, errors.LocalEntryNotFoundError, ConnectionError)  # type: ignore[attr-defined]
    return isinstance(error, silent)


def _reason(error: Exception, source: HuggingFace) -> str:
    """One line for what went wrong. Never the text of a header: it may hold the token."""
    from huggingface_hub import errors

    name = canonical(source)
    if isinstance(error, errors.GatedRepoError):
        return f"{name} is gated: accept its terms on the Hub, then set HF_TOKEN to a token of that account"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"no such repository: hf:{source.repo} (if it is private, set HF_TOKEN)"
    if isinstance(error, errors.HfHubHTTPError):
        status = _status(error)
        if status in (401, 403):
            return f"the Hugging Face Hub refuses access to {name} ({status}): check HF_TOKEN"
        return f"the Hugging Face Hub answers {status} for {name}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"disk full while downloading {name}"
    if isinstance(error, OSError) and error.errno is not None:
        return f"cannot write {name} to the cache: {error.strerror}"
    return f"the download of {name} was cut ({type(error).__name__}); run it again"
