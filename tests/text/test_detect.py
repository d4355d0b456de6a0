"""A dialect is told from what a template says of calls; where it says nothing that is known, calls are taught."""

from __future__ import annotations

from datetime import datetime

import pytest

from antiphon.text.detect import RULES, Fit, dialect_of, fit
from antiphon.text.messages import Message, ToolCall, ToolDefinition
from tests.text import template_styles as styles

TOOLS = [ToolDefinition("FN", "DESCRIPTION")]
HISTORY = [
    Message("user", "USR"),
    Message("assistant", calls=(ToolCall("1", "FN", '{"a":1}'),)),
    Message("tool", "RES"),
]


def fitted(source: str | None, *, control: tuple[str, ...] = (), asked: str | None = None) -> Fit:
    return fit(source, control, asked=asked, bos_token="<s>", eos_token="</s>", now=datetime.now)


def prompt(found: Fit) -> str:
    return found.template.render(HISTORY, TOOLS, kwargs={})


@pytest.mark.parametrize(
    ("text", "control", "expected"),
    [
        ("<|start|>assistant<|channel|>final<|message|>", (), "gpt-oss"),
        ("<|start|>assistant<|message|>", (), None),
        ("{% set mark = '｜DSML｜' %}{{ mark + 'function_calls>' }}{{ m.tool_calls }}", (), "deepseek-v3.2"),
        ("{% set mark = '｜DSML｜' %}{{ mark + 'tool_calls>' }}", (), "deepseek-v4"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", (), "deepseek-v3.1"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json", (), "deepseek-v3"),
        ("<|tool_calls_section_begin|>", (), "kimi-k2"),
        ("<minimax:tool_call>", (), "minimax-m2"),
        ("<|tool_call>call:", (), "gemma-4"),
        ("<start_function_call>", (), "gemma"),
        ("<|START_OF_TURN_TOKEN|>Action: <|START_ACTION|>", (), "command-r"),
        ("<|START_OF_TURN_TOKEN|>Action:", (), "command-r-plus"),
        ("[TOOL_CALLS] f [ARGS]", (), "mistral"),
        ("[TOOL_CALLS]", (), "mistral-list"),
        ("[INST]", ("[TOOL_CALLS]", "[ARGS]"), "mistral"),
        ("[INST]", ("[TOOL_CALLS]",), "mistral-list"),
        ("<|tool_call_start|>", (), "lfm2"),
        ("<|im_start|>", ("<|tool_call_start|>",), "lfm2"),
        ("<|im_start|>", (), None),
        ("[INST]", (), None),
        ("<TOOLCALL>", (), "nemotron"),
        ("<|tool|>[]<|/tool|>", (), "phi-4"),
        ("<|start_of_role|> respond with <|tool_call|>", (), "granite"),
        ("<|start_of_role|>", ("<|tool_call|>",), "granite"),
        ('<|start_of_role|><tool_call>{"name": x, "arguments": y}', ("<|tool_call|>",), "hermes"),
        ("in the format of [func_name1(a=b)]", (), "llama-pythonic"),
        ('<|start_header_id|>{"name": x, "parameters": y}', (), "llama3"),
        ('<|header_start|>{"name": x, "parameters": y}', (), "llama3"),
        ("<tool_call>f<arg_key>a</arg_key>", (), "glm-4.x"),
        ("<tool_call><function=f><parameter=a>", (), "qwen3-coder"),
        ("<seed:tool_call><function=f><parameter=a>", (), None),
        ('"<tool_call>{\\"name\\": x, \\"arguments\\": y}"', (), "hermes"),
        ('<tool_call></tool_call> <tool_calls>[{"name": x, "arguments": y}]</tool_calls>', (), None),
        ("<tool_call>", (), None),
        ("", ("[TOOL_CALLS]", "<tool_call>"), None),
        (None, (), None),
    ],
)
def test_what_a_template_says_of_calls_tells_its_dialect(
    text: str | None, control: tuple[str, ...], expected: str | None
) -> None:
    assert dialect_of(text, control) == expected


def test_no_rule_stands_behind_one_that_always_holds_before_it() -> None:
    for place, rule in enumerate(RULES):
        for before in RULES[:place]:
            assert not (set(before.text) <= set(rule.text) and set(before.control) <= set(rule.control)), rule


def test_a_template_that_shows_its_own_calls_is_left_alone() -> None:
    found = fitted(styles.QWEN)
    assert (found.dialect, found.origin) == ("hermes", "told")
    assert found.template.capabilities.own_calls
    assert "You can call functions." not in prompt(found)


@pytest.mark.parametrize("source", [None, styles.GEMMA, styles.QWEN.replace("tool_call>", "call>")])
def test_a_template_whose_calls_nobody_reads_is_overruled(source: str | None) -> None:
    found = fitted(source)
    assert (found.dialect, found.origin) == ("hermes", "taught")
    assert not found.template.capabilities.own_calls
    assert "You can call functions." in prompt(found)
    assert '<tool_call>\n{"name": "FN", "arguments": {"a":1}}\n</tool_call>' in prompt(found)


def test_a_known_form_that_the_template_does_not_show_is_overruled_if_we_cannot_write_it() -> None:
    found = fitted("<tool_call><arg_key>{% for m in messages %}{{ m.content }}{% endfor %}")
    assert (found.dialect, found.origin) == ("hermes", "taught")


def test_a_known_form_that_the_template_does_not_show_is_written_by_us() -> None:
    found = fitted("{% for m in messages %}{{ '[INST]' + m.content }}{% endfor %}", control=("[TOOL_CALLS]",))
    assert (found.dialect, found.origin) == ("mistral-list", "told")
    assert '[TOOL_CALLS][{"name": "FN", "arguments": {"a":1}}]' in prompt(found)
    assert "<tool_call>" not in prompt(found)


@pytest.mark.parametrize("asked", ["plain", "hermes", "granite"])
def test_what_is_asked_for_counts(asked: str) -> None:
    found = fitted(styles.LLAMA3, asked=asked)
    assert (found.dialect, found.origin) == (asked, "asked")
    assert found.template.capabilities.own_calls
