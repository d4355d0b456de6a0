"""Whatever a template can take: everything a client said is in the prompt, in order, and nothing makes it raise."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import pairwise

import pytest

from antiphon.text.capabilities import CallForm, Capabilities, TextWithCalls
from antiphon.text.messages import Message, ToolDefinition
from antiphon.text.template import ChatTemplate, TemplateError, opens_reasoning
from antiphon.text.template_spelling import SPELLINGS
from tests.text import template_styles as styles
from tests.text.conversations import (
    CONVERSATIONS,
    MOVED,
    SPLIT,
    SYSTEM,
    SYSTEM2,
    TEXT,
    TEXT2,
    TOOL_WORDS,
    TOOLS,
    USER,
    USER2,
    call,
    needles,
    result,
)

STYLES = {
    "builtin": None,
    "qwen": styles.QWEN,
    "llama3": styles.LLAMA3,
    "gemma": styles.GEMMA,
    "mistral": styles.MISTRAL,
    "deepseek": styles.DEEPSEEK,
    "parts": styles.PARTS,
    "stern": styles.STERN,
    "phi": styles.PHI,
}


def made(style: str) -> ChatTemplate:
    return ChatTemplate(STYLES[style], bos_token="<s>", eos_token="</s>", now=lambda: datetime(2026, 7, 4))


TEMPLATES = {style: made(style) for style in STYLES}


@pytest.mark.parametrize("tools", [[], TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("style", STYLES)
def test_nothing_is_lost(style: str, conversation: str, tools: list[ToolDefinition]) -> None:
    messages = CONVERSATIONS[conversation]
    prompt = TEMPLATES[style].render(messages, tools, kwargs={})
    expected = needles(messages) + (TOOL_WORDS if tools else [])
    assert [needle for needle in expected if needle not in prompt] == []


@pytest.mark.parametrize("conversation", sorted(CONVERSATIONS))
@pytest.mark.parametrize("style", STYLES)
def test_nothing_is_said_twice_and_the_dialogue_keeps_its_order(style: str, conversation: str) -> None:
    messages = CONVERSATIONS[conversation]
    prompt = TEMPLATES[style].render(messages, [], kwargs={})
    assert [needle for needle in needles(messages) if needle != "FN" and prompt.count(needle) != 1] == []
    split = () if TEMPLATES[style].capabilities.several_calls else SPLIT
    if conversation not in (*MOVED, *split):
        dialogue = needles([message for message in messages if message.role != "system"])
        places = [prompt.index(needle) for needle in dialogue if needle != "FN"]
        assert all(before < after for before, after in pairwise(places))


PROBED = {
    "builtin": Capabilities(tools=False, calls=CallForm.NONE, reasoning_key=None),
    "qwen": Capabilities(calls=CallForm.TEXT, thinking_switch="enable_thinking"),
    "llama3": Capabilities(reasoning_key=None, text_with_calls=TextWithCalls.APART, several_calls=False),
    "gemma": Capabilities(
        alternates=True,
        user_first=True,
        system=False,
        later_systems=False,
        tools=False,
        calls=CallForm.NONE,
        results=False,
        reasoning_key=None,
    ),
    "mistral": Capabilities(
        alternates=True,
        user_first=True,
        system=False,
        several_leading_systems=False,
        later_systems=False,
        tools=False,
        short_call_ids=True,
        reasoning_key=None,
        text_with_calls=TextWithCalls.TWO_TURNS,
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
    "phi": Capabilities(system_tools=True, calls=CallForm.NONE, reasoning_key=None),
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
    kinds = {
        "a": {"type": "integer"},
        "b": {"type": ["null", "number"]},
        "c": {"type": []},
        "d": True,
        "e": {"anyOf": []},
    }
    odd = [ToolDefinition("F", "", {"properties": kinds}), ToolDefinition("G")]
    shown = "aintegerFalsebnumberFalsecstringFalsedstringFalseestringFalse"
    assert template.render([USER], odd, kwargs={}) == f"F{shown}GUSR1"
    with pytest.raises(TemplateError):  # no object, nothing to fill in: the template's own failure
        template.render([USER], [ToolDefinition("F", "", {"properties": []})], kwargs={})


def test_objects_whose_further_properties_are_walked_have_them() -> None:
    source = "{% for t in tools %}{% for k, v in t.function.parameters.properties.items() %}{{ k + v.type }}"
    source += "{% if v.type == 'object' %}{{ v.additionalProperties.type is iterable }}{% endif %}{% endfor %}"
    source += (
        "{{ t.function.name + t.function.description }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    template = ChatTemplate(source, bos_token="", eos_token="", now=datetime.now)
    tool = ToolDefinition("F", "", {"properties": {"a": {"type": "object"}}})
    assert template.render([USER], [tool], kwargs={}) == "aobjectTrueFUSR1"


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


def test_results_stand_behind_their_calls_in_their_order() -> None:
    messages = [USER, Message("assistant", calls=(call(1), call(2))), result(2), USER2, result(1), TEXT]
    prompt = TEMPLATES["qwen"].render(messages, [], kwargs={})
    places = [prompt.index(word) for word in ("VAL1", "VAL2", "RES1", "RES2", "USR2", "TXT1")]
    assert places == sorted(places)


def test_a_result_belongs_to_the_last_call_of_its_id() -> None:
    again = Message("assistant", calls=(call(1, '{"KEY2": "VAL2"}'),))
    first, second = result(1), Message("tool", "RES2", call_id=call(1).id)
    messages = [USER, Message("assistant", calls=(call(1),)), first, USER2, again, second]
    prompt = TEMPLATES["qwen"].render(messages, [], kwargs={})
    places = [prompt.index(word) for word in ("VAL1", "RES1", "USR2", "VAL2", "RES2")]
    assert places == sorted(places)


def test_a_user_who_has_not_begun_gets_a_placeholder_where_the_template_insists() -> None:
    prompt = TEMPLATES["gemma"].render([TEXT, USER], [], kwargs={})
    assert prompt.startswith(
        "<s><start_of_turn>user\n(the conversation starts)<end_of_turn>\n<start_of_turn>model\nTXT1"
    )
    assert "starts" not in TEMPLATES["qwen"].render([TEXT, USER], [], kwargs={})


def test_a_template_that_demands_some_word_of_the_user_gets_one() -> None:
    source = "{% if 'user' not in messages | map(attribute='role') %}{{ raise_exception('No user.') }}{% endif %}"
    source += "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}"
    template = ChatTemplate(source, bos_token="", eos_token="", now=datetime.now)
    assert template.render([SYSTEM], [], kwargs={}) == "system: SYS1;user: (the conversation starts);"
    assert template.render([TEXT, USER], [], kwargs={}).endswith("assistant: TXT1;user: USR1;")


def test_text_beside_calls_is_a_turn_of_its_own_where_turns_are_counted_and_calls_hide_text() -> None:
    messages = [USER, Message("assistant", "TXT1", calls=(call(1),)), result(1), TEXT2, USER2]
    prompt = TEMPLATES["mistral"].render(messages, [], kwargs={})
    assert "[/INST]TXT1</s>[INST](continue)[/INST][TOOL_CALLS]" in prompt
    assert "<tool_call>" not in prompt


# Tools are shown and calls are not.
HALF = "{{ tools | tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def test_calls_that_the_template_hides_are_written_in_the_family_s_form() -> None:
    template = ChatTemplate(HALF, bos_token="", eos_token="", now=datetime.now, spelling=SPELLINGS["granite"])
    messages = [USER, Message("assistant", "TXT1", calls=(call(1, '{"a":1}'), call(2, '{"b":2}')))]
    prompt = template.render(messages, TOOLS, kwargs={})
    spelled = '<|tool_call|>[{"name": "FN", "arguments": {"a":1}}, {"name": "FN", "arguments": {"b":2}}]'
    assert prompt.endswith(f"<user>USR1<assistant>TXT1\n{spelled}")
    assert prompt.count("DESCRIPTION") == 1


def test_tools_that_the_template_hides_are_taught_in_the_family_s_form() -> None:
    template = ChatTemplate(
        styles.DEEPSEEK, bos_token="", eos_token="", now=datetime.now, spelling=SPELLINGS["deepseek-v3.1"]
    )
    prompt = template.render([USER], TOOLS, kwargs={})
    example = '{"an argument\'s name": "its value"}'
    assert f"\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>the function's name<｜tool▁sep｜>{example}" in prompt
    assert "Write several calls in one section" in prompt


def test_a_template_that_is_not_asked_to_show_calls_is_given_neither_tools_nor_calls() -> None:
    template = ChatTemplate(styles.LLAMA3, bos_token="", eos_token="", now=datetime.now, own_calls=False)
    assert not template.capabilities.own_calls
    prompt = template.render([USER, Message("assistant", calls=(call(1), call(2))), result(1)], TOOLS, kwargs={})
    assert "You can call functions." in prompt
    assert prompt.count("<tool_call>") == 3
    assert '"parameters": {"KEY1"' not in prompt


def test_thinking_that_the_template_hides_is_written_between_the_family_s_markers() -> None:
    template = ChatTemplate(HALF, bos_token="", eos_token="", now=datetime.now, spelling=SPELLINGS["mistral"])
    messages = [USER, Message("assistant", "TXT1", reasoning="WHY1")]
    assert template.render(messages, [], kwargs={}).endswith("<assistant>[THINK]WHY1[/THINK]TXT1")


def test_thinking_that_nobody_can_write_is_left_out() -> None:
    template = ChatTemplate(HALF, bos_token="", eos_token="", now=datetime.now, spelling=SPELLINGS["gpt-oss"])
    messages = [USER, Message("assistant", "TXT1", reasoning="WHY1")]
    assert template.render(messages, [], kwargs={}).endswith("<user>USR1<assistant>TXT1")


def test_thinking_is_left_to_a_template_that_shows_it_only_when_it_thinks() -> None:
    source = "{% for m in messages %}{% if thinking and m.reasoning %}({{ m.reasoning }}){% endif %}{{ m.content }}"
    source += (
        "{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}{% endfor %}{% if thinking %}...{% endif %}"
    )
    template = ChatTemplate(source, bos_token="", eos_token="", now=datetime.now)
    assert template.capabilities.reasoning_key == "reasoning"
    messages = [USER, Message("assistant", "TXT1", reasoning="WHY1")]
    assert template.render(messages, [], kwargs={"thinking": True}) == "USR1(WHY1)TXT1..."
    assert template.render(messages, [], kwargs={}) == "USR1TXT1"


def test_tools_that_belong_into_the_system_message_make_one_if_there_is_none() -> None:
    tools = '[{"name": "BARE", "description": "", "parameters": {"type": "object", "properties": {}}}]'
    for messages, system in (([USER], ""), ([SYSTEM, USER], "SYS1")):
        prompt = TEMPLATES["phi"].render(messages, [ToolDefinition("BARE")], kwargs={})
        assert prompt == f"<|system|>{system}<|tool|>{tools}<|/tool|><|end|><|user|>USR1<|end|><|assistant|>"
    assert TEMPLATES["phi"].render([USER], [], kwargs={}) == "<|user|>USR1<|end|><|assistant|>"
