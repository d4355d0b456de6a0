"""How calls are written in the XML-like dialects, as data: an element for the call, and one for each parameter.

The forms are those that the chat templates of the models teach. It is no XML: nothing is escaped.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from antiphon.text.dialects.states import Tags

# Whitespace behind what may be the end of a value, before what must follow it. Templates write one newline.
GAP_LIMIT = 16


class Shape(enum.Enum):
    """What the text of a value is."""

    SCHEMA = enum.auto()  # what the schema of the parameter says
    STRING = enum.auto()
    JSON = enum.auto()


class Syntax(Struct, frozen=True, kw_only=True):
    """One form. Whitespace may stand before each of its markers but the one that ends a value."""

    tags: Tags
    """What opens a call where text stands, and what closes it there. The closing one is empty if the call ends with
    `closing` alone; where it is `closing`, it is not part of the call's own grammar."""
    also: tuple[str, ...] = ()  # what else opens a call
    section: Tags | None = None  # round all calls of a turn
    name: Tags  # round the name of the tool; both empty: whitespace or a marker ends it
    key: Tags  # round the name of a parameter
    values: Mapping[str, Shape]  # what opens a value, behind the key
    value_end: str
    closing: str  # of the call
    lines: bool = False  # a value has its lines for itself: the newline before it and the one behind it are not its own
    parts: frozenset[str] = frozenset()  # see `Dialect`

    @property
    def ends(self) -> frozenset[str]:
        """The markers that end a call, whatever of it is still open."""
        section = (self.section.opening, self.section.closing) if self.section is not None else ()
        return frozenset({self.tags.opening, self.tags.closing, self.name.opening, self.closing, *section}) - {""}

    @property
    def following(self) -> frozenset[str]:
        """The markers of which one must follow the end of a value: else it is no end, but belongs to the value."""
        return self.ends | {self.key.opening}


QWEN3_CODER = Syntax(
    tags=Tags("<tool_call>", "</tool_call>"),
    also=("<function=",),  # The models forget the tag at times.
    name=Tags("<function=", ">"),
    key=Tags("<parameter=", ">"),
    values={"": Shape.SCHEMA},
    value_end="</parameter>",
    closing="</function>",
    lines=True,
)

GLM = Syntax(
    tags=Tags("<tool_call>", "</tool_call>"),
    name=Tags("", ""),
    key=Tags("<arg_key>", "</arg_key>"),
    values={"<arg_value>": Shape.SCHEMA},
    value_end="</arg_value>",
    closing="</tool_call>",
    parts=frozenset({"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}),
)

MINIMAX_M2 = Syntax(
    tags=Tags('<invoke name="', ""),
    section=Tags("<minimax:tool_call>", "</minimax:tool_call>"),
    name=Tags('<invoke name="', '">'),
    key=Tags('<parameter name="', '">'),
    values={"": Shape.SCHEMA},
    value_end="</parameter>",
    closing="</invoke>",
)

DSML = Syntax(
    tags=Tags('<｜DSML｜invoke name="', "</｜DSML｜invoke>"),
    section=Tags("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    name=Tags('<｜DSML｜invoke name="', '">'),
    key=Tags('<｜DSML｜parameter name="', '"'),
    values={'string="true">': Shape.STRING, 'string="false">': Shape.JSON},
    value_end="</｜DSML｜parameter>",
    closing="</｜DSML｜invoke>",
    parts=frozenset({"｜DSML｜"}),
)

DSML_V4 = replace(DSML, section=Tags("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"))
