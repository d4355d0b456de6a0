"""What is valid but not served: each refused by name, none dropped in silence. The README lists the same.

A capability that is built later takes its line away here and in the README.
"""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.protocol.errors import RequestRefused, unsupported
from antiphon.protocol.input_items import (
    AdditionalTools,
    CompactionTrigger,
    InputCompaction,
    InputFile,
    InputImage,
    InputItem,
    InputReasoning,
    ItemReference,
)
from antiphon.protocol.request import (
    ENCRYPTED_REASONING,
    CreateResponse,
    Fields,
    JsonObjectFormat,
    JsonSchemaFormat,
)
from antiphon.protocol.tools import CustomTool, FunctionTool, HostedTool, Namespace

_RESERVED_KWARGS = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})


def check_support(request: CreateResponse, *, strict_tools: bool) -> None:
    """Raises `RequestRefused` for the first field that is valid but not served."""
    _check_fields(request.fields)
    _check_format(request)
    _check_tools(request, strict_tools)
    for n, item in enumerate(request.items):
        _check_item(item, f"input[{n}]")
    if ENCRYPTED_REASONING in request.include:
        raise unsupported("include", f"`{ENCRYPTED_REASONING}`")


def _check_fields(fields: Fields) -> None:
    for param, what in _unserved_fields(fields):
        raise unsupported(param, what)
    for key in fields.chat_template_kwargs or {}:
        if key in _RESERVED_KWARGS:
            raise RequestRefused(f"`{key}` is set by the server.", param=f"chat_template_kwargs.{key}")


def _unserved_fields(fields: Fields) -> Iterator[tuple[str, str]]:
    if fields.background:
        yield "background", "Background mode"
    if fields.store:
        yield "store", "Storing responses"
    if fields.previous_response_id is not None:
        yield "previous_response_id", "Continuing a stored response"
    if fields.conversation is not None:
        yield "conversation", "A stored conversation"
    if fields.context_management is not None:
        yield "context_management", "Context management"
    if fields.prompt is not None:
        yield "prompt", "A stored prompt"
    if fields.service_tier not in (None, "auto", "default"):
        yield "service_tier", f"The service tier {fields.service_tier!r}"
    if fields.stream_options is not None and fields.stream_options.include_obfuscation:
        yield "stream_options.include_obfuscation", "Obfuscation"


def _check_format(request: CreateResponse) -> None:
    if isinstance(request.format, JsonObjectFormat | JsonSchemaFormat):
        raise unsupported("text.format.type", "Structured output")


def _check_tools(request: CreateResponse, strict_tools: bool) -> None:
    for n, tool in enumerate(request.tools):
        path = f"tools[{n}]"
        if isinstance(tool, CustomTool | Namespace):
            raise unsupported(f"{path}.type", "A tool of this type")
        if isinstance(tool, FunctionTool) and tool.strict:
            raise unsupported(f"{path}.strict", "Enforcing a tool's schema")
        if isinstance(tool, HostedTool) and strict_tools:
            raise unsupported(f"{tool.path}.type", f"The hosted tool {tool.type!r}")
    if request.tool_choice not in ("auto", "none"):
        raise unsupported("tool_choice", "Enforcing a tool choice")


def _check_item(item: InputItem, path: str) -> None:
    if isinstance(item, ItemReference | AdditionalTools | InputCompaction | CompactionTrigger):
        raise unsupported(f"{path}.type", "An input item of this type")
    if isinstance(item, InputReasoning) and item.encrypted_content is not None:
        raise RequestRefused("This server did not make this content.", param=f"{path}.encrypted_content")
    for field in ("content", "output"):
        for n, part in enumerate(_parts(getattr(item, field, None))):
            if isinstance(part, InputImage | InputFile):
                raise unsupported(f"{path}.{field}[{n}].type", "Input other than text for this model")


def _parts(value: object) -> list[object]:
    return value if isinstance(value, list) else []
