"""Outputs in the dialects whose calls are JSON objects, and what every dialect with JSON arguments must do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from msgspec import Struct

from antiphon.protocol.fragments import Reasoning, Text
from antiphon.text.dialects.states import Tags
from tests.text.dialects.corpus import Case, called, cut, said, thought

ULM = '{"city": "Ulm"}'
LONG = json.dumps({"text": "x \n é \\ " * 3_200})


class Style(Struct, frozen=True, kw_only=True):
    """How a dialect writes what it writes."""

    calls: Callable[[Sequence[tuple[str, str]]], str]
    """Of the names and arguments of one turn's calls."""
    markers: tuple[str, ...]
    """All the markers of calls, the one that opens a turn's calls first."""
    thinking: Tags | None = None
    section: str = ""
    """A marker that shows nothing even where the call behind it is none."""

    def call(self, arguments: str = ULM, name: str = "get_weather") -> str:
        return self.calls([(name, arguments)])


def style_cases(style: Style) -> dict[str, Case]:
    """What every dialect with JSON arguments must do."""
    one, two = style.call(), style.call("{}", "search")
    nope = style.call('{"a": "]} <b>"}', "nope")
    refused = nope.removeprefix(style.section).lstrip()
    nasty = json.dumps({"text": " ".join(style.markers) + ' "\\ }]```'})
    opening = style.markers[0]
    cases = {
        "nothing": Case("", []),
        "text": Case(" Hello there.\n", said(" Hello there.\n")),
        "brackets in text": Case("1 < 2 [a] (b) `c`; {d}", said("1 < 2 [a] (b) `c`; {d}")),
        "fence at the start": Case("```python\n1\n```", said("```python\n1\n```")),
        "other scripts": Case("日本語\u3000と😀", said("日本語\u3000と😀")),
        "a call": Case(one, called()),
        "whitespace round a call": Case(f"\n{one}\n\n", called()),
        "text before a call": Case(f"Let me see.\n\n{one}", [*said("Let me see."), *called()]),
        "text behind a call": Case(f"{one}\nDone.", [*called(), *said("Done.")]),
        "several calls": Case(
            style.calls([("get_weather", ULM), ("search", "[1]"), ("write-file", "{}")]),
            [*called(), *called("[1]", "search"), *called("{}", "write-file")],
        ),
        "text between calls": Case(f"{one}\nand\n{two}", [*called(), *said("and"), *called("{}", "search")]),
        "calls apart": Case(f"{one}\n\n{two}", [*called(), *called("{}", "search")]),
        "markers in a string": Case(style.call(nasty), called(nasty)),
        "no arguments": Case(style.call("{}"), called("{}")),
        "nested arguments": Case(
            style.call('{"a": {"b": [1, {"c": null}]}, "d": []}'), called('{"a": {"b": [1, {"c": null}]}, "d": []}')
        ),
        "numbers and words": Case(
            style.call('{"n": -1.5e3, "t": true, "x": null}'), called('{"n": -1.5e3, "t": true, "x": null}')
        ),
        "over several lines": Case(style.call('{\n  "a": [\n    1\n  ]\n}'), called('{\n  "a": [\n    1\n  ]\n}')),
        "other scripts in a call": Case(style.call('{"a": "東京 😀\\u00fc"}'), called('{"a": "東京 😀\\u00fc"}')),
        "brackets in a string": Case(style.call('{"a": "}]{", "b": "\\"}"}'), called('{"a": "}]{", "b": "\\"}"}')),
        "arguments as a string": Case(style.call(json.dumps('{"a": "ü\n"}')), called('{"a": "ü\n"}')),
        "empty string of arguments": Case(style.call('""'), called("{}")),
        "a long argument": Case(style.call(LONG), called(LONG)),
        "undeclared": Case(f"a {nope}", said(f"a {refused}")),
        "undeclared, then declared": Case(f"{nope}\n{one}", [*said(refused), *called()]),
        "undeclared behind a call": Case(f"{one}\n{nope}", [*called(), *said(refused)]),
        "calls are not allowed": Case(f"a {one} b", said(f"a {one} b"), calls=False),
        "spelled control tokens": Case(f"a {one}", said(f"a {one}"), control=style.markers),
        "half a marker": Case(f"a {opening[:-1]}", said(f"a {opening[:-1]}")),
        "only a marker": Case(f"a {opening}", said(f"a {opening}")),
        "cut within a string": Case(one[: one.index("lm")], cut('{"city": "U')),
        "cut within an object": Case(one[: one.index("}")], cut('{"city": "Ulm"')),
    }
    return cases | (_thinking_cases(style, style.thinking) if style.thinking else {})


