"""The request of `POST /v1/responses`: every field of the wire contract's section 6, parsed and checked first.

`null` means absent everywhere. Unknown top-level fields are accepted: clients of the field send their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from antiphon.protocol.convert import check_depth, convert, convert_tagged, decode_json
from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.input_items import (
    InputCompaction,
    InputItem,
    ItemReference,
    additional_tools,
    check_calls,
    parse_input,
)
from antiphon.protocol.tools import Tool, ToolChoice, ToolName, check_count, check_names, parse_tool_choice, parse_tools

MAX_STOPS = 16
MAX_STOP_LENGTH = 256
"""Bounds on stop strings: the matcher's work and what it holds back grow with them. OpenAI's Chat API allows 4."""
MAX_METADATA = 16

INCLUDES = frozenset(
    {
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "message.output_text.logprobs",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
"""OpenAI's values. Those of hosted tools are no-ops: no item that they speak of is ever made here."""

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED_REASONING = "reasoning.encrypted_content"

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultracode"]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class TextFormat(Struct, tag="text"): ...


class JsonObjectFormat(Struct, tag="json_object"): ...


class JsonSchemaFormat(Struct, tag="json_schema"):
    name: ToolName
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


Format = TextFormat | JsonObjectFormat | JsonSchemaFormat
_FORMATS: dict[str, type[Format]] = {
    "text": TextFormat,
    "json_object": JsonObjectFormat,
    "json_schema": JsonSchemaFormat,
}


class TextOptions(Struct):
    format: Any = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Struct):
    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class StreamOptions(Struct):
    include_obfuscation: bool | None = None


class Fields(Struct, kw_only=True):
    """The top level as it comes; `Any` fields are parsed one by one in `parse_request`."""

    input: Any = None
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    truncation: Literal["disabled", "auto"] | None = None
    metadata: Annotated[dict[str, str], Meta(max_length=MAX_METADATA)] | None = None
    include: list[str] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    context_management: Any = None
    prompt: Any = None
    service_tier: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # Extensions with the field's usual names.
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Any = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CreateResponse(Struct, kw_only=True):
    """A valid request: `fields` as they came, and the structured ones parsed. `size` is the body's, in bytes."""

    fields: Fields
    size: int
    items: list[InputItem]
    tools: list[Tool]
    tool_choice: ToolChoice
    format: Format
    stops: tuple[str, ...]
    include: frozenset[str]

    @property
    def stream(self) -> bool:
        return bool(self.fields.stream)

    @property
    def effort(self) -> Effort | None:
        """How much thinking was asked for, if that was said."""
        return self.fields.reasoning.effort if self.fields.reasoning else None


def parse_request(body: bytes) -> CreateResponse:
    """A request from its body. Raises `RequestRefused` with the path of the first fault."""
    raw = decode_json(body)
    fields = convert(raw, Fields)
    if fields.input is None:
        raise RequestRefused("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
    items = parse_input(fields.input)
    check_calls(items, whole=_is_whole(fields, items))
    tools = parse_tools(fields.tools) if fields.tools is not None else []
    check_names(tools, "tools")
    declared = [*tools, *additional_tools(items)]
    check_count(declared)
    request = CreateResponse(
        fields=fields,
        size=len(body),
        items=items,
        tools=tools,
        tool_choice="auto" if fields.tool_choice is None else parse_tool_choice(fields.tool_choice, declared),
        format=_format(fields.text),
        stops=_stops(fields.stop),
        include=_include(fields.include or []),
    )
    _check_metadata(fields.metadata or {})
    check_depth(fields.chat_template_kwargs, "chat_template_kwargs")
    return request


def _is_whole(fields: Fields, items: Sequence[InputItem]) -> bool:
    """Whether the input is the whole conversation; if not, an output's call may stand in the part that is stored."""
    stored = fields.previous_response_id is not None or fields.conversation is not None
    return not stored and not any(isinstance(item, ItemReference | InputCompaction) for item in items)


def _format(text: TextOptions | None) -> Format:
    if text is None or text.format is None:
        return TextFormat()
    found = convert_tagged(text.format, _FORMATS, "text.format", "a text format")
    if isinstance(found, JsonSchemaFormat):
        check_depth(found.schema, "text.format.schema")
    return found


def _stops(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        _check_stop(value, "stop")
        return (value,)
    stops = convert(value, list[str], "stop")
    if len(stops) > MAX_STOPS:
        raise RequestRefused(f"More than {MAX_STOPS} stop strings.", param="stop")
    for n, stop in enumerate(stops):
        _check_stop(stop, f"stop[{n}]")
    return tuple(stops)


def _check_stop(stop: str, path: str) -> None:
    if not 0 < len(stop) <= MAX_STOP_LENGTH:
        raise RequestRefused(f"A stop string has 1 to {MAX_STOP_LENGTH} characters.", param=path)


def _include(values: Sequence[str]) -> frozenset[str]:
    for n, value in enumerate(values):
        if value not in INCLUDES:
            known = ", ".join(sorted(INCLUDES))
            raise RequestRefused(f"Unknown value: expected one of {known}.", param=f"include[{n}]")
    return frozenset(values)


def _check_metadata(metadata: dict[str, str]) -> None:
    for key, value in metadata.items():
        if len(key) > 64:
            raise RequestRefused("A metadata key has at most 64 characters.", param="metadata")
        if len(value) > 512:
            raise RequestRefused("A metadata value has at most 512 characters.", param=f"metadata.{key}")
