"""The dialects whose arguments are JSON: calls as JSON objects, or with the name in front.

Each is what the chat templates of its family write, for the grammar; the parsers take what the models have also been
seen to write. Where one vendor has two forms there are two dialects, since the grammar must ask for the model's own.
"""

from __future__ import annotations

import re

from antiphon.text.dialects.dialect import Calling, Dialect
from antiphon.text.dialects.json_calls import GAP, INDENT, JsonCalls, json_call
from antiphon.text.dialects.named_calls import Form, named_calls
from antiphon.text.dialects.states import Tags
from antiphon.text.lark import Lark
from antiphon.text.messages import ToolDefinition

THINK = Tags("<think>", "</think>")

# Llama 3.1 to 3.3: the template asks for a bare object and has no marker for it. Meta's description of the prompt
# puts `<|python_tag|>` before calls, and the models do so when they are told of an environment "ipython".
LLAMA3_JSON = Dialect(
    name="llama3",
    calling=Calling(
        tags=Tags("", ""), bare="{", also=("<|python_tag|>",), body=JsonCalls, call=json_call("name", "parameters")
    ),
)

# Granite 3.0 to 3.3. The marker is a token of 3.0; 3.1 writes the tag of hermes, but a list and no closing tag. 3.2 and
# 3.3 put the answer between tags where they think.
GRANITE = Dialect(
    name="granite",
    thinking=THINK,
    calling=Calling(
        tags=Tags("<|tool_call|>", ""),
        also=("<tool_call>",),
        body=JsonCalls,
        call=json_call("name", "arguments"),
        listed=True,
    ),
    passed=("<response>", "</response>"),
)

# Phi-4-mini. The second form is the one that its template in vLLM teaches, as does that of Firefunction: a list behind
# a word. The bracket belongs to the marker, so that the module of that name in an answer is none.
PHI4 = Dialect(
    name="phi-4",
    calling=Calling(
        tags=Tags("<|tool_call|>", "<|/tool_call|>"),
        also=("functools[",),
        body=JsonCalls,
        call=json_call("name", "arguments"),
        listed=True,
    ),
)

# Llama-Nemotron and Nemotron Nano 2.
NEMOTRON = Dialect(
    name="nemotron",
    thinking=THINK,
    calling=Calling(
        tags=Tags("<TOOLCALL>", "</TOOLCALL>"), body=JsonCalls, call=json_call("name", "arguments"), listed=True
    ),
)

# Command R7B and all later ones.
COMMAND_R = Dialect(
    name="command-r",
    thinking=Tags("<|START_THINKING|>", "<|END_THINKING|>"),
    calling=Calling(
        tags=Tags("<|START_ACTION|>", "<|END_ACTION|>"),
        body=JsonCalls,
        call=json_call("tool_name", "parameters", before=rf'("tool_call_id"{GAP}:{GAP}"[0-9]{{1,4}}"{GAP},{INDENT})?'),
        listed=True,
    ),
    passed=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
)

# Command R and R+ of 2024: the first marker is what the models write, the second what their template shows of earlier
# turns. The end of the fence is no closing tag, since an answer may begin with a fence of its own.
COMMAND_R_PLUS = Dialect(
    name="command-r-plus",
    calling=Calling(
        tags=Tags("Action: ```json", ""),
        also=("Action:\n```json", "Action:```json"),
        body=JsonCalls,
        call=json_call("tool_name", "parameters"),
        listed=True,
    ),
)


def _mistral_call(lark: Lark, tool: ToolDefinition) -> str:
    call_id = f"({lark.spelled('[CALL_ID]')} {lark.matching('[a-zA-Z0-9]{9}')})?"
    return f"{lark.literal(tool.name)} {call_id} {lark.spelled('[ARGS]')} {lark.arguments(tool)}"


_MISTRAL_TAGS = Tags("[TOOL_CALLS]", "")
_MISTRAL_FORM = named_calls(
    Form(name=re.compile(r"(\S+?)\s*(?:\[CALL_ID\].*)?", re.DOTALL), separator="[ARGS]", or_listed=True)
)
_MISTRAL_PARTS = frozenset({"[ARGS]", "[CALL_ID]"})

