"""What the grammars of the XML-like forms let through, and that it is read as the calls that were wanted."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Text
from antiphon.text.constraint import GrammarRefused, Grammars
from antiphon.text.detokenizer import ControlToken
from antiphon.text.dialects.dialect import Dialect
from antiphon.text.dialects.grammar import Wanted, output_grammar
from antiphon.text.dialects.xml_strings import Unsayable
from antiphon.text.dialects.xml_syntax import GAP_LIMIT
from antiphon.text.lark import Lark
from antiphon.text.messages import InputGrammar, ToolDefinition
from tests.text.dialects.xml_forms import DSML_FORM, FORMS, GLM_FORM, MINIMAX_FORM, QWEN_FORM, Form
from tests.text.vocabulary import EndingTokenizer
from tests.three_cuts import merged

EVERY_FORM = pytest.mark.parametrize("form", [pytest.param(form, id=name) for name, form in FORMS.items()])


def strict(
    properties: dict[str, Any], required: Sequence[str] = (), *, name: str = "book", more: dict[str, Any] | None = None
) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return ToolDefinition(name, "", {**schema, **(more or {})}, strict=True)


BOOK = strict(
    {
        "title": {"type": "string"},
        "count": {"type": "integer", "minimum": 1, "maximum": 20},
        "view": {"enum": ["sea", "hill"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "any"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "place": {"$ref": "#/$defs/place"},
    },
    ["title", "count", "tags"],
    more={
        "$defs": {
            "place": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            }
        }
    },
)
CODES = strict(
    {
        "code": {"type": "string", "pattern": r"^[A-Z]{2}-\d+$"},
        "word": {"type": "string", "minLength": 1},
        "short": {"type": "string", "maxLength": 5},
        "long": {"type": ["string", "null"], "minLength": 2, "maxLength": 4},
        "sure": {"enum": ["yes", "", None, "a b"]},
        "size": {"anyOf": [{"const": "large"}, {"type": "integer"}, {"type": "boolean"}]},
    },
    ["word", "sure"],
    name="codes",
)
NOTHING = strict({}, name="nothing")
LOOSE = ToolDefinition(
    "loose",
    "",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "room": {"type": ["string", "number"]},
            "tags": {"type": ["array", "null"]},
        },
    },
)
FREE = ToolDefinition("free")
TOOLS = (BOOK, CODES, NOTHING, LOOSE, FREE)
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}


def reached(
    dialect: Dialect, tools: Sequence[ToolDefinition], text: str, control: Sequence[str] = (), **wanted: Any
) -> int:
    """How many tokens of a text the grammar lets through; -1 if all, and the output may end there."""
    tokenizer = EndingTokenizer(control)
    grammar = output_grammar(dialect, Wanted(**{"tools": tools, "calls": "required", **wanted}), tokenizer.control)
    constraint = Grammars(tokenizer).constraint(grammar)
    tokens = tokenizer.encode(text, control=True)
    for n, token in enumerate(tokens):
        if not constraint.accept(token):
            return n
    return -1 if constraint.may_end else len(tokens)


def read(dialect: Dialect, pieces: Sequence[str | ControlToken], control: Sequence[str] = ()) -> list[Fragment]:
    parser = dialect.parser(tools=SCHEMAS, calls=True, control=control, reasoning_open=False)
    out: list[Fragment] = []
    for piece in pieces:
        out += parser.control(piece.text) if isinstance(piece, ControlToken) else parser.feed(piece)
    return merged([*out, *parser.finish()])


GOOD = [
    ("book", {"title": "a", "count": "3", "tags": "[]"}),
    (
        "book",
        {"title": "", "count": "20", "view": "sea", "note": "null", "tags": '["a", "b"]', "place": '{"city": "x"}'},
    ),
    ("book", {"title": "<b>\n\n <parameter>x</param> < <", "count": "3", "note": "\n", "tags": "[]"}),
    ("codes", {"word": "w", "sure": "yes"}),
    ("codes", {"code": "AB-12", "word": " <x", "short": "", "sure": "", "size": "large"}),
    ("codes", {"word": "\n\n", "long": "abcd", "sure": "a b", "size": "large"}),
    ("nothing", {}),
    ("loose", {}),
    ("loose", {"count": "5", "text": "some text", "room": "1 <", "tags": "null"}),
    ("loose", {"tags": '["a"]', "count": "5"}),
    ("free", {}),
    ("free", {"x-1.y_2": "some text", "b": "</"}),
]


@EVERY_FORM
@pytest.mark.parametrize(("name", "values"), GOOD)
def test_calls_as_the_template_spells_them_are_let_through(form: Form, name: str, values: dict[str, str]) -> None:
    for tools in ([tool for tool in TOOLS if tool.name == name], TOOLS):
        assert reached(form.dialect, tools, form.spelled(name, **values).rstrip("\n")) == -1


@EVERY_FORM
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("book", {}),
        ("book", {"title": "a"}),
        ("book", {"title": "a", "count": "3"}),
        ("book", {"count": "3", "title": "a", "tags": "[]"}),
        ("book", {"title": "a", "count": "three", "tags": "[]"}),
        ("book", {"title": "a", "count": "21", "tags": "[]"}),
        ("book", {"title": "a", "count": "3", "view": "wall", "tags": "[]"}),
        ("book", {"title": "a", "count": "3", "tags": "[1]"}),
        ("book", {"title": "a", "count": "3", "tags": "[]", "place": "{}"}),
        ("book", {"title": "a", "count": "3", "tags": "[]", "more": "a"}),
        ("book", {"title": "a", "title2": "b", "count": "3", "tags": "[]"}),
        ("codes", {"word": "", "sure": "yes"}),
        ("codes", {"word": "a", "sure": "no"}),
        ("codes", {"code": "ab-12", "word": "a", "sure": "yes"}),
        ("codes", {"code": "AB-12x", "word": "a", "sure": "yes"}),
        ("codes", {"word": "a", "short": "abcdef", "sure": "yes"}),
        ("codes", {"word": "a", "long": "a", "sure": "yes"}),
        ("codes", {"word": "a", "long": "abcde", "sure": "yes"}),
        ("codes", {"word": "a", "sure": "yes", "size": "small"}),
        ("nothing", {"a": "b"}),
        ("loose", {"count": "five"}),
        ("loose", {"tags": "{}"}),
        ("loose", {"other": "a"}),
        ("free", {"a b": "c"}),
        ("other", {}),
    ],
)
def test_what_the_schema_does_not_say_is_not_let_through(form: Form, name: str, values: dict[str, str]) -> None:
    assert reached(form.dialect, TOOLS, form.spelled(name, **values)) >= 0


@pytest.mark.parametrize("form", [QWEN_FORM, MINIMAX_FORM], ids=["qwen3-coder", "minimax-m2"])
def test_a_value_may_hold_its_own_end(form: Form) -> None:
    """The grammar ends a text where the parser does: not before another parameter or the end of the call."""
    end, closing = form.value_end, form.closing
    for value in (
        f"<parameter>x{end}",
        f"{end}",
        f"{end}{end}\n{end} and",
        f"{end}{' ' * (GAP_LIMIT + 1)}{closing} so",
        f"{end} <{closing[:4]}",
        f"{end}\n<parameter>x{end} {closing[:-1]}",
    ):
        for tool, values in ((FREE, {"a": value, "b": value}), (CODES, {"word": value, "sure": "yes"})):
            output = form.spelled(tool.name, **values).rstrip("\n")
            assert reached(form.dialect, TOOLS, output) == -1, output
            (_, arguments, _) = read(form.dialect, [output])
            assert isinstance(arguments, Arguments)
            assert json.loads(arguments.text) == values


def test_a_value_does_not_hold_the_end_of_the_call() -> None:
    output = QWEN_FORM.spelled("free", a="x</parameter>\n</tool_call> and")
    assert reached(QWEN_FORM.dialect, TOOLS, output) == output.index("> and")


@EVERY_FORM
def test_several_calls(form: Form) -> None:
    two = form.turn(form.call("nothing"), form.call("free", a="b")).rstrip("\n")
    assert reached(form.dialect, TOOLS, two) == -1
    assert reached(form.dialect, TOOLS, two, several=False) >= 0
    assert reached(form.dialect, TOOLS, f"Well.\n{two}\nSo.", calls="allowed") == -1


# What a model that knows the form, but neither the tools nor when to stop, would write.
def chunks(form: Form) -> list[str]:
    return [
        form.value_end, f"\n{form.value_end}\n", form.closing, form.end, form.parameter.partition("KEY")[0], form.head,
        form.after, form.before, *(form.value_end + other for other in (" " * GAP_LIMIT, " " * 17, form.closing, "x")),
        form.parameter.partition("VALUE")[0].partition("KEY")[2], form.json_parameter.partition("VALUE")[0], "title",
        "a", "\n", " ", "<", "</", '"', "]", "}", "null", "yes", "5", "AB-1", "sea", "word", "sure", "é", "'", "\\",
        "</tool_call>", "<tool_call>", "<function=",
        f'["{form.value_end}{form.closing}"]', f"{form.value_end}</tool_call>",
    ]  # fmt: skip


def drawn(
    form: Form, tokenizer: EndingTokenizer, grammars: Grammars, seed: int
) -> tuple[list[str | ControlToken], bool]:
    """An output of chunks as far as the grammar lets them through, and whether it was finished."""
    chance = random.Random(seed)
    wanted = Wanted(tools=TOOLS, calls="required")
    constraint = grammars.constraint(output_grammar(form.dialect, wanted, tokenizer.control))
    usual = [chunk for chunk in chunks(form) if chunk]
    taken: list[int] = []

    def take(tokens: Sequence[int]) -> bool:
        for token in tokens:
            if not constraint.allowed()[token]:
                return False
            assert constraint.accept(token)
            taken.append(token)
        return True

    while len(taken) < 1500:
        if constraint.may_end and chance.random() < 0.5:
            return pieces(tokenizer, taken), True
        before = len(taken)
        take(tokenizer.encode(chance.choice(usual), control=True))
        if len(taken) == before and chance.random() < 0.2:
            allowed = np.flatnonzero(np.frombuffer(constraint.allowed(), np.uint8)).tolist()
            token = chance.choice([token for token in allowed if 32 <= token < 127] or allowed)
            if token in tokenizer.end:
                return pieces(tokenizer, taken), True
            take([token])
    return pieces(tokenizer, taken), False


def pieces(tokenizer: EndingTokenizer, tokens: Sequence[int]) -> list[str | ControlToken]:
    made: list[str | ControlToken] = []
    held = b""
    for token in tokens:
        if token in tokenizer.control:
            made += [held.decode(), ControlToken(tokenizer.control[token])]
            held = b""
        else:
            held += bytes([token])
    return [*made, held.decode(errors="replace")]


@pytest.mark.parametrize("tokens", [False, True], ids=["text", "tokens"])
@EVERY_FORM
def test_what_is_let_through_is_read_as_the_calls_that_were_wanted(form: Form, tokens: bool) -> None:
    control = sorted(form.dialect.parts or form.dialect.markers) if tokens else []
    tokenizer = EndingTokenizer(control)
    grammars = Grammars(tokenizer)
    finished = 0
    for seed in range(40):
        output, whole = drawn(form, tokenizer, grammars, seed)
        fragments = read(form.dialect, output, control)
        made = [fragment for fragment in fragments if isinstance(fragment, Call)]
        assert not any(isinstance(fragment, Text) for fragment in fragments[:-1]), output
        finished += whole
        for call, arguments, done in zip(fragments[::3], fragments[1::3], fragments[2::3], strict=False):
            assert isinstance(call, Call)
            assert isinstance(arguments, Arguments)
            assert isinstance(done, CallDone)
            jsonschema.validate(json.loads(arguments.text), SCHEMAS[call.name])
        assert not whole or (made and len(fragments) == 3 * len(made)), output
    assert finished > 10


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "string", "format": "date"}, "format"),
        ({"type": "string", "not": {"const": "a"}}, "not"),
        ({"type": "string", "pattern": "^a$", "maxLength": 5}, "pattern"),
        ({"type": "string", "pattern": "a"}, "pattern"),
        ({"type": "string", "pattern": "^a|b$"}, "pattern"),
        ({"type": "string", "pattern": "^(a$"}, "pattern"),
        ({"type": "string", "pattern": "^)|(a$"}, "pattern"),
        ({"type": "string", "pattern": "^.$"}, "pattern"),
        ({"type": "string", "pattern": "^[^a]$"}, "pattern"),
        ({"type": "string", "pattern": "^[!-~]$"}, "pattern"),
        ({"type": "string", "pattern": "^[z-a]$"}, "pattern"),
        ({"type": "string", "pattern": "^[a&&b]$"}, "pattern"),
        ({"type": "string", "pattern": "^<$"}, "pattern"),
        ({"type": "string", "pattern": "^(?=a)a$"}, "pattern"),
        ({"type": "string", "pattern": "^a\\$"}, "pattern"),
        ({"type": "string", "pattern": "^\\bа$"}, "pattern"),
        ({"type": "string", "pattern": "^a\nb$"}, "pattern"),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, "type"),
        ({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]}, "minimum"),
        ({"anyOf": [{"type": "string"}], "minLength": 1}, "anyOf"),
        ({"anyOf": [{"type": "string"}, True]}, "anyOf"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "allOf"),
        ({"$ref": "#/$defs/none"}, "$ref"),
        ({"$ref": "#/$defs/itself"}, "$ref"),
        ({"type": "array", "items": {"$ref": "#"}}, "$ref"),
        ({"enum": ["a", "1", 1]}, "enum"),
        ({"enum": ["a", "</parameter>"]}, "enum"),
        ({"type": "string", "const": 5}, "enum"),
        ({"type": "string", "enum": None}, "enum"),
        ({"type": "string", "minLength": "2"}, "minLength"),
        ({"type": "string", "maxLength": None}, "maxLength"),
        ({"type": "string", "pattern": 5}, "pattern"),
        ({"anyOf": {}}, "anyOf"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(schema: dict[str, Any], keyword: str) -> None:
    tool = strict({"a": schema}, more={"$defs": {"itself": {"$ref": "#/$defs/itself"}}})
    with pytest.raises(Unsayable, match=f"^`{keyword.replace('$', '[$]')}`"):
        reached(QWEN_FORM.dialect, [tool], "")


def test_a_string_of_no_value_is_refused_by_name() -> None:
    with pytest.raises(Unsayable, match="^`enum`"):
        reached(DSML_FORM.dialect, [strict({"a": {"type": "string", "const": 5}})], "")


@pytest.mark.parametrize("keyword", ["anyOf", "$ref", "patternProperties", "minProperties"])
def test_what_is_asked_of_all_arguments_is_refused_by_name(keyword: str) -> None:
    with pytest.raises(Unsayable, match=keyword.replace("$", "[$]")):
        reached(GLM_FORM.dialect, [strict({}, more={keyword: {}})], "")


@pytest.mark.parametrize("key", ["", " a", "a>b", 'a"b', "a\nb"])
def test_a_key_that_the_form_cannot_carry_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        reached(MINIMAX_FORM.dialect, [strict({key: {"type": "string"}})], "")


def test_what_the_grammar_engine_cannot_take_is_refused_by_it() -> None:
    with pytest.raises(GrammarRefused):
        reached(DSML_FORM.dialect, [strict({"a": {"type": "array", "items": {"$ref": "#/$defs/none"}}})], "")


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^$", [""], ["a"]),
        (r"^a/b\/c$", ["a/b/c"], ["a"]),
        (r"^\d+\.\d{2}$", ["10.25"], ["10.2", "10.255", "10x25"]),
        (r"^[\w./-]+$", ["a/b_c.d-e"], ["a b", ""]),
        (r"^(?:red|blue)(-light)?$", ["red", "blue-light"], ["red-", "redblue"]),
        (r"^#[0-9a-f]{3,6}$", ["#fff", "#ffffff"], ["#ff", "fff"]),
        (r"^[\\d]+ *$", ["\\d  "], ["5"]),
    ],
)
@EVERY_FORM
def test_simple_patterns(form: Form, pattern: str, good: list[str], bad: list[str]) -> None:
    tool = strict({"a": {"type": "string", "pattern": pattern}}, ["a"])
    for text in good:
        assert reached(form.dialect, [tool], form.spelled("book", a=text).rstrip("\n")) == -1, text
    for text in bad:
        assert reached(form.dialect, [tool], form.spelled("book", a=text)) >= 0, text


def test_schemas_that_are_none_declare_nothing() -> None:
    loose = ToolDefinition("free", "", {"properties": None, "required": 5})
    assert reached(QWEN_FORM.dialect, [loose], QWEN_FORM.spelled("free", a="b")) == -1
    nothing = ToolDefinition("free", "", {"properties": 5, "required": [5]}, strict=True)
    assert reached(QWEN_FORM.dialect, [nothing], QWEN_FORM.spelled("free")) == -1
    assert reached(QWEN_FORM.dialect, [nothing], QWEN_FORM.spelled("free", a="b")) >= 0


def test_a_required_parameter_that_is_not_declared_is_any_text() -> None:
    tool = strict({"a": {"type": "string"}}, ["b"])
    assert reached(QWEN_FORM.dialect, [tool], QWEN_FORM.spelled("book", b="<x")) == -1
    assert reached(QWEN_FORM.dialect, [tool], QWEN_FORM.spelled("book", a="x")) >= 0


PATCH = InputGrammar(
    "lark",
    """
