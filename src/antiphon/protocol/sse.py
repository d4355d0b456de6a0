"""Server-sent events, both ways (wire contract, section 1).

Out: `event: <type>` LF `data: <one line of JSON>` LF LF; LF only, no `id:` line. In: any server's stream, cut anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from antiphon.protocol.events import Event, KeepAlive

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE_COMMENT = b": keep-alive\n\n"
MAX_EVENT = 64 * 1024 * 1024
"""Bytes of one event that the decoder holds: twice the largest request body, which a response echoes."""

_encoder = msgspec.json.Encoder()
_heads: dict[type, bytes] = {}


def _head(kind: type[msgspec.Struct]) -> bytes:
    head = _heads[kind] = b"event: " + str(kind.__struct_config__.tag).encode() + b"\ndata: "
    return head


def encode(events: Iterable[Event | KeepAlive]) -> bytes:
    """The bytes of the events, in one piece for one write."""
    out = bytearray()
    for event in events:
        kind = type(event)
        out += _heads.get(kind) or _head(kind)
        _encoder.encode_into(event, out, -1)
        out += b"\n\n"
    return bytes(out)


class SSEDecoder:
    """Bytes in, (event name, data) pairs out. Follows the HTML standard: LF, CRLF or CR, comments, several data lines.

    The name is "message" where the stream gives none. Every byte is looked at once, however the stream is cut. Raises
    `ValueError` when an event grows above `max_event` bytes; nothing can be read after that.
    """

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._rest = bytearray()
        self._after_cr = False
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        if self._after_cr and data.startswith(b"\n"):
            data, self._after_cr = data[1:], False
        if not data:
            return []
        # A CR ends its line at once; if an LF follows, it belongs to it.
        self._after_cr = data.endswith(b"\r")
        *lines, rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        found = []
        for line in lines:
            self._hold(line)
            pair = self._line(bytes(self._rest))
            self._rest.clear()
            if pair is not None:
                found.append(pair)
        self._hold(rest)
        return found

    def _hold(self, piece: bytes) -> None:
        self._rest += piece
        if self._size + len(self._rest) > self._max_event:
            raise ValueError(f"an event of the stream is longer than {self._max_event} bytes")

    def _line(self, line: bytes) -> tuple[str, bytes] | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(line) + 1
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> tuple[str, bytes] | None:
        pair = (self._event or "message", b"\n".join(self._data)) if self._data else None
        self._event, self._data, self._size = "", [], 0
        return pair
