"""A server of the Responses API on 127.0.0.1 that answers with prepared bytes: what no real server should ever send."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class CannedServer(ThreadingHTTPServer):
    """Answers every POST with `pieces`, each in a write of its own. The fields may be changed while it runs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.pieces: list[bytes] = []
        self.length: int | None = None  # a Content-Length to claim; None: the end of the connection is the end
        self.models = b'{"object": "list", "data": [{"id": "first"}, {"id": "second"}]}'
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: CannedServer

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self._start()
        self.wfile.write(self.server.models)

    def do_POST(self) -> None:
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._start()
        for piece in self.server.pieces:
            self.wfile.write(piece)
            self.wfile.flush()

    def _start(self) -> None:
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers["Authorization"])
        self.send_response(self.server.status)
        if self.server.length is not None:
            self.send_header("Content-Length", str(self.server.length))
        self.end_headers()


@contextmanager
def canned_server() -> Iterator[CannedServer]:
    with CannedServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
