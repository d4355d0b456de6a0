"""Server-sent events, both ways (wire contract, section 1).

Out: `event: <type>` LF `data: <one line of JSON>` LF LF; LF only, no `id:` line. In: any server's stream, cut anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from antiphon.protocol.events import Event, KeepAlive

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE_COMMENT = b": keep-alive\n\n"
MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line that the decoder holds: twice the largest request body, which a response echoes."""

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

    The name is "message" where the stream gives none. Raises `ValueError` for a line above `MAX_LINE`.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        self._rest += data
        if len(self._rest) > MAX_LINE and b"\n" not in data:
            raise ValueError(f"a line of the event stream is longer than {MAX_LINE} bytes")
        found = []
        # A CR at the very end may be half of a CRLF: it waits for the next byte.
        text = self._rest[:-1] if self._rest.endswith(b"\r") else self._rest
        lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + self._rest[len(text) :]
        for line in lines:
            pair = self._line(line)
            if pair is not None:
                found.append(pair)
        return found

    def _line(self, line: bytes) -> tuple[str, bytes] | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> tuple[str, bytes] | None:
        pair = (self._event or "message", b"\n".join(self._data)) if self._data else None
        self._event, self._data = "", []
        return pair
