"""The items that a request may bring, as real clients send them (wire contract, section 6).

Lenient where clients need it: a message without `type`, nulls and output-only fields from an SDK's `model_dump()`,
client-made ids, unknown extra fields. Strict where a mistake would change the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from antiphon.protocol.convert import convert_tagged
from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.tools import Tool, check_names, parse_tools

CallId = Annotated[str, Meta(min_length=1, max_length=256)]
"""Calls and outputs are matched by it; OpenAI's own are 29 characters, the bound is against abuse."""


MAX_ITEMS = 16_384
MAX_PARTS = 1_024
"""Conversations of agents have hundreds of items with a few parts each. Without the bounds, a body of the allowed size
holds a million of either, and keeps a core busy for half a minute."""


class InputText(Struct, tag="input_text"):
    text: str


class InputOutputText(Struct, tag="output_text"):
    text: str


class PlainText(Struct, tag="text"):
    text: str


class InputRefusal(Struct, tag="refusal"):
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class InputImage(Struct, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class InputFile(Struct, tag="input_file"):
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None


class InputReasoningText(Struct, tag="reasoning_text"):
    text: str


class InputSummaryText(Struct, tag="summary_text"):
    text: str


TextPart = InputText | InputOutputText | PlainText | InputRefusal
ContentPart = TextPart | InputImage | InputFile
Content = str | list[ContentPart]

_CONTENT: dict[str, type[ContentPart]] = {
    "input_text": InputText,
    "output_text": InputOutputText,
    "text": PlainText,
    "refusal": InputRefusal,
    "input_image": InputImage,
    "input_file": InputFile,
}
_REASONING: dict[str, type[InputReasoningText | PlainText]] = {"reasoning_text": InputReasoningText, "text": PlainText}
_SUMMARY: dict[str, type[InputSummaryText | PlainText]] = {"summary_text": InputSummaryText, "text": PlainText}


class InputMessage(Struct, tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: Any = None
    id: str | None = None


class InputFunctionCall(Struct, tag="function_call"):
    call_id: CallId
    name: str
    arguments: str
    namespace: str | None = None
    id: str | None = None


class InputFunctionCallOutput(Struct, tag="function_call_output"):
    call_id: CallId
    output: Any
    id: str | None = None


class InputCustomToolCall(Struct, tag="custom_tool_call"):
    call_id: CallId
    name: str
    input: str
    namespace: str | None = None
    id: str | None = None


class InputCustomToolCallOutput(Struct, tag="custom_tool_call_output"):
    call_id: CallId
    output: Any
    id: str | None = None


class InputReasoning(Struct, tag="reasoning"):
    summary: Any = None
    content: Any = None
    encrypted_content: str | None = None
    id: str | None = None


class ItemReference(Struct, tag="item_reference"):
    id: str


class AdditionalTools(Struct, tag="additional_tools"):
    tools: Any
    id: str | None = None


class InputCompaction(Struct, tag="compaction"):
    encrypted_content: str
    id: str | None = None


class CompactionTrigger(Struct, tag="compaction_trigger"):
    id: str | None = None


CallItem = InputFunctionCall | InputCustomToolCall
CallOutput = InputFunctionCallOutput | InputCustomToolCallOutput
InputItem = (
    InputMessage
    | CallItem
    | CallOutput
    | InputReasoning
    | ItemReference
    | AdditionalTools
    | InputCompaction
    | CompactionTrigger
)

_ITEMS: dict[str, type[InputItem]] = {
    "message": InputMessage,
    "function_call": InputFunctionCall,
    "function_call_output": InputFunctionCallOutput,
    "custom_tool_call": InputCustomToolCall,
    "custom_tool_call_output": InputCustomToolCallOutput,
    "reasoning": InputReasoning,
    "item_reference": ItemReference,
    "additional_tools": AdditionalTools,
    "compaction": InputCompaction,
    "compaction_trigger": CompactionTrigger,
}


def parse_input(value: Any) -> list[InputItem]:
    """The `input` of a request: a string is one user message. Raises `RequestRefused` naming the item and field."""
    if isinstance(value, str):
        return [InputMessage("user", value)]
    if not isinstance(value, list):
        raise RequestRefused("`input` must be a string or a list of items.", param="input", code="invalid_type")
    if len(value) > MAX_ITEMS:
        raise RequestRefused(f"More than {MAX_ITEMS} items.", param="input")
    return [_parse_item(item, f"input[{n}]") for n, item in enumerate(value)]


def _parse_item(data: Any, path: str) -> InputItem:
    item = convert_tagged(_with_type(data), _ITEMS, path, "an input item")
    if isinstance(item, InputMessage):
        item.content = _content(item.content, f"{path}.content")
    elif isinstance(item, CallOutput):
        item.output = _content(item.output, f"{path}.output")
    elif isinstance(item, InputReasoning):
        item.summary = _parts(item.summary or [], _SUMMARY, f"{path}.summary")
        item.content = _parts(item.content or [], _REASONING, f"{path}.content")
    elif isinstance(item, AdditionalTools):
        item.tools = parse_tools(item.tools, f"{path}.tools")
        check_names(item.tools, f"{path}.tools")
    return item


def _with_type(data: Any) -> Any:
    """Role implies a message and an id alone a reference: clients of the field leave such a `type` out."""
    if not isinstance(data, dict) or data.get("type") is not None:
        return data
    if data.get("role") is not None:
        return {**data, "type": "message"}
    return {**data, "type": "item_reference"} if "id" in data else data


def _content(value: Any, path: str) -> Content:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return _parts(value, _CONTENT, path)


def _parts(value: Any, kinds: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise RequestRefused("Expected a string or a list of parts.", param=path, code="invalid_type")
    if len(value) > MAX_PARTS:
        raise RequestRefused(f"More than {MAX_PARTS} parts.", param=path)
    return [convert_tagged(part, kinds, f"{path}[{n}]", "a content part") for n, part in enumerate(value)]


def additional_tools(items: Sequence[InputItem]) -> list[Tool]:
    """The tools that stand among the items."""
    return [tool for item in items if isinstance(item, AdditionalTools) for tool in item.tools]


def check_calls(items: Sequence[InputItem], *, whole: bool) -> None:
    """Each call has at most one output and, where `items` are the whole conversation, each output its call.

    Their order is free. A conversation of which a part is stored or referred to is whole when that part is in place.
    """
    calls = {item.call_id for item in items if isinstance(item, CallItem)}
    answered: set[str] = set()
    for n, item in enumerate(items):
        if not isinstance(item, CallOutput):
            continue
        path = f"input[{n}].call_id"
        if whole and item.call_id not in calls:
            raise RequestRefused(f"No tool call found for the output with call_id {item.call_id!r}.", param=path)
        if item.call_id in answered:
            raise RequestRefused(f"More than one output for the call {item.call_id!r}.", param=path)
        answered.add(item.call_id)
