"""Whatever a template can take: everything a client said is in the prompt, in order, and nothing makes it raise."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import pairwise

import pytest

from antiphon.text.capabilities import CallForm, Capabilities, TextWithCalls
from antiphon.text.messages import Message, ToolCall, ToolDefinition
from antiphon.text.template import ChatTemplate, TemplateError, opens_reasoning
from tests.text import template_styles as styles

STYLES = {
    "builtin": None,
    "qwen": styles.QWEN,
    "llama3": styles.LLAMA3,
    "gemma": styles.GEMMA,
    "mistral": styles.MISTRAL,
    "deepseek": styles.DEEPSEEK,
    "parts": styles.PARTS,
    "stern": styles.STERN,
}
PARAMETERS = {"type": "object", "properties": {"PARAM": {"type": "string"}}}
TOOLS = [ToolDefinition("FN", "DESCRIPTION", PARAMETERS), ToolDefinition("BARE")]


def made(style: str) -> ChatTemplate:
    return ChatTemplate(STYLES[style], bos_token="<s>", eos_token="</s>", now=lambda: datetime(2026, 7, 4))


TEMPLATES = {style: made(style) for style in STYLES}


def call(number: int, arguments: str | None = None) -> ToolCall:
    text = f'{{"KEY{number}": "VAL{number}"}}' if arguments is None else arguments
    return ToolCall(f"call_{number:024}", "FN", text)


def result(number: int) -> Message:
    return Message("tool", f"RES{number}", call_id=call(number).id)


SYSTEM, SYSTEM2 = Message("system", "SYS1"), Message("system", "SYS2")
USER, USER2 = Message("user", "USR1"), Message("user", "USR2")
TEXT, TEXT2 = Message("assistant", "TXT1"), Message("assistant", "TXT2")

CONVERSATIONS = {
    "one message": [USER],
    "several leading system messages": [SYSTEM, SYSTEM2, USER],
    "system message in the middle": [SYSTEM, USER, TEXT, SYSTEM2, USER2],
    "system message in the middle only": [USER, TEXT, SYSTEM, USER2],
    "system message at the end": [SYSTEM, USER, SYSTEM2],
    "system messages alone": [SYSTEM, SYSTEM2],
    "same role twice": [USER, USER2, TEXT, TEXT2, Message("user", "USR3")],
    "tool loop running": [SYSTEM, USER, Message("assistant", calls=(call(1),)), result(1)],
    "tool loop done": [SYSTEM, USER, Message("assistant", calls=(call(1),)), result(1), TEXT2, USER2],
    "text and call": [USER, Message("assistant", "TXT1", calls=(call(1),)), result(1), TEXT2, USER2],
    "text, then call": [USER, TEXT, Message("assistant", calls=(call(1),)), result(1)],
    "several calls": [USER, Message("assistant", calls=(call(1), call(2))), result(1), result(2), TEXT2, USER2],
    "results out of order": [USER, Message("assistant", calls=(call(1), call(2))), result(2), result(1)],
    "loop of loops": [
        USER,
        Message("assistant", "TXT1", calls=(call(1), call(2))),
        result(1),
        result(2),
        SYSTEM,
        Message("assistant", "TXT2", calls=(call(3),)),
        result(3),
    ],
    "interrupted loop": [USER, Message("assistant", calls=(call(1),)), result(1), USER2],
    "broken arguments": [USER, Message("assistant", calls=(call(1, '{"KEY1": VAL1'),)), result(1)],
    "arguments that are no object": [USER, Message("assistant", calls=(call(1, "VAL1"),)), result(1)],
}


# Where calls stand alone, each is followed by its own result.
REORDERED = ("several calls", "results out of order", "loop of loops")


def needles(messages: list[Message]) -> list[str]:
    found: list[str] = []
    for message in messages:
        found.append(message.content)
        found += [word for c in message.calls for word in [c.name, *re.findall(r"KEY\d|VAL\d", c.arguments)]]
    return [needle for needle in found if needle]


@pytest.mark.parametrize("tools", [[], TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("style", STYLES)
def test_nothing_is_lost(style: str, conversation: str, tools: list[ToolDefinition]) -> None:
    messages = CONVERSATIONS[conversation]
    prompt = TEMPLATES[style].render(messages, tools, kwargs={})
    expected = needles(messages) + (["FN", "DESCRIPTION", "PARAM", "BARE"] if tools else [])
    assert [needle for needle in expected if needle not in prompt] == []


@pytest.mark.parametrize("conversation", sorted(CONVERSATIONS))
@pytest.mark.parametrize("style", STYLES)
def test_nothing_is_said_twice_and_the_dialogue_keeps_its_order(style: str, conversation: str) -> None:
    messages = CONVERSATIONS[conversation]
    prompt = TEMPLATES[style].render(messages, [], kwargs={})
    assert [needle for needle in needles(messages) if needle != "FN" and prompt.count(needle) != 1] == []
    if TEMPLATES[style].capabilities.several_calls or conversation not in REORDERED:
        dialogue = needles([message for message in messages if message.role != "system"])
        places = [prompt.index(needle) for needle in dialogue if needle != "FN"]
        assert all(before < after for before, after in pairwise(places))


PROBED = {
    "builtin": Capabilities(tools=False, calls=CallForm.NONE, reasoning_key=None),
    "qwen": Capabilities(calls=CallForm.TEXT, thinking_switch="enable_thinking"),
    "llama3": Capabilities(reasoning_key=None, text_with_calls=TextWithCalls.APART, several_calls=False),
    "gemma": Capabilities(
        alternates=True,
        system=False,
        later_systems=False,
        tools=False,
        calls=CallForm.NONE,
        results=False,
        reasoning_key=None,
    ),
    "mistral": Capabilities(
        alternates=True,
        system=False,
        several_leading_systems=False,
        later_systems=False,
        tools=False,
        short_call_ids=True,
        reasoning_key=None,
        text_with_calls=TextWithCalls.SPELLED,
    ),
    "deepseek": Capabilities(
        several_leading_systems=False, later_systems=False, tools=False, calls=CallForm.TEXT, reasoning_key=None
    ),
    "parts": Capabilities(content_parts=True, tools=False, calls=CallForm.NONE, reasoning_key=None),
    "stern": Capabilities(
        several_leading_systems=False,
        later_systems=False,
        tools=False,
        calls=CallForm.NONE,
        reasoning_key=None,
        effort_switch="reasoning_effort",
        efforts=("low", "high"),
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_probing_finds_what_the_template_can_take(style: str) -> None:
    assert TEMPLATES[style].capabilities == PROBED[style]


def test_a_later_system_message_stays_where_it_is_if_the_template_shows_it_there() -> None:
    prompt = TEMPLATES["qwen"].render([SYSTEM, USER, TEXT, SYSTEM2, USER2], [], kwargs={})
    assert prompt.index("TXT1") < prompt.index("SYS2") < prompt.index("USR2")


@pytest.mark.parametrize("style", ["stern", "deepseek", "gemma", "mistral"])
def test_elsewhere_it_joins_the_first_one(style: str) -> None:
    assert "SYS1\n\nSYS2" in TEMPLATES[style].render([SYSTEM, USER, TEXT, SYSTEM2, USER2], [], kwargs={})


def test_without_a_system_role_the_system_text_opens_the_first_user_message() -> None:
    prompt = TEMPLATES["gemma"].render([SYSTEM, USER], [], kwargs={})
    assert prompt == "<s><start_of_turn>user\nSYS1\n\nUSR1<end_of_turn>\n<start_of_turn>model\n"
    alone = TEMPLATES["gemma"].render([SYSTEM], [], kwargs={})
    assert alone == "<s><start_of_turn>user\nSYS1<end_of_turn>\n<start_of_turn>model\n"


def test_results_that_have_no_role_are_one_user_message() -> None:
    messages = [USER, Message("assistant", calls=(call(1), call(2))), result(1), result(2), USER2]
    prompt = TEMPLATES["gemma"].render(messages, [], kwargs={})
    responses = "<tool_response>\nRES1\n</tool_response>\n<tool_response>\nRES2\n</tool_response>"
    assert f"<start_of_turn>user\n{responses}\n\nUSR2<end_of_turn>" in prompt


def test_calls_that_must_stand_alone_are_followed_by_their_own_results() -> None:
    messages = [USER, Message("assistant", "TXT1", calls=(call(1), call(2))), result(2), result(1), result(9)]
    prompt = TEMPLATES["llama3"].render(messages, [], kwargs={})
    places = [prompt.index(word) for word in ("TXT1", "VAL1", "RES1", "VAL2", "RES2", "RES9")]
    assert places == sorted(places)


def test_an_interrupted_loop_gets_a_placeholder_answer_where_turns_are_counted() -> None:
    prompt = TEMPLATES["mistral"].render(
        [USER, Message("assistant", calls=(call(1),)), result(1), USER2], [], kwargs={}
    )
    assert "[/TOOL_RESULTS](interrupted)</s>[INST]USR2" in prompt


def test_short_ids_are_the_same_in_call_and_result() -> None:
    prompt = TEMPLATES["mistral"].render([USER, Message("assistant", calls=(call(1),)), result(1)], [], kwargs={})
    ids = re.findall(r'"}}([0-9a-z]{9})</s>|RES1([0-9a-z]{9})\[', prompt)
    assert len(ids) == 2
    assert ids[0][0] == ids[1][1]


def test_arguments_are_an_object_where_the_template_serialises_them() -> None:
    prompt = TEMPLATES["llama3"].render([USER, Message("assistant", calls=(call(1, '{"a":{"b":1}}'),))], [], kwargs={})
    assert '"parameters": {"a": {"b": 1}}}<|eot_id|>' in prompt


CALLS = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"


def test_arguments_are_text_where_the_template_would_print_python() -> None:
    source = CALLS + "{{ c.function.arguments }}{% endfor %}{% endfor %}"
    template = ChatTemplate(source, bos_token="", eos_token="", now=datetime.now)
    assert template.render([USER, Message("assistant", calls=(call(1),))], [], kwargs={}) == 'USR1FN{"KEY1": "VAL1"}'


def test_arguments_are_an_object_where_the_template_has_a_form_of_its_own_for_them() -> None:
    source = CALLS + "{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
    source += "{% for k, v in c.function.arguments | items %}<{{ k }}>{{ v }}{% endfor %}{% endif %}"
    template = ChatTemplate(source + "{% endfor %}{% endfor %}", bos_token="", eos_token="", now=datetime.now)
    assert template.render([USER, Message("assistant", calls=(call(1),))], [], kwargs={}) == "USR1FN<KEY1>VAL1"


def test_arguments_that_do_not_parse_become_an_object_where_the_template_insists() -> None:
    source = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"
    source += "{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}{% endfor %}{% endfor %}{% endfor %}"
    template = ChatTemplate(source, bos_token="", eos_token="", now=datetime.now)
    messages = [USER, Message("assistant", calls=(call(1, '{"a": 1'), call(2, '{"b": 2}')))]
    assert template.render(messages, [], kwargs={}) == 'USR1FN<arguments>{"a": 1FN<b>2'


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_handed_over_under_the_key_that_the_template_reads(key: str) -> None:
    source = "{% for m in messages %}{{ m.content }}{% if m." + key + " %}<t>{{ m." + key + " }}</t>{% endif %}"
    source += "{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    template = ChatTemplate(source, bos_token="", eos_token="", now=datetime.now)
    old = Message("assistant", "TXT1", reasoning="WHY")
    assert template.render([USER, old, USER2], [], kwargs={}) == "USR1TXT1<t>WHY</t>USR2"


def test_a_template_that_demands_reasoning_gets_an_empty_one() -> None:
    source = "{% for m in messages %}{% if m.role == 'assistant' and m.reasoning_content is not defined %}"
    source += "{{ raise_exception('Where is the thinking?') }}{% endif %}{{ m.reasoning_content }}{{ m.content }}"
    source += "{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    template = ChatTemplate(source, bos_token="", eos_token="", now=datetime.now)
    assert template.render([USER, TEXT, USER2], [], kwargs={}) == "USR1TXT1USR2"


def test_a_template_that_walks_whole_schemas_gets_whole_ones() -> None:
    source = "{% for t in tools %}{% set p = t.function.parameters %}{{ t.function.name + t.function.description }}"
    source += "{% for k, v in p.properties.items() %}{{ k + v.type + v.description }}{{ k in p.required }}{% endfor %}"
    source += "{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    template = ChatTemplate(source, bos_token="", eos_token="", now=datetime.now)
    assert template.capabilities.full_schemas
    assert template.capabilities.empty_tools
    odd = [ToolDefinition("F", "", {"properties": {"a": {"type": "integer"}}}), ToolDefinition("G")]
    assert template.render([USER], odd, kwargs={}) == "FaintegerFalseGUSR1"
    with pytest.raises(TemplateError):  # no object, nothing to fill in: the template's own failure
        template.render([USER], [ToolDefinition("F", "", {"properties": {"a": True}})], kwargs={})
    with pytest.raises(TemplateError):
        template.render([USER], [ToolDefinition("F", "", {"properties": []})], kwargs={})


def test_reasoning_and_neighbours_are_merged_together() -> None:
    source = styles.GEMMA.replace("m.content | trim", "(m.reasoning_content or '') + '|' + m.content")
    template = ChatTemplate(source, bos_token="", eos_token="", now=datetime.now)
    messages = [USER, Message("assistant", "A", reasoning="R1"), Message("assistant", "B", reasoning="R2"), USER2]
    assert "model\nR1\n\nR2|A\n\nB<end_of_turn>" in template.render(messages, [], kwargs={})


def test_the_name_of_a_result_is_that_of_its_call() -> None:
    source = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}"
    source += "{% if m.role == 'tool' %}={{ m.name }}{% endif %}{% endfor %}"
    template = ChatTemplate(source, bos_token="", eos_token="", now=datetime.now)
    messages = [USER, Message("assistant", calls=(call(1),)), result(1), Message("tool", "X", call_id="?", name="G")]
    assert template.render(messages, [], kwargs={}).endswith("RES1=FNX=G")


@pytest.mark.parametrize("style", STYLES)
def test_only_the_deepseek_style_opens_a_thinking_block(style: str) -> None:
    prompt = TEMPLATES[style].render([USER], [], kwargs={})
    assert opens_reasoning(prompt) is (style == "deepseek")


def test_a_template_that_shows_no_message_is_left_as_able_as_can_be() -> None:
    template = ChatTemplate("Always the same.", bos_token="", eos_token="", now=datetime.now)
    assert template.render([SYSTEM, USER], TOOLS, kwargs={}) == "Always the same."
    assert not template.capabilities.content_parts
