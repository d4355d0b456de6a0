"""What we write for a family is what its dialect reads."""

from __future__ import annotations

import json

import pytest

from antiphon.text.dialects import DIALECTS
from antiphon.text.template_spelling import SPELLINGS
from tests.text.read_output import read_output

FIRST, SECOND = '{"place": "Paris", "days": [1, {"a": null}]}', "{}"
CALLS = [("get_weather", FIRST), ("now", SECOND)]
WRITTEN = {
    "hermes": f'<tool_call>\n{{"name": "get_weather", "arguments": {FIRST}}}\n</tool_call>\n'
    f'<tool_call>\n{{"name": "now", "arguments": {SECOND}}}\n</tool_call>',
    "mistral": f"[TOOL_CALLS]get_weather[ARGS]{FIRST}[TOOL_CALLS]now[ARGS]{SECOND}",
    "mistral-list": f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {FIRST}}}, '
    f'{{"name": "now", "arguments": {SECOND}}}]',
    "command-r-plus": f'Action: ```json\n[{{"tool_name": "get_weather", "parameters": {FIRST}}}, '
    f'{{"tool_name": "now", "parameters": {SECOND}}}]\n```',
    "granite": f'<|tool_call|>[{{"name": "get_weather", "arguments": {FIRST}}}, '
    f'{{"name": "now", "arguments": {SECOND}}}]',
    "phi-4": f'<|tool_call|>[{{"name": "get_weather", "arguments": {FIRST}}}, '
    f'{{"name": "now", "arguments": {SECOND}}}]<|/tool_call|>',
    "lfm2": '<|tool_call_start|>[get_weather(place="Paris", days=[1, {"a": null}]), now()]<|tool_call_end|>',
    "deepseek-v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
    f"{FIRST}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n"
    f"{SECOND}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek-v3.1": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{FIRST}<｜tool▁call▁end｜>"
    f"<｜tool▁call▁begin｜>now<｜tool▁sep｜>{SECOND}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
}


def written(dialect: str) -> str:
    calls = SPELLINGS[dialect].calls
    assert calls is not None
    return calls.written(CALLS)


@pytest.mark.parametrize("dialect", WRITTEN)
def test_calls_are_written_in_the_family_s_form(dialect: str) -> None:
    assert written(dialect) == WRITTEN[dialect]


def test_the_table_has_every_family_whose_calls_we_write() -> None:
    assert WRITTEN.keys() == {dialect for dialect, spelling in SPELLINGS.items() if spelling.calls is not None}


@pytest.mark.parametrize("dialect", sorted(WRITTEN.keys() & DIALECTS.keys()))
def test_the_dialect_reads_them_as_these_calls(dialect: str) -> None:
    thinking = SPELLINGS[dialect].thinking if DIALECTS[dialect].thinking is not None else None
    text = written(dialect) if thinking is None else f"{thinking[0]}Why{thinking[1]}{written(dialect)}"
    output = read_output(DIALECTS[dialect], text, {"get_weather": {}, "now": {}})
    assert output.calls == [(name, json.loads(arguments)) for name, arguments in CALLS]
    assert (output.thinking.strip(), output.text) == ("Why" if thinking else "", "")


def test_arguments_that_are_no_object_are_written_as_they_are() -> None:
    calls = SPELLINGS["lfm2"].calls
    assert calls is not None
    assert calls.written([("f", '{"a": 1')]) == '<|tool_call_start|>[f({"a": 1)]<|tool_call_end|>'
