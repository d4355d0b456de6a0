from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment
from antiphon.text.dialects.dialect import Dialect
from antiphon.text.dialects.gemma import GEMMA, GEMMA_4
from antiphon.text.dialects.grammar import Wanted
from antiphon.text.lark import Lark
from antiphon.text.messages import InputGrammar, ToolDefinition
from tests.text.dialects.corpus import Case, called, cut, said, thought
from tests.text.dialects.corpus_gemma import GEMMA as GEMMA_CORPUS
from tests.text.dialects.corpus_gemma import GEMMA_4 as GEMMA_4_CORPUS
from tests.text.dialects.runs import check_beginnings, check_order, let_through, parse, parser, read, tokens
from tests.three_cuts import merged

OPENING, CLOSING, DELIMITER = "<|tool_call>", "<tool_call|>", '<|"|>'
CONTROL = (OPENING, CLOSING, DELIMITER, "<|channel>", "<channel|>", "<|tool_response>")

ALL = [
    pytest.param(dialect, case, id=f"{dialect.name}: {name}")
    for dialect, corpus in ((GEMMA, GEMMA_CORPUS), (GEMMA_4, GEMMA_4_CORPUS))
    for name, case in corpus.items()
]


@pytest.mark.parametrize(("dialect", "case"), ALL)
def test_output_gives_these_fragments_however_it_is_cut(dialect: Dialect, case: Case) -> None:
    assert read(dialect, case) == case.fragments


def test_output_may_end_at_any_character() -> None:
    block = f"{OPENING}call:search{{a:{DELIMITER}b\n{DELIMITER},c:[1,{{d:'e\\u00e4'}}]}}{CLOSING}"
    check_beginnings(GEMMA_4, f"<|channel>thought\nHm.<channel|>{block}\n{block} ok")


# What goes out with each piece: as much as can be known.
STREAM: list[tuple[str, list[Fragment]]] = [
    ("<|channel>", []),
    ("thought", []),
    ("\nHm.", thought("Hm.")[:1]),
    ("<channel|>", thought("Hm.")[1:]),
    (OPENING, []),
    ("call:sea", []),
    ("rch", []),
    ("{", [Call(name="search"), Arguments("{")]),
    ("q", []),
    (":", [Arguments('"q": ')]),
    (DELIMITER, [Arguments('"')]),
    ('a "', [Arguments('a \\"')]),
    ("<|", []),
    ('"', []),
    ("b\n", [Arguments('<|\\"b\\n')]),
    (DELIMITER, [Arguments('"')]),
    (",n:3", [Arguments(', "n": ')]),
    ("}", [Arguments("3}"), CallDone()]),
    (CLOSING, []),
    ("ok", said("ok")),
]


def test_nothing_is_held_back_that_can_be_known() -> None:
    subject = parser(GEMMA_4)
    for piece, fragments in STREAM:
        assert merged(subject.feed(piece)) == fragments, piece


@pytest.mark.parametrize(
    ("pieces", "fragments"),
    [
        (["^<|tool_call>", "call:search{q:", '^<|"|>', "a", '^<|"|>', "}", "^<tool_call|>"],
         called('{"q": "a"}', "search")),
        (["^<|tool_call>", "call:search{q:", '^<|"|>', 'a <|"|> b', '^<|"|>', "}", "^<tool_call|>"],
         called('{"q": "a <|\\"|> b"}', "search")),
        (["^<|tool_call>", "call:search{q:", '^<|"|>', "a", "^<tool_call|>", "b"],
         [*called('{"q": "a', "search"), *said("b")]),
        (["^<|tool_call>", "call:search{q:", '^<|"|>', "a", "^<|tool_call>", "call:search{}"],
         [*called('{"q": "a', "search"), *called("{}", "search")]),
        (["^<|tool_call>", "call:search{", '^<|"|>', "a b", '^<|"|>', ":1}"], called('{"a b": 1}', "search")),
        (["^<|tool_call>", "call:search{q:'a", '^<|"|>', "b'}"], called('{"q": "a<|\\"|>b"}', "search")),
        (["^<|tool_call>", "call:sea", '^<|"|>', "b"], said('<|tool_call>call:sea<|"|>b')),
        (["a", '^<|"|>', "b"], said('a<|"|>b')),
        (["^<|channel>", "thought\na", '^<|"|>', "b", "^<channel|>", "c"], [*thought('a<|"|>b'), *said("c")]),
        (["a", "^<channel|>", "b", "^<|tool_response>"], said("ab")),
        (["^<|channel>", "thought", "^<channel|>", "a"], said("a")),
        (["^<|channel>", "final"], said("<|channel>final")),
    ],
)  # fmt: skip
def test_markers_that_are_control_tokens(pieces: list[str], fragments: list[Fragment]) -> None:
    assert tokens(GEMMA_4, pieces, CONTROL) == fragments


