"""The harmony format of gpt-oss: messages on channels, `<|start|>{header}<|message|>{content}<|end|>`.

Rules
* The prompt ends within a header, behind `<|start|>assistant`, and there the output begins.
* The header says what a message is. With a recipient that names a declared tool it is a call, on whatever channel and
  in whichever part of the header the recipient stands. Else the channel `analysis` is thinking, and `commentary` (words
  before calls) and `final` are visible text.
* A header that cannot be read, or names a recipient that is no declared tool, loses nothing: the message is visible
  text, header and all. On the channel `analysis`, where the model calls tools that it only knows from its training, it
  is thinking.
* Content is exact, nothing is trimmed. An empty line stands between two visible messages that follow each other.
* `<|end|>`, `<|call|>` and `<|return|>` end a message; so do `<|start|>` and `<|channel|>`, which begin the next. In
  the arguments of a call a marker counts outside strings, unless it came as a token.
* `<|call|>` and `<|return|>` also end the generation, and engines keep such tokens to themselves. So at the end of the
  output a call is done if its arguments are a whole JSON value, and cut if they are not.
* A header that ends early shows nothing, if it might have become one that says no more than the channel.

Source: OpenAI, "Harmony response format" (docs/format.md in the repository openai/harmony). The library from there
reads the tokens of one vocabulary and raises on headers that models do write; this reads the markers however they are
tokenized, and keeps nothing but the current header.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning, ReasoningDone, Text
from antiphon.text.dialects.dialect import Dialect, OwnForm, Tools
from antiphon.text.dialects.json_values import Reading, ValueReader
from antiphon.text.dialects.machine import Parser
from antiphon.text.dialects.states import Tags
from antiphon.text.lark import Lark
from antiphon.text.markers import Markers
from antiphon.text.messages import ToolDefinition

if TYPE_CHECKING:
    from antiphon.text.dialects.grammar import Wanted

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN)

ROLE = "assistant"
THINKING = "analysis"
CHANNELS = (THINKING, "commentary", "final")
NAMESPACE = "functions."

# Characters of a header. Above the longest recipient (namespace and name: 140) with the markers round it. What is
# longer is no header, and output without any marker is held back no longer than that.
HEADER_LIMIT = 512

_PART = re.compile(
    rf"""\s*(?:{re.escape(CHANNEL)}\s*(?P<channel>{"|".join(CHANNELS)})\b
         |to=(?P<recipient>[^\s<]+)
         |(?:{re.escape(CONSTRAIN)}\s*)?(?P<type>[\w./+-]+))""",
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = "\n\n"

# The headers that say no more than the channel.
_PLAIN_HEADERS = tuple(
    f"{start}{CHANNEL}{channel}{MESSAGE}" for start in ("", f"{START}{ROLE}") for channel in CHANNELS
)


class Header(Struct, frozen=True):
    """What a header says; empty is what it does not say."""

    channel: str = ""
    recipient: str = ""


def read_header(text: str) -> Header | None:
    """What stands before `<|message|>`, from `<|start|>` on or from where the output began; None if it is no header.

    Of several channels or recipients the last counts: models begin anew now and then. Behind one of these, a word names
    the type of the content.
    """
    text = text.strip().removeprefix(START).lstrip().removeprefix(ROLE)
    channel = recipient = kind = ""
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or (part["type"] and (kind or not (channel or recipient))):
            return None
        at = part.end()
        channel = part["channel"] or channel
        recipient = part["recipient"] or recipient
        kind = part["type"] or kind
    return Header(channel, "" if recipient == ROLE else recipient)


class Reads(enum.Enum):
    """What is being read."""

    HEADER = enum.auto()
    VISIBLE = enum.auto()
    THINKING = enum.auto()
    ARGUMENTS = enum.auto()


class HarmonyParser:
    """A `Parser`."""

    __slots__ = ("_between", "_header", "_held", "_markers", "_reads", "_said", "_tools", "_value", "_whole", "misread")

    def __init__(self, tools: Tools, *, control: Collection[str], thinking: bool) -> None:
        """`tools`: those that may be called. `thinking`: the prompt has opened a message of thinking."""
        self._tools = tools
        self._markers = Markers(set(MARKERS).difference(control))
        self._reads = Reads.THINKING if thinking else Reads.HEADER
        self._header = ""
        self._held = ""  # a half marker
        self._said = False  # the message has shown something
        self._between = ""  # what separates visible text from the last that was shown
        self._value: ValueReader | None = None  # of the arguments, while they are unfinished
        self._whole = False  # the arguments were a whole value
        self.misread = 0

    @property
    def in_reasoning(self) -> bool:
        return self._reads is Reads.THINKING

    def feed(self, text: str) -> list[Fragment]:
        out: list[Fragment] = []
        if self._held:
            text = self._held + text
        at = 0
        while at < len(text):
            if self._value is not None:
                at = self._read_value(self._value, text, at, out)
                if self._value is not None:
                    break
            found = self._markers.find(text, at)
            end = self._markers.half(text, at) if found is None else found.start
            self._take(text[at:end], out)
            at = end
            if found is None:
                break
            at += len(found.marker)
            self._marker(found.marker, out)
        self._held = text[at:] if at < len(text) else ""
        return out

    def control(self, token: str) -> list[Fragment]:
        if token not in MARKERS:
            return []
        out: list[Fragment] = []
        self._take(self._held, out)
        self._held = ""
        self._marker(token, out)
        return out

    def finish(self) -> list[Fragment]:
        out: list[Fragment] = []
        if not self._whole:
            self._take(self._held, out)
        self._held = ""
        if self._reads is Reads.HEADER:
            self._drop_header(out)
        elif self._whole:
            self._end(out)
        return out

    def _read_value(self, value: ValueReader, text: str, at: int, out: list[Fragment]) -> int:
        """Reads arguments until they are a whole value or a marker ends them; gives the index of what is left."""
        if not self._said:
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        end = value.read(text, at, len(text), self._markers)
        self._take(text[at:end], out)
        if value.reading in (Reading.DONE, Reading.MARKER):
            self._whole = value.reading is Reading.DONE and self._said
            self._value = None
        return end

    def _take(self, text: str, out: list[Fragment]) -> None:
        """Text in which nothing is a marker."""
        if not text:
            return
        if self._reads is Reads.HEADER:
            self._header += text
            if len(self._header) > HEADER_LIMIT:
                self._open(Reads.VISIBLE, self._header, out)
            return
        if self._reads is Reads.VISIBLE:
            out.append(Text(text if self._said else self._between + text))
        else:
            out.append(Reasoning(text) if self._reads is Reads.THINKING else Arguments(text))
        self._said = True
        self._between = _BETWEEN if self._reads is Reads.VISIBLE else ""

    def _marker(self, marker: str, out: list[Fragment]) -> None:
        if self._reads is Reads.HEADER:
            self._mark_header(marker, out)
        elif marker in (CONSTRAIN, MESSAGE):
            self._take(marker, out)
        else:
            self._end(out)
            self._header = marker if marker in (START, CHANNEL) else ""

    def _mark_header(self, marker: str, out: list[Fragment]) -> None:
        if marker in (CHANNEL, CONSTRAIN):
            self._take(marker, out)
        elif marker == MESSAGE:
            self._open_message(out)
        else:
            self._drop_header(out)
            self._header = START if marker == START else ""

    def _open_message(self, out: list[Fragment]) -> None:
        raw = self._header + MESSAGE
        header = read_header(self._header)
        if header is None:
            self.misread += 1
            self._open(Reads.VISIBLE, raw, out)
            return
        kind = Reads.THINKING if header.channel == THINKING else Reads.VISIBLE
        name = header.recipient.removeprefix(NAMESPACE)
        if name not in self._tools:
            self.misread += bool(header.recipient)
            self._open(kind, raw if header.recipient else "", out)
            return
        out.append(Call(name=name))
        self._open(Reads.ARGUMENTS, "", out)
        self._value = ValueReader()
        self._between = ""

    def _open(self, kind: Reads, shown: str, out: list[Fragment]) -> None:
        """A message begins, with what is `shown` of its header."""
        self._reads = kind
        self._header = ""
        self._said = False
        self._take(shown, out)

    def _end(self, out: list[Fragment]) -> None:
        """The message ends, and a header comes."""
        if self._reads is Reads.THINKING and self._said:
            out.append(ReasoningDone())
        elif self._reads is Reads.ARGUMENTS:
            out += [CallDone()] if self._said else [Arguments("{}"), CallDone()]
        self._reads = Reads.HEADER
        self._value = None
        self._whole = False

    def _drop_header(self, out: list[Fragment]) -> None:
        """The header ends without a message."""
        header = self._header.strip()
        if not any(plain.startswith(header) for plain in _PLAIN_HEADERS):
            self._open(Reads.VISIBLE, self._header, out)
        self._header = ""
        self._reads = Reads.HEADER


def parser(tools: Tools, calls: bool, control: Collection[str], reasoning_open: bool) -> Parser:
    return HarmonyParser(tools if calls else {}, control=control, thinking=reasoning_open)


def start(lark: Lark, wanted: Wanted) -> str:
    """The grammar of an output, from behind `<|start|>assistant` on.

    Words before calls are let through where visible text may be anything.
    """
    calls = _calls(lark, wanted) if wanted.calls != "none" else ""
    free = wanted.schema is None and wanted.calls == "allowed"
    final = ""
    if wanted.calls != "required":
        answer = lark.text() if wanted.schema is None else lark.json(wanted.schema)
        final = f"{lark.spelled(f'{CHANNEL}final{MESSAGE}')} {answer}"
    before = [_message(lark, THINKING)] if wanted.may_think else []
    before += [_message(lark, "commentary")] if free else []
    opened = _rest(lark) if wanted.thinking == "open" else ""
    if wanted.thinking == "closed":
        opened = lark.spelled(f"{END}{START}{ROLE}")
    blocks = f"({' | '.join(before)})*" if before else ""
    return f"{opened} {blocks} ({' | '.join(filter(None, [calls, final]))})"


def _message(lark: Lark, channel: str) -> str:
    """A message, and the beginning of the next header."""
    return f"{lark.spelled(f'{CHANNEL}{channel}{MESSAGE}')} {_rest(lark)}"


def _rest(lark: Lark) -> str:
    return f"{lark.until(END)} {lark.spelled(f'{START}{ROLE}')}"


def _calls(lark: Lark, wanted: Wanted) -> str:
    call = lark.rule(" | ".join(_call(lark, tool) for tool in wanted.tools))
    more = f"({lark.spelled(f'{END}{START}{ROLE}')} {call})*" if wanted.several else ""
    return f"{call} {more}"


def _call(lark: Lark, tool: ToolDefinition) -> str:
    """The recipient stands behind the channel, as models write it, or before, as templates do."""
    recipient = f" to={NAMESPACE}{tool.name}"
    behind = lark.spelled(f"{CHANNEL}commentary{recipient}")
    before = lark.spelled(f"{recipient}{CHANNEL}commentary")
    kind = f"({lark.spelled(f' {CONSTRAIN}json')} | {lark.literal(' json')})?"
    return f"({behind} | {before}) {kind} {lark.spelled(MESSAGE)} {lark.arguments(tool)}"


HARMONY_FORM = OwnForm(parser, start, MARKERS)

# The tags of thinking are for what asks whether there is any, and whether the prompt has opened it.
HARMONY = Dialect(name="gpt-oss", thinking=Tags(f"{CHANNEL}{THINKING}{MESSAGE}", END), own=HARMONY_FORM)
