"""Paths, the cache folder, and what `resolve` and `remove` say about files of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.hub import HubError, Progress, default_cache, parse_model_name, remove, resolve


def no_progress(progress: Progress) -> None:
    raise AssertionError("a path is not fetched")


def test_a_path(tmp_path: Path) -> None:
    path = tmp_path / "My-Model.gguf"
    path.write_bytes(b"GGUF....")
    file = resolve(parse_model_name(str(path)), cache=tmp_path, progress=no_progress)
    assert (file.path, file.name, file.digest, file.size) == (path, "My-Model", None, 8)
    with pytest.raises(HubError, match="a file of yours"):
        remove(parse_model_name(str(path)), cache=tmp_path)
    assert path.exists()


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04 a zip file", b"ggjt"])
def test_a_file_that_is_no_gguf(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(HubError, match=r"x\.gguf is not a GGUF file"):
        resolve(parse_model_name(str(path)), cache=tmp_path, progress=no_progress)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    for name, message in ((str(tmp_path), "Is a directory"), (str(tmp_path / "gone.gguf"), "no such file")):
        with pytest.raises(HubError, match=message):
            resolve(parse_model_name(name), cache=tmp_path, progress=no_progress)


def test_a_repository_without_its_scheme_gets_a_hint(tmp_path: Path) -> None:
    with pytest.raises(HubError, match="then hf:owner/repo"):
        resolve(parse_model_name("owner/repo"), cache=tmp_path, progress=no_progress)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"ANTIPHON_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, Path("/own")),
        ({"ANTIPHON_CACHE": "~/own"}, Path.home() / "own"),
        ({"ANTIPHON_CACHE": "", "XDG_CACHE_HOME": "/xdg"}, Path("/xdg/antiphon")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache/antiphon"),
        ({}, Path.home() / ".cache/antiphon"),
    ],
)
def test_the_cache_folder(environment: dict[str, str], folder: Path) -> None:
    assert default_cache(environment) == folder
