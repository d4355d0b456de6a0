"""A custom tool's input, out of the arguments that a model writes, however they are cut."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning, ReasoningDone, Text
from antiphon.text.constraint import Grammars
from antiphon.text.dialects import DIALECTS
from antiphon.text.dialects.grammar import Wanted
from antiphon.text.messages import InputGrammar, ToolDefinition
from antiphon.text.tool_input import BEGINNING_LIMIT, ToolInputs
from tests.text.dialects.walks import walk
from tests.text.vocabulary import EndingTokenizer
from tests.three_cuts import merged, three_cuts

PATCH = '*** Begin Patch\n*** Add File: "é"\n+a\\b\t😀\n*** End Patch\n'
OPENING, CLOSING = "<tool_call>", "</tool_call>"
CUSTOM = Call(name="patch", namespace="files", custom=True)
FUNCTION = Call(name="list", namespace="files")


def restored(call: Call) -> Call:
    return {"files__patch": CUSTOM, "files__list": FUNCTION}.get(call.name, call)


def parser(*control: str) -> ToolInputs:
    tools: dict[str, dict[str, Any]] = {name: {} for name in ("files__patch", "files__list", "f")}
    dialect = DIALECTS["hermes"].parser(tools=tools, calls=True, control=control, reasoning_open=False)
    return ToolInputs(dialect, restored)


def read(pieces: Sequence[str]) -> list[Fragment]:
    made = parser()
    fragments = [fragment for piece in pieces for fragment in made.feed(piece)]
    assert all(getattr(fragment, "text", "some") for fragment in fragments)
    return merged([*fragments, *made.finish()])


def call(arguments: str, name: str = "files__patch") -> str:
    return f'{OPENING}{{"name": "{name}", "arguments": {arguments}}}{CLOSING}'


def said(arguments: str) -> str:
    """The input of one whole call."""
    opened, *texts, done = three_cuts(read, call(arguments))
    assert (opened, done) == (CUSTOM, CallDone())
    return "".join(text.text for text in texts if isinstance(text, Arguments))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (json.dumps({"input": PATCH}), PATCH),
        (json.dumps({"input": PATCH}, ensure_ascii=False, indent=4), PATCH),
        ('{"input":""}', ""),
        ('{ \n"input" :\t"a" \r\n}', "a"),
        (r'{"input": "\ud83d\ude00\u00e9\/\b"}', "😀é/\b"),
        ('{"input": "a\n\tb"}', "a\n\tb"),
        (r'{"input": "a\qb\u00zz"}', r"a\qb\u00zz"),
        (r'{"input": "a\ud83d"}', "a\N{REPLACEMENT CHARACTER}"),
        ('{"input": "</tool_call>"}', "</tool_call>"),
        ("{}", ""),
        ("{ }", ""),
    ],
)
def test_a_wrapped_input_is_what_its_string_says(arguments: str, expected: str) -> None:
    assert said(arguments) == expected


def test_a_call_without_arguments_has_an_empty_input() -> None:
    assert three_cuts(read, '<tool_call>{"name": "files__patch"}</tool_call>') == [CUSTOM, CallDone()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls -l", "ls -l"),
        (' "ls\n-l" ', "ls\n-l"),
        ('{"input": "ls"}', "ls"),
        ("  ls", "  ls"),
        ("", ""),
        ("   ", "   "),
        ('"ls', "ls"),
        ('"ls" -l', "ls-l"),
        ('"ls"}', "ls}"),
        (" " * (BEGINNING_LIMIT + 9) + '{"input": "ls"}', " " * (BEGINNING_LIMIT + 9) + '{"input": "ls"}'),
    ],
)
def test_arguments_that_were_a_string(text: str, expected: str) -> None:
    """The dialect has read the string; what it says may be wrapped, a string again, or the plain input."""
    assert said(json.dumps(text)) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        '{"patch": "a"}',
        '{"text": "a", "input": "b"}',
        '{"inputs": "a"}',
        '{"in put": "a"}',
        '{ "input": 5 }',
        '{"input": {"a": "b"}}',
        '{"input" "a"}',
        '[{"input": "a"}]',
        "12",
        "null",
    ],
)
def test_other_arguments_are_the_input_as_they_are(arguments: str) -> None:
    assert said(arguments) == arguments


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"input": "a", "timeout": 5}', 'a, "timeout": 5}'),
        ('{"input": "a" "b"}', 'a"b"}'),
    ],
)
def test_what_stands_behind_the_input_is_not_lost(arguments: str, expected: str) -> None:
    assert said(arguments) == expected


@pytest.mark.parametrize(
    ("half", "expected"),
    [
        ('{"inp', '{"inp'),
        ('{"input": ', '{"input": '),
        ('{"input": "a', "a"),
        ('{"input": "a\\', "a\\"),
        ('{"input": "a\\u00', "a\\u00"),
        ('{"input": "a\\ud83d', "a\N{REPLACEMENT CHARACTER}"),
        ('{"input": "a"', "a"),
        ("{", "{"),
    ],
)
def test_half_an_input_is_text_where_the_call_ends_and_dropped_where_the_output_does(half: str, expected: str) -> None:
    text = f'{{"name": "files__patch", "arguments": {half}'
    assert three_cuts(ended, text) == [CUSTOM, Arguments(expected), CallDone()]
    cut = three_cuts(read, OPENING + text)
    shown = "a" if "a" in expected else ""
    assert cut == [CUSTOM, *([Arguments(shown)] if shown else [])]


def ended(pieces: Sequence[str]) -> list[Fragment]:
    """The call of these pieces, between tags that are tokens, and so end it wherever it is."""
    made = parser(OPENING, CLOSING)
    fragments = made.control(OPENING)
    for piece in pieces:
        fragments += made.feed(piece)
    return merged([*fragments, *made.control(CLOSING), *made.finish()])


def test_an_output_that_ends_anywhere_shows_what_it_has_come_to() -> None:
    text = f"so{call(json.dumps({'input': PATCH}))}"
    for end in range(len(text)):
        fragments = read([text[:end]])
        assert read(list(text[:end])) == fragments
        shown = "".join(fragment.text for fragment in fragments if isinstance(fragment, Arguments))
        assert PATCH.startswith(shown)


def test_other_calls_get_their_names_and_keep_their_arguments() -> None:
    calls = call('{"input": "a"}', "files__list") + call('{"input":  "b"}', "f")
    assert three_cuts(read, f"<think>a</think>b{calls}c") == [
        Reasoning("a"),
        ReasoningDone(),
        Text("b"),
        FUNCTION,
        Arguments('{"input": "a"}'),
        CallDone(),
        Call(name="f"),
        Arguments('{"input":  "b"}'),
        CallDone(),
        Text("c"),
    ]


def test_calls_of_both_kinds_follow_each_other() -> None:
    one, two = call('{"input": "a"}'), call('{"input": "b"}', "files__list")
    a = [CUSTOM, Arguments("a"), CallDone()]
    b = [FUNCTION, Arguments('{"input": "b"}'), CallDone()]
    assert three_cuts(read, one + two + one + one) == [*a, *b, *a, *a]


def test_the_input_streams() -> None:
    made = parser()
    made.feed('<tool_call>{"name": "files__patch", "arguments": {"input": "')
    assert [made.feed(piece) for piece in ("a", "\\", "n", "b")] == [
        [Arguments("a")],
        [],
        [Arguments("\n")],
        [Arguments("b")],
    ]


def test_control_tokens_and_thinking_are_the_dialect_s() -> None:
    made = parser("<x>")
    assert made.control("<x>") == []
    made.feed("<think>")
    assert made.in_reasoning
    made.feed("a</think>")
    assert not made.in_reasoning


def test_whatever_the_grammar_lets_through_is_read_as_an_input_that_obeys_it() -> None:
    """A model that knows nothing, held by the grammar alone."""
    lines = InputGrammar("lark", 'start: line{1,4}\nline: /[^\\n]{0,9}/ "\\n"')
    tool = ToolDefinition("files__patch", strict=True, input=lines)
    wanted = Wanted(tools=[tool], calls="required", several=False)
    tokenizer = EndingTokenizer()
    grammars = Grammars(tokenizer)
    inputs: set[str] = set()
    for seed in range(12):
        pieces, finished = walk(DIALECTS["hermes"], wanted, tokenizer, seed, grammars)
        opened, *texts, done = read([piece for piece in pieces if isinstance(piece, str)])
        assert (finished, opened, done) == (True, CUSTOM, CallDone())
        inputs.add("".join(text.text for text in texts if isinstance(text, Arguments)))
    assert all(re.fullmatch(r"([^\n]{0,9}\n){1,4}", text) for text in inputs)
    assert len(inputs) > 6
