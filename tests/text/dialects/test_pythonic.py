from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment
from antiphon.text.dialects.dialect import Dialect
from antiphon.text.dialects.grammar import Wanted
from antiphon.text.dialects.keyed_calls import HEAD_LIMIT
from antiphon.text.dialects.keyed_values import WORD_LIMIT
from antiphon.text.dialects.pythonic import LFM2, LLAMA_PYTHONIC, PYTHON_END, PYTHON_START
from antiphon.text.messages import InputGrammar, ToolDefinition
from tests.text.dialects.corpus import Case, called, cut, said, thought
from tests.text.dialects.corpus_pythonic import LFM2 as LFM2_CORPUS
from tests.text.dialects.corpus_pythonic import LLAMA_PYTHONIC as LLAMA_CORPUS
from tests.text.dialects.runs import check_beginnings, check_order, let_through, parse, parser, read, tokens
from tests.three_cuts import merged, three_cuts

ALL = [
    pytest.param(dialect, case, id=f"{dialect.name}: {name}")
    for dialect, corpus in ((LLAMA_PYTHONIC, LLAMA_CORPUS), (LFM2, LFM2_CORPUS))
    for name, case in corpus.items()
]


@pytest.mark.parametrize(("dialect", "case"), ALL)
def test_output_gives_these_fragments_however_it_is_cut(dialect: Dialect, case: Case) -> None:
    assert read(dialect, case) == case.fragments


@pytest.mark.parametrize(
    "output",
    [
        r"""[search(a='b\'\x41"', c=[1, {'d': None}]), get_weather(city=(True,), )] ok""",
        "<|python_start|>[search(a=1)]<|python_end|> <|python_start|>[nope()]",
    ],
)
def test_output_may_end_at_any_character(output: str) -> None:
    check_beginnings(LLAMA_PYTHONIC, output)


# What goes out with each piece: as much as can be known.
STREAMS: dict[str, list[tuple[str, list[Fragment]]]] = {
    "a call": [
        ("[sea", []),
        ("rch", []),
        ("(", [Call(name="search"), Arguments("{")]),
        ("cit", []),
        ("y", []),
        ("=", [Arguments('"city": ')]),
        ('"', [Arguments('"')]),
        ("Ul", [Arguments("Ul")]),
        ("m\\", [Arguments("m")]),
        ("x4", []),
        ("1", [Arguments("A")]),
        ('"', [Arguments('"')]),
        (",", []),
        (" n=", [Arguments(', "n": ')]),
        ("12", []),
        (")", [Arguments("12}"), CallDone()]),
        ("]", []),
        (" ok", said("ok")),
    ],
    "a list": [
        ("[search(a=[1,", [Call(name="search"), Arguments('{"a": [1')]),
        (" Tru", []),
        ("e, ", [Arguments(", true")]),
        ("])", [Arguments("]}"), CallDone()]),
        (", get_", []),
        ("weather()", [Call(name="get_weather"), Arguments("{}"), CallDone()]),
    ],
    "no call": [("[", []), ("1", []), ("]", said("[1]")), (" a", said(" a"))],
    "undeclared": [("[nope", []), ("(", said("[nope(")), ("a", said("a"))],
    "half a marker": [
        ("[search(a=1 <|py", [Call(name="search"), Arguments('{"a": ')]),
        ("x)", [Arguments("1 <|pyx}"), CallDone()]),
    ],
}


@pytest.mark.parametrize("stream", [pytest.param(stream, id=name) for name, stream in STREAMS.items()])
def test_nothing_is_held_back_that_can_be_known(stream: list[tuple[str, list[Fragment]]]) -> None:
    subject = parser(LLAMA_PYTHONIC)
    for piece, fragments in stream:
        assert merged(subject.feed(piece)) == fragments, piece


