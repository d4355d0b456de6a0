"""The chat templates of real models: each renders every conversation whole, or is refused; and its dialect is known."""

from __future__ import annotations

import functools
import json
from datetime import datetime

import pytest

from antiphon.text.detect import Fit, fit
from antiphon.text.dialects import DIALECTS
from antiphon.text.messages import Message, ToolCall, ToolDefinition
from antiphon.text.template import TemplateError, opens_reasoning
from antiphon.text.template_probe import EFFORTS
from tests.text.conversations import CONVERSATIONS, SYSTEM, USER, USER2, call, needles, result
from tests.text.read_output import read_output
from tests.text.real_templates import real_templates

# The dialect that each template tells of.
TOLD = {
    "command-r": ["Cohere2MoE", "CohereForAI-c4ai-command-r7b-12-2024-tool_use"],
    "command-r-plus": ["CohereForAI-c4ai-command-r-plus-tool_use"],
    "deepseek-v3": [
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "llama-cpp-deepseek-r1",
    ],
    "deepseek-v3.1": ["deepseek-ai-DeepSeek-V3.1"],
    "deepseek-v3.2": ["deepseek-ai-DeepSeek-V3.2"],
    "deepseek-v4": ["deepseek-ai-DeepSeek-V4", "deepseek-ai-DeepSeek-V4-Flash-0731"],
    "gemma-4": ["google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"],
    "glm-4.x": [
        "GLM-4.6",
        "GLM-4.7-Flash",
        "Spark2.5",
        "inclusionai-ling-3.0-flash",
        "poolside-Laguna-S-2.1",
        "poolside-Laguna-XS-2.1",
        "poolside-Laguna-XS.2",
    ],
    "gpt-oss": ["llm-jp-llm-jp-4.1-8b-thinking", "openai-gpt-oss-120b"],
    "granite": ["ibm-granite-granite-3.3-2B-Instruct"],
    "hermes": [
        "Bielik-11B-v3.0-Instruct",
        "MiMo-VL",
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "Qwen-QwQ-32B",
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen-Qwen3-0.6B",
        "Reka-Edge",
        "ibm-granite-granite-4.0",
        "ibm-granite-granite-4.1",
    ],
    "kimi-k2": ["Kimi-K2-Instruct", "Kimi-K2-Thinking", "moonshotai-Kimi-K2"],
    "llama3": [
        "meta-llama-Llama-3.1-8B-Instruct",
        "meta-llama-Llama-3.2-3B-Instruct",
        "meta-llama-Llama-3.3-70B-Instruct",
    ],
    "lfm2": ["LFM2-8B-A1B", "LFM2.5-8B-A1B", "LFM2.5-Instruct"],
    "minimax-m2": ["MiniMax-M2"],
    "mistral": [
        "Mistral-Small-3.2-24B-Instruct-2506",
        "mistralai-Ministral-3-14B-Reasoning-2512",
        "unsloth-mistral-Devstral-Small-2507",
    ],
    "mistral-list": ["mistralai-Mistral-Nemo-Instruct-2407"],
    "nemotron": ["NVIDIA-Nemotron-Nano-v2"],
    "qwen3-coder": [
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "Qwen3-Coder",
        "Qwen3.5-4B",
        "StepFun3.5-Flash",
    ],
}
# Control tokens of vocabularies, where the template does not say enough.
CONTROL = {"LFM2-8B-A1B": ["<|tool_call_start|>"], "LFM2.5-Instruct": ["<|tool_call_start|>"]}
# Templates that know no tools, and those with a form of calls that no dialect reads.
TAUGHT = [
    "Apertus-8B-Instruct",
    "Apriel-1.6-15b-Thinker-fixed",
    "ByteDance-Seed-OSS",
    "GigaChat3-10B-A1.8B",
    "GigaChat3.1-10B-A1.8B",
    "HuggingFaceTB-SmolLM3-3B",
    "IFM-K2-Horizon",
    "Kimi-K3",
    "MiniMax-M1",
    "MiniMax-M3",
    "google-gemma-2-2b-it",
    "llama-cpp-rwkv-world",
    "meetkai-functionary-medium-v3.1",
    "meetkai-functionary-medium-v3.2",
    "microsoft-Phi-3.5-mini-instruct",
    "muse-glimmer",
    "openbmb-MiniCPM5-1B",
    "tencent-Hy3",
    "unsloth-Apriel-1.5",
    "upstage-Solar-Open-100B",
]
# Those that render nothing, and what they say.
REFUSED = {
    # Wants the tools as a text in a variable of its own, and the date in another.
    "fireworks-ai-llama-3-firefunction-v2": "cannot render this conversation",
    # Wants the languages of a translation in each message.
    "google-translategemma-4b-it": "User role must provide `content` as an iterable with exactly one item",
}
EXPECTED = {
    **{name: ("told", dialect) for dialect, names in TOLD.items() for name in names},
    **dict.fromkeys(TAUGHT, ("taught", "hermes")),
}