def _thinking_cases(style: Style, tags: Tags) -> dict[str, Case]:
    one = style.call()
    return {
        "thinking before an answer": Case(
            f"{tags.opening}\nHm.\n{tags.closing}\n\nYes.", [*thought("Hm."), *said("Yes.")]
        ),
        "thinking before a call": Case(f"{tags.opening}Hm.{tags.closing}\n{one}", [*thought("Hm."), *called()]),
        "a call in thinking": Case(f"{tags.opening}Hm. {one}{tags.closing}{one}", [*thought(f"Hm. {one}"), *called()]),
        "cut within thinking": Case(f"{tags.opening}Hm. {one[:9]}", [Reasoning(f"Hm. {one[:9]}")]),
        "thinking opened by the template": Case(
            f"Hm.{tags.closing}{one}", [*thought("Hm."), *called()], reasoning_open=True
        ),
        "empty thinking": Case(f"{tags.opening}{tags.closing}Yes.", said("Yes.")),
    }


THINK = Tags("<think>", "</think>")


def _objects(calls: Sequence[tuple[str, str]], *, separator: str = ", ") -> str:
    return separator.join(f'{{"name": "{name}", "arguments": {arguments}}}' for name, arguments in calls)


def llama3_call(arguments: str = ULM, name: str = "get_weather") -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def _action(calls: Sequence[tuple[str, str]]) -> str:
    items = (
        f'    {{"tool_call_id": "{n}", "tool_name": "{name}", "parameters": {arguments}}}'
        for n, (name, arguments) in enumerate(calls)
    )
    return "<|START_ACTION|>[\n" + ",\n".join(items) + "\n]<|END_ACTION|>"


def _old_action(calls: Sequence[tuple[str, str]]) -> str:
    indent = " " * 8
    items = (
        f'    {{\n{indent}"tool_name": "{name}",\n{indent}"parameters": {arguments}\n    }}'
        for name, arguments in calls
    )
    return "Action: ```json\n[\n" + ",\n".join(items) + "\n]```"


STYLES = {
    "llama3": Style(
        calls=lambda calls: "<|python_tag|>" + "; ".join(llama3_call(arguments, name) for name, arguments in calls),
        markers=("<|python_tag|>",),
    ),
    "granite": Style(
        calls=lambda calls: f"<|tool_call|>[{_objects(calls)}]",
        markers=("<|tool_call|>", "<tool_call>"),
        thinking=THINK,
    ),
    "phi-4": Style(
        calls=lambda calls: f"<|tool_call|>[{_objects(calls)}]<|/tool_call|>",
        markers=("<|tool_call|>", "<|/tool_call|>", "functools["),
    ),
    "nemotron": Style(
        calls=lambda calls: f"<TOOLCALL>[{_objects(calls)}]</TOOLCALL>",
        markers=("<TOOLCALL>", "</TOOLCALL>"),
        thinking=THINK,
    ),
    "command-r": Style(
        calls=_action,
        markers=("<|START_ACTION|>", "<|END_ACTION|>"),
        thinking=Tags("<|START_THINKING|>", "<|END_THINKING|>"),
    ),
    "command-r-plus": Style(calls=_old_action, markers=("Action: ```json", "Action:\n```json", "Action:```json")),
    "mistral-list": Style(calls=lambda calls: f"[TOOL_CALLS][{_objects(calls)}]", markers=("[TOOL_CALLS]",)),
}