start: "*** Begin" LF hunk+ "*** End" LF?
hunk: "+" /(.*)/ LF
%import common.LF
""",
)
CODE = InputGrammar("regex", "[a-z]+(\n[a-z]+)*")


@pytest.mark.parametrize("tokens", [False, True], ids=["text", "tokens"])
@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (
            PATCH,
            ["*** Begin\n+a\n*** End", '*** Begin\n+<b>"\\ </\n+</param\n*** End\n'],
            ["*** Begin\n*** End", "*** Begin\n-a\n*** End", "*** Begin\n+a\n", "*** Begin\n+END\n*** End", ""],
        ),
        (CODE, ["a", "a\nb"], ["", "a\n", "A", "a b"]),
    ],
)
@EVERY_FORM
def test_an_input_with_a_grammar(
    form: Form, grammar: InputGrammar, good: list[str], bad: list[str], tokens: bool
) -> None:
    control = sorted(form.dialect.parts or form.dialect.markers) if tokens else []
    tool = ToolDefinition("free", "", {"type": "object", "properties": {"input": {"type": "string"}}}, input=grammar)
    for text in good:
        output = form.spelled("free", input=text).rstrip("\n")
        assert reached(form.dialect, [tool], output, control) == -1, text
        (_, arguments, _) = read(form.dialect, [output])
        assert isinstance(arguments, Arguments)
        assert json.loads(arguments.text) == {"input": text}
    for text in bad:
        text = text.replace("END", form.value_end)
        assert reached(form.dialect, [tool], form.spelled("free", input=text), control) >= 0, text


def test_equal_values_share_their_rules() -> None:
    """A tool of a hundred strings makes no grammar of a hundred texts."""
    lark = Lark({})
    tool = strict({f"key_{n}": {"type": "string"} for n in range(100)})
    assert QWEN_FORM.dialect.calling is not None
    expression = QWEN_FORM.dialect.calling.call(lark, tool)
    grammar = lark.grammar(expression)
    assert grammar.count("MATCH_") < 500
    assert len(grammar) < 50_000
