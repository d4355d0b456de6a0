"""The value of a parameter, from the text between its markers to JSON, while it arrives.

Rules
* A string goes out as it comes. Anything else waits for its end: it goes out as it was written, without the whitespace
  between its parts, if it is JSON of a type that the schema admits, and else as a string. So whatever comes is a value,
  and nothing is lost.
* Python's way to write JSON (`True`, `None`, single quotes) is JSON, too: many models fall into it.
* Where a string is admitted beside other types, what can be read as one of the others is that: `null` is null.
* What cannot become JSON of those types any more is a string from there on, and waits no longer.
"""

from __future__ import annotations

import json
import re

from antiphon.text.dialects.flow import WHITESPACE
from antiphon.text.dialects.xml_types import QUOTED, types_of

# Characters of a value that wait for its end. A megabyte is above what models write in one output (128k tokens have
# half of that); reading it takes some milliseconds.
JSON_LIMIT = 1024 * 1024

# The same for what may be a bare word or a string: a string should not wait. A number of 256 bits has 78 digits.
SCALAR_LIMIT = 128

# What the types begin with, also as Python writes them.
_STARTS = {
    "object": "{",
    "array": "[",
    "integer": "-0123456789",
    "number": "-0123456789",
    "boolean": "tfTF",
    "null": "nN",
    QUOTED: "\"'",
}

_STRING_EDGE = re.compile(r"""\\.|["'\n]""", re.DOTALL)
_JSON_SPACE = re.compile(rf'("(?:[^"\\]|\\.)*+")|[{WHITESPACE}]+')
# A string that does not end is taken to the end of the text, as it is: looked at once, and no JSON anyway.
_PYTHON = re.compile(
    r""""(?:[^"\\]|\\.)*+(?:"|\Z)|'(?P<quoted>(?:[^'\\]|\\.)*+)(?P<end>'|\Z)|\b(?P<word>True|False|None)\b""",
    re.DOTALL,
)
_PYTHON_QUOTE = re.compile(r'\\.|"', re.DOTALL)
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


class ValueWriter:
    """One value. What `opening`, `add`, and `close` or `cut` give, one behind the other, is the JSON."""

    __slots__ = (
        "_at_start",
        "_first",
        "_held",
        "_in_string",
        "_line_end",
        "_lines",
        "_scanned",
        "_single_quotes",
        "_size",
        "_types",
    )

    def __init__(self, types: frozenset[str], *, lines: bool = False) -> None:
        """`types`: see `xml_types`. `lines`: a newline before the value and one behind it are not its own."""
        self._types = types
        self._lines = lines
        self._at_start = lines
        self._line_end = ""  # a newline that may be the one behind the value
        self._held: list[str] | None = None if types.isdisjoint(_STARTS) else []  # None: it goes out as a string
        self._size = 0  # characters held
        self._first = ""  # the first of them that is not whitespace
        self._scanned = 0  # how many of the pieces held `_in_string` is about
        self._in_string = False
        self._single_quotes = False  # as in Python

    @property
    def opening(self) -> str:
        """What goes out before the text comes."""
        return '"' if self._held is None else ""

    def add(self, text: str) -> str:
        """More of the text. Gives what goes out."""
        if self._at_start and text:
            self._at_start = False
            text = text.removeprefix("\n")
        if self._lines and text:
            text = self._line_end + text
            self._line_end = "\n" if text.endswith("\n") else ""
            text = text.removesuffix("\n")
        return self._take(text) if text else ""

    def in_string(self, gap: str) -> bool:
        """Whether a JSON string is open here, so that what stands here, `gap`, may belong to it.

        What is no JSON must not swallow the rest of the output: so a raw newline, which JSON has not in strings, ends
        one, and behind a single quote, which it has nowhere else, there is none.
        """
        if self._held is None or "string" in self._types or self._first not in ("{", "[", '"'):
            return False
        for edge in _STRING_EDGE.finditer("".join(self._held[self._scanned :])):
            if edge[0] == '"':
                self._in_string = not self._in_string
            elif edge[0] == "\n":
                self._in_string = False
            elif edge[0] == "'" and not self._in_string:
                self._single_quotes = True
        self._scanned = len(self._held)
        return self._in_string and not self._single_quotes and "\n" not in self._line_end + gap

    def close(self) -> str:
        """The end of the text. Gives the rest of the value."""
        if self._held is None:
            return '"'
        text = "".join(self._held)
        return read_json(text, self._types) or f'"{_escaped(text)}"'

    def cut(self) -> str:
        """The output ended within the text. Gives what had been held back, as it came."""
        return _escaped(self._line_end) if self._held is None else "".join(self._held) + self._line_end

    def _take(self, text: str) -> str:
        if self._held is None:
            return _escaped(text)
        self._held.append(text)
        self._size += len(text)
        self._first = self._first or text.lstrip(WHITESPACE)[:1]
        if self._may_be_json():
            return ""
        text = "".join(self._held)
        self._held = None
        return f'"{_escaped(text)}'

    def _may_be_json(self) -> bool:
        if self._first and not any(self._first in _STARTS.get(name, "") for name in self._types):
            return False
        short = "string" in self._types and self._first not in ("{", "[")
        return self._size <= (SCALAR_LIMIT if short else JSON_LIMIT)


def read_json(text: str, types: frozenset[str]) -> str:
    """The text as compact JSON if it is a value of one of the types; else empty."""
    for spelled in (text, _PYTHON.sub(_from_python, text)):
        try:
            value = json.loads(spelled, parse_constant=_no_json)
        except (ValueError, RecursionError):
            continue
        if not types.isdisjoint(types_of(value)):
            return _JSON_SPACE.sub(r"\1", spelled)
    return ""


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _from_python(match: re.Match[str]) -> str:
    if match["word"]:
        return _PYTHON_WORDS[match["word"]]
    if match["end"]:
        return f'"{_PYTHON_QUOTE.sub(_requoted, match["quoted"])}"'
    return match[0]


def _requoted(match: re.Match[str]) -> str:
    """An escape or a double quote in a string of single quotes."""
    return {"\\'": "'", '"': '\\"'}.get(match[0], match[0])


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
