"""Calls as JSON objects: `{"name": ..., "arguments": {...}}`, or a list of them, between tags or behind one.

Rules
* A call opens when its name is known and declared. From there on its arguments go out as the model writes them,
  whatever they are; they end by JSON nesting. A tag outside a string ends them early, inside a string it is content.
* Arguments given as a JSON string are decoded while they stream: clients parse `arguments` as JSON, and such a model
  has only quoted what it should have written plainly. Without arguments they are `{}`.
* What cannot be read as a call before its name is known, and a call of a name that is not declared, is text, in order
  and complete. Such a call is followed to its end, so that nothing in its strings is taken for a tag.
* What is not JSON behind the name ends the call; the text outside goes on there.
* The first name counts, and the first arguments, each under any of its keys (`ROLES`); other keys are skipped.
* An opening tag that ends with a bracket has opened the list. One with a code fence has opened that, and its end shows
  nothing either.
* Without an opening tag, an object is a call only if its first key may be one of a call (`FIRST_KEYS`): an answer that
  is JSON is not held back until it ends.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Collection

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment
from antiphon.text.dialects.fence import FENCE, FenceEnd
from antiphon.text.dialects.flow import WHITESPACE
from antiphon.text.dialects.json_values import Reading, StringDecoder, ValueReader
from antiphon.text.dialects.machine import State
from antiphon.text.dialects.states import Outside, Tags
from antiphon.text.lark import Lark
from antiphon.text.markers import Markers
from antiphon.text.messages import ToolDefinition

# Characters of a call that may arrive before its name. All are held back from the client, so this also bounds how long
# it sees nothing; some models do write the arguments first, and the largest that agents send (a file) fit.
UNNAMED_LIMIT = 256 * 1024

# Characters of a spelled key or name that are kept. Above the longest declared name (`namespace__name`: 130 characters)
# with every one of them escaped (6 each): what is longer is neither a key nor a name of ours.
WORD_LIMIT = 1024

# What the grammar lets through between the parts of a call: a line break with the widest indentation that templates
# show (8), and what stands round a colon.
INDENT = r"[ \t\r\n]{0,16}"
GAP = r"[ \t\r\n]?"

_SOLID = re.compile(f"[^{WHITESPACE}]")
_NO_MARKERS = Markers(())


class Step(enum.Enum):
    """What may come next in the structure of a call."""

    START = enum.auto()  # behind the tag
    ELEMENT = enum.auto()  # an object of a list
    KEY = enum.auto()
    COLON = enum.auto()
    VALUE = enum.auto()
    NEXT = enum.auto()  # behind a value
    CLOSED = enum.auto()  # the object just ended
    AFTER = enum.auto()  # behind an object of a list
    END = enum.auto()  # nothing more: the text outside goes on


# A quote at KEY or NEXT begins a key (a lost comma costs nothing), and whatever comes at VALUE a value, which may turn
# out to be empty. Anything else is not a call.
STEPS = {
    (Step.START, "{"): Step.KEY,
    (Step.START, "["): Step.ELEMENT,
    (Step.ELEMENT, "{"): Step.KEY,
    (Step.ELEMENT, "]"): Step.END,
    (Step.KEY, "}"): Step.CLOSED,
    (Step.COLON, ":"): Step.VALUE,
    (Step.NEXT, ","): Step.KEY,
    (Step.NEXT, "}"): Step.CLOSED,
    (Step.AFTER, ","): Step.ELEMENT,
    (Step.AFTER, "]"): Step.END,
}


class Mode(enum.Enum):
    """What becomes of the characters."""

    PENDING = enum.auto()  # the name is not known: kept, they may be text
    OPEN = enum.auto()  # a call is open: the arguments go out, the rest is structure
    CLOSED = enum.auto()  # behind a call of a list: structure
    TEXT = enum.auto()  # not a call


class Role(enum.Enum):
    """What the value being read is."""

    KEY = enum.auto()
    NAME = enum.auto()
    ARGUMENTS = enum.auto()
    OTHER = enum.auto()


ROLES = {
    "name": Role.NAME,
    "tool_name": Role.NAME,
    "arguments": Role.ARGUMENTS,
    "parameters": Role.ARGUMENTS,
}
FIRST_KEYS = {*ROLES, "type", "id"}


class JsonCalls:
    """The state between the call tags."""

    __slots__ = (
        "_bare",
        "_decoder",
        "_early",
        "_fenced",
        "_following",
        "_list",
        "_markers",
        "_mode",
        "_outside",
        "_raw",
        "_role",
        "_room",
        "_said",
        "_seen",
        "_step",
        "_tags",
        "_tools",
        "_value",
        "_word",
    )

    reasoning = False
    calling = True

    def __init__(self, outside: Outside, tags: Tags, tools: Collection[str], control: Collection[str]) -> None:
        self._outside = outside
        self._tags = tags
        self._tools = tools
        self._markers = Markers({tags.opening, tags.closing}.difference(control, [""]))
        self._bare = False  # no tag opened it
        self._fenced = False  # the tag opened a code fence
        self._following: State = outside  # who reads on at the end
        self._step = Step.END
        self._mode = Mode.CLOSED
        self._list = False
        self._value: ValueReader | None = None
        self._role = Role.OTHER
        self._word = ""  # the spelling of a key or name, so far
        self._decoder: StringDecoder | None = None  # of arguments that are a string
        self._raw: list[str] = []  # what becomes text if this is no call
        self._room = 0  # how much more may come before the name
        self._early: list[str] = []  # arguments before the name
        self._seen: set[Role] = set()
        self._said = False  # whether the open call has shown arguments

    def enter(self, opening: str, out: list[Fragment]) -> State:
        self._list = opening.endswith("[")
        self._step = Step.ELEMENT if self._list else Step.START
        self._bare = not opening.strip(f"{WHITESPACE};")
        self._fenced = FENCE in opening
        self._following = self._outside
        self._value = None
        self._begin()
        self._keep(opening, out)
        return self

    def read(self, text: str, at: int, out: list[Fragment]) -> tuple[int, State]:
        return self._read(text, at, out, self._markers)

    def literal(self, text: str, out: list[Fragment]) -> State:
        at, state = self._read(text, 0, out, _NO_MARKERS)
        return state if state is self else state.literal(text[at:], out)

    def marker(self, marker: str, out: list[Fragment]) -> State | None:
        """A tag that came as a token ends the call even in a string: no string can hold a token."""
        if marker not in (self._tags.opening, self._tags.closing):
            return None
        self._leave(out)
        return self._outside.marker(marker, out) or self._outside.literal(marker, out)

    def finish(self, left: str, out: list[Fragment]) -> None:
        if self.literal(left, out) is self and self._mode is Mode.PENDING:
            self._refuse(out)

    def _read(self, text: str, at: int, out: list[Fragment], markers: Markers) -> tuple[int, State]:
        while at < len(text):
            end = self._reach(text, at, out)
            if self._value is None:
                at = self._read_structure(text, at, end, out)
            if self._value is not None:
                at = self._read_value(self._value, text, at, end, out, markers)
            if self._step is Step.END:
                return at, self._following
            if self._value is not None and self._value.reading is Reading.HALF:
                break
        return at, self

    def _reach(self, text: str, at: int, out: list[Fragment]) -> int:
        """How far may be read, so that the limit falls on the same character however the text was cut."""
        if self._mode is Mode.PENDING and not self._room:
            self._refuse(out)
        return min(len(text), at + self._room) if self._mode is Mode.PENDING else len(text)

    def _read_structure(self, text: str, at: int, end: int, out: list[Fragment]) -> int:
        """Reads one character of structure and the whitespace before it; at a key or value, up to its first one."""
        solid = _SOLID.search(text, at, end)
        stop = end if solid is None else solid.start()
        self._keep(text[at:stop], out)
        if solid is None:
            return end
        following = STEPS.get((self._step, solid.group()))
        if following is not None:
            self._take_step(following, solid.group(), out)
            return stop + 1
        if solid.group() == '"' and self._step in (Step.KEY, Step.NEXT):
            self._open_value(Role.KEY)
        elif self._step is Step.VALUE:
            self._open_value(self._role, solid.group())
        else:
            self._leave(out)
        return stop

    def _take_step(self, step: Step, char: str, out: list[Fragment]) -> None:
        if char == "{" and self._mode is not Mode.PENDING:
            self._begin()
        self._list = self._list or char == "["
        self._keep(char, out)
        self._step = step
        if step is Step.CLOSED:
            self._close(out)
            self._step = Step.AFTER if self._list else Step.END
        elif step is Step.END:
            self._close(out)

    def _open_value(self, role: Role, first: str = "") -> None:
        self._value = ValueReader()
        self._role = role
        self._word = ""
        self._decoder = StringDecoder() if role is Role.ARGUMENTS and first == '"' else None

    def _read_value(
        self, value: ValueReader, text: str, at: int, end: int, out: list[Fragment], markers: Markers
    ) -> int:
        stop = value.read(text, at, end, markers)
        piece = text[at:stop]
        done = value.reading is Reading.DONE
        self._keep(piece, out)
        if self._role is Role.ARGUMENTS:
            self._take_arguments(piece, done, out)
        elif len(self._word) <= WORD_LIMIT and self._role is not Role.OTHER:
            self._word += piece
        if done:
            self._close_value(out)
        elif value.reading is Reading.MARKER:
            self._leave(out)
        return stop

    def _close_value(self, out: list[Fragment]) -> None:
        self._value = None
        self._step = Step.NEXT
        if self._role is Role.KEY:
            self._step = Step.COLON
            self._take_key(_spoken(self._word), out)
        elif self._role is Role.NAME and self._mode is Mode.PENDING:
            self._take_name(_spoken(self._word), out)

    def _take_key(self, key: str, out: list[Fragment]) -> None:
        if self._bare and not self._seen and key not in FIRST_KEYS:
            self._refuse(out)
        role = ROLES.get(key, Role.OTHER)
        self._role = Role.OTHER if role in self._seen else role
        self._seen.add(role)

    def _take_name(self, name: str, out: list[Fragment]) -> None:
        if name not in self._tools:
            self._refuse(out)
            return
        self._mode = Mode.OPEN
        if self._fenced:
            self._following = FenceEnd(self._outside)
        self._raw.clear()
        self._outside.flow.restart()
        out.append(Call(name=name))
        self._say("".join(self._early), out)
        self._early.clear()

    def _take_arguments(self, piece: str, done: bool, out: list[Fragment]) -> None:
        if self._decoder is not None:
            piece = self._decoder.feed(piece, last=done)
        if self._mode is Mode.PENDING:
            self._early.append(piece)
        elif self._mode is Mode.OPEN:
            self._say(piece, out)

    def _say(self, arguments: str, out: list[Fragment]) -> None:
        if arguments:
            self._said = True
            out.append(Arguments(arguments))

    def _begin(self) -> None:
        """An object that may be a call."""
        self._mode = Mode.PENDING
        self._room = UNNAMED_LIMIT
        self._seen.clear()
        self._said = False

    def _keep(self, piece: str, out: list[Fragment]) -> None:
        """Characters were read: remembers or writes them where they are, or may be, text."""
        if self._mode is Mode.PENDING:
            self._raw.append(piece)
            self._room -= len(piece)
        elif self._mode is Mode.TEXT:
            self._outside.flow.add(piece, out)

    def _refuse(self, out: list[Fragment]) -> None:
        """It is no call."""
        self._mode = Mode.TEXT
        self._following = self._outside
        self._outside.flow.add("".join(self._raw), out)
        self._raw.clear()
        self._early.clear()

    def _close(self, out: list[Fragment]) -> None:
        """What is open ends."""
        if self._mode is Mode.PENDING:
            self._refuse(out)
        elif self._mode is Mode.OPEN:
            if not self._said:
                out.append(Arguments("{}"))
            out.append(CallDone())
            self._mode = Mode.CLOSED

    def _leave(self, out: list[Fragment]) -> None:
        self._close(out)
        self._step = Step.END


def _spoken(word: str) -> str:
    """What a spelled JSON string says; an empty string, which is no name and no key, if it is none."""
    if not word.startswith('"'):
        return ""
    try:
        said: str = json.loads(word)
    except ValueError:
        return ""
    return said


def json_call(name: str, arguments: str, *, before: str = "", after: str = "") -> Callable[[Lark, ToolDefinition], str]:
    """The grammar of a call as an object with these two keys.

    `before` and `after`: regular expressions of what may stand before the one key and behind the value of the other.
    """

    def call(lark: Lark, tool: ToolDefinition) -> str:
        parts = (
            lark.matching(rf'{INDENT}\{{{INDENT}{before}"{name}"{GAP}:{GAP}'),
            lark.literal(json.dumps(tool.name)),
            lark.matching(rf'{GAP},{INDENT}"{arguments}"{GAP}:{GAP}'),
            lark.arguments(tool),
            lark.matching(rf"{after}{INDENT}\}}"),
        )
        return " ".join(parts)

    return call
