"""Outputs of models, and what each dialect makes of them. The declared tools are in `TOOLS`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning, ReasoningDone, Text
from antiphon.text.dialects.flow import SPACE_LIMIT

TOOLS: dict[str, dict[str, Any]] = {"get_weather": {}, "search": {}, "write-file": {}}


class Case(Struct, frozen=True):
    output: str
    fragments: list[Fragment]
    calls: bool = True
    reasoning_open: bool = False
    control: tuple[str, ...] = ()


def said(text: str) -> list[Fragment]:
    return [Text(text)]


def thought(text: str) -> list[Fragment]:
    return [Reasoning(text), ReasoningDone()]


def called(arguments: str = '{"city": "Ulm"}', name: str = "get_weather") -> list[Fragment]:
    return [Call(name=name), Arguments(arguments), CallDone()]


def cut(arguments: str, name: str = "get_weather") -> list[Fragment]:
    """A call that the end of the output cut."""
    return [Call(name=name), *([Arguments(arguments)] if arguments else [])]


def spelled(arguments: str = '{"city": "Ulm"}', name: str = "get_weather") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


NASTY = '{"text": "</tool_call> <tool_call>{\\"name\\": \\"x\\"} <think>\\\\"}'

PLAIN = {
    "nothing": Case("", []),
    "text": Case("Hello there.\n", said("Hello there.\n")),
    "whitespace alone": Case(" \n", said(" \n")),
    "markers are text": Case(
        "<think>a</think> <tool_call>{}</tool_call>", said("<think>a</think> <tool_call>{}</tool_call>")
    ),
    "a call is text": Case(spelled(), said(spelled())),
    "open thinking is text": Case("a</think>b", said("a</think>b"), reasoning_open=True),
    "half a marker": Case("a <thi", said("a <thi")),
    "angle brackets": Case("1 < 2 > 0 <<", said("1 < 2 > 0 <<")),
    "separators": Case("\n\na\n \nb\t", said("\n\na\n \nb\t")),
    "other scripts": Case("日本語\u3000と😀", said("日本語\u3000と😀")),
}

THINK = {
    "nothing": Case("", []),
    "half a closing tag behind a block": Case("<think>a</think></thi", thought("a")),
    "half a closing tag behind text": Case("<think>a</think>b</thi", [*thought("a"), *said("b</thi")]),
    "half a closing tag and no block": Case("</thi", said("</thi")),
    "text": Case("Hello there.", said("Hello there.")),
    "text keeps its whitespace": Case("\n Hello \n\n there. \n", said("\n Hello \n\n there. \n")),
    "whitespace alone": Case(" \n\n ", []),
    "block before the answer": Case("<think>\nHm.\n</think>\n\nYes.", [*thought("Hm."), *said("Yes.")]),
    "no whitespace": Case("<think>Hm.</think>Yes.", [*thought("Hm."), *said("Yes.")]),
    "whitespace inside": Case("<think> a \n\n b </think> c  d ", [*thought("a \n\n b"), *said("c  d ")]),
    "empty block": Case("<think>\n\n</think>\n\nYes.", said("Yes.")),
    "empty block without whitespace": Case("\n<think></think>Yes.", said("Yes.")),
    "empty block within text": Case("Hi <think>\n</think> there", said("Hi there")),
    "empty block behind a block": Case("<think>a</think>\n<think> </think>\nb", [*thought("a"), *said("b")]),
    "only an empty block": Case("<think>\n</think>\n", []),
    "two blocks": Case("<think>a</think>\n<think>b</think>", [*thought("a"), *thought("b")]),
    "block within text": Case("Hi. \n<think>a</think>\nBye.", [*said("Hi."), *thought("a"), *said("Bye.")]),
    "separator behind a block": Case("<think>a</think>\n\n", thought("a")),
    "separator before a block": Case("\n\n<think>a</think>b", [*thought("a"), *said("b")]),
    "cut inside": Case("<think>a b", [Reasoning("a b")]),
    "cut inside behind whitespace": Case("<think>\na \n", [Reasoning("a \n")]),
    "cut behind the tag": Case("<think>\n", []),
    "cut within the closing tag": Case("<think>a\n</thin", [Reasoning("a\n</thin")]),
    "cut within the opening tag": Case("a \n<thin", said("a \n<thin")),
    "text, then cut behind the tag": Case("Hi <think>", said("Hi ")),
    "false half markers": Case("a <thing> <<think>b</thinks></think>", [*said("a <thing> <"), *thought("b</thinks>")]),
    "tag in a block": Case("<think>a <think> b</think>c", [*thought("a <think> b"), *said("c")]),
    "closing tag behind text": Case("a</think>b", said("a</think>b")),
    "closing tag at the start": Case("\n</think>\n\na", said("a")),
    "closing tag twice": Case("<think>a</think></think> b", [*thought("a"), *said("b")]),
    "opened by the template": Case("Hm.\n</think>\nYes.", [*thought("Hm."), *said("Yes.")], reasoning_open=True),
    "opened by the template, at once closed": Case("\n</think>\n\nYes.", said("Yes."), reasoning_open=True),
    "opened by the template, never closed": Case("\nHm. ", [Reasoning("Hm. ")], reasoning_open=True),
    "opened by the template, twice closed": Case(
        "a</think>b</think>c", [*thought("a"), *said("b</think>c")], reasoning_open=True
    ),
    "a call is text": Case(spelled(), said(spelled())),
    "a call in thinking": Case(f"<think>{spelled()}</think>", thought(spelled())),
    "spelled control tokens": Case("<think>a</think> b", said("<think>a</think> b"), control=("<think>", "</think>")),
    "spelled closing token": Case("<think>a</think> b", [Reasoning("a</think> b")], control=("</think>",)),
    "other spaces are content": Case(
        "<think>\u00a0a\u3000</think>\u00a0b", [*thought("\u00a0a\u3000"), *said("\u00a0b")]
    ),
    "endless whitespace": Case("a" + "\n" * (SPACE_LIMIT + 3) + "<think>b</think>", [*said("a\n\n\n"), *thought("b")]),
    "endless whitespace at the start": Case("\n" * (SPACE_LIMIT + 2), said("\n" * (SPACE_LIMIT + 2))),
}

# What is new in hermes; it must also do all that think does, except that calls are text.
HERMES = {
    "a call": Case(spelled(), called()),
    "half a closing tag behind a call": Case(spelled().removesuffix("call>"), called()),
    "no whitespace": Case(
        '<tool_call>{"name":"get_weather","arguments":{"city":"Ulm"}}</tool_call>', called('{"city":"Ulm"}')
    ),
    "whitespace wherever JSON allows it": Case(
        '<tool_call> \n{\t"name" :\r\n"get_weather" , "arguments"\n: {"city" : "Ulm" } \n} \n </tool_call> ',
        called('{"city" : "Ulm" }'),
    ),
    "text round it": Case(f"Let me see.\n\n{spelled()}\nDone.", [*said("Let me see."), *called(), *said("Done.")]),
    "two calls": Case(f"{spelled()}\n{spelled('{}', 'search')}", [*called(), *called("{}", "search")]),
    "two calls and text between": Case(
        f"{spelled()}\nand\n{spelled('[1, [2]]', 'search')}", [*called(), *said("and"), *called("[1, [2]]", "search")]
    ),
    "thinking and a call": Case(
        f"<think>\nI look.\n</think>\n\n{spelled()}\n<think>b</think> c",
        [*thought("I look."), *called(), *thought("b"), *said("c")],
    ),
    "a call in thinking": Case(
        f"<think>the model writes {spelled()} here</think>\n{spelled()}",
        [*thought(f"the model writes {spelled()} here"), *called()],
    ),
    "the tag in thinking": Case("<think>I write <tool_call> here", [Reasoning("I write <tool_call> here")]),
    "tags in a string": Case(spelled(NASTY), called(NASTY)),
    "tag of another dialect in a string": Case(
        spelled('{"content": "<parameter>x</parameter>"}'), called('{"content": "<parameter>x</parameter>"}')
    ),
    "a string that ends in a backslash": Case(spelled(r'{"a": "\\"}'), called(r'{"a": "\\"}')),
    "brackets in a string": Case(spelled('{"a": "}]{", "b": "\\"}"}'), called('{"a": "}]{", "b": "\\"}"}')),
    "nested arguments": Case(
        spelled('{"a": {"b": [1, {"c": null}]}, "d": []}'), called('{"a": {"b": [1, {"c": null}]}, "d": []}')
    ),
    "numbers": Case(spelled('{"n": 5, "x": -1.5e3}'), called('{"n": 5, "x": -1.5e3}')),
    "raw newline in a string": Case(spelled('{"a": "x\ny"}'), called('{"a": "x\ny"}')),
    "comparison outside a string": Case(spelled("{1 < 2 <tool>}"), called("{1 < 2 <tool>}")),
    "arguments first": Case(
        '<tool_call>{"arguments": {"q": "</tool_call>"}, "name": "search"}</tool_call>!',
        [*called('{"q": "</tool_call>"}', "search"), *said("!")],
    ),
    "parameters": Case(
        '<tool_call>{"name": "search", "parameters": {"q": 1}}</tool_call>', called('{"q": 1}', "search")
    ),
    "other keys": Case(
        '<tool_call>{"id": {"name": "x", "a": [1]}, "type": "function", "name": "search", "s": "</tool_call>", "n": 12,'
        ' "arguments": {"q": 1}, "t": true}</tool_call>',
        called('{"q": 1}', "search"),
    ),
    "escaped key and name": Case(
        r'<tool_call>{"n\u0061me": "get\u005fweather", "\u0061rguments": {"city": "\u0055lm"}}</tool_call>',
        called(r'{"city": "\u0055lm"}'),
    ),
    "no arguments": Case('<tool_call>{"name": "search"}</tool_call>', called("{}", "search")),
    "no arguments and no closing bracket": Case('<tool_call>{"name": "search"\n</tool_call>', called("{}", "search")),
    "an absent value": Case('<tool_call>{"name": "search", "arguments":}</tool_call>', called("{}", "search")),
    "an absent value before a key": Case(
        '<tool_call>{"id": , "name": "search", "arguments": {}}</tool_call>', called("{}", "search")
    ),
    "null": Case(spelled("null"), called("null")),
    "bare word": Case('<tool_call>{"name": "search", "arguments": 5 }</tool_call>', called("5", "search")),
    "list of arguments": Case(spelled("[1, 2]"), called("[1, 2]")),
    "arguments as a string": Case(spelled(r'"{\"a\": \"\u00fc\\n\ud83d\ude00\/\"}"'), called('{"a": "ü\\n😀/"}')),
    "odd escapes in a string of arguments": Case(
        spelled(r'"\ud83d \ud83d\n \ude00 \ude00\ude00 \x \u12 \u12G4 \ud83d\u0041 \ud83d"'),
        called("\ufffd \ufffd\n \ufffd \ufffd\ufffd \\x \\u12 \\u12G4 \ufffdA \ufffd"),
    ),
    "empty string of arguments": Case(spelled('""'), called("{}")),
    "string of arguments first": Case(
        r'<tool_call>{"arguments": "{\"q\": 1}", "name": "search"}</tool_call>', called('{"q": 1}', "search")
    ),
    "second name, second arguments": Case(
        '<tool_call>{"name": "search", "name": "get_weather", "arguments": {"a": 1}, "parameters": {"b": 2},'
        ' "arguments": {}}</tool_call>',
        called('{"a": 1}', "search"),
    ),
    "lost comma": Case('<tool_call>{"name": "search" "arguments": {"a": 1}}</tool_call>', called('{"a": 1}', "search")),
    "trailing comma": Case('<tool_call>{"name": "search", "arguments": {},}</tool_call>', called("{}", "search")),
    "lost closing tag": Case(
        '<tool_call>{"name": "search", "arguments": {}}\nNow.', [*called("{}", "search"), *said("Now.")]
    ),
    "lost closing tag, next call": Case(
        f'<tool_call>{{"name": "search", "arguments": {{}}}}\n{spelled()}', [*called("{}", "search"), *called()]
    ),
    "surplus bracket": Case(
        '<tool_call>{"name": "search", "arguments": {}}}</tool_call>', [*called("{}", "search"), *said("}</tool_call>")]
    ),
    "lost bracket": Case(
        '<tool_call>{"name": "search", "arguments": {"a": 1}</tool_call>x', [*called('{"a": 1}', "search"), *said("x")]
    ),
    "closing tag within the arguments": Case(
        '<tool_call>{"name": "search", "arguments": {"a": [1\n</tool_call>x',
        [*called('{"a": [1\n', "search"), *said("x")],
    ),
    "second call within the arguments": Case(
        f'<tool_call>{{"name": "search", "arguments": {{"a": 1,{spelled()}', [*called('{"a": 1,', "search"), *called()]
    ),
    "second call behind the name": Case(
        f'<tool_call>{{"name": "search",{spelled()}', [*called("{}", "search"), *called()]
    ),
    "second call before the name": Case(
        f'<tool_call>{{"id": [1,{spelled()}', [*said('<tool_call>{"id": [1,'), *called()]
    ),
    "second call at once": Case(f"<tool_call>\n{spelled()}", [*said("<tool_call>"), *called()]),
    "no JSON behind the name": Case(
        '<tool_call>{"name": "search", oops: {}}</tool_call>', [*called("{}", "search"), *said("oops: {}}</tool_call>")]
    ),
    "no colon behind the arguments": Case(
        '<tool_call>{"name": "search", "arguments" {}}</tool_call>', [*called("{}", "search"), *said("{}}</tool_call>")]
    ),
    "list of calls": Case(
        '<tool_call>\n[{"name": "search", "arguments": {"q": 1}}, {"name": "get_weather"}]\n</tool_call>\nok',
        [*called('{"q": 1}', "search"), *called("{}"), *said("ok")],
    ),
    "list of calls, one undeclared": Case(
        '<tool_call>[{"name": "nope", "arguments": {"a": "]"}}, {"name": "search"}, {"name": "no"}]</tool_call>',
        [
            *said('<tool_call>[{"name": "nope", "arguments": {"a": "]"}},'),
            *called("{}", "search"),
            *said('{"name": "no"}]</tool_call>'),
        ],
    ),
    "list without an end": Case(
        f'<tool_call>[{{"name": "search"}},\n{spelled()}', [*called("{}", "search"), *called()]
    ),
    "list of calls, then a call without its closing tag": Case(
        '<tool_call>[{"name": "search"}]</tool_call><tool_call>{"name": "search"}, so',
        [*called("{}", "search"), *called("{}", "search"), *said(", so")],
    ),
    "wrong bracket for arguments": Case(
        '<tool_call>{"name": "search", "arguments": ]', [*called("{}", "search"), *said("]")]
    ),
    "empty list": Case("<tool_call>[]</tool_call>", said("<tool_call>[]</tool_call>")),
    "list of no calls": Case("<tool_call>[1]</tool_call>", said("<tool_call>[1]</tool_call>")),
    "list that breaks": Case('<tool_call>[{"name": "search"} x', [*called("{}", "search"), *said("x")]),
    "undeclared": Case(
        f"a \n{spelled(NASTY, 'nope')}\n b\n{spelled()}", [*said(f"a \n{spelled(NASTY, 'nope')}\n b"), *called()]
    ),
    "undeclared, arguments first": Case(
        '<tool_call>{"arguments": {"a": 1}, "name": "nope"}</tool_call>',
        said('<tool_call>{"arguments": {"a": 1}, "name": "nope"}</tool_call>'),
    ),
    "undeclared, string of arguments": Case(spelled('"a"', "nope"), said(spelled('"a"', "nope"))),
    "undeclared, cut": Case('<tool_call>{"name": "nope", "arg', said('<tool_call>{"name": "nope", "arg')),
    "undeclared behind a call": Case(f"{spelled()}\n{spelled('1', 'no')}", [*called(), *said(spelled("1", "no"))]),
    "name in other words": Case(
        '<tool_call>{"name": ["search"], "arguments": {}}</tool_call> ok',
        said('<tool_call>{"name": ["search"], "arguments": {}}</tool_call> ok'),
    ),
    "name that is no JSON": Case(
        '<tool_call>{"name": "\\x"}</tool_call>', said('<tool_call>{"name": "\\x"}</tool_call>')
    ),
    "name too long": Case(f'<tool_call>{{"name": "{"x" * 1200}"}}', said(f'<tool_call>{{"name": "{"x" * 1200}"}}')),
    "no name": Case('<tool_call>{"arguments": {}}</tool_call>', said('<tool_call>{"arguments": {}}</tool_call>')),
    "not an object": Case("<tool_call>\n 5</tool_call>\n", said("<tool_call>\n 5</tool_call>\n")),
    "single quotes": Case(
        "<tool_call>{'name': 'search'}</tool_call>", said("<tool_call>{'name': 'search'}</tool_call>")
    ),
    "nothing between the tags": Case("a <tool_call> \n </tool_call>", said("a <tool_call> \n </tool_call>")),
    "value that is missing and closed wrongly": Case('<tool_call>{"name": ]', said('<tool_call>{"name": ]')),
    "thinking behind a broken call": Case(
        "<tool_call>\n<think>a</think>b", [*said("<tool_call>"), *thought("a"), *said("b")]
    ),
    "closing tag alone": Case("</tool_call>\na", said("a")),
    "closing tag behind text": Case("a</tool_call> b", said("a</tool_call> b")),
    "closing tag twice": Case(f"{spelled()}\n</tool_call>\nb", [*called(), *said("b")]),
    "cut behind the tag": Case("a \n<tool_call>", said("a \n<tool_call>")),
    "cut before the name": Case('a\n<tool_call>\n{"name": "sea', said('a\n<tool_call>\n{"name": "sea')),
    "cut before the name, behind arguments": Case(
        '<tool_call>{"arguments": {"a": 1}, ', said('<tool_call>{"arguments": {"a": 1}, ')
    ),
    "cut behind the name": Case('<tool_call>{"name": "search"', cut("", "search")),
    "cut within the arguments": Case(
        '<tool_call>{"name": "search", "arguments": {"q": "a </tool', cut('{"q": "a </tool', "search")
    ),
    "cut within the closing tag": Case(
        '<tool_call>{"name": "search", "arguments": {"q": 1\n</tool', cut('{"q": 1\n</tool', "search")
    ),
    "cut within an escape": Case(
        '<tool_call>{"name": "search", "arguments": "{\\"q\\": \\u00', cut('{"q": ', "search")
    ),
    "cut behind the arguments": Case('<tool_call>{"name": "search", "arguments": {}', cut("{}", "search")),
    "cut within a key": Case('<tool_call>{"name": "search", "arg', cut("", "search")),
    "calls are not allowed": Case(f"a {spelled()} b", said(f"a {spelled()} b"), calls=False),
    "thinking where calls are not allowed": Case(
        f"<think>a</think>{spelled()}", [*thought("a"), *said(spelled())], calls=False
    ),
    "spelled control tokens": Case(spelled(), said(spelled()), control=("<tool_call>", "</tool_call>")),
    "spelled closing token": Case(
        '<tool_call>{"name": "search", "arguments": {"a": 1</tool_call>}}',
        called('{"a": 1</tool_call>}', "search"),
        control=("</tool_call>",),
    ),
    "opened by the template": Case(f"Hm.</think>{spelled()}", [*thought("Hm."), *called()], reasoning_open=True),
}

CORPUS = {
    "plain": PLAIN,
    "think": THINK,
    "hermes": {
        **{name: case for name, case in THINK.items() if name != "a call is text"},
        **{f"call: {name}": case for name, case in HERMES.items()},
    },
}
