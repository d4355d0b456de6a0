"""Calls by the names that the client gave its tools, and the input of its custom tools as plain text.

A model that knows only functions calls a custom tool with arguments, `{"input": "..."}`. They are unwrapped while they
stream.

Rules
* Of an object whose first member is a string `input`, the input is what the string says; `{}` is an empty input.
* Of a JSON string, too, the input is what it says.
* All other arguments are the input as the model wrote them, and so is what follows the string where the object should
  end.
* At the end of the call, half of such a beginning and half of an escape are text as well. At the end of the output,
  which cut them off, they are dropped, as half of a character is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from antiphon.protocol.fragments import Arguments, Call, Fragment
from antiphon.text.dialects.json_values import Reading, StringDecoder, ValueReader
from antiphon.text.dialects.machine import Parser
from antiphon.text.markers import Markers

# What stands before the text of a wrapped input; whitespace may stand between its parts, that is, anywhere but in the
# key.
_WRAPPING = '{"input":"'
_KEY = range(2, 8)
_WHITESPACE = " \t\r\n"

# Characters of the beginning that are held back. It has 12 when it is written as models do; more whitespace than this
# is a model that has lost its way.
BEGINNING_LIMIT = 256

_NO_MARKERS = Markers(())


class ToolInputs:
    """A `Parser` whose calls are the client's. `restored` gives the client's call for one by the model's name."""

    __slots__ = ("_input", "_parser", "_restored")

    def __init__(self, parser: Parser, restored: Callable[[Call], Call]) -> None:
        self._parser = parser
        self._restored = restored
        self._input: _Input | None = None  # of the open call, if its tool is a custom one

    @property
    def in_reasoning(self) -> bool:
        return self._parser.in_reasoning

    @property
    def misread(self) -> int:
        return self._parser.misread

    def feed(self, text: str) -> list[Fragment]:
        return self._unwrapped(self._parser.feed(text))

    def control(self, token: str) -> list[Fragment]:
        return self._unwrapped(self._parser.control(token))

    def finish(self) -> list[Fragment]:
        return self._unwrapped(self._parser.finish())

    def _unwrapped(self, fragments: Sequence[Fragment]) -> list[Fragment]:
        out: list[Fragment] = []
        for fragment in fragments:
            if type(fragment) is Call:
                call = self._restored(fragment)
                self._input = _Input() if call.custom else None
                out.append(call)
            elif self._input is None:
                out.append(fragment)
            elif type(fragment) is Arguments:
                _say(self._input.feed(fragment.text), out)
            else:  # Whatever comes behind them ends the arguments.
                _say(self._input.end(), out)
                self._input = None
                out.append(fragment)
        return out


def _say(text: str, out: list[Fragment]) -> None:
    if text:
        out.append(Arguments(text))


class _Place(enum.Enum):
    """Where in the arguments the reading has come to."""

    BEGINNING = enum.auto()
    STRING = enum.auto()
    BEHIND = enum.auto()  # behind the string, where only the end of the object may follow
    PLAIN = enum.auto()  # in text that goes out as it is


class _Input:
    """Reads the arguments of one call."""

    __slots__ = ("_begun", "_decoder", "_held", "_in_object", "_place", "_string")

    def __init__(self) -> None:
        self._place = _Place.BEGINNING
        self._held = ""
        self._begun = 0  # characters of the wrapping that were read
        self._in_object = False
        self._string = ValueReader()
        self._decoder = StringDecoder()

    def feed(self, arguments: str) -> str:
        """What a piece says of the input."""
        said: list[str] = []
        at = 0
        while at < len(arguments):
            match self._place:
                case _Place.BEGINNING:
                    at = self._begin(arguments, at, said)
                case _Place.STRING:
                    at = self._read_string(arguments, at, said)
                case _Place.BEHIND:
                    at = self._read_end(arguments, at)
                case _:
                    said.append(arguments[at:])
                    break
        return "".join(said)

    def end(self) -> str:
        """The call ended: what was held back."""
        if self._place is _Place.BEGINNING:
            return self._held
        return self._decoder.feed('"', last=True) if self._place is _Place.STRING else ""

    def _begin(self, text: str, at: int, said: list[str]) -> int:
        """Reads a character of the beginning; none if it decides."""
        char = text[at]
        if char == '"' and self._begun in (0, len(_WRAPPING) - 1):
            self._in_object = self._begun > 0
            self._place = _Place.STRING
            return at
        if char == "}" and self._begun == 1:
            self._place = _Place.BEHIND
        elif char == _WRAPPING[self._begun]:
            self._begun += 1
        elif char not in _WHITESPACE or self._begun in _KEY or len(self._held) >= BEGINNING_LIMIT:
            said.append(self._held)
            self._place = _Place.PLAIN
            return at
        self._held += char
        return at + 1

    def _read_string(self, text: str, at: int, said: list[str]) -> int:
        stop = self._string.read(text, at, len(text), _NO_MARKERS)
        done = self._string.reading is Reading.DONE
        said.append(self._decoder.feed(text[at:stop], last=done))
        if done:
            self._place = _Place.BEHIND
        return stop

    def _read_end(self, text: str, at: int) -> int:
        if text[at] in _WHITESPACE:
            return at + 1
        if text[at] == "}" and self._in_object:
            self._in_object = False
            return at + 1
        self._place = _Place.PLAIN
        return at