TOOLS = [
    ToolDefinition(
        "FN",
        "DESCR1",
        {
            "type": "object",
            "properties": {
                "PARM1": {"type": "string", "description": "MEAN1", "enum": ["ENUM1"]},
                "NEST1": {"type": "object", "description": "", "properties": {"INNR1": {"type": "integer"}}},
                "MANY1": {"type": "array", "items": {"type": "object", "properties": {"PART1": {"type": "string"}}}},
            },
            "required": ["PARM1"],
        },
    ),
    ToolDefinition("BARE"),
]
TOOL_WORDS = ["FN", "DESCR1", "PARM1", "MEAN1", "ENUM1", "NEST1", "INNR1", "MANY1", "PART1", "BARE"]
THINKING = [
    SYSTEM,
    USER,
    Message("assistant", "TXT1", reasoning="WHY1", calls=(call(1),)),
    result(1),
    Message("assistant", reasoning="WHY2", calls=(call(2),)),
    result(2),
]

# What is missing from prompts: by the template's own will, whatever it is given.
STRIPPED = {"WHY1", "WHY2"}  # thinking; it is cut out of content, too
LOST = {
    # Tools are shown as functions of Python, of which the parameters have a type and a description.
    "CohereForAI-c4ai-command-r-plus-tool_use": {"ENUM1", "INNR1", "PART1"},
    # Behind results nothing is cut out.
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": {"WHY1"},
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": STRIPPED,
    "llama-cpp-deepseek-r1": STRIPPED,
    # The last message of the assistant keeps its own.
    "LFM2.5-Instruct": {"WHY1"},
    "NVIDIA-Nemotron-Nano-v2": STRIPPED,
    "Qwen-QwQ-32B": STRIPPED,
    "llama-cpp-rwkv-world": STRIPPED,
    "llm-jp-llm-jp-4.1-8b-thinking": STRIPPED,
}


# A value of every type, for templates that have a form of their own for some.
ARGUMENTS = '{"place": "Paris, \\"Île\\"\\n<b>", "days": 3, "deep": {"a": [1, true, null]}, "on": false}'
PROPERTIES = {
    "place": {"type": "string"},
    "days": {"type": "integer"},
    "deep": {"type": "object"},
    "on": {"type": "boolean"},
}
CALLABLE = [ToolDefinition("get_weather", "", {"type": "object", "properties": PROPERTIES}), ToolDefinition("now")]
CALLS = (ToolCall("call_1", "get_weather", ARGUMENTS), ToolCall("call_2", "now", "{}"))


@functools.cache
def fitted(name: str) -> Fit:
    source = real_templates()[name]
    return fit(source, CONTROL.get(name, ()), bos_token="<s>", eos_token="</s>", now=lambda: datetime(2026, 7, 4))


def answer(call: ToolCall) -> Message:
    return Message("tool", "Sunny.", call_id=call.id)


def test_the_table_has_every_template() -> None:
    assert sorted([*EXPECTED, *REFUSED]) == sorted(real_templates())


@pytest.mark.parametrize("name", EXPECTED)
def test_the_dialect(name: str) -> None:
    found = fitted(name)
    assert (found.origin, found.dialect) == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_nothing_of_a_conversation_is_missing(name: str) -> None:
    template = fitted(name).template
    lost: set[str] = set()
    for messages in CONVERSATIONS.values():
        for tools in ([], TOOLS):
            prompt = template.render(messages, tools, kwargs={})
            wanted = needles(messages) + (TOOL_WORDS if tools else [])
            lost.update(needle for needle in wanted if needle not in prompt)
    thoughtful = template.render(THINKING, TOOLS, kwargs=template.thinking_kwargs("high") or {})
    lost.update(needle for needle in [*needles(THINKING), "WHY1", "WHY2"] if needle not in thoughtful)
    assert lost == LOST.get(name, set())


@pytest.mark.parametrize("name", [name for name, (_, dialect) in EXPECTED.items() if dialect in DIALECTS])
def test_the_dialect_reads_the_calls_that_the_prompt_shows(name: str) -> None:
    template, dialect = fitted(name).template, DIALECTS[fitted(name).dialect]
    calls = CALLS if template.capabilities.several_calls else CALLS[:1]
    asked = template.render([USER], CALLABLE, kwargs={})
    shown = template.render([USER, Message("assistant", calls=calls), *map(answer, calls), USER2], CALLABLE, kwargs={})
    goes_on = shown.startswith(asked)  # else the output begins otherwise in history
    opening = dialect.thinking.opening if goes_on and dialect.thinking else ""
    output = read_output(
        dialect,
        shown.removeprefix(asked) if goes_on else shown.partition(USER.content)[2],
        {tool.name: tool.parameters for tool in CALLABLE},
        reasoning_open=bool(opening) and opens_reasoning(asked, opening),
    )
    assert output.calls == [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("name", EXPECTED)
def test_every_effort_that_can_be_honoured_renders(name: str) -> None:
    template = fitted(name).template
    for effort in EFFORTS:
        kwargs = template.thinking_kwargs(effort)
        assert kwargs is None or "USR1" in template.render([USER], TOOLS, kwargs=kwargs)


@pytest.mark.parametrize(("name", "message"), REFUSED.items())
def test_a_template_that_wants_more_than_a_conversation_is_refused(name: str, message: str) -> None:
    for messages in CONVERSATIONS.values():
        with pytest.raises(TemplateError, match=message):
            fitted(name).template.render(messages, TOOLS, kwargs={})