LLAMA3 = {
    "bare call": Case(llama3_call(), called()),
    "bare call and whitespace": Case(f"\n\n{llama3_call()}\n", called()),
    "bare calls and a semicolon": Case(
        f"{llama3_call()}; {llama3_call('{}', 'search')}", [*called(), *called("{}", "search")]
    ),
    "bare calls on lines": Case(
        f"{llama3_call()}\n{llama3_call('{}', 'search')}", [*called(), *called("{}", "search")]
    ),
    "type first": Case(
        '{"type": "function", "name": "search", "parameters": {"q": "a"}}', called('{"q": "a"}', "search")
    ),
    "arguments": Case('{"name": "search", "arguments": {}}', called("{}", "search")),
    "bare call behind text": Case(f"I call: {llama3_call()}", said(f"I call: {llama3_call()}")),
    "text behind a bare call": Case(f"{llama3_call()}\nDone.", [*called(), *said("Done.")]),
    "undeclared bare call": Case(llama3_call(name="nope"), said(llama3_call(name="nope"))),
    "an answer that is JSON": Case('{"city": {"name": "search"}}', said('{"city": {"name": "search"}}')),
    "no JSON": Case("{city}: fine", said("{city}: fine")),
    "empty object": Case("{}", said("{}")),
    "only a bracket": Case("{", said("{")),
    "bare call cut before the name": Case('{"name": "get_', said('{"name": "get_')),
    "bare call cut behind the name": Case('{"name": "search", "para', cut("", "search")),
    "builtin tool": Case(
        '<|python_tag|>brave_search.call(query="Ulm")', said('<|python_tag|>brave_search.call(query="Ulm")')
    ),
    "marker before each call": Case(
        f"<|python_tag|>{llama3_call()}<|python_tag|>{llama3_call('{}', 'search')}",
        [*called(), *called("{}", "search")],
    ),
    "bare call where the marker is a token": Case(llama3_call(), called(), control=("<|python_tag|>",)),
}

GRANITE = {
    "tag of 3.1": Case(
        f"<tool_call>[{_objects([('get_weather', ULM), ('search', '{}')])}]", [*called(), *called("{}", "search")]
    ),
    "a space behind the marker": Case(f"<|tool_call|> [{_objects([('get_weather', ULM)])}]", called()),
    "a single object": Case(f"<|tool_call|>{_objects([('get_weather', ULM)])}", called()),
    "thinking and a response": Case(
        "<think>Hm.</think>\n<response>\nYes.</response>\n", [*thought("Hm."), *said("Yes.")]
    ),
    "response without thinking": Case("<response>Yes.</response>", said("Yes.")),
    "half a response tag": Case("<think>Hm.</think> Yes.</respon", [*thought("Hm."), *said("Yes.</respon")]),
    "no calls": Case("<|tool_call|>[]", said("<|tool_call|>[]")),
}

PHI4 = {
    "functools": Case(
        f"functools[{_objects([('get_weather', ULM), ('search', '{}')])}]", [*called(), *called("{}", "search")]
    ),
    "functools behind text": Case(f"Well. functools[{_objects([('get_weather', ULM)])}]", [*said("Well."), *called()]),
    "the module": Case("import functools\n\nfunctools.partial", said("import functools\n\nfunctools.partial")),
    "no calls in functools": Case("functools[]", said("functools[]")),
    "functools of something else": Case("functools[0]", said("functools[0]")),
    "undeclared in functools": Case(
        f"functools[{_objects([('nope', '{}')])}]", said(f"functools[{_objects([('nope', '{}')])}]")
    ),
    "a single object": Case(f"<|tool_call|>{_objects([('get_weather', ULM)])}<|/tool_call|>", called()),
    "closing tag within the arguments": Case(
        '<|tool_call|>[{"name": "search", "arguments": {"a": 1<|/tool_call|>x',
        [*called('{"a": 1', "search"), *said("x")],
    ),
}

NEMOTRON = {
    "arguments before the name": Case(
        '<TOOLCALL>[{"arguments": {"a": "]"}, "name": "search"}]</TOOLCALL>', called('{"a": "]"}', "search")
    ),
    "lost bracket of the list": Case(f"<TOOLCALL>[{_objects([('get_weather', ULM)])}</TOOLCALL>\n", called()),
    "lost closing tag": Case(f"<TOOLCALL>[{_objects([('get_weather', ULM)])}]\nok", [*called(), *said("ok")]),
}