# From the tokenizers v11 (with an id) and v13 (without) on: Small 3.2, Devstral, Magistral, Ministral 3.
MISTRAL = Dialect(
    name="mistral",
    thinking=Tags("[THINK]", "[/THINK]"),
    calling=Calling(tags=_MISTRAL_TAGS, body=_MISTRAL_FORM, call=_mistral_call),
    parts=_MISTRAL_PARTS,
)

# From the tokenizers v3 and v7: Mistral 7B 0.3, Mixtral 8x22B, Nemo, Large 2, Small 3.
MISTRAL_LISTED = Dialect(
    name="mistral-list",
    calling=Calling(
        tags=_MISTRAL_TAGS,
        body=_MISTRAL_FORM,
        call=json_call("name", "arguments", after=rf'({GAP},{INDENT}"id"{GAP}:{GAP}"[a-zA-Z0-9]{{9}}")?'),
        listed=True,
    ),
    parts=_MISTRAL_PARTS,
)

_DEEPSEEK_TAGS = Tags("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
_DEEPSEEK_SECTION = Tags("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DEEPSEEK_SEPARATOR = "<｜tool▁sep｜>"
_FENCE_OPENING, _FENCE_CLOSING = "\n```json\n", "\n```"


def _deepseek_v3_call(lark: Lark, tool: ToolDefinition) -> str:
    head = f"{lark.spelled(f'function{_DEEPSEEK_SEPARATOR}')} {lark.literal(tool.name + _FENCE_OPENING)}"
    return f"{head} {lark.arguments(tool)} {lark.literal(_FENCE_CLOSING)}"


def _deepseek_v31_call(lark: Lark, tool: ToolDefinition) -> str:
    return f"{lark.literal(tool.name)} {lark.spelled(_DEEPSEEK_SEPARATOR)} {lark.arguments(tool)}"


# DeepSeek V3, V3-0324, R1 and what was distilled from it: the type stands before the separator, the name behind it.
DEEPSEEK_V3 = Dialect(
    name="deepseek-v3",
    thinking=THINK,
    calling=Calling(
        tags=_DEEPSEEK_TAGS,
        section=_DEEPSEEK_SECTION,
        body=named_calls(
            Form(name=re.compile(rf"\S*{_DEEPSEEK_SEPARATOR}\s*(\S+)"), ends=(_DEEPSEEK_SECTION.closing,))
        ),
        call=_deepseek_v3_call,
    ),
    parts=frozenset({_DEEPSEEK_SEPARATOR}),
)

# DeepSeek V3.1.
DEEPSEEK_V31 = Dialect(
    name="deepseek-v3.1",
    thinking=THINK,
    calling=Calling(
        tags=_DEEPSEEK_TAGS,
        section=_DEEPSEEK_SECTION,
        body=named_calls(
            Form(name=re.compile(r"(\S+)"), separator=_DEEPSEEK_SEPARATOR, ends=(_DEEPSEEK_SECTION.closing,))
        ),
        call=_deepseek_v31_call,
    ),
    parts=frozenset({_DEEPSEEK_SEPARATOR}),
)

_KIMI_SECTION = Tags("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
_KIMI_SEPARATOR = "<|tool_call_argument_begin|>"


def _kimi_call(lark: Lark, tool: ToolDefinition) -> str:
    """The number of a call counts up, which the model does by itself."""
    number = lark.matching("[0-9]{1,4}")
    return f"{lark.literal(f'functions.{tool.name}:')} {number} {lark.spelled(_KIMI_SEPARATOR)} {lark.arguments(tool)}"


# Kimi K2, and its thinking version.
KIMI_K2 = Dialect(
    name="kimi-k2",
    thinking=THINK,
    calling=Calling(
        tags=Tags("<|tool_call_begin|>", "<|tool_call_end|>"),
        section=_KIMI_SECTION,
        body=named_calls(
            Form(
                name=re.compile(r"(?:functions\.)?(\S+?)(?::[0-9]+)?"),
                separator=_KIMI_SEPARATOR,
                ends=(_KIMI_SECTION.closing,),
            )
        ),
        call=_kimi_call,
    ),
    parts=frozenset({_KIMI_SEPARATOR}),
)

JSON_FAMILIES = (
    LLAMA3_JSON,
    GRANITE,
    PHI4,
    NEMOTRON,
    COMMAND_R,
    COMMAND_R_PLUS,
    MISTRAL,
    MISTRAL_LISTED,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI_K2,
)