@pytest.mark.parametrize(
    ("pieces", "fragments"),
    [
        (["^<|python_start|>", "[search(a='<|python_end|>')]", "^<|python_end|>", " b"],
         [*called('{"a": "<|python_end|>"}', "search"), *said("b")]),
        (["^<|python_start|>", "[search(a='b", "^<|python_end|>", "c"], [*called('{"a": "b', "search"), *said("c")]),
        (["^<|python_start|>", "[search(a='b\\x", "^<|python_end|>", "c"], [*called('{"a": "b', "search"), *said("c")]),
        (["[search(a='b", "^<|python_start|>", "[search()]"], [*called('{"a": "b', "search"), *called("{}", "search")]),
        (["[sea", "^<|python_start|>", "[search()]"], [*said("[sea"), *called("{}", "search")]),
        (["[search(a=1), ", "^<|python_end|>", "b"], [*called('{"a": 1}', "search"), *said("b")]),
        (["[search(a=1), sea", "^<|python_end|>", "b"], [*called('{"a": 1}', "search"), *said("seab")]),
        (["^<|python_start|>", "^<|python_end|>", "b"], said("<|python_start|>b")),
        (["a", "^<|python_end|>", "b"], said("ab")),
    ],
)  # fmt: skip
def test_markers_that_are_control_tokens(pieces: list[str], fragments: list[Fragment]) -> None:
    assert tokens(LLAMA_PYTHONIC, pieces, (PYTHON_START, PYTHON_END)) == fragments


@pytest.mark.parametrize(
    ("pieces", "fragments"),
    [
        (["^<think>", "a", "^</think>", "^<|tool_call_start|>", "[search()]", "^<|tool_call_end|>"],
         [*thought("a"), *called("{}", "search")]),
        (["^<|tool_call_start|>", "[search(a=", "^<think>", "1)]"], called('{"a": <think>1}', "search")),
        (["^<|tool_call_start|>", "[search(a='b", "^<think>", "\"')]"], called('{"a": "b<think>\\""}', "search")),
        (["^<|tool_call_start|>", "[se", "^<think>", "a"], said("<|tool_call_start|>[se<think>a")),
    ],
)  # fmt: skip
def test_tokens_of_other_markers_are_their_spelling(pieces: list[str], fragments: list[Fragment]) -> None:
    assert tokens(LFM2, pieces, ("<think>", "</think>", "<|tool_call_start|>", "<|tool_call_end|>")) == fragments


@pytest.mark.parametrize("fits", [True, False])
def test_a_name_must_come_before_the_limit(fits: bool) -> None:
    """The limit falls on one and the same character however the output is cut."""
    space = " " * (HEAD_LIMIT - len("[search(") + (not fits))
    output = f"[{space}search(a=1)]"
    fragments = called('{"a": 1}', "search") if fits else said(output)
    assert three_cuts(lambda pieces: parse(parser(LLAMA_PYTHONIC), pieces), output) == fragments


@pytest.mark.parametrize("fits", [True, False])
def test_a_word_longer_than_the_limit_is_no_key(fits: bool) -> None:
    key = "k" * (WORD_LIMIT + (not fits))
    for pieces in ([f"[search({key}=1)]"], [*f"[search({key}=1)]"], [f"[search({key[:-1]}", f"{key[-1]}=1)]"]):
        expected = f'"{key}"' if fits else key
        assert parse(parser(LLAMA_PYTHONIC), pieces) == called(f"{{{expected}: 1}}", "search")


@pytest.mark.parametrize("piece", ["k" * 4096, " " * 4096])
def test_endless_arguments_are_not_kept(piece: str) -> None:
    subject = parser(LLAMA_PYTHONIC)
    subject.feed("[search(")
    tracemalloc.start()
    try:
        for _ in range(500):
            subject.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 500_000  # of 2 MB
    finally:
        tracemalloc.stop()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8), values, max_size=4),
    max_leaves=6,
)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(names, json_values, max_size=4))
def test_what_python_writes_is_read(arguments: dict[str, Any]) -> None:
    written = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    fragments = parse(parser(LLAMA_PYTHONIC), [f"[search({written})]"])
    assert json.loads(_arguments(fragments)) == arguments


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(names, json_values, max_size=4))
def test_what_json_writes_is_read(arguments: dict[str, Any]) -> None:
    written = ",".join(f"{key}={json.dumps(value)}" for key, value in arguments.items())
    fragments = parse(parser(LLAMA_PYTHONIC), [f"[search({written})]"])
    assert json.loads(_arguments(fragments)) == arguments


def _arguments(fragments: list[Fragment]) -> str:
    call, arguments, done = fragments
    assert isinstance(call, Call) and isinstance(arguments, Arguments) and isinstance(done, CallDone)
    return arguments.text


