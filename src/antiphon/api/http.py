"""HTTP below the application: what uvicorn's reader leaves open.

Rules
* A head is bounded, in bytes and in time; so is the silence within a body. Nobody needs a key to open a connection.
* An upgrade that is not done is ignored (RFC 9110, 7.8): the request goes on as if it had not been asked for.
* What is no HTTP gets the one error shape too.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.ids import random_id

MAX_HEAD = 64 * 1024
"""Bytes of a request line with its headers, as in most servers. httptools itself would collect for ever."""


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's reader within bounds: `request_seconds` for a head, and between two pieces of a body."""

    request_seconds = 30.0
    _head = 0
    _in_head = True
    _reread = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._timer is not None and not self._in_head:
            self._wait()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_again(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._in_head:
            self._head += len(data)
            if self._head > MAX_HEAD and not self.transport.is_closing():
                self._refuse(431, f"The request's head is larger than {MAX_HEAD} bytes.", "request_header_too_large")

    def on_message_begin(self) -> None:
        self._head, self._in_head = 0, True
        self._wait()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._wait()
        # The parser passes over the body of a request that asks for an upgrade.
        self._reread = self.parser.should_upgrade()
        if not self._reread:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._reread:
            self._wait_no_more()
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg, "invalid_http")

    def _read_again(self, rest: bytes) -> None:
        """The same head for a new parser, without the wish for an upgrade, then what came behind it."""
        version = self.parser.get_http_version().encode()
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        lines += [name + b": " + value for name, value in self.headers if name != b"connection"]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _wait(self) -> None:
        self._wait_no_more()
        self._timer = self.loop.call_later(self.request_seconds, self._late)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(408, f"No whole request came within {self.request_seconds:g} s.", "request_timeout")

    def _refuse(self, status: int, message: str, code: str) -> None:
        self._wait_no_more()
        cycle = self.cycle
        if cycle is not None and cycle.response_started and not (self._in_head and cycle.response_complete):
            self.transport.close()  # An answer has begun: another one would be taken for a part of it.
            return
        body = msgspec.json.encode(RequestRefused(message, code=code, status=status).body())
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nx-request-id: {random_id('req_')}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def bounded_http(request_seconds: float) -> type[BoundedHttp]:
    """The reader for uvicorn, with so many seconds."""
    return type("BoundedHttp", (BoundedHttp,), {"request_seconds": request_seconds})
