"""The dialects as data: how families of models mark thinking and calls."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from antiphon.text.dialects.json_calls import JsonCalls
from antiphon.text.dialects.machine import Machine, Parser, State
from antiphon.text.dialects.states import Body, Outside, Tags, Thinking, Verbatim


class Calling(Struct, frozen=True):
    """The tags round calls, and what makes the state between them: of `(outside, tags, tools, control)`."""

    tags: Tags
    body: Callable[[Outside, Tags, Collection[str], Collection[str]], Body]


class Dialect(Struct, frozen=True, kw_only=True):
    """How a family of models marks the parts of its output."""

    name: str
    thinking: Tags | None = None
    calling: Calling | None = None

    def parser(self, *, tools: Collection[str], calls: bool, control: Collection[str], reasoning_open: bool) -> Parser:
        """A parser for one output.

        `tools`: the declared names; a call of another one is text. Without `calls`, so are the markers of calls.
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


_THINK = Tags("<think>", "</think>")

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(name="plain"),
        Dialect(name="think", thinking=_THINK),
        Dialect(name="hermes", thinking=_THINK, calling=Calling(Tags("<tool_call>", "</tool_call>"), JsonCalls)),
    )
}


# The fallback for templates that know no tools teaches the hermes form, which also has the thinking blocks of `think`:
# so it is the answer for every template until more families are told apart.
DEFAULT_DIALECT = "hermes"
