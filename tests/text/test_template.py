"""The built-in template, what a template's program may do, and its bounds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from antiphon.text.messages import Message, ToolCall, ToolDefinition
from antiphon.text.template import ChatTemplate, TemplateError, opens_reasoning
from antiphon.text.template_environment import CompiledTemplate, Limits
from antiphon.text.template_probe import EFFORTS
from tests.text import template_styles as styles

HELLO = [Message("user", "Hello")]
GENERAL = "The model's chat template cannot render this conversation."


def made(source: str | None) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>", now=lambda: datetime(2026, 7, 4, 12, 30))


def rendered(source: str | None, messages: list[Message] = HELLO, **kwargs: Any) -> str:
    return made(source).render(messages, (), kwargs=kwargs)


def block(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def test_builtin_template_writes_each_message_as_one_block() -> None:
    messages = [
        Message("system", "Be kind."),
        Message("system", "Be brief."),
        Message("user", "Hello"),
        Message("assistant", "Hi.\n"),
        Message("system", "From now on, rhyme."),
        Message("tool", "42", call_id="call_1"),
    ]
    blocks = [block(message.role, message.content) for message in messages]
    assert rendered(None, messages) == "".join(blocks) + "<|im_start|>assistant\n"


def test_builtin_template_has_tools_in_the_system_block_and_calls_as_the_model_wrote_them() -> None:
    tools = [ToolDefinition("add", "Adds.", {"properties": {"ü": {}}}), ToolDefinition("now")]
    call = ToolCall("call_1", "add", '{"a":1,  "b":\n2')
    messages = [Message("user", "1+2?"), Message("assistant", "So:", calls=(call, call)), Message("tool", "3")]
    prompt = made(None).render(messages, tools, kwargs={})
    system, rest = prompt.split("<|im_end|>\n", 1)
    definitions = system.split("<tools>\n")[1].split("\n</tools>")[0].splitlines()
    assert definitions == [
        '{"type": "function", "function": {"name": "add", "description": "Adds.", '
        '"parameters": {"type": "object", "properties": {"ü": {}}}}}',
        '{"type": "function", "function": {"name": "now", "description": "", '
        '"parameters": {"type": "object", "properties": {}}}}',
    ]
    spelled = '<tool_call>\n{"name": "add", "arguments": {"a":1,  "b":\n2}\n</tool_call>'
    assert rest == (
        block("user", "1+2?")
        + block("assistant", f"So:\n{spelled}\n{spelled}")
        + block("tool", "3")
        + "<|im_start|>assistant\n"
    )


def test_tools_join_the_system_message_that_is_there() -> None:
    messages = [Message("system", "Be kind."), *HELLO]
    prompt = made(None).render(messages, [ToolDefinition("now")], kwargs={})
    assert prompt.startswith("<|im_start|>system\nBe kind.\n\nYou can call functions.")
    assert prompt.count("<|im_start|>system") == 1


def test_thinking_is_shown_again_only_in_the_running_tool_loop() -> None:
    call = ToolCall("call_1", "f", "{}")
    old = [Message("user", "A"), Message("assistant", "B", reasoning="old")]
    running = [Message("user", "C"), Message("assistant", "", "\nfresh\n", (call,)), Message("tool", "D")]
    prompt = rendered(None, old + running)
    assert "old" not in prompt
    assert "assistant\n<think>\nfresh\n</think>\n\n<tool_call>" in prompt


def test_the_prompt_of_a_turn_is_a_prefix_of_the_next_one() -> None:
    output = 'Let me see.\n<tool_call>\n{"name": "f", "arguments": {"x":1}}\n</tool_call>'
    calls = (ToolCall("call_1", "f", '{"x":1}'),)
    for source in (None, styles.QWEN):
        first = made(source).render(HELLO, [ToolDefinition("f")], kwargs={})
        history = [*HELLO, Message("assistant", "Let me see.", calls=calls), Message("tool", "2", call_id="call_1")]
        second = made(source).render(history, [ToolDefinition("f")], kwargs={})
        assert second.startswith(first + output + "<|im_end|>\n")


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a<think>", True), ("a<think>\n", True), ("<think>\n\n</think>\n\n", False), ("assistant\n", False), ("", False)],
)
def test_open_thinking_is_seen_at_the_end_of_the_prompt(prompt: str, expected: bool) -> None:
    assert opens_reasoning(prompt) is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ {'a': '<ü>&\"'} | tojson }}", '{"a": "<ü>&\\""}'),
        ("{{ {'b': [1], 'a': none} | tojson(indent=1, sort_keys=true) }}", '{\n "a": null,\n "b": [\n  1\n ]\n}'),
        ("{{ 'ü' | tojson(ensure_ascii=true, separators=(',', ':')) }}", '"\\u00fc"'),
        ("{{ strftime_now('%d %b %Y') }}", "04 Jul 2026"),
        ("{{ bos_token + messages[0].content + eos_token }}", "<s>Hello</s>"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "Hello!"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{% for c in 'ab' %}{{ loop.index ~ '/' ~ loop.length ~ c }}{% endfor %}", "1/2a2/2b"),
        ("{% set q = [1] %}{% set _ = q.append(2) %}{{ q.pop(0) }}{{ q | length }}", "11"),
        ("{{ tools is none }} {{ documents is defined }} {{ add_generation_prompt }}", "True False True"),
        ("{{ 'ab' * 3 }}{{ 2 ** 3 }}{{ 2 * 3 }}{{ [0] * 2 }}", "ababab86[0, 0]"),
    ],
)
def test_templates_find_what_hugging_face_gives_them(source: str, expected: str) -> None:
    assert rendered(source) == expected


def test_kwargs_are_variables_of_the_template() -> None:
    assert rendered("{{ mood }}{{ extra.words | join }}", mood="calm", extra={"words": ["a", "b"]}) == "calmab"


@pytest.mark.parametrize("name", ["messages", "tools", "bos_token", "eos_token", "add_generation_prompt"])
def test_kwargs_cannot_replace_the_conversation(name: str) -> None:
    with pytest.raises(TemplateError, match=f"'{name}' cannot be set by a request"):
        made(None).render(HELLO, (), kwargs={name: "x"})


def test_what_a_template_raises_is_the_message() -> None:
    with pytest.raises(TemplateError, match=r"^Only short greetings\.$"):
        rendered("{{ raise_exception('Only short greetings.') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ missing.attribute }}",
        "{{ 'a' + 1 }}",
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.clear() }}",
        "{{ messages[0].update(role='system') }}",
        "{{ 2 ** 1000000000 }}",
        "{{ namespace | tojson }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ range(100000000) | list }}",
        "{{ strftime_now('\\ud800') }}",
        "{% include 'other' %}",
    ],
)
def test_everything_else_is_one_general_sentence(source: str) -> None:
    with pytest.raises(TemplateError) as caught:
        rendered(source)
    assert str(caught.value) == GENERAL


LIMITS = Limits(source=1000, output=10_000, steps=5_000)


def bounded(source: str) -> str:
    template = CompiledTemplate(source, datetime.now, LIMITS)
    return template.render({"x": "x" * 100})


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(1000) %}{{ x }}{% endfor %}",
        "{% set ns = namespace(x=x) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=x) %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=x) %}{% for i in range(64) %}{% set ns.x = ns.x.replace('x', 'xx') %}{% endfor %}",
        "{{ x * 1000000000000000 }}",
        "{{ 1000000000000000 * [x] }}",
    ],
)
def test_output_is_bounded(source: str) -> None:
    with pytest.raises(TemplateError, match="more than 10000 characters"):
        bounded(source)
    assert len(bounded("{% for i in range(100) %}{{ x }}{% endfor %}")) == LIMITS.output


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in x %}{% for j in x %}{% endfor %}{% endfor %}",
        "{% for i in range(1000) %}{{ range(10) }}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for i in x %}{% for j in x %}{{ i.upper() }}{% endfor %}{% endfor %}",
    ],
)
def test_steps_are_bounded(source: str) -> None:
    with pytest.raises(TemplateError, match="too many steps"):
        bounded(source)
    assert bounded("{% for i in range(4900) %}{% endfor %}.") == "."


def test_source_is_bounded() -> None:
    assert bounded("x" * LIMITS.source) == "x" * LIMITS.source
    with pytest.raises(TemplateError, match="has 1001 characters; at most 1000 are read"):
        bounded("x" * (LIMITS.source + 1))


@pytest.mark.parametrize("source", ["{% if %}", "{{ 1 +", "{% generation %}", "{% for x in y %}", "{{ x | nothing }}"])
def test_what_is_not_jinja_is_refused_at_once(source: str) -> None:
    with pytest.raises(TemplateError, match=r"^The chat template is not valid Jinja \(line 1\): "):
        made(source)


@pytest.mark.parametrize("source", ["{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{% if x %}" * 2000])
def test_a_source_nested_too_deeply_is_refused_at_once(source: str) -> None:
    with pytest.raises(TemplateError):
        made(source)


def test_values_nested_too_deeply_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    template = made(None)
    for tools, kwargs in (((ToolDefinition("f", "", deep),), {}), ((), {"x": deep})):
        with pytest.raises(TemplateError, match="nested too deeply"):
            template.render(HELLO, tools, kwargs=kwargs)
    assert template.render(HELLO, (), kwargs={}) == block("user", "Hello") + "<|im_start|>assistant\n"


def thinking(source: str | None) -> dict[str, dict[str, Any] | None]:
    template = made(source)
    found = {effort: template.thinking_kwargs(effort) for effort in EFFORTS}
    return {effort: None if kwargs is None else dict(kwargs) for effort, kwargs in found.items()}


def test_no_effort_asks_for_no_switch() -> None:
    assert made(styles.QWEN).thinking_kwargs(None) == {}
    assert made(None).thinking_kwargs(None) == {}


def test_a_template_without_switch_honours_no_effort() -> None:
    assert all(kwargs is None for kwargs in thinking(None).values())


@pytest.mark.parametrize("name", ["enable_thinking", "thinking"])
def test_a_switch_is_off_for_none_and_on_for_the_rest(name: str) -> None:
    source = "{{ messages[0].content }}{% if " + name + " %}<think>{% endif %}"
    assert thinking(source) == {effort: {name: effort != "none"} for effort in EFFORTS}
    assert made(source).render(HELLO, (), kwargs={name: True}) == "Hello<think>"


def test_a_stern_template_gets_the_nearest_word_that_it_takes() -> None:
    words = {"minimal": "low", "low": "low", "medium": "low", "high": "high", "xhigh": "high", "max": "high"}
    expected: dict[str, Any] = {effort: {"reasoning_effort": word} for effort, word in words.items()}
    assert thinking(styles.STERN) == {"none": None, **expected}


def test_a_template_that_prints_any_word_is_believed_to_know_the_usual_and_the_quoted_ones() -> None:
    source = "{{ messages[0].content }}{{ reasoning_effort or 'max' }}"
    words = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "max"}
    expected: dict[str, Any] = {effort: {"reasoning_effort": word} for effort, word in words.items()}
    assert thinking(source) == {"none": None, **expected}


def test_a_word_that_means_the_default_is_taken_but_not_for_thinking_less() -> None:
    source = "{{ messages[0].content }}{% if thinking_effort in ('low', 'max') %}{{ thinking_effort }}!{% endif %}"
    found = thinking(source)
    assert found["none"] is None
    assert found["minimal"] == {"thinking_effort": "low"}
    assert found["high"] == {"thinking_effort": "high"}


def test_both_switches_are_set() -> None:
    source = (
        "{{ messages[0].content }}{% if enable_thinking %}<think>{% endif %}"
        "{% if reasoning_effort == 'none' %}!{% elif reasoning_effort == 'max' %}?{% endif %}"
    )
    assert thinking(source)["none"] == {"enable_thinking": False, "reasoning_effort": "none"}
    assert thinking(source)["max"] == {"enable_thinking": True, "reasoning_effort": "max"}


def test_an_unknown_effort_sets_no_word() -> None:
    assert made(styles.STERN).thinking_kwargs("wildly") is None


def test_an_effort_that_counts_only_while_thinking_is_found() -> None:
    source = (
        "{{ messages[0].content }}{% if thinking %}<think>{% if reasoning_effort == 'max' %}!{% endif %}{% endif %}"
    )
    assert thinking(source)["max"] == {"thinking": True, "reasoning_effort": "max"}
    assert made(source).render(HELLO, (), kwargs={"thinking": True, "reasoning_effort": "max"}) == "Hello<think>!"
