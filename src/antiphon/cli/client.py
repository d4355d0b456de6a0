"""A small client of the Responses API over `http.client`: one request, its stream of bytes.

httpx would be a dependency for this alone, and takes as long to load as everything else of `antiphon ask`.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from antiphon.cli.errors import CommandError, UsageError

CONNECT_TIMEOUT = 10.0  # seconds; a server that takes longer to accept is not there
SILENCE = 600.0  # seconds without a byte: forty keep-alives of the server's default interval
CHUNK = 64 * 1024  # bytes; `read1` returns what has arrived, at most so much
ERROR_BODY = 64 * 1024  # bytes of an error's body that are read: an error object is a few hundred


class Server:
    """A server that speaks the Responses API, at `url` with or without its `/v1`."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError as error:
            raise UsageError(f"--url (ANTIPHON_URL): {error}") from error
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            raise UsageError("--url (ANTIPHON_URL): an address starts with http:// or https://")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._base = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        self._headers = {"Accept": "text/event-stream, application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def first_model(self) -> str:
        """The model that the server lists first. Raises `CommandError`."""
        body = b"".join(self._exchange("GET", "/models", None))
        try:
            return str(json.loads(body)["data"][0]["id"])
        except (ValueError, LookupError, TypeError) as error:
            raise CommandError(f"{self._shown} lists no model: is it a server of the Responses API?") from error

    def stream(self, request: dict[str, Any]) -> Iterator[bytes]:
        """The bytes of the answer's event stream as they arrive. Raises `CommandError`."""
        return self._exchange("POST", "/responses", json.dumps({**request, "stream": True}).encode())

    def _exchange(self, method: str, path: str, body: bytes | None) -> Iterator[bytes]:
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.settimeout(SILENCE)
            headers = {**self._headers, "Content-Type": "application/json"} if body is not None else self._headers
            connection.request(method, self._base + path, body, headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise CommandError(_http_error(answer.status, answer.read(ERROR_BODY)))
            while chunk := answer.read1(CHUNK):
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise CommandError(self._trouble(error)) from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_TIMEOUT)
        return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_TIMEOUT)

    def _trouble(self, error: Exception) -> str:
        if isinstance(error, ConnectionRefusedError):
            return f"no server answers at {self._shown}; start one with: antiphon serve"
        if isinstance(error, socket.gaierror):
            return f"no such host: {self._host}"
        if isinstance(error, TimeoutError):
            return f"{self._shown} does not answer in time"
        if isinstance(error, ssl.SSLError):
            return f"no secure connection to {self._shown}: {error.reason or 'TLS failed'}"
        if isinstance(error, OSError) and error.errno:
            return f"the connection to {self._shown} failed: {os.strerror(error.errno)}"
        return f"the connection to {self._shown} was cut ({type(error).__name__})"


def _http_error(status: int, body: bytes) -> str:
    """The error object's message if there is one, else the status."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        message = http.client.responses.get(status, "no reason given")
    return f"the server answered {status}: {message}"