PIECES = [
    PYTHON_START, PYTHON_END, "<|tool_call_start|>", "<|tool_call_end|>", "<think>", "</think>", "<", "<|", "python_",
    "[", "]", "(", ")", "{", "}", ",", "=", ":", "'", '"', "\\", " ", "\n", "search", "[search(", "nope(", "a=", "True",
    "1", "u00e4", "x41", "é", "😀", ";", "<|tool_call_start|>[search(a='",
]  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=15).map("".join),
    st.sampled_from([LLAMA_PYTHONIC, LFM2]),
    st.sets(st.sampled_from([PYTHON_START, PYTHON_END, "<|tool_call_start|>", "<think>"])),
)
def test_no_output_raises_and_no_cut_matters(output: str, dialect: Dialect, control: set[str]) -> None:
    check_order(read(dialect, Case(output, [], control=tuple(sorted(control)))))


@settings(deadline=None)
@given(st.lists(st.sampled_from([*PIECES, "^<|tool_call_start|>", "^<|tool_call_end|>", "^<think>"]), max_size=15))
def test_no_tokens_raise(pieces: list[str]) -> None:
    check_order(tokens(LFM2, pieces, ("<|tool_call_start|>", "<|tool_call_end|>", "<think>")))


# Grammars.

NODE = {
    "$defs": {
        "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "additionalProperties": False}
    },
    "type": "object",
    "properties": {"node": {"$ref": "#/$defs/Node"}},
    "required": ["node"],
}
STRICT = ToolDefinition(
    "get_weather",
    "",
    {
        "type": "object",
        "properties": {
            "unit": {"enum": ["c", "k"]},
            "city": {"type": "string"},
            "days": {"type": "integer", "maximum": 9},
            "raw": True,
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    strict=True,
)
LOOSE = ToolDefinition("search", "", {"type": "object", "properties": {"q": {"type": "string"}, "a b": {}}})
TREE = ToolDefinition("tree", "", NODE, strict=True)
NONE = ToolDefinition("now", "", {})
ANY = ToolDefinition("any", "", {"type": "object"})
OPTIONAL = ToolDefinition(
    "opt", "", {"properties": {key: {"type": "integer"} for key in "abc"}, "additionalProperties": False}, strict=True
)
PATCH = ToolDefinition("patch", "", {}, strict=True, input=InputGrammar("regex", "[a-z]+(\n[a-z]+)*"))
TOOLS = (STRICT, LOOSE, TREE, NONE, ANY, OPTIONAL, PATCH)
REQUIRED = Wanted(tools=TOOLS, calls="required")
ONE = Wanted(tools=TOOLS, calls="required", several=False)
ALLOWED = Wanted(tools=TOOLS, calls="allowed")


@pytest.mark.parametrize(
    ("output", "calls"),
    [
        ('[get_weather(city="Ulm")]', [("get_weather", {"city": "Ulm"})]),
        ('[get_weather(unit="c", city="ü\\"\\n", days=3, raw={"a": [null, true]})]',
         [("get_weather", {"unit": "c", "city": 'ü"\n', "days": 3, "raw": {"a": [None, True]}})]),
        ('[get_weather(city="a",days=3)]', [("get_weather", {"city": "a", "days": 3})]),
        ("[now(), now()]", [("now", {}), ("now", {})]),
        ("[search()]", [("search", {})]),
        ('[search(q=[1, {"a": "b"}])]', [("search", {"q": [1, {"a": "b"}]})]),
        ('[any(x_1="a", y=null)]', [("any", {"x_1": "a", "y": None})]),
        ('[tree(node={"next": {"next": {}}})]', [("tree", {"node": {"next": {"next": {}}}})]),
        ("[opt()]", [("opt", {})]),
        ("[opt(b=1)]", [("opt", {"b": 1})]),
        ("[opt(a=1, c=-2)]", [("opt", {"a": 1, "c": -2})]),
        ('[patch(input="a\\nb")]', [("patch", {"input": "a\nb"})]),
    ],
)  # fmt: skip
def test_what_the_grammar_lets_through_is_read_as_that(output: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    tools = {tool.name: tool.parameters for tool in TOOLS}
    for dialect, text in (
        (LLAMA_PYTHONIC, output),
        (LFM2, f"<|tool_call_start|>{output}<|tool_call_end|>"),
    ):
        assert let_through(dialect, REQUIRED, [text]) == f"{text}$"
        subject = dialect.parser(tools=tools, calls=True, control=(), reasoning_open=False)
        fragments = parse(subject, [text])
        texts = [json.loads(fragment.text) for fragment in fragments if isinstance(fragment, Arguments)]
        found = [fragment.name for fragment in fragments if isinstance(fragment, Call)]
        assert list(zip(found, texts, strict=True)) == calls
        assert len(fragments) == 3 * len(calls)


@pytest.mark.parametrize(
    ("wanted", "output", "passed"),
    [
        (REQUIRED, "[zzz()]", "["),
        (REQUIRED, "[]", "["),
        (REQUIRED, "Hello", ""),
        (REQUIRED, '[get_weather(unit="c")]', '[get_weather(unit="c"'),
        (REQUIRED, '[get_weather(city="a", unit="c")]', '[get_weather(city="a", '),
        (REQUIRED, '[get_weather(city="a", days=12)]', '[get_weather(city="a", days=1'),
        (REQUIRED, "[get_weather(city='a')]", "[get_weather(city="),
        (REQUIRED, "[get_weather(town=", "[get_weather("),
        (REQUIRED, "[get_weather()]", "[get_weather("),
        (REQUIRED, "[get_weather(days=3)]", "[get_weather("),
        (REQUIRED, "[search(a b=1)]", "[search("),
        (REQUIRED, '[tree(node={"x"', '[tree(node={"'),
        (REQUIRED, "[opt(b=1, a=1)]", "[opt(b=1, "),
        (REQUIRED, "[now(a=1)]", "[now("),
        (REQUIRED, '[patch(input="A")]', '[patch(input="'),
        (ONE, "[now(), now()]", "[now()"),
        (ALLOWED, "Hello [now(x)", "Hello [now(x)$"),
        (ALLOWED, "[now()]", "[now()]$"),
        (ALLOWED, "[1] Miller", "["),
    ],
)
def test_the_grammar_lets_nothing_else_through(wanted: Wanted, output: str, passed: str) -> None:
    assert let_through(LLAMA_PYTHONIC, wanted, [output]) == passed


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}}, r"`\$ref` at the top"),
        ({"type": "object", "minProperties": 1}, "`minProperties` at the top"),
        ({"properties": {"a b": {}}}, "`properties` of 'f': .* 'a b'"),
        ({"properties": {"a": {}}, "required": ["b"]}, "`required` of 'f'"),
        ({"properties": {"a": {}}, "required": [[]]}, "`required` of 'f'"),
        ({"properties": {"a": {}}, "required": "a"}, "`required` of 'f'"),
        ({"properties": ["a"]}, "`properties` of 'f' must hold a schema"),
        ({"properties": {"a": 5}}, "`properties` of 'f' must hold a schema"),
        ({"properties": {"a": {"anyOf": [{"items": {"$ref": "#"}}]}}}, r"`\$ref` to '#'"),
    ],
)
def test_what_cannot_be_expressed_is_refused(parameters: dict[str, Any], reason: str) -> None:
    tool = ToolDefinition("f", "", parameters, strict=True)
    with pytest.raises(ValueError, match=reason):
        let_through(LLAMA_PYTHONIC, Wanted(tools=[tool], calls="required"), [])


def test_a_tool_that_is_not_strict_is_not_held_to_its_schema() -> None:
    tool = ToolDefinition("f", "", {"anyOf": [{}], "properties": {"a": {"$ref": "#"}}, "required": ["b"]})
    wanted = Wanted(tools=[tool], calls="required")
    assert let_through(LLAMA_PYTHONIC, wanted, ["[f(a=1, a=[2])]"]) == "[f(a=1, a=[2])]$"


def test_control_tokens_of_the_markers() -> None:
    control = ("<|tool_call_start|>", "<|tool_call_end|>", "<think>", "</think>")
    wanted = Wanted(tools=[NONE], calls="required", thinking="possible")
    pieces = ["^<think>", "a", "^</think>", "\n", "^<|tool_call_start|>", "[now()]", "^<|tool_call_end|>"]
    assert let_through(LFM2, wanted, pieces, control) == "".join(pieces) + "$"
    assert tokens(LFM2, ["^<|tool_call_start|>", "[search()]", "^<|tool_call_end|>"], control) == called("{}", "search")


def test_a_cut_call_stays_open() -> None:
    assert parse(parser(LLAMA_PYTHONIC), ["[search(a=1"]) == cut('{"a": 1', "search")
