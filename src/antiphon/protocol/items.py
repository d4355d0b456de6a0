"""The output items and their parts, as they stand in events, answers and stored responses (wire contract, section 4).

Arrays are always present, `null` never stands for an empty one; a field that is left out entirely is `UNSET`.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class TopLogprob(Struct, frozen=True):
    """One of the most likely tokens at a place; `bytes` are its UTF-8 bytes."""

    token: str
    logprob: float
    bytes: list[int]


class Logprob(Struct, frozen=True):
    """The log-probability (natural logarithm) of a token of the text."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob] = []


class OutputText(Struct, frozen=True, tag="output_text"):
    text: str
    annotations: tuple[Any, ...] = ()
    logprobs: tuple[Logprob, ...] = ()


class RefusalPart(Struct, frozen=True, tag="refusal"):
    refusal: str


class ReasoningText(Struct, frozen=True, tag="reasoning_text"):
    text: str


class SummaryText(Struct, frozen=True, tag="summary_text"):
    text: str


Part = OutputText | RefusalPart | ReasoningText
MessagePart = OutputText | RefusalPart


class Message(Struct, frozen=True, tag="message", kw_only=True):
    id: str
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: tuple[MessagePart, ...] = ()


class Reasoning(Struct, frozen=True, tag="reasoning", kw_only=True):
    id: str
    status: ItemStatus
    summary: tuple[SummaryText, ...] = ()
    content: tuple[ReasoningText, ...] = ()
    encrypted_content: str | UnsetType = UNSET


class FunctionCall(Struct, frozen=True, tag="function_call", kw_only=True):
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus
    namespace: str | UnsetType = UNSET


class CustomToolCall(Struct, frozen=True, tag="custom_tool_call", kw_only=True):
    id: str
    call_id: str
    name: str
    input: str
    status: ItemStatus
    namespace: str | UnsetType = UNSET


class Compaction(Struct, frozen=True, tag="compaction", kw_only=True):
    id: str
    encrypted_content: str


Item = Message | Reasoning | FunctionCall | CustomToolCall | Compaction
