"""What is valid but not served: each refused by name, none dropped in silence. The README lists the same.

A capability that is built later takes its line away here and in the README.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antiphon.protocol.errors import RequestRefused, unsupported
from antiphon.protocol.input_items import (
    AdditionalTools,
    CompactionTrigger,
    InputCompaction,
    InputFile,
    InputImage,
    InputItem,
    ItemReference,
)
from antiphon.protocol.request import CreateResponse, Fields
from antiphon.protocol.tools import HostedTool, Namespace, Tool

_RESERVED_KWARGS = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})


def check_support(request: CreateResponse, *, strict_tools: bool) -> None:
    """Raises `RequestRefused` for the first field that is valid but not served."""
    _check_fields(request.fields)
    if strict_tools:
        _check_hosted(request.tools)
    for n, item in enumerate(request.items):
        _check_item(item, f"input[{n}]")
        if strict_tools and isinstance(item, AdditionalTools):
            _check_hosted(item.tools)


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


def _check_hosted(tools: Sequence[Tool]) -> None:
    for tool in tools:
        if isinstance(tool, Namespace):
            _check_hosted(tool.tools)
        elif isinstance(tool, HostedTool):
            raise unsupported(f"{tool.path}.type", f"The hosted tool {tool.type!r}")


def _check_item(item: InputItem, path: str) -> None:
    if isinstance(item, ItemReference | InputCompaction | CompactionTrigger):
        raise unsupported(f"{path}.type", "An input item of this type")
    for field in ("content", "output"):
        for n, part in enumerate(_parts(getattr(item, field, None))):
            if isinstance(part, InputImage | InputFile):
                raise unsupported(f"{path}.{field}[{n}].type", "Input other than text for this model")


def _parts(value: object) -> list[object]:
    return value if isinstance(value, list) else []
