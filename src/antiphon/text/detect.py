"""Which dialect a model speaks, told from its chat template and its vocabulary; and the two made to fit.

Rules
* What a model is told to write is what its dialect reads. A family whose form of calls nobody here reads is taught
  Hermes's, in place of its template's own; so is a model whose template cannot show calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Literal

from msgspec import Struct

from antiphon.text.dialects import DEFAULT_DIALECT
from antiphon.text.template import ChatTemplate
from antiphon.text.template_spelling import HERMES, SPELLINGS, Spelling


class Rule(Struct, frozen=True):
    """Holds where all of `text` stand in the template and all of `control` are control tokens."""

    dialect: str | None  # None: nobody here reads this form
    text: tuple[str, ...]
    control: tuple[str, ...] = ()


# The first that holds counts; so the more telling ones stand first. A template's quotes are read without backslashes.
RULES = (
    # The channels of harmony: gpt-oss, LLM-jp 4.
    Rule("gpt-oss", ("<|channel|>", "<|message|>")),
    # DeepSeek put their markers together from one; V4 named the section anew.
    Rule("deepseek-v4", ("｜DSML｜", "tool_calls>")),
    Rule("deepseek-v3.2", ("｜DSML｜",)),
    # DeepSeek V3 and R1 write the arguments in a fence, V3.1 does not.
    Rule("deepseek-v3", ("<｜tool▁calls▁begin｜>", "```json")),
    Rule("deepseek-v3.1", ("<｜tool▁calls▁begin｜>",)),
    Rule("kimi-k2", ("<|tool_calls_section_begin|>",)),
    Rule("minimax-m2", ("<minimax:tool_call>",)),
    # FunctionGemma and Gemma 4; the models between know no tools.
    Rule("gemma", ("<start_function_call>",)),
    Rule("gemma-4", ("<|tool_call>call:",)),
    # Command R7B and later; before, Command R and R+.
    Rule("command-r", ("<|START_ACTION|>",)),
    Rule("command-r-plus", ("<|START_OF_TURN_TOKEN|>", "Action:")),
    # From Mistral Small 3.2 on; before, a list behind one marker.
    Rule("mistral", ("[TOOL_CALLS]", "[ARGS]")),
    Rule("mistral-list", ("[TOOL_CALLS]",)),
    Rule("lfm2", ("<|tool_call_start|>",)),
    # Nemotron Nano 2 and Llama Nemotron; Nemotron 3 writes as Qwen3-Coder.
    Rule("nemotron", ("<TOOLCALL>",)),
    # Phi-4-mini shows tools between these.
    Rule("phi-4", ("<|tool|>", "<|/tool|>")),
    # Granite 3.
    Rule("granite", ("<|tool_call|>",)),
    # Llama 3.2 and 4, where they are asked for calls in Python.
    Rule("llama-pythonic", ("[func_name1(",)),
    # Llama 3.1 to 3.3, and 4.
    Rule("llama3", ("<|start_header_id|>", '"parameters": ')),
    Rule("llama3", ("<|header_start|>", '"parameters": ')),
    # GLM 4.5 to 4.7, Ling 3, Laguna, Spark 2.5.
    Rule("glm-4.x", ("<tool_call>", "<arg_key>")),
    # Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5.
    Rule("qwen3-coder", ("<tool_call>", "<function=", "<parameter=")),
    # Apriel and Jamba: a list between the plural's tags. Some speak of <tool_call> beside.
    Rule(None, ("<tool_calls>",)),
    # Qwen 2.5 and 3, Hermes, SmolLM3, Granite 4, Bielik, MiMo, Reka Edge.
    Rule("hermes", ("<tool_call>", '"name": ', '"arguments": ')),
    # Templates without a word of calls, of families whose vocabularies have markers for them.
    Rule("mistral", ("[INST]",), control=("[TOOL_CALLS]", "[ARGS]")),
    Rule("mistral-list", ("[INST]",), control=("[TOOL_CALLS]",)),
    Rule("lfm2", ("<|im_start|>",), control=("<|tool_call_start|>",)),
    Rule("granite", ("<|start_of_role|>",), control=("<|tool_call|>",)),
)

Origin = Literal["asked", "told", "taught"]


class Fit(Struct, frozen=True):
    """A template and a dialect that fit each other."""

    template: ChatTemplate
    dialect: str
    origin: Origin  # asked for; told by the template; or taught by us, whatever the template says


def dialect_of(chat_template: str | None, control: Collection[str]) -> str | None:
    """The dialect that a template was written for; None if nothing is known. `control`: the control tokens."""
    text = (chat_template or "").replace('\\"', '"')
    for rule in RULES:
        if all(marker in text for marker in rule.text) and all(token in control for token in rule.control):
            return rule.dialect
    return None


def fit(
    chat_template: str | None,
    control: Collection[str],
    *,
    asked: str | None = None,
    bos_token: str,
    eos_token: str,
    now: Callable[[], datetime],
) -> Fit:
    """The template with the dialect: the one asked for, or the one that the template was written for, if it or we can
    write its calls, or else the default. Raises `TemplateError` if the template cannot be compiled."""

    def made(spelling: Spelling, *, own_calls: bool = True) -> ChatTemplate:
        return ChatTemplate(
            chat_template,
            bos_token=bos_token,
            eos_token=eos_token,
            now=now,
            spelling=spelling,
            own_calls=own_calls,
        )

    if asked is not None:
        return Fit(made(SPELLINGS.get(asked, HERMES)), asked, "asked")
    told = dialect_of(chat_template, control)
    if told is not None:
        spelling = SPELLINGS.get(told, Spelling())
        template = made(spelling)
        if template.capabilities.own_calls or spelling.calls is not None:
            return Fit(template, told, "told")
    return Fit(made(HERMES, own_calls=False), DEFAULT_DIALECT, "taught")
