"""JSON values in text that arrives in pieces: where one ends, and what a string in it says."""

from __future__ import annotations

import enum
import re

from antiphon.text.markers import Markers

# RFC 8259, section 7. An escape that is not in the table stands for itself, backslash and all.
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_UNIT = re.compile(r"\\u([0-9a-fA-F]{4})")

_STRING_STOP = re.compile(r'(?:[^"\\]++|\\.)*+["\\]', re.DOTALL)
_NESTED_STOP = re.compile(r'["{}\[\]<]')
_BARE_STOP = re.compile(r'["{}\[\]<, \t\r\n]')


class Reading(enum.Enum):
    """How far a value was read."""

    MORE = enum.auto()  # all of the text belongs to it
    HALF = enum.auto()  # what is left may become a marker
    MARKER = enum.auto()  # what is left begins with a marker, which ends the value whatever is still open
    DONE = enum.auto()  # the value ended before what is left


class ValueReader:
    """Follows one JSON value to its end, by nesting; the two kinds of brackets are not told apart.

    A bare word (a number, `true`) ends before a comma, a closing bracket or whitespace. Markers count outside strings
    alone, and all begin with `<`. Starts on the first character of the value. `reading` is about the last `read`.
    """

    __slots__ = ("_depth", "_escaped", "_string", "reading")

    def __init__(self) -> None:
        self.reading = Reading.MORE
        self._depth = 0
        self._string = False
        self._escaped = False  # the last character was a backslash in a string

    def read(self, text: str, at: int, end: int, markers: Markers) -> int:
        """Reads from `at`, not beyond `end`; gives the index of what is left."""
        self.reading = Reading.MORE
        while at < end and self.reading is Reading.MORE:
            at = self._read_string(text, at, end) if self._string else self._read_outside(text, at, end, markers)
        return at

    def _read_string(self, text: str, at: int, end: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        stop = _STRING_STOP.match(text, at, end)
        if stop is None:
            return end
        if text[stop.end() - 1] == "\\":
            self._escaped = True
        else:
            self._string = False
            self._close()
        return stop.end()

    def _read_outside(self, text: str, at: int, end: int, markers: Markers) -> int:
        stop = (_NESTED_STOP if self._depth else _BARE_STOP).search(text, at, end)
        if stop is None:
            return end
        at = stop.start()
        match text[at]:
            case "<":
                return self._read_angle(text, at, markers)
            case '"':
                self._string = True
            case "{" | "[":
                self._depth += 1
            case "}" | "]" if self._depth:
                self._depth -= 1
                self._close()
            case _:
                self.reading = Reading.DONE
                return at
        return at + 1

    def _read_angle(self, text: str, at: int, markers: Markers) -> int:
        if markers.stands_at(text, at):
            self.reading = Reading.MARKER
            return at
        if markers.half_at(text, at):
            self.reading = Reading.HALF
            return at
        return at + 1

    def _close(self) -> None:
        if not self._depth:
            self.reading = Reading.DONE


class StringDecoder:
    """What a JSON string says, as its spelling arrives (with both quotes).

    Holds back only a torn escape: at most the 11 characters of a surrogate pair that lacks its last one. A lone
    surrogate, which no UTF-8 can carry, is U+FFFD.
    """

    __slots__ = ("_held", "_opened")

    def __init__(self) -> None:
        self._held = ""
        self._opened = False

    def feed(self, piece: str, *, last: bool) -> str:
        """`piece` is not empty; the `last` one ends with the closing quote."""
        text = self._held + piece[not self._opened : len(piece) - last]
        self._opened = True
        parts: list[str] = []
        at = 0
        while (slash := text.find("\\", at)) >= 0:
            parts.append(text[at:slash])
            at = slash
            length = _escape_length(text, at)
            if at + length > len(text) and not last:
                break
            said, length = _unescape(text[at : at + length])
            parts.append(said)
            at += length
        else:
            parts.append(text[at:])
            at = len(text)
        self._held = text[at:]
        return "".join(parts)


def _escape_length(text: str, at: int) -> int:
    """How many characters, from the backslash on, must be there to tell what the escape says."""
    if text[at + 1 : at + 2] != "u":
        return 2
    unit = _UNIT.match(text, at)
    return 12 if unit and _is_high(int(unit[1], 16)) else 6


def _unescape(text: str) -> tuple[str, int]:
    """What the escape at the start of `text` says, and its length. Nothing but a pair is longer than 6 characters."""
    unit = _UNIT.match(text)
    if unit is None:
        return _ESCAPES.get(text[1:2], text[:2]), len(text[:2])
    code = int(unit[1], 16)
    if not 0xD800 <= code < 0xE000:
        return chr(code), 6
    low = _UNIT.match(text, 6)
    if low is not None and 0xDC00 <= int(low[1], 16) < 0xE000:
        return chr(0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00), 12
    return "\N{REPLACEMENT CHARACTER}", 6


def _is_high(code: int) -> bool:
    return 0xD800 <= code < 0xDC00
