"""What a dialect is: how a family of models marks thinking and calls, as data for the parser and for the grammar."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from antiphon.text.dialects.machine import Machine, Parser, State
from antiphon.text.dialects.states import Body, Outside, Tags, Thinking, Verbatim
from antiphon.text.lark import Lark
from antiphon.text.messages import ToolDefinition

Tools = Mapping[str, Mapping[str, Any]]
"""The declared tools: names, and the JSON Schemas of their arguments (empty: nothing is known of them)."""

MakeBody = Callable[[Outside, Tags, Tools, Collection[str]], Body]
"""Of `(outside, tags, tools, control)` the state between the tags of calls, as the parser reads them."""

CallRule = Callable[[Lark, ToolDefinition], str]
"""An expression for one call of a tool, as it stands between the tags of calls: what the grammar lets through. The
parser must read every text of it as that call."""


class Calling(Struct, frozen=True, kw_only=True):
    """How calls are written."""

    tags: Tags  # round a call; the closing one may be empty: the call ends by itself
    body: MakeBody
    call: CallRule
    listed: bool = False  # the tags enclose a JSON list of calls, and the grammar asks for one
    section: Tags | None = None  # round all the calls of a turn, each of which has tags of its own
    bare: str = ""  # without an opening tag: the character that a call begins with


class Dialect(Struct, frozen=True, kw_only=True):
    """How a family of models marks the parts of its output."""

    name: str
    thinking: Tags | None = None
    calling: Calling | None = None

    def parser(self, *, tools: Tools, calls: bool, control: Collection[str], reasoning_open: bool) -> Parser:
        """A parser for one output.

        `tools`: the declared ones; a call of another one is text. Without `calls`, so are the markers of calls.
        `control`: the spellings of the vocabulary's control tokens; a marker among them counts only as that token.
        `reasoning_open`: the template has already opened a thinking block.
        """
        outside = Outside()
        start: State = outside
        blocks: list[tuple[Tags, Body]] = []
        if self.thinking is not None:
            thinking = Thinking(outside, self.thinking, control)
            blocks.append((self.thinking, thinking))
            start = thinking if reasoning_open else outside
        if self.calling is not None and calls:
            body = self.calling.body(outside, self.calling.tags, tools, control)
            blocks.append((self.calling.tags, body))
        outside.connect(blocks, control)
        return Machine(start if blocks else Verbatim(), outside.flow, self._markers())

    def _markers(self) -> frozenset[str]:
        pairs = [self.thinking, self.calling and self.calling.tags]
        return frozenset(tag for tags in pairs if tags for tag in (tags.opening, tags.closing))
