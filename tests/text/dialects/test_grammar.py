"""What the grammar of an output lets through, and that the parser of the same dialect reads it as what was wanted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Text
from antiphon.text.constraint import Grammars
from antiphon.text.detokenizer import ControlToken
from antiphon.text.dialects import DIALECTS, Dialect
from antiphon.text.dialects.grammar import Wanted, output_grammar
from antiphon.text.messages import ToolDefinition
from tests.text.dialects.walks import walk
from tests.text.vocabulary import EndingTokenizer
from tests.three_cuts import merged

WEATHER = ToolDefinition(
    "get_weather",
    "",
    {
        "type": "object",
        "properties": {
            "days": {"type": "integer", "minimum": 0, "maximum": 99},
            "unit": {"enum": ["celsius", "kelvin"]},
            "at": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        },
        "required": ["days", "unit"],
        "additionalProperties": False,
    },
    strict=True,
)
TIME = ToolDefinition("time", "", {"type": "object", "properties": {}, "additionalProperties": False}, strict=True)
LOOSE = ToolDefinition("note", "", {"type": "object", "properties": {"text": {"type": "string", "maxLength": 5}}})
TOOLS = (WEATHER, TIME, LOOSE)
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}

CALLING = [dialect for dialect in DIALECTS.values() if dialect.calling is not None or dialect.own is not None]


def markers(dialect: Dialect) -> tuple[str, ...]:
    """The markers that real vocabularies may have as control tokens."""
    return tuple(sorted({*dialect.parts, *dialect.markers}))


def parsed(
    dialect: Dialect, pieces: Sequence[str | ControlToken], tokenizer: EndingTokenizer, **settings: Any
) -> list[Fragment]:
    parser = dialect.parser(
        **{
            "tools": SCHEMAS,
            "calls": True,
            "control": frozenset(tokenizer.control.values()),
            "reasoning_open": False,
            **settings,
        }
    )
    out: list[Fragment] = []
    for piece in pieces:
        out += parser.control(piece.text) if isinstance(piece, ControlToken) else parser.feed(piece)
    return merged([*out, *parser.finish()])


def calls(fragments: Sequence[Fragment]) -> list[tuple[str, str]]:
    """Names and arguments of finished calls."""
    found: list[tuple[str, str]] = []
    name, arguments = "", ""
    for fragment in fragments:
        if isinstance(fragment, Call):
            name, arguments = fragment.name, ""
        elif isinstance(fragment, Arguments):
            arguments += fragment.text
        elif isinstance(fragment, CallDone):
            found.append((name, arguments))
    return found


def check(call: tuple[str, str]) -> None:
    name, text = call
    arguments = json.loads(text)
    assert isinstance(arguments, dict)
    if name != "note":
        jsonschema.validate(arguments, SCHEMAS[name])


@pytest.mark.parametrize("tokens", [False, True], ids=["text", "tokens"])
@pytest.mark.parametrize("dialect", CALLING, ids=lambda dialect: dialect.name)
def test_required_calls_are_read_as_calls(dialect: Dialect, tokens: bool) -> None:
    tokenizer = EndingTokenizer(markers(dialect) if tokens else ())
    grammars = Grammars(tokenizer)
    finished = 0
    for seed in range(25):
        for several in (True, False):
            pieces, whole = walk(
                dialect, Wanted(tools=TOOLS, calls="required", several=several), tokenizer, seed, grammars
            )
            fragments = parsed(dialect, pieces, tokenizer)
            assert not any(isinstance(fragment, Text) for fragment in fragments), pieces
            finished += whole
            made = calls(fragments)
            for call in made:
                check(call)
            if whole:
                assert made, pieces
                assert several or len(made) == 1
                assert len(made) == sum(isinstance(fragment, Call) for fragment in fragments)
    assert finished > 25


@pytest.mark.parametrize("tokens", [False, True], ids=["text", "tokens"])
@pytest.mark.parametrize("dialect", CALLING, ids=lambda dialect: dialect.name)
def test_calls_among_text_are_read_as_calls(dialect: Dialect, tokens: bool) -> None:
    tokenizer = EndingTokenizer(markers(dialect) if tokens else ())
    grammars = Grammars(tokenizer)
    wanted = Wanted(tools=TOOLS, calls="allowed", thinking="possible")
    for seed in range(25):
        pieces, _ = walk(dialect, wanted, tokenizer, seed, grammars)
        for call in calls(parsed(dialect, pieces, tokenizer)):
            check(call)


@pytest.mark.parametrize("dialect", [DIALECTS["plain"], DIALECTS["think"], *CALLING], ids=lambda dialect: dialect.name)
def test_a_format_gives_one_json_value(dialect: Dialect) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["<tool_call>", "</think>", "x"]}}, "required": ["a"]}
    tokenizer = EndingTokenizer()
    grammars = Grammars(tokenizer)
    with_calls = dialect in CALLING
    for seed in range(10):
        for tools, may in ((TOOLS, "allowed"), ((), "none")):
            if may == "allowed" and not with_calls:
                continue
            wanted = Wanted(tools=tools, calls=may, schema=schema)  # type: ignore[arg-type]
            pieces, whole = walk(dialect, wanted, tokenizer, seed, grammars)
            fragments = parsed(dialect, pieces, tokenizer, calls=may != "none", one_value=True)
            texts = [fragment.text for fragment in fragments if isinstance(fragment, Text)]
            made = calls(fragments)
            assert not (texts and made)
            if whole and not made:
                jsonschema.validate(json.loads("".join(texts)), schema)


def walked(dialect: str, wanted: Wanted, text: str) -> int:
    """How many bytes of the text the grammar lets through; -1 if all, and the output may end there."""
    tokenizer = EndingTokenizer()
    constraint = Grammars(tokenizer).constraint(output_grammar(DIALECTS[dialect], wanted, tokenizer.control))
    for n, byte in enumerate(text.encode()):
        if not constraint.accept(byte):
            return n
    return -1 if constraint.may_end else len(text.encode())


CALL = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "note", "arguments": {"a": "</tool_call>"}}\n</tool_call>'
ALLOWED = Wanted(tools=TOOLS, calls="allowed", thinking="possible")
REQUIRED = Wanted(tools=TOOLS, calls="required")
ONE = Wanted(tools=TOOLS, calls="required", several=False)
ONE_ALLOWED = Wanted(tools=TOOLS, calls="allowed", several=False, thinking="possible")
THINKING = Wanted(tools=TOOLS, calls="required", thinking="possible")
OPEN = Wanted(tools=TOOLS, calls="required", thinking="open")
FORMAT = Wanted(schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
OPEN_FORMAT = Wanted(schema={"type": "object"}, thinking="open")


@pytest.mark.parametrize(
    ("wanted", "text", "reached"),
    [
        (ALLOWED, "Hello.", -1),
        (ALLOWED, "", -1),
        (ALLOWED, CALL, -1),
        (ALLOWED, f"Well. {CALL}\n{OTHER} Done.", -1),
        (ALLOWED, f"<think>a <tool_call> b</think>{CALL}", -1),
        (ALLOWED, '<tool_call>\n{"name": "nobody"', 24),
        (ALLOWED, '<tool_call>\n{"name": "time", "arguments": {"a"', 43),
        (ONE_ALLOWED, f"Well. {CALL}", -1),
        (ONE_ALLOWED, "Well.", -1),
        (ONE_ALLOWED, f"{CALL} more", len(CALL)),
        (REQUIRED, f"{CALL}\n{OTHER}", -1),
        (REQUIRED, "Hello.", 0),
        (REQUIRED, "<think>", 2),
        (REQUIRED, "", 0),
        (ONE, CALL, -1),
        (ONE, f"{CALL}\n{CALL}", len(CALL)),
        (THINKING, f"<think>Hm. <tool_call></think>\n{CALL}", -1),
        (THINKING, CALL, -1),
        (OPEN, f"Hm.</think>\n\n{CALL}", -1),
        (OPEN, "Hm.</think>\n\nHello", 13),
        (FORMAT, '{"a": 1}', -1),
        (FORMAT, '{"b": 1}', 2),
        (FORMAT, f'{{"a":{" " * 70}1}}', 69),
        (OPEN_FORMAT, 'Hm.</think>\n{"b": []}', -1),
    ],
)
def test_what_is_let_through(wanted: Wanted, text: str, reached: int) -> None:
    assert walked("hermes", wanted, text) == reached


def test_a_free_output_wants_nothing() -> None:
    assert Wanted().free
    assert not ALLOWED.free
    assert not FORMAT.free
