"""Calls as a list of calls in Python: `[get_weather(city="Paris", days=3), search(q='x')]`.

Rules
* A list opens with a bracket at the start of the output, where nothing but separators stands before it, or behind
  another list; or with the family's marker.
* Arguments have keys. What is given without one goes out as it is written: which parameter it means would be a guess.
* While a grammar runs, values are JSON, which the reader takes as well as Python's: schemas describe JSON.
"""

from __future__ import annotations

import re

from antiphon.text.dialects.dialect import Calling, Dialect
from antiphon.text.dialects.keyed_calls import NAME, SPACE, Form, Head, keyed_calls
from antiphon.text.dialects.keyed_grammar import (
    alone,
    any_members,
    input_member,
    members,
    property_schemas,
    strict_keys,
    takes_any_key,
)
from antiphon.text.dialects.keyed_values import WORD_LIMIT
from antiphon.text.dialects.states import Tags
from antiphon.text.lark import Lark
from antiphon.text.messages import ToolDefinition

PYTHON_START, PYTHON_END = "<|python_start|>", "<|python_end|>"

# The reader takes more keys than Python does: all that hold none of the characters that end one.
_KEY = re.compile(rf"""[^\s"'()\[\]{{}},:=<]{{1,{WORD_LIMIT}}}""")
_ANY_KEY = "[A-Za-z_][A-Za-z0-9_]{0,63}="


def list_form(*ends: str) -> Form:
    """The form of the list. `ends`: markers that end it, beside its tags."""
    return Form(
        first=Head(
            whole=re.compile(rf"{SPACE}\[{SPACE}{NAME}{SPACE}\("),
            half=re.compile(rf"{SPACE}(?:\[{SPACE}(?:{NAME}{SPACE})?)?"),
        ),
        further=Head(whole=re.compile(rf"{NAME}{SPACE}\("), half=re.compile(rf"{NAME}{SPACE}")),
        closing=")",
        ends=ends,
    )


def python_call(lark: Lark, tool: ToolDefinition) -> str:
    """The grammar of one call of the list. Raises `ValueError` for a strict tool that it cannot express."""
    return f'{lark.literal(f"{tool.name}(")} {_arguments(lark, tool)} ")"'


def _arguments(lark: Lark, tool: ToolDefinition) -> str:
    if tool.input is not None:
        return input_member(lark, 'input="', tool.input)
    comma = f'"," {lark.matching(" ?")}'
    written = {
        key: f"{lark.literal(f'{key}=')} {lark.json(alone(schema, tool.parameters))}"
        for key, schema in property_schemas(tool).items()
        if _expressible(key, tool)
    }
    if tool.strict:
        return members(lark, written, strict_keys(tool), comma)
    if takes_any_key(tool):
        return any_members(lark, f"{lark.matching(_ANY_KEY)} {lark.json(True)}", comma)
    return any_members(lark, " | ".join(written.values()), comma)


def _expressible(key: str, tool: ToolDefinition) -> bool:
    expressible = _KEY.fullmatch(key) is not None
    if tool.strict and not expressible:
        raise ValueError(f"`properties` of {tool.name!r}: no call in Python's syntax can have an argument {key!r}")
    return expressible


# Llama 3.2 and 4: Meta's prompt formats, "zero shot function calling". The markers are Llama 4's, which that format
# does not ask for; 3.2 has none.
LLAMA_PYTHONIC = Dialect(
    name="llama-pythonic",
    calling=Calling(
        tags=Tags("", ""),
        bare="[",
        also=(PYTHON_START,),
        body=keyed_calls(list_form(PYTHON_START, PYTHON_END)),
        call=python_call,
        listed=True,
    ),
    passed=(PYTHON_END,),
)

# LFM2 and LFM2.5 of Liquid AI: their templates.
LFM2 = Dialect(
    name="lfm2",
    thinking=Tags("<think>", "</think>"),
    calling=Calling(
        tags=Tags("<|tool_call_start|>", "<|tool_call_end|>"),
        body=keyed_calls(list_form()),
        call=python_call,
        listed=True,
    ),
)
