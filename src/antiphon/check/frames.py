"""Bytes to frames, with every rule of the framing held. Stricter than any client: what is only tolerated is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from antiphon.check.violation import Report

# The final event repeats the whole request and output: twice the largest request body has room for both.
MAX_FRAME_BYTES = 64 * 2**20

_BLANK_LINE = re.compile(rb"\n\r?\n")


@dataclass(frozen=True)
class EventFrame:
    name: str
    event: dict[str, Any]


@dataclass(frozen=True)
class Comment:
    pass


@dataclass(frozen=True)
class Done:
    """`data: [DONE]`"""


Frame = EventFrame | Comment | Done


class FrameReader:
    """Cuts a stream into frames, wherever the pieces that it gets are cut. A frame that breaks a rule is reported.

    The frames come one at a time, so that the reader of the first has read it before the second is judged.
    """

    def __init__(self, report: Report, max_frame: int = MAX_FRAME_BYTES) -> None:
        self._report = report
        self._max_frame = max_frame
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        searched = max(0, len(self._buffer) - 2)
        self._buffer += data
        while blank := _BLANK_LINE.search(self._buffer, searched):
            block = bytes(self._buffer[: blank.end()])
            del self._buffer[: blank.end()]
            searched = 0
            yield from self._block(block)
        if len(self._buffer) > self._max_frame:
            self._report("framing", f"a frame is longer than {self._max_frame} bytes")
            self._buffer.clear()

    def close(self) -> None:
        if self._buffer:
            self._report("framing", f"the stream ends inside a frame: {_shown(bytes(self._buffer))}")
            self._buffer.clear()

    def _block(self, block: bytes) -> Iterator[Frame]:
        if b"\r" in block:
            self._report("framing", f"a carriage return in {_shown(block)}")
        lines = block.replace(b"\r", b"").removesuffix(b"\n\n").split(b"\n")
        while lines and lines[0].startswith(b":"):
            del lines[0]
            yield Comment()
        if lines == [b"data: [DONE]"]:
            yield Done()
        elif len(lines) == 2 and lines[0].startswith(b"event: ") and lines[1].startswith(b"data: "):
            yield from self._event(lines[0].removeprefix(b"event: "), lines[1].removeprefix(b"data: "))
        elif lines:
            self._report("framing", f"not an event line and a data line: {_shown(block)}")

    def _event(self, name: bytes, data: bytes) -> Iterator[Frame]:
        try:
            event = parse(data)
        except (ValueError, RecursionError) as error:
            self._report("json", f"{error}: {_shown(data)}")
            return
        yield EventFrame(name.decode("utf-8", errors="replace"), event)


def parse(data: bytes) -> dict[str, Any]:
    """One JSON object. Raises `ValueError` for all that a strict reader somewhere will not take."""
    event = json.loads(data.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    if not isinstance(event, dict):
        raise ValueError("not an object")
    if b"\\u" in data:
        json.dumps(event, ensure_ascii=False).encode("utf-8")  # a lone surrogate is a ValueError here
    return event


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _shown(data: bytes) -> str:
    """The beginning of what was found, in one line."""
    return repr(data[:80])
