"""Arguments as keys and values in the syntax of a programming language, and the JSON that says the same.

Rules
* It is translated while it arrives, and nothing waits for the end of a value: strings go out piece by piece. Held back
  are a torn escape, a word (until it is known whether it is a key) and a comma (which shows nothing before a bracket
  that closes).
* A word before `=` or `:` is a key. `True`, `False` and `None` are the words that JSON has for them; every other word,
  a number too, stays as it is.
* Brackets are counted, not told apart. Those of a tuple are written as those of a list.
* Strings stand between quotes of either kind. Their escapes are Python's, and JSON's where Python has none (`\\/`, half
  surrogates). A family may also have a delimiter of its own, between two of which nothing is escaped.
* Whitespace outside strings is not kept: between values stand `, ` and `: `.
* What is no value in any of this goes out as it is written, and the result is not JSON: nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from antiphon.text.dialects.json_values import Reading
from antiphon.text.markers import Markers

# Characters of a word that are held back. Declared keys and the words of the languages are shorter by far; what is
# longer is none of them, and goes out as it comes.
WORD_LIMIT = 1024

WORDS = {"True": "true", "False": "false", "None": "null"}
BRACKETS = {"(": "[", ")": "]"}

_WORD = re.compile(r"""[^ \t\r\n"'()\[\]{},:=<]+""")
_SPACE = re.compile(r"[ \t\r\n]+")

# What stays as it is in a JSON string, by the quote round it.
_PLAIN = {'"': re.compile(r'[^"\\\x00-\x1f]+'), "'": re.compile(r"""[^"'\\\x00-\x1f]+""")}

# Python's language reference, 2.4.1.1, without names of characters (`\N{...}`).
_WHOLE = re.compile(r"\\(?:[0-7]{3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[^0-7xuU])", re.DOTALL)
_TORN = re.compile(r"\\(?:[0-7]{0,2}|x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})")
_AS_IN_JSON = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_NUMBER = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8}))")
_NAMED = {"\\'": "'", "\\\n": "", "\\a": "\\u0007", "\\v": "\\u000b"}

_NO_MARKERS = Markers(())


