"""What a dialect is: how a family of models marks thinking and calls, as data for the parser and for the grammar."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from antiphon.text.dialects.machine import Machine, Parser, State
from antiphon.text.dialects.states import Body, Markings, Outside, Section, Tags, Thinking, Verbatim
from antiphon.text.lark import Lark
from antiphon.text.messages import ToolDefinition

if TYPE_CHECKING:
    from antiphon.text.dialects.grammar import Wanted

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
    also: tuple[str, ...] = ()  # further opening markers that the parser takes

    def connected(self, outside: Outside, tools: Tools, control: Collection[str]) -> Markings:
        """The markers of calls, and the states that they lead to."""
        body = self.body(outside, self.tags, tools, control)
        openings = [marker for marker in (self.tags.opening, *self.also) if marker]
        bodies: dict[str, Body] = dict.fromkeys(openings, body)
        closings = {self.tags.closing} - {""}
        if self.section is not None:
            closings.add(self.section.closing)
            bodies[self.section.opening] = Section(outside, [*openings, self.section.closing], control)
        bare_body = body if self.bare else None
        return Markings(bodies=bodies, closings=closings, bare=self.bare, bare_body=bare_body)


class OwnForm(Struct, frozen=True):
    """A dialect that has nothing in common with the others."""

    parser: Callable[[Tools, bool, Collection[str], bool], Parser]
    """Of `(tools, calls, control, reasoning_open)`, as `Dialect.parser`."""
    grammar: Callable[[Lark, Wanted], str]
    """An expression for the whole output."""
    markers: tuple[str, ...] = ()


class Dialect(Struct, frozen=True, kw_only=True):
    """How a family of models marks the parts of its output."""

    name: str
    thinking: Tags | None = None
    calling: Calling | None = None
    passed: tuple[str, ...] = ()  # markers that show nothing, wherever they stand in the visible text
    parts: frozenset[str] = frozenset()  # control tokens that are only parts of markers, and are read as their spelling
    own: OwnForm | None = None

    def parser(
        self,
        *,
        tools: Tools,
        calls: bool,
        control: Collection[str],
        reasoning_open: bool,
        one_value: bool = False,
    ) -> Parser:
        """A parser for one output.

        `tools`: the declared ones; a call of another one is text. Without `calls`, so are the markers of calls.
        `control`: the spellings of the vocabulary's control tokens; a marker among them counts only as that token.
        `reasoning_open`: the template has already opened a thinking block. `one_value`: the visible text is one JSON
        value, in whose strings nothing is a marker.
        """
        if self.own is not None:
            return self.own.parser(tools, calls, control, reasoning_open)
        outside = Outside()
        start: State = outside
        markings = Markings(bodies={}, closings=set())
        if self.calling is not None and calls:
            markings = self.calling.connected(outside, tools, control)
        if self.thinking is not None:
            thinking = Thinking(outside, self.thinking, control)
            markings = _with_block(markings, self.thinking, thinking)
            start = thinking if reasoning_open else outside
        outside.connect(replace(markings, passed=self.passed, control=control, one_value=one_value, calls=calls))
        plain = not markings.bodies and markings.bare_body is None and not self.passed
        return Machine(Verbatim() if plain else start, outside.flow, self.markers, self.parts)

    @property
    def markers(self) -> frozenset[str]:
        """Every marker."""
        if self.own is not None:
            return frozenset(self.own.markers)
        calling = self.calling
        pairs = [self.thinking, calling and calling.tags, calling and calling.section]
        tags = {tag for pair in pairs if pair for tag in (pair.opening, pair.closing)}
        return frozenset({*tags, *self.passed, *(calling.also if calling else ())} - {""})


def _with_block(markings: Markings, tags: Tags, body: Body) -> Markings:
    return replace(
        markings, bodies={tags.opening: body, **markings.bodies}, closings={*markings.closings, tags.closing}
    )
