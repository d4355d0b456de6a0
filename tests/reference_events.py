"""The fifteen events of the reference (Friendli, "Container Responses Chunk Object", 10 July 2026): fields and types.

Data, and `faults`, which holds an event against it. A field that is not `Optional` is required. Fields beyond these are
allowed everywhere: the product sends more than the reference knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Spec = Any
"""`str` or `int`; a frozenset of the allowed strings; a dict of an object's fields; or one of the classes below."""


@dataclass(frozen=True)
class Optional:
    """A field that may be missing; `nullable` when it may be null as well."""

    spec: Spec
    nullable: bool = False


@dataclass(frozen=True)
class ListOf:
    spec: Spec


@dataclass(frozen=True)
class OneOf:
    """An object whose `type` says which of the variants it is."""

    variants: dict[str, dict[str, Spec]]


def always(value: str) -> frozenset[str]:
    return frozenset({value})


ITEM_STATUS = frozenset({"in_progress", "completed", "incomplete"})

OUTPUT_TEXT = {"type": always("output_text"), "text": str}
REASONING_TEXT = {"type": always("reasoning_text"), "text": str}
PART = OneOf({"output_text": OUTPUT_TEXT, "reasoning_text": REASONING_TEXT})

MESSAGE = {
    "id": str,
    "content": ListOf(OneOf({"output_text": OUTPUT_TEXT})),
    "role": always("assistant"),
    "status": ITEM_STATUS,
    "type": always("message"),
}
REASONING = {
    "id": str,
    "content": Optional(ListOf(OneOf({"reasoning_text": REASONING_TEXT}))),
    "status": Optional(ITEM_STATUS),
    "type": always("reasoning"),
}
FUNCTION_CALL = {
    "arguments": str,
    "call_id": str,
    "name": str,
    "type": always("function_call"),
    "id": Optional(str),
    "status": Optional(ITEM_STATUS),
}
ITEM = OneOf({"message": MESSAGE, "reasoning": REASONING, "function_call": FUNCTION_CALL})

USAGE = {
    "input_tokens": int,
    "input_tokens_details": {"cached_tokens": int},
    "output_tokens": int,
    "output_tokens_details": {"reasoning_tokens": int},
    "total_tokens": int,
}
RESPONSE = {
    "id": str,
    "object": always("response"),
    "created_at": int,
    "status": frozenset({"in_progress", "completed", "incomplete", "failed"}),
    "output": ListOf(ITEM),
    "usage": Optional(USAGE, nullable=True),
    "incomplete_details": Optional(
        {"reason": Optional(frozenset({"max_output_tokens", "content_filter"}))}, nullable=True
    ),
    "model": Optional(str, nullable=True),
}

LIFECYCLE = {"response": RESPONSE}
ITEM_EVENT = {"output_index": int, "item": ITEM}
IN_ITEM = {"item_id": str, "output_index": int}
IN_PART = {**IN_ITEM, "content_index": int}

FIELDS: dict[str, dict[str, Spec]] = {
    "response.created": LIFECYCLE,
    "response.in_progress": LIFECYCLE,
    "response.completed": LIFECYCLE,
    "response.failed": LIFECYCLE,
    "response.incomplete": LIFECYCLE,
    "response.output_item.added": ITEM_EVENT,
    "response.output_item.done": ITEM_EVENT,
    "response.content_part.added": {**IN_PART, "part": PART},
    "response.content_part.done": {**IN_PART, "part": PART},
    "response.output_text.delta": {**IN_PART, "delta": str},
    "response.output_text.done": {**IN_PART, "text": str},
    "response.function_call_arguments.delta": {**IN_ITEM, "delta": str},
    "response.function_call_arguments.done": {**IN_ITEM, "arguments": str, "name": str},
    "response.reasoning_text.delta": {**IN_PART, "delta": str},
    "response.reasoning_text.done": {**IN_PART, "text": str},
}

EVENTS = {name: {"type": always(name), "sequence_number": int, **fields} for name, fields in FIELDS.items()}


def faults(event: dict[str, Any]) -> list[str]:
    """What the reference would miss in `event`, or find of another type; empty when there is nothing."""
    name = event.get("type")
    if not isinstance(name, str) or name not in EVENTS:
        return [f"type: {name!r} is no event of the reference"]
    return _object(event, EVENTS[name], name)


def _faults(value: Any, spec: Spec, path: str) -> list[str]:
    if isinstance(spec, dict):
        return _object(value, spec, path)
    if isinstance(spec, ListOf):
        return _list(value, spec, path)
    if isinstance(spec, OneOf):
        kind = value.get("type") if isinstance(value, dict) else None
        return (
            _object(value, spec.variants[kind], path) if kind in spec.variants else [f"{path}: unknown type {kind!r}"]
        )
    right = value in spec if isinstance(spec, frozenset) else type(value) is spec
    return [] if right else [f"{path}: {value!r} is not {spec}"]


def _object(value: Any, fields: dict[str, Spec], path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is not an object"]
    found = []
    for name, spec in fields.items():
        if isinstance(spec, Optional):
            if name not in value or (spec.nullable and value[name] is None):
                continue
            spec = spec.spec
        elif name not in value:
            found.append(f"{path}.{name}: missing")
            continue
        found += _faults(value[name], spec, f"{path}.{name}")
    return found


def _list(value: Any, spec: ListOf, path: str) -> list[str]:
    if not isinstance(value, list):
        return [f"{path}: {value!r} is not a list"]
    return [fault for n, entry in enumerate(value) for fault in _faults(entry, spec.spec, f"{path}[{n}]")]