class KeyedValues:
    """Reads the arguments of one call after another, from behind the bracket that opens them to the one that closes
    them. `reading` is about the last `read`, which gives the members of a JSON object without its braces.
    """

    __slots__ = (
        "_closing",
        "_comma",
        "_delimiter",
        "_depth",
        "_escape",
        "_long",
        "_markers",
        "_quote",
        "_spaced",
        "_word",
        "reading",
    )

    def __init__(self, delimiter: str, ends: Collection[str], control: Collection[str]) -> None:
        """`delimiter`: the family's own, or empty. `ends`: markers that end the arguments outside strings. Those among
        `control` do not count in text."""
        self._delimiter = delimiter
        self._closing = Markers({delimiter}.difference(control, [""]))
        self._markers = Markers({delimiter, *ends}.difference(control, [""]))
        self.begin()

    def begin(self) -> None:
        """The arguments of a new call."""
        self.reading = Reading.MORE
        self._depth = 0
        self._quote = ""  # what closes the string that is open
        self._escape = ""  # torn, with its backslash
        self._word = ""  # held back
        self._long = False  # the word was too long, and has gone out
        self._spaced = False  # there was whitespace behind the word
        self._comma = False  # held back, before the word

    def read(self, text: str, at: int, *, literal: bool) -> tuple[int, str]:
        """Reads from `at` on: the index of what is left, and what it says in JSON. In `literal` text is no marker.

        At the end of the arguments what is left begins with the bracket that closes them, of whichever kind.
        """
        self.reading = Reading.MORE
        out: list[str] = []
        while at < len(text) and self.reading is Reading.MORE:
            if self._escape:
                at = self._read_escape(text, at, out)
            elif not self._quote:
                at = self._read_outside(text, at, out, _NO_MARKERS if literal else self._markers)
            elif self._quote == self._delimiter:
                at = self._read_delimited(text, at, out, _NO_MARKERS if literal else self._closing)
            else:
                at = self._read_quoted(text, at, out)
        return at, "".join(out)

    def delimit(self) -> str | None:
        """The delimiter came as a token: what it says in JSON; None in a string that other quotes close."""
        out: list[str] = []
        if not self._quote:
            self._open(self._delimiter, out)
        elif self._quote == self._delimiter:
            self._close_string(out)
        else:
            return None
        return "".join(out)

    def rest(self) -> str:
        """The arguments end before their bracket: a word that was held back. A torn escape says nothing yet."""
        out: list[str] = []
        if self._word:
            self._flush(out)
        return "".join(out)

    def _read_delimited(self, text: str, at: int, out: list[str], closing: Markers) -> int:
        found = closing.find(text, at)
        end = closing.half(text, at) if found is None else found.start
        out.append(_escaped(text[at:end]))
        if found is not None:
            self._close_string(out)
            return end + len(found.marker)
        if end < len(text):
            self.reading = Reading.HALF
        return end

    def _read_quoted(self, text: str, at: int, out: list[str]) -> int:
        plain = _PLAIN[self._quote].match(text, at)
        if plain is not None:
            out.append(plain.group())
            return plain.end()
        char = text[at]
        if char == "\\":
            self._escape = char
        elif char == self._quote:
            self._close_string(out)
        else:
            out.append(_escaped(char))
        return at + 1

    def _read_escape(self, text: str, at: int, out: list[str]) -> int:
        longer = self._escape + text[at]
        if _TORN.fullmatch(longer):
            self._escape = longer
            return at + 1
        whole = _WHOLE.fullmatch(longer) is not None
        out.append(_translated(longer if whole else self._escape))
        self._escape = ""
        return at + whole

    def _read_outside(self, text: str, at: int, out: list[str], markers: Markers) -> int:
        word = _WORD.match(text, at)
        if word is not None:
            self._add_word(word.group(), out)
            return word.end()
        space = _SPACE.match(text, at)
        if space is not None:
            self._spaced = bool(self._word) or self._long
            return space.end()
        char = text[at]
        match char:
            case "<":
                return self._read_angle(text, at, out, markers)
            case '"' | "'":
                self._open(char, out)
            case "=" | ":":
                self._flush(out, key=True)
                out.append(": ")
            case ",":
                self._flush(out)
                self._comma = True
            case "(" | "[" | "{":
                self._flush(out)
                self._depth += 1
                out.append(BRACKETS.get(char, char))
            case _:
                return self._read_closing(char, at, out)
        return at + 1

    def _read_angle(self, text: str, at: int, out: list[str], markers: Markers) -> int:
        if not markers.stands_at(text, at):
            if markers.half_at(text, at):
                self.reading = Reading.HALF
                return at
            self._add_word("<", out)
            return at + 1
        if not (self._delimiter and text.startswith(self._delimiter, at)):
            self.reading = Reading.MARKER
            return at
        self._open(self._delimiter, out)
        return at + len(self._delimiter)

    def _read_closing(self, char: str, at: int, out: list[str]) -> int:
        if self._word or self._long:
            self._flush(out)
        self._comma = False
        if not self._depth:
            self.reading = Reading.DONE
            return at
        self._depth -= 1
        out.append(BRACKETS.get(char, char))
        return at + 1

    def _add_word(self, word: str, out: list[str]) -> None:
        if self._spaced:
            self._flush(out)
            out.append(" ")
        if self._long or len(self._word) + len(word) > WORD_LIMIT:
            word, self._word = self._word + word, ""
            self._flush(out)
            out.append(word)
            self._long = True
        else:
            self._word += word

    def _open(self, quote: str, out: list[str]) -> None:
        self._flush(out)
        self._quote = quote
        out.append('"')

    def _close_string(self, out: list[str]) -> None:
        self._quote = ""
        out.append('"')

    def _flush(self, out: list[str], *, key: bool = False) -> None:
        """Something follows: what was held back goes out."""
        if self._comma:
            out.append(", ")
        if self._word:
            out.append(f'"{_escaped(self._word)}"' if key else WORDS.get(self._word, self._word))
        self._word = ""
        self._comma = self._long = self._spaced = False


def _escaped(text: str) -> str:
    """The text as it stands in a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _translated(escape: str) -> str:
    """An escape as it stands in a JSON string; one that is none in Python stands for itself, backslash and all."""
    if _AS_IN_JSON.fullmatch(escape):
        return escape
    if escape in _NAMED:
        return _NAMED[escape]
    number = _NUMBER.fullmatch(escape)
    if number is None:
        return _escaped(escape)
    code = int(number[1], 8) if number[1] else int(number[2] or number[3], 16)
    return json.dumps(chr(code))[1:-1] if code <= 0x10FFFF else _escaped(escape)