names = st.from_regex(r"[a-z_][a-z0-9_-]{0,9}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(names, values, max_size=4),
    max_leaves=6,
)


def written(value: Any) -> str:
    """As the family's templates write it."""
    match value:
        case str():
            return f"{DELIMITER}{value}{DELIMITER}"
        case dict():
            return "{" + ",".join(f"{key}:{written(value[key])}" for key in sorted(value)) + "}"
        case list():
            return f"[{','.join(map(written, value))}]"
        case bool():
            return str(value).lower()
    return str(value)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(names, json_values, max_size=4))
def test_what_templates_write_is_read(arguments: dict[str, Any]) -> None:
    fragments = parse(parser(GEMMA_4), [f"{OPENING}call:search{written(arguments)}{CLOSING}"])
    call, said, done = fragments
    assert isinstance(call, Call) and isinstance(said, Arguments) and isinstance(done, CallDone)
    assert json.loads(said.text) == arguments


PIECES = [
    OPENING, CLOSING, DELIMITER, "<|channel>", "thought", "<channel|>", "<", "<|", "|>", '"', "'", "call:", "search",
    "nope", "{", "}", "[", "]", "(", ":", ",", " ", "\n", "a", "1", "None", "\\", "é", f"{OPENING}call:search{{a:",
    f"{OPENING}call:search{{a:{DELIMITER}", "<|tool_response>",
]  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=15).map("".join), st.sets(st.sampled_from(CONTROL)))
def test_no_output_raises_and_no_cut_matters(output: str, control: set[str]) -> None:
    check_order(read(GEMMA_4, Case(output, [], control=tuple(sorted(control)))))


@settings(deadline=None)
@given(st.lists(st.sampled_from([*PIECES, *(f"^{token}" for token in CONTROL)]), max_size=15))
def test_no_tokens_raise(pieces: list[str]) -> None:
    check_order(tokens(GEMMA_4, pieces, CONTROL))


# Grammars.


