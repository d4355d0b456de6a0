"""Models of the Hugging Face Hub, with the real huggingface_hub against a hub on 127.0.0.1."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub.fake_hub import FakeHub, fake_hub
from tests.hub.processes import fetch, read_until, start
from tests.hub.wheels import GGUF

FILES = {
    "README.md": b"# read me",
    "M-Q4_K_M.gguf": GGUF + b"4",
    "M-Q8_0.gguf": GGUF + b"8",
    "big/M-F16-00001-of-00002.gguf": GGUF + b"1",
    "big/M-F16-00002-of-00002.gguf": GGUF + b"2",
}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub(dict(FILES)) as hub:
        yield hub


class User:
    """A person's machine: its huggingface_hub cache and environment."""

    def __init__(self, home: Path, endpoint: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        self.cache = home / "antiphon"
        self.hf_home = home / "hf"
        self.environment = {**kept, "HF_HOME": str(self.hf_home), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1"}

    def fetch(self, name: str, **environment: str) -> dict[str, Any]:
        return fetch(name, self.cache, {**self.environment, **environment})

    def files(self) -> set[str]:
        """The GGUF files under their final names."""
        return {path.name for path in self.hf_home.rglob("*.gguf")}


@pytest.fixture
def user(tmp_path: Path, hub: FakeHub) -> User:
    return User(tmp_path, hub.endpoint)


def test_a_quant_is_fetched_and_then_found_without_the_hub(user: User, hub: FakeHub) -> None:
    content = FILES["M-Q8_0.gguf"]
    result = user.fetch("hf:owner/repo:q8_0")
    assert Path(result["path"]).read_bytes() == content
    assert result["name"] == "owner/repo"
    assert result["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert result["size"] == len(content)
    assert user.files() == {"M-Q8_0.gguf"}
    for trouble in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        assert user.fetch("hf:owner/repo:Q8_0", **trouble) == result
    hub.refusal = (503, {})
    assert user.fetch("hf:owner/repo:Q8_0") == result
    assert len(hub.ranges) == 1, "downloaded once"


def test_the_preferred_quant_and_all_parts_of_a_split_model(user: User) -> None:
    assert Path(user.fetch("hf:owner/repo")["path"]).name == "M-Q4_K_M.gguf"
    split = user.fetch("hf:owner/repo:F16")
    assert Path(split["path"]).name == "M-F16-00001-of-00002.gguf"
    assert split["size"] == 2 * len(GGUF) + 2
    assert user.files() == {"M-Q4_K_M.gguf", "M-F16-00001-of-00002.gguf", "M-F16-00002-of-00002.gguf"}


def test_a_cut_download_is_resumed(user: User, hub: FakeHub) -> None:
    content = hub.files["L-Q8_0.gguf"] = GGUF * 2400  # half of it is more than the 10 MB that are read at a time
    hub.cuts = 1
    assert Path(user.fetch("hf:owner/repo:L-Q8_0.gguf")["path"]).read_bytes() == content
    assert hub.ranges[0] is None
    assert hub.ranges[1] is not None and hub.ranges[1].startswith("bytes=")


def test_killed_half_way_then_run_again(user: User, hub: FakeHub) -> None:
    with start("hf:owner/repo:Q8_0", user.cache, user.environment, hold="downloading") as process:
        read_until(process, "downloading")
        process.kill()
    assert user.files() == set()
    assert Path(user.fetch("hf:owner/repo:Q8_0")["path"]).read_bytes() == FILES["M-Q8_0.gguf"]


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((401, {"X-Error-Code": "RepoNotFound"}), "no such repository: hf:owner/repo (if it is private, set HF_TOKEN)"),
        ((403, {"X-Error-Code": "GatedRepo"}), "hf:owner/repo:Q8_0 is gated: accept its terms"),
        ((403, {}), "the Hugging Face Hub refuses access to hf:owner/repo:Q8_0 (403): check HF_TOKEN"),
        ((404, {}), "the Hugging Face Hub answers 404"),
        ((503, {}), "hf:owner/repo:Q8_0 is not cached, and the Hugging Face Hub cannot be reached"),
    ],
)
def test_refused(user: User, hub: FakeHub, refusal: tuple[int, dict[str, str]], message: str) -> None:
    hub.refusal = refusal
    assert user.fetch("hf:owner/repo:Q8_0")["error"].startswith(message)
    assert user.files() == set()


def test_the_token_is_shown_and_never_said(user: User, hub: FakeHub) -> None:
    hub.token = "hf_goodToken"
    error = user.fetch("hf:owner/repo:Q8_0", HF_TOKEN="hf_badToken")["error"]
    assert "check HF_TOKEN" in error and "badToken" not in error
    assert Path(user.fetch("hf:owner/repo:Q8_0", HF_TOKEN="hf_goodToken")["path"]).exists()


def test_not_cached_and_no_network(user: User) -> None:
    error = user.fetch("hf:owner/repo", HF_ENDPOINT="http://127.0.0.1:9")["error"]
    assert error == "hf:owner/repo is not cached, and the Hugging Face Hub cannot be reached"
    assert "offline" in user.fetch("hf:owner/repo", HF_HUB_OFFLINE="1")["error"]


def test_a_quant_that_is_not_there(user: User) -> None:
    assert "no GGUF file for Q2_K; it has M-Q4_K_M.gguf" in user.fetch("hf:owner/repo:Q2_K")["error"]
