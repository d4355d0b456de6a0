"""`antiphon ask`: shows an answer while it is made.

The visible answer and the calls go to standard output, thinking and notes to standard error: a pipe gets the answer
alone. An answer that was cut by a limit is an answer, with a note.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, TextIO

from antiphon.cli.errors import CommandError, UsageError
from antiphon.protocol.sse import SSEDecoder

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
CALLS = ("function_call", "custom_tool_call")
TERMINAL = ("response.completed", "response.incomplete", "response.failed")

INPUT_LIMIT = 32 << 20  # bytes of standard input: no server takes a larger body by default


def read_text(stream: BinaryIO) -> str:
    """A question from standard input. Raises `UsageError`."""
    data = stream.read(INPUT_LIMIT + 1)
    if len(data) > INPUT_LIMIT:
        raise UsageError(f"standard input is larger than {INPUT_LIMIT} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError("standard input is not UTF-8") from error


class Screen:
    """Where an answer is shown. Keeps thinking, text and calls apart, whatever order they come in."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = _Writer(out)
        self._err = _Writer(err)
        self._last: _Writer | None = None

    def text(self, piece: str) -> None:
        self._write(self._out, piece)

    def thinking(self, piece: str) -> None:
        self._write(self._err, piece, dim=True)

    def note(self, line: str) -> None:
        self.end_line()
        self._write(self._err, f"{line}\n")

    def end_line(self) -> None:
        """The next piece starts on a new line."""
        if self._last is not None and not self._last.at_line_start:
            self._last.write("\n")

    def _write(self, writer: _Writer, piece: str, *, dim: bool = False) -> None:
        if self._last is not writer:
            self.end_line()
            self._last = writer
        writer.write(piece, dim=dim)


class _Writer:
    """A stream that is flushed with every piece; on a terminal, a model's control characters do nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._encoding = stream.encoding or "utf-8"
        self.at_line_start = True

    def write(self, piece: str, *, dim: bool = False) -> None:
        if not piece:
            return
        self.at_line_start = piece.endswith("\n")
        if self._terminal:
            piece = "".join(c for c in piece if c in "\n\t" or c.isprintable())
            piece = f"{DIM}{piece}{PLAIN}" if dim else piece
        # What the terminal's encoding lacks is shown as a question mark.
        self._stream.write(piece.encode(self._encoding, "replace").decode(self._encoding))
        self._stream.flush()


class Display:
    """Shows the events of one response. What it does not know, it does not show."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "response.output_text.delta": self._text,
            "response.refusal.delta": self._text,
            "response.function_call_arguments.delta": self._text,
            "response.custom_tool_call_input.delta": self._text,
            "response.reasoning_text.delta": self._thinking,
            "response.reasoning.delta": self._thinking,  # its name in Open Responses
            "response.reasoning_summary_text.delta": self._thinking,
            "response.output_item.added": self._opened,
            "response.output_item.done": self._closed,
        }

    def take(self, event: dict[str, Any]) -> None:
        if handler := self._handlers.get(event["type"]):
            handler(event)

    def _text(self, event: dict[str, Any]) -> None:
        self._screen.text(str(event["delta"]))

    def _thinking(self, event: dict[str, Any]) -> None:
        self._screen.thinking(str(event["delta"]))

    def _opened(self, event: dict[str, Any]) -> None:
        self._screen.end_line()
        if event["item"]["type"] in CALLS:
            self._screen.text(f"{event['item']['name']}(")

    def _closed(self, event: dict[str, Any]) -> None:
        if event["item"]["type"] in CALLS:
            self._screen.text(")\n")


class Ending:
    """Watches the events of one response for how it ends."""

    def __init__(self) -> None:
        self._final: dict[str, Any] | None = None

    def take(self, event: dict[str, Any]) -> None:
        """Raises `CommandError` for an `error` event: nothing comes after it."""
        if event["type"] in TERMINAL:
            self._final = dict(event["response"])
        elif event["type"] == "error":
            raise CommandError(f"the server sent an error: {(event.get('error') or event).get('message')}")

    def note(self) -> str | None:
        """What the user should know about an answer that may be used. Raises `CommandError` if it may not."""
        if self._final is None:
            raise CommandError("the stream ended before the response did")
        status = self._final["status"]
        if status == "completed":
            return None
        if status == "incomplete":
            return f"the answer is incomplete: {(self._final.get('incomplete_details') or {}).get('reason')}"
        message = (self._final.get("error") or {}).get("message")
        raise CommandError(f"the response {status}: {message}" if message else f"the response was {status}")


def show(stream: Iterable[bytes], out: TextIO, err: TextIO) -> None:
    """Shows an event stream as text. Raises `CommandError` if no usable answer came."""
    screen = Screen(out, err)
    display = Display(screen)
    try:
        note = _follow(stream, lambda chunk: None, display.take)
    finally:
        screen.end_line()
    if note:
        screen.note(f"antiphon: {note}")


def show_events(stream: Iterable[bytes], out: BinaryIO, err: TextIO) -> None:
    """Passes the bytes of an event stream on as they arrive. Raises `CommandError` if no usable answer came."""

    def copy(chunk: bytes) -> None:
        out.write(chunk)
        out.flush()

    if note := _follow(stream, copy, lambda event: None):
        err.write(f"antiphon: {note}\n")


def _follow(
    stream: Iterable[bytes], each_chunk: Callable[[bytes], None], each_event: Callable[[dict[str, Any]], None]
) -> str | None:
    """Reads to `[DONE]` or the end; returns `Ending.note()`."""
    decoder, ending = SSEDecoder(), Ending()
    for chunk in stream:
        each_chunk(chunk)
        try:
            for _, data in decoder.feed(chunk):
                if data == b"[DONE]":
                    return ending.note()
                event = json.loads(data)
                ending.take(event)
                each_event(event)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise CommandError("the server sent an event that cannot be read") from error
    return ending.note()
