"""Values of parameters: their types, and the JSON that becomes of their text."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.fragments import Arguments
from antiphon.text.dialects.machine import Parser
from antiphon.text.dialects.xml_calls import GLM
from antiphon.text.dialects.xml_types import DEPTH_LIMIT, parameter_types
from antiphon.text.dialects.xml_values import JSON_LIMIT, ValueWriter, read_json
from tests.text.dialects.corpus_xml import XML_TOOLS
from tests.three_cuts import three_cuts


def parser() -> Parser:
    return GLM.parser(tools=XML_TOOLS, calls=True, control=(), reasoning_open=False)


def test_json_is_held_back_no_longer_than_its_limit() -> None:
    """Beyond it a list goes out as a string; the limit falls on the same character however the output is cut."""
    opening = '<tool_call>book<arg_key>tags</arg_key><arg_value>["'
    filling = "x" * (JSON_LIMIT - 4)
    for more, start, end in (("", "[", "]"), ("x", '"[\\', ']"')):
        for pieces in ([filling, more], [filling[:-9], *filling[-9:], more]):
            subject = parser()
            fragments = subject.feed(opening)
            for piece in [*pieces, '"]</arg_value>', "</tool_call>"]:
                fragments += subject.feed(piece)
            said_of_it = "".join(fragment.text for fragment in fragments if isinstance(fragment, Arguments))
            assert said_of_it.startswith(f'{{"tags": {start}"x')
            assert said_of_it.endswith(f"{end}}}")


def test_an_endless_number_is_not_kept() -> None:
    subject = parser()
    subject.feed("<tool_call>book<arg_key>count</arg_key><arg_value>")
    subject.feed("1" * (JSON_LIMIT + 1))
    piece = "1" * 4096
    tracemalloc.start()
    try:
        for _ in range(500):
            assert subject.feed(piece) == [Arguments(piece)]
        assert tracemalloc.get_traced_memory()[1] < 100_000  # of 2 MB
    finally:
        tracemalloc.stop()


DEEP: dict[str, Any] = {"type": "integer"}
for _ in range(DEPTH_LIMIT + 1):
    DEEP = {"allOf": [DEEP]}
NESTED = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "integer"}, {"integer"}),
        ({"type": "number"}, {"integer", "number"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"type": "str"}, {"string"}),
        ({"type": 5}, {"string"}),
        ({}, {"string"}),
        (True, {"string"}),
        ({"const": 5}, {"integer", "number"}),
        ({"enum": [1.5, None]}, {"number", "null"}),
        ({"enum": ["a", True, [], {}]}, {"string", "boolean", "array", "object"}),
        ({"enum": []}, {"string"}),
        ({"type": "integer", "enum": [1, "a"]}, {"integer"}),
        ({"type": "integer", "enum": ["a"]}, {"string"}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
        ({"oneOf": [{"type": "integer"}, {}]}, {"integer", "string"}),
        ({"anyOf": []}, {"string"}),
        ({"anyOf": {}}, {"string"}),
        ({"allOf": [{"$ref": "#/$defs/a~1b"}], "description": "x"}, {"boolean"}),
        ({"allOf": [{"type": ["integer", "null"]}, {"type": "integer"}]}, {"integer"}),
        ({"$ref": "#/$defs/a~1b"}, {"boolean"}),
        ({"$ref": "#/$defs/none"}, {"string"}),
        ({"$ref": "#/$defs/a~1b/type/x"}, {"string"}),
        ({"$ref": "#/$defs/itself"}, {"string"}),
        ({"$ref": "#"}, {"object"}),
        ({"$ref": "https://example.org"}, {"string"}),
        ({"anyOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/a~1b"}]}, {"boolean"}),
        (DEEP, {"string"}),
    ],
)
def test_types_of_a_parameter(schema: object, types: set[str]) -> None:
    arguments = {
        "type": "object",
        "properties": {"a": schema},
        "$defs": {"a/b": {"type": "boolean"}, "itself": {"$ref": "#/$defs/itself"}},
    }
    assert parameter_types(arguments, "a") == types
    assert parameter_types({**arguments, "properties": {}, "additionalProperties": schema}, "a") == types
    assert parameter_types({}, "a") == {"string"}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("[1]", "[1]"),
        ("['a\\'b\"c\\\\', None]", '["a\'b\\"c\\\\",null]'),
        ("['a', 'b]", ""),
        ('["a', ""),
        ('["\\"' * 50_000, ""),
        ("['a\n']", ""),
        ("{1: 2}", ""),
        ("(1, 2)", ""),
        ("[Infinity]", ""),
        ("[Nonesuch]", ""),
        ("1" * 5000, ""),
        (NESTED, ""),
        ("5", ""),
    ],
)
def test_lists_and_objects_as_json_or_python_write_them(text: str, read: str) -> None:
    assert read_json(text, frozenset({"array", "object"})) == read


@pytest.mark.parametrize(
    "types", [{"string"}, {"string", "null"}, {"integer"}, {"array", "null"}, {"object", "boolean", "quoted"}]
)
@settings(deadline=None)
@given(text=st.text(st.sampled_from("[]{}\",:'\\ \n10-eE.nulltruefalsNT"), max_size=12), lines=st.booleans())
def test_a_value_is_json_whatever_comes(types: set[str], text: str, lines: bool) -> None:
    def run(pieces: Sequence[str]) -> str:
        writer = ValueWriter(frozenset(types), lines=lines)
        return writer.opening + "".join(map(writer.add, pieces)) + writer.close()

    json.loads(three_cuts(run, text))
