"""Calls as function blocks of Gemma: `call:get_weather{city:<|"|>Paris<|"|>,days:3}` between the family's markers.

Rules
* A string stands between two delimiters, a token of the vocabulary; nothing in it is escaped. The first delimiter in
  it ends it, whatever follows.
* Where a model falls back to quotes, JSON's or Python's, they are read as such. A string without its opening delimiter
  goes out as it is written.
* Gemma 2 and 3 have no form for calls: their templates know no tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from antiphon.text.dialects.dialect import Calling, Dialect
from antiphon.text.dialects.gemma_values import COMMA, GemmaValues
from antiphon.text.dialects.keyed_calls import NAME, SPACE, Form, Head, keyed_calls
from antiphon.text.dialects.keyed_grammar import (
    any_members,
    input_member,
    members,
    property_schemas,
    strict_keys,
    takes_any_key,
)
from antiphon.text.dialects.states import Tags
from antiphon.text.lark import Lark
from antiphon.text.messages import ToolDefinition

_HEAD = Head(
    whole=re.compile(rf"{SPACE}call:{SPACE}{NAME}{SPACE}\{{"),
    half=re.compile(rf"{SPACE}(?:c(?:a(?:l(?:l(?::{SPACE}(?:{NAME}{SPACE})?)?)?)?)?)?"),
)


def _calling(tags: Tags, delimiter: str) -> Calling:
    return Calling(
        tags=tags,
        also=(delimiter,),  # The state of calls reads it; outside calls that makes text of it.
        body=keyed_calls(Form(first=_HEAD, closing="}", delimiter=delimiter)),
        call=gemma_call(delimiter),
    )


def gemma_call(delimiter: str) -> Callable[[Lark, ToolDefinition], str]:
    """The grammar of one call. It raises `ValueError` for a strict tool that it cannot express."""

    def call(lark: Lark, tool: ToolDefinition) -> str:
        return f'{lark.literal(f"call:{tool.name}{{")} {_arguments(lark, tool, delimiter)} "}}"'

    return call


def _arguments(lark: Lark, tool: ToolDefinition, delimiter: str) -> str:
    if tool.input is not None:
        return input_member(lark, 'input:"', tool.input)
    values = GemmaValues(lark, delimiter, tool.parameters)
    written = {key: values.pair(key, schema) for key, schema in property_schemas(tool).items()}
    if tool.strict:
        return members(lark, written, strict_keys(tool), COMMA)
    if takes_any_key(tool):
        return values.any_pairs(True)
    return any_members(lark, " | ".join(written.values()), COMMA)


# FunctionGemma: Google's guide "FunctionGemma formatting and best practices".
GEMMA = Dialect(
    name="gemma",
    calling=_calling(Tags("<start_function_call>", "<end_function_call>"), "<escape>"),
    passed=("<start_function_response>",),  # The model ends its turn with it.
)

# Gemma 4: Google's guide "Gemma 4 prompt formatting", and its templates.
GEMMA_4 = Dialect(
    name="gemma-4",
    thinking=Tags("<|channel>thought", "<channel|>"),
    calling=_calling(Tags("<|tool_call>", "<tool_call|>"), '<|"|>'),
    # A model may write an end of thinking too much behind its answer; and it ends its turn with the other one.
    passed=("<channel|>", "<|tool_response>"),
    parts=frozenset(["<|channel>"]),
)
