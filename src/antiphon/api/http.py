"""HTTP below the application: heads are bounded, and what is no HTTP gets the one error shape too."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.ids import random_id

MAX_HEAD = 64 * 1024
"""Bytes of a request line with its headers, as in most servers. httptools itself would collect for ever."""


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's reader. A head that goes on above `MAX_HEAD` ends its connection."""

    _head = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head += len(data)
            if self._head > MAX_HEAD and not self.transport.is_closing():
                self._refuse(431, f"The request's head is larger than {MAX_HEAD} bytes.", "request_header_too_large")

    def on_message_begin(self) -> None:
        self._head, self._in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg, "invalid_http")

    def _refuse(self, status: int, message: str, code: str) -> None:
        body = msgspec.json.encode(RequestRefused(message, code=code, status=status).body())
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nx-request-id: {random_id('req_')}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