COMMAND_R = {
    "answer between tags": Case("<|START_RESPONSE|>Yes.<|END_RESPONSE|>", said("Yes.")),
    "answer between the other tags": Case("<|START_TEXT|>Yes.<|END_TEXT|>", said("Yes.")),
    "empty thinking, then an answer": Case(
        "<|START_THINKING|><|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>", said("Yes.")
    ),
    "plan, then a call": Case(
        f"<|START_THINKING|>I look.<|END_THINKING|>{_action([('get_weather', ULM)])}", [*thought("I look."), *called()]
    ),
    "answer, then a call": Case(
        f"<|START_RESPONSE|>So.<|END_RESPONSE|>{_action([('get_weather', ULM)])}", [*said("So."), *called()]
    ),
    "no list": Case('<|START_ACTION|>{"tool_name": "search", "parameters": {}}<|END_ACTION|>', called("{}", "search")),
    "arguments under another key": Case(
        '<|START_ACTION|>[{"tool_name": "search", "arguments": {"a": 1}}]<|END_ACTION|>', called('{"a": 1}', "search")
    ),
}

COMMAND_R_PLUS = {
    "marker as the template has it": Case(
        _old_action([("get_weather", ULM)]).replace("Action: ", "Action:\n"), called()
    ),
    "fence on a line of its own": Case(_old_action([("get_weather", ULM)]).replace("]```", "]\n```\n"), called()),
    "text behind the fence": Case(f"{_old_action([('get_weather', ULM)])}\n\nSo.", [*called(), *said("So.")]),
    "half a fence": Case(_old_action([("get_weather", ULM)])[:-1], called()),
    "lost fence": Case(f"{_old_action([('get_weather', ULM)])[:-3]}\nSo.", [*called(), *said("So.")]),
    "lost bracket": Case(_old_action([("get_weather", ULM)]).replace("]```", "```"), called()),
    "an answer in place of a call": Case(
        _old_action([("directly-answer", "{}")]), said(_old_action([("directly-answer", "{}")]))
    ),
    "undeclared behind a call of the list": Case(
        'Action:```json\n[{"tool_name": "search"}, {"tool_name": "nope"}]\n```',
        [*called("{}", "search"), *said('{"tool_name": "nope"}]\n```')],
    ),
    "a plan": Case(f"Plan: I look.\n{_old_action([('get_weather', ULM)])}", [*said("Plan: I look."), *called()]),
    "no calls": Case("Action:```json\n[]```", said("Action:```json\n[]```")),
}

MISTRAL_LIST = {
    "with ids": Case(
        '[TOOL_CALLS] [{"name": "search", "arguments": {"a": 1}, "id": "ABC123def"}]', called('{"a": 1}', "search")
    ),
    "a single object": Case('[TOOL_CALLS]{"name": "search", "arguments": {}}', called("{}", "search")),
    "names in front": Case(
        f"[TOOL_CALLS]get_weather[ARGS]{ULM}[TOOL_CALLS]search[ARGS]{{}}", [*called(), *called("{}", "search")]
    ),
    "marker twice": Case(
        '[TOOL_CALLS][TOOL_CALLS][{"name": "search"}]', [*said("[TOOL_CALLS]"), *called("{}", "search")]
    ),
    "marker within a list": Case(
        '[TOOL_CALLS][{"name": "search"},[TOOL_CALLS]search[ARGS]{}', [*called("{}", "search"), *called("{}", "search")]
    ),
    "only a bracket": Case("[TOOL_CALLS] [", [Text("[TOOL_CALLS] [")]),
    "no name before the arguments": Case("[TOOL_CALLS][ARGS]{} x", said("[TOOL_CALLS][ARGS]{} x")),
}

SPECIAL = {
    "llama3": LLAMA3,
    "granite": GRANITE,
    "phi-4": PHI4,
    "nemotron": NEMOTRON,
    "command-r": COMMAND_R,
    "command-r-plus": COMMAND_R_PLUS,
    "mistral-list": MISTRAL_LIST,
}

CORPUS = {
    dialect: {**style_cases(style), **{f"special: {name}": case for name, case in SPECIAL[dialect].items()}}
    for dialect, style in STYLES.items()
}
