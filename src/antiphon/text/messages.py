"""A conversation as the prompt sees it, whatever protocol it came in.

A client's protocol has its own items; the layer above makes these out of them. Nothing here knows how a model wants its
prompt: that is the chat template's business.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]


class ToolCall(Struct, frozen=True):
    """A call that the model made in an earlier turn.

    `arguments` is the model's own text: usually a JSON object, but it may be anything, even cut off.
    """

    id: str
    name: str
    arguments: str

    def parsed(self) -> dict[str, Any] | None:
        """The arguments as an object, or None where the text is not a JSON object."""
        try:
            return msgspec.json.decode(self.arguments, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return None


class Message(Struct, frozen=True):
    """One turn. `developer` is `system` here.

    `reasoning` and `calls` belong to the assistant; `call_id` (the call that is answered) and `name` (of its tool;
    empty is that of the call) to a tool's result. Several system messages may stand anywhere.
    """

    role: Role
    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""


class InputGrammar(Struct, frozen=True):
    """What the text that a tool takes must look like: a grammar as llguidance reads it."""

    syntax: Literal["lark", "regex"]
    definition: str


class ToolDefinition(Struct, frozen=True):
    """A function that the model may call; `parameters` is a JSON Schema of an object, empty for no arguments.

    `strict`: while decoding, nothing but that schema is let through. `input` goes further, and is for tools whose one
    argument, `input`, is text that obeys a grammar.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool = False
    input: InputGrammar | None = None
