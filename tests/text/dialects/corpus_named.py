"""Outputs in the dialects whose calls have the name in front."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.text.dialects.named_calls import HEAD_LIMIT
from antiphon.text.dialects.states import Tags
from tests.text.dialects.corpus import Case, called, cut, said, thought
from tests.text.dialects.corpus_json_families import THINK, ULM, Style, style_cases

SECTION = "<｜tool▁calls▁begin｜>"
SECTION_END = "<｜tool▁calls▁end｜>"
BEGIN = "<｜tool▁call▁begin｜>"
END = "<｜tool▁call▁end｜>"
SEP = "<｜tool▁sep｜>"
KIMI_SEP = "<|tool_call_argument_begin|>"


def mistral(arguments: str = ULM, name: str = "get_weather") -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{arguments}"


def v3(arguments: str = ULM, name: str = "get_weather") -> str:
    return f"{BEGIN}function{SEP}{name}\n```json\n{arguments}\n```{END}"


def v31(arguments: str = ULM, name: str = "get_weather") -> str:
    return f"{BEGIN}{name}{SEP}{arguments}{END}"


def kimi(arguments: str = ULM, name: str = "get_weather", number: int = 0) -> str:
    return f"<|tool_call_begin|>functions.{name}:{number}{KIMI_SEP}{arguments}<|tool_call_end|>"


def _v3_calls(calls: Sequence[tuple[str, str]]) -> str:
    return SECTION + "\n".join(v3(arguments, name) for name, arguments in calls) + SECTION_END


def _v31_calls(calls: Sequence[tuple[str, str]]) -> str:
    return SECTION + "".join(v31(arguments, name) for name, arguments in calls) + SECTION_END


def _kimi_calls(calls: Sequence[tuple[str, str]]) -> str:
    inner = "".join(kimi(arguments, name, n) for n, (name, arguments) in enumerate(calls))
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


STYLES = {
    "mistral": Style(
        calls=lambda calls: "".join(mistral(arguments, name) for name, arguments in calls),
        markers=("[TOOL_CALLS]",),
        thinking=Tags("[THINK]", "[/THINK]"),
    ),
    "deepseek-v3": Style(calls=_v3_calls, markers=(SECTION, BEGIN, END, SECTION_END), thinking=THINK, section=SECTION),
    "deepseek-v3.1": Style(
        calls=_v31_calls, markers=(SECTION, BEGIN, END, SECTION_END), thinking=THINK, section=SECTION
    ),
    "kimi-k2": Style(
        calls=_kimi_calls,
        markers=(
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>",
            "<|tool_call_end|>",
            "<|tool_calls_section_end|>",
        ),
        thinking=THINK,
        section="<|tool_calls_section_begin|>",
    ),
}

MISTRAL = {
    "with an id": Case(f"[TOOL_CALLS]get_weather[CALL_ID]ABC123def[ARGS]{ULM}", called()),
    "whitespace round the name": Case(f"[TOOL_CALLS] get_weather \n[ARGS] {ULM}", called()),
    "lost separator": Case(f"[TOOL_CALLS]get_weather{ULM}", called()),
    "lost separator behind an id": Case(f"[TOOL_CALLS]get_weather[CALL_ID]ABC123def{ULM}", called()),
    "list of calls": Case(
        f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {ULM}, "id": "ABC123def"}}, {{"name": "search"}}]\nok',
        [*called(), *called("{}", "search"), *said("ok")],
    ),
    "list, then a name": Case(f'[TOOL_CALLS][{{"name": "search"}}]{mistral()}', [*called("{}", "search"), *called()]),
    "object": Case('[TOOL_CALLS]\n{"name": "search"}', called("{}", "search")),
    "no arguments, then another call": Case(f"[TOOL_CALLS]search{mistral()}", [*called("{}", "search"), *called()]),
    "no arguments behind the separator, then another call": Case(
        f"[TOOL_CALLS]search[ARGS]\n{mistral()}", [*called("{}", "search"), *called()]
    ),
    "broken arguments, then another call": Case(
        f"[TOOL_CALLS]search[ARGS]5 {mistral()}", [*called("5", "search"), *called()]
    ),
    "list of arguments, then another call": Case(
        f"[TOOL_CALLS]search[ARGS][1]{mistral()}", [*called("[1]", "search"), *called()]
    ),
    "text behind the arguments": Case(f"{mistral()}, ok?", [*called(), *said(", ok?")]),
    "a code block behind a call": Case(f"{mistral()}\n```\n1\n```", [*called(), *said("```\n1\n```")]),
    "arguments in a fence": Case(f"[TOOL_CALLS]get_weather[ARGS]```json\n{ULM}\n```\nok", [*called(), *said("ok")]),
    "undeclared with an id": Case(
        "[TOOL_CALLS]nope[CALL_ID]ABC123def[ARGS]{}", said("[TOOL_CALLS]nope[CALL_ID]ABC123def[ARGS]{}")
    ),
    "prose behind the marker": Case(
        "[TOOL_CALLS]I call it {now} and then.", said("[TOOL_CALLS]I call it {now} and then.")
    ),
    "two names": Case("[TOOL_CALLS]get_weather search[ARGS]{}", said("[TOOL_CALLS]get_weather search[ARGS]{}")),
    "marker twice": Case(f"[TOOL_CALLS]{mistral()}", [*said("[TOOL_CALLS]"), *called()]),
    "only a name": Case("[TOOL_CALLS]search", said("[TOOL_CALLS]search")),
    "half a separator": Case("[TOOL_CALLS]search[ARG", said("[TOOL_CALLS]search[ARG")),
    "nothing behind the separator": Case("[TOOL_CALLS]search[ARGS]", cut("", "search")),
    "half a fence behind the separator": Case("[TOOL_CALLS]search[ARGS]``", cut("", "search")),
    "a word as arguments": Case("[TOOL_CALLS]search[ARGS]null\n", called("null", "search")),
    "wrong bracket as arguments": Case("[TOOL_CALLS]search[ARGS]} x", [*called("{}", "search"), *said("} x")]),
    "head too long": Case(
        f"[TOOL_CALLS]{'x' * HEAD_LIMIT}search[ARGS]{{}}", said(f"[TOOL_CALLS]{'x' * HEAD_LIMIT}search[ARGS]{{}}")
    ),
    "head that just fits": Case(f"[TOOL_CALLS]{' ' * (HEAD_LIMIT - 6)}search[ARGS]{{}}", called("{}", "search")),
    "brackets in thinking": Case("[THINK]a [TOOL_CALLS] b[/THINK]c", [*thought("a [TOOL_CALLS] b"), *said("c")]),
}

V3 = {
    "no section": Case(v3(), called()),
    "newlines round calls": Case(
        f"{SECTION}\n{v3()}\n{v3('{}', 'search')}\n{SECTION_END}\n", [*called(), *called("{}", "search")]
    ),
    "fence closed on the line of the arguments": Case(v3().replace("\n```<", "```<"), called()),
    "fence without a language": Case(v3().replace("```json", "```"), called()),
    "fence begun behind the name": Case(v3().replace("\n```json", " ```json"), called()),
    "no fence": Case(f"{BEGIN}function{SEP}get_weather\n{ULM}{END}", called()),
    "another type": Case(v3().replace("function", "tool"), called()),
    "no arguments": Case(f"{BEGIN}function{SEP}search{END}", called("{}", "search")),
    "empty fence": Case(f"{BEGIN}function{SEP}search\n```json\n```{END}", called("{}", "search")),
    "lost fence": Case(v3().replace("\n```<", "<"), called()),
    "lost closing tag": Case(v3().removesuffix(END) + SECTION_END + "ok", [*called(), *said("ok")]),
    "lost bracket": Case(v3('{"a": 1'), called('{"a": 1\n```')),
    "section ends within the arguments": Case(
        f'{BEGIN}function{SEP}search\n```json\n{{"a": 1{SECTION_END}', called('{"a": 1', "search")
    ),
    "text behind the arguments": Case(v3().replace(f"\n```{END}", f" x{END}"), [*called(), *said(f"x{END}")]),
    "no type": Case(
        f"{BEGIN}get_weather\n```json\n{ULM}\n```{END}", said(f"{BEGIN}get_weather\n```json\n{ULM}\n```{END}")
    ),
    "half a fence before the arguments": Case(
        f"{BEGIN}function{SEP}search\n``", said(f"{BEGIN}function{SEP}search\n``")
    ),
    "cut in the language": Case(f"{BEGIN}function{SEP}search\n```js", cut("", "search")),
    "half a fence behind the arguments": Case(v3().removesuffix(f"`{END}"), called()),
    "half a closing tag": Case(v3().removesuffix("｜>"), called()),
}

V31 = {
    "no section": Case(v31(), called()),
    "whitespace round the parts": Case(
        f"{SECTION}\n{BEGIN}\nget_weather\n{SEP}\n{ULM}\n{END}\n{SECTION_END}\n", called()
    ),
    "no arguments": Case(f"{BEGIN}search{SEP}{END}", called("{}", "search")),
    "no separator": Case(f"{BEGIN}search{END}ok", [*called("{}", "search"), *said("ok")]),
    "lost closing tag": Case(
        f"{SECTION}{v31().removesuffix(END)}{v31('{}', 'search')}", [*called(), *called("{}", "search")]
    ),
    "closing tag within the arguments": Case(f'{BEGIN}search{SEP}{{"a": [1{END}', called('{"a": [1', "search")),
    "next call within the arguments": Case(
        f'{BEGIN}search{SEP}{{"a": [1 {v31()}', [*called('{"a": [1 ', "search"), *called()]
    ),
    "form of V3": Case(v3(), said(v3())),
    "half a closing tag behind the separator": Case(f"{BEGIN}search{SEP}{END[:-1]}", cut("", "search")),
    "half a closing tag behind a refused head": Case(
        f"{BEGIN}nope{SEP}{END[:-1]}", said(f"{BEGIN}nope{SEP}{END[:-1]}")
    ),
    "half a closing tag within the arguments": Case(f"{BEGIN}search{SEP}{{{END[:-1]}", cut("{" + END[:-1], "search")),
    "only a section": Case(f"a {SECTION}{SECTION_END}b", said(f"a {SECTION_END}b")),
}

KIMI = {
    "no section": Case(kimi(), called()),
    "newline behind the head": Case(kimi().replace(":0<", ":0\n<"), called()),
    "no number": Case(kimi().replace(":0", ""), called()),
    "no prefix": Case(kimi().replace("functions.", ""), called()),
    "neither": Case(kimi().replace("functions.", "").replace(":0", ""), called()),
    "a large number": Case(kimi(number=123), called()),
    "no arguments": Case("<|tool_call_begin|>functions.search:0<|tool_call_end|>", called("{}", "search")),
    "number that is none": Case(kimi().replace(":0", ":a"), said(kimi().replace(":0", ":a"))),
    "section ends within the arguments": Case(
        '<|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{"a": 1<|tool_calls_section_end|>ok',
        [*called('{"a": 1', "search"), *said("ok")],
    ),
}

SPECIAL = {"mistral": MISTRAL, "deepseek-v3": V3, "deepseek-v3.1": V31, "kimi-k2": KIMI}

CORPUS = {
    dialect: {**style_cases(style), **{f"special: {name}": case for name, case in SPECIAL[dialect].items()}}
    for dialect, style in STYLES.items()
}
