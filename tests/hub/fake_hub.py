"""A Hugging Face Hub on 127.0.0.1 with the three routes that a download uses, and a switch for each kind of trouble."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PREFIX = "/owner/repo/resolve/"


class FakeHub(ThreadingHTTPServer):
    """Serves `files` as hf:owner/repo. The fields below may be changed while it runs."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.cuts = 0  # how many file downloads to cut half way
        self.refusal: tuple[int, dict[str, str]] | None = None  # a status and headers for every request
        self.token: str | None = None  # what a request must show
        self.ranges: list[str | None] = []  # the Range header of each file download

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def fake_hub(files: dict[str, bytes]) -> Iterator[FakeHub]:
    with FakeHub(files) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _answer(self, body: bool) -> None:
        hub = self.server
        if hub.token is not None and self.headers["Authorization"] != f"Bearer {hub.token}":
            self._send(401, b"", {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif hub.refusal is not None:
            self._send(hub.refusal[0], b"", hub.refusal[1])
        elif self.path.startswith("/api/models/owner/repo"):
            siblings = [{"rfilename": name} for name in hub.files]
            described = {"id": "owner/repo", "sha": COMMIT, "siblings": siblings}
            self._send(200, json.dumps(described).encode(), {})
        elif self.path.startswith(PREFIX):
            self._file(self.path.removeprefix(PREFIX).partition("/")[2], body)
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    def _file(self, name: str, body: bool) -> None:
        content = self.server.files[name]
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        if not body:
            self._send(200, content, headers, body=False)
            return
        wanted = self.headers["Range"]
        self.server.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        cut = self.server.cuts > 0
        self.server.cuts -= cut
        self._send(206 if wanted else 200, content[start:], headers, cut=cut)

    def _send(
        self, status: int, content: bytes, headers: dict[str, str], *, body: bool = True, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "Accept-Ranges": "bytes", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = cut