def strict(name: str, **properties: Any) -> ToolDefinition:
    """A tool whose call must have all of these."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "$defs": DEFINITIONS,
        "definitions": {"a/b": {"type": "string"}},
    }
    return ToolDefinition(name, "", schema, strict=True)


DEFINITIONS = {
    "Point": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x"]},
    "Node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}},
}
TOOLS = (
    strict("text", q={"type": "string", "description": "What."}),
    strict("pick", one={"enum": ["a", "", 'say "x"', None, 2]}, two={"type": "string", "const": "b"}),
    strict(
        "kinds",
        value={"type": ["string", "null"], "enum": ["a", 1, None, True, 1.5]},
        n={"type": "number", "enum": [1, 1.5]},
    ),
    strict("scalar", i={"type": "integer"}, n={"type": "number"}, b={"type": "boolean"}, z={"type": "null"}),
    strict("several", v={"type": ["integer", "string"]}, w={"anyOf": [{"type": "string"}, {"type": "null"}]}),
    strict("many", tags={"type": "array", "items": {"type": "string"}}, free={"type": "array"}),
    strict("point", at={"$ref": "#/$defs/Point"}, all={"allOf": [{"$ref": "#/$defs/Point"}]}),
    strict("tree", node={"$ref": "#/$defs/Node"}),
    strict("far", a={"$ref": "#/definitions/a~1b"}),
    strict("maps", m={"type": "object", "additionalProperties": {"type": "integer"}}, e={"type": "object"}),
    strict("closed", o={"type": "object", "properties": {}, "additionalProperties": False}),
    strict("bound", s={"type": "string", "pattern": "^[a-c]+$"}, n={"type": "integer", "maximum": 9}),
    strict("fixed", a={"type": "array", "items": {"type": "integer"}, "maxItems": 1}, c={"const": {"k": [1]}}),
    strict("odd", **{"a b": {"type": "string"}, "c": {"const": DELIMITER}, "d": {}}),
    ToolDefinition("loose", "", {"properties": {"q": {"type": "string"}, "n": False}}),
    ToolDefinition("any", "", {"type": "object"}),
    ToolDefinition("now", "", {}),
    ToolDefinition("patch", "", {}, strict=True, input=InputGrammar("regex", "[a-z]+(\n[a-z]+)*")),
)
REQUIRED = Wanted(tools=TOOLS, calls="required")
ALLOWED = Wanted(tools=TOOLS, calls="allowed", thinking="possible")


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        ("text{q:~a \"b\" {\n~}", "text", {"q": 'a "b" {\n'}),
        ("pick{one:~~,two:~b~}", "pick", {"one": "", "two": "b"}),
        ("pick{one:~say \"x\"~,two:~b~}", "pick", {"one": 'say "x"', "two": "b"}),
        ("pick{one:null,two:~b~}", "pick", {"one": None, "two": "b"}),
        ("kinds{value:null,n:1.5}", "kinds", {"value": None, "n": 1.5}),
        ("scalar{i:-12,n:1.5e-3,b:true,z:null}", "scalar", {"i": -12, "n": 0.0015, "b": True, "z": None}),
        ("several{v:~a~,w:null}", "several", {"v": "a", "w": None}),
        ("many{tags:[~a~,~b~],free:[1,[~c~],{d:{}}]}", "many", {"tags": ["a", "b"], "free": [1, ["c"], {"d": {}}]}),
        ("many{tags:[],free:[]}", "many", {"tags": [], "free": []}),
        ("point{at:{x:1,y:2},all:{x:3}}", "point", {"at": {"x": 1, "y": 2}, "all": {"x": 3}}),
        ('tree{node:{next:{"next": null}}}', "tree", {"node": {"next": {"next": None}}}),
        ("far{a:~x~}", "far", {"a": "x"}),
        ("maps{m:{a:1,b:2},e:{k:~v~,~l~:[]}}", "maps", {"m": {"a": 1, "b": 2}, "e": {"k": "v", "l": []}}),
        ("closed{o:{}}", "closed", {"o": {}}),
        ('bound{s:"abc",n:9}', "bound", {"s": "abc", "n": 9}),
        ('fixed{a:[7],c:{"k":[1]}}', "fixed", {"a": [7], "c": {"k": [1]}}),
        ('odd{"a b":~x~,c:"^",d:[~y~]}', "odd", {"a b": "x", "c": DELIMITER, "d": ["y"]}),
        ("loose{n:{a:[true]},q:1}", "loose", {"n": {"a": [True]}, "q": 1}),
        ("loose{}", "loose", {}),
        ("any{a_1:~x~}", "any", {"a_1": "x"}),
        ("now{}", "now", {}),
        ('patch{input:"a\\nb"}', "patch", {"input": "a\nb"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_tokens", [False, True], ids=["text", "tokens"])
def test_what_the_grammar_lets_through_is_read_as_that(
    call: str, name: str, arguments: dict[str, Any], as_tokens: bool
) -> None:
    quoted = json.dumps(DELIMITER)[1:-1]
    texts = f"call:{call}".replace("^", quoted).split("~")
    pieces = [OPENING, texts[0]]
    for text in texts[1:]:
        pieces += [DELIMITER, text]
    pieces = [f"^{piece}" if as_tokens and piece in CONTROL else piece for piece in [*pieces, CLOSING]]
    control = CONTROL if as_tokens else ()
    assert let_through(GEMMA_4, REQUIRED, pieces, control) == "".join(pieces) + "$"
    tools = {tool.name: tool.parameters for tool in TOOLS}
    subject = GEMMA_4.parser(tools=tools, calls=True, control=control, reasoning_open=False)
    fragments: list[Fragment] = []
    for piece in pieces:
        fragments += subject.control(piece[1:]) if piece.startswith("^") else subject.feed(piece)
    found, said, done = merged(fragments + subject.finish())
    assert found == Call(name=name) and done == CallDone()
    assert isinstance(said, Arguments) and json.loads(said.text) == arguments


@pytest.mark.parametrize(
    ("wanted", "call", "passed"),
    [
        (REQUIRED, "zzz{}", ""),
        (REQUIRED, "text{}", "text{"),
        (REQUIRED, "text{q:1}", "text{q:"),
        (REQUIRED, 'text{q:"a"}', "text{q:"),
        (REQUIRED, "pick{one:~c~", "pick{one:~"),
        (REQUIRED, "kinds{value:1}", "kinds{value:"),
        (REQUIRED, "kinds{value:true}", "kinds{value:"),
        (REQUIRED, "scalar{i:1.5", "scalar{i:1"),
        (REQUIRED, "point{at:{y:2}", "point{at:{"),
        (REQUIRED, "bound{s:~a~", "bound{s:"),
        (REQUIRED, 'bound{s:"d', 'bound{s:"'),
        (REQUIRED, "closed{o:{a", "closed{o:{"),
        (REQUIRED, "loose{x:1}", "loose{"),
        (REQUIRED, "now{a", "now{"),
        (ALLOWED, "text{q:1}", "text{q:"),
    ],
)
def test_the_grammar_lets_nothing_else_through(wanted: Wanted, call: str, passed: str) -> None:
    output = f"{OPENING}call:{call}".replace("~", DELIMITER)
    assert let_through(GEMMA_4, wanted, [output]) == f"{OPENING}call:{passed}".replace("~", DELIMITER)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/Nothing"},
        {"type": "array", "items": 5},
        {"type": "object", "properties": [1]},
        {"type": "object", "properties": {"a": 1}},
        {"type": "object", "required": ["a"]},
        {"type": "object", "additionalProperties": 5},
        {"anyOf": []},
        {"anyOf": [5]},
        {"enum": 5},
        {"enum": ["a"], "type": 5},
        {"type": 5},
        {"type": "colour"},
        {"oneOf": [{"type": "string"}]},
        False,
    ],
)
def test_what_the_form_cannot_express_is_asked_for_as_json(schema: Any) -> None:
    """Whatever it is: the grammar engine judges it."""
    tool = strict("f", a=schema)
    calling = GEMMA_4.calling
    assert calling is not None
    lark = Lark({})
    calling.call(lark, tool)
    assert "%json" in lark.grammar("")


def test_nesting_without_a_schema_has_a_bound() -> None:
    deep = f"{OPENING}call:any{{a:{'[' * 7}"
    assert let_through(GEMMA_4, REQUIRED, [deep]) == deep[:-1]


def test_thinking_and_text_stay_free() -> None:
    call = f"{OPENING}call:now{{}}{CLOSING}"
    output = f"<|channel>thought\n{OPENING}x<channel|>a {call} b {call}"
    assert let_through(GEMMA_4, ALLOWED, [output]) == f"{output}$"
    pieces = ["^<|channel>", "thought\nx", "^<channel|>", "a ", f"^{OPENING}", "call:now{}", f"^{CLOSING}", " b"]
    assert let_through(GEMMA_4, ALLOWED, pieces, CONTROL) == "".join(pieces) + "$"
    assert let_through(GEMMA_4, ALLOWED, ["a ", f"^{DELIMITER}"], CONTROL) == "a "


def test_what_cannot_be_expressed_is_refused() -> None:
    tool = ToolDefinition("f", "", {"type": "object", "anyOf": [{}]}, strict=True)
    with pytest.raises(ValueError, match="`anyOf` at the top"):
        let_through(GEMMA_4, Wanted(tools=[tool], calls="required"), [])


def test_a_cut_call_stays_open() -> None:
    assert parse(parser(GEMMA_4), [f"{OPENING}call:search{{a:1"]) == cut('{"a": 1', "search")
