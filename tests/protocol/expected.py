"""The JSON that the wire contract's section 3 asks for, written down once per kind of item and apart from the product.

Every function gives the events of one closed item; `status` is that of the item in its `done`, and `more` what else it
has there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.protocol.support import Json, nth


def lifecycle(kind: str, status: str, output: Sequence[Json] = ()) -> Json:
    return {"type": f"response.{kind}", "status": status, "output": list(output)}


BEGUN = [lifecycle("created", "in_progress"), lifecycle("in_progress", "in_progress")]


def text_part(text: str, logprobs: Sequence[Json] = ()) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def refusal_part(text: str) -> Json:
    return {"type": "refusal", "refusal": text}


def message_item(item_id: str, parts: Sequence[Json], status: str = "completed") -> Json:
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": list(parts)}


def text_events(at: Json, pieces: Sequence[str]) -> list[Json]:
    """The one `output_text` part at `at`, opened, written and closed."""
    text = "".join(pieces)
    return [
        {"type": "response.content_part.added", **at, "part": text_part("")},
        *({"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []} for piece in pieces),
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": text_part(text)},
    ]


def refusal_events(at: Json, pieces: Sequence[str]) -> list[Json]:
    text = "".join(pieces)
    return [
        {"type": "response.content_part.added", **at, "part": refusal_part("")},
        *({"type": "response.refusal.delta", **at, "delta": piece} for piece in pieces),
        {"type": "response.refusal.done", **at, "refusal": text},
        {"type": "response.content_part.done", **at, "part": refusal_part(text)},
    ]


def item_events(index: int, opened: Json, inside: Sequence[Json], done: Json) -> list[Json]:
    return [
        {"type": "response.output_item.added", "output_index": index, "item": opened},
        *inside,
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


def message(index: int, number: int, *pieces: str, status: str = "completed") -> list[Json]:
    item_id = nth("msg_", number)
    at = {"item_id": item_id, "output_index": index, "content_index": 0}
    done = message_item(item_id, [text_part("".join(pieces))], status)
    return item_events(index, message_item(item_id, [], "in_progress"), text_events(at, pieces), done)


def reasoning_item(item_id: str, status: str, **fields: Any) -> Json:
    return {"type": "reasoning", "id": item_id, "status": status, "summary": [], "content": [], **fields}


def reasoning(
    index: int,
    number: int,
    *pieces: str,
    status: str = "completed",
    name: str = "response.reasoning_text",
    **more: str,
) -> list[Json]:
    item_id = nth("rs_", number)
    at = {"item_id": item_id, "output_index": index, "content_index": 0}
    part = {"type": "reasoning_text", "text": "".join(pieces)}
    inside = [
        {"type": "response.content_part.added", **at, "part": {"type": "reasoning_text", "text": ""}},
        *({"type": f"{name}.delta", **at, "delta": piece} for piece in pieces),
        {"type": f"{name}.done", **at, "text": part["text"]},
        {"type": "response.content_part.done", **at, "part": part},
    ]
    opened = reasoning_item(item_id, "in_progress")
    return item_events(index, opened, inside, reasoning_item(item_id, status, content=[part], **more))


def summary(index: int, number: int, *pieces: str, status: str = "completed", **more: str) -> list[Json]:
    item_id = nth("rs_", number)
    at = {"item_id": item_id, "output_index": index, "summary_index": 0}
    part = {"type": "summary_text", "text": "".join(pieces)}
    inside = [
        {"type": "response.reasoning_summary_part.added", **at, "part": {"type": "summary_text", "text": ""}},
        *({"type": "response.reasoning_summary_text.delta", **at, "delta": piece} for piece in pieces),
        {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]},
        {"type": "response.reasoning_summary_part.done", **at, "part": part},
    ]
    opened = reasoning_item(item_id, "in_progress")
    return item_events(index, opened, inside, reasoning_item(item_id, status, summary=[part], **more))


def call(
    index: int, number: int, name: str, *pieces: str, status: str = "completed", namespace: str | None = None
) -> list[Json]:
    """A function call; its call id is minted first, as `number`, its item id next."""
    item_id, text = nth("fc_", number + 1), "".join(pieces)
    at = {"item_id": item_id, "output_index": index}
    fixed = {"type": "function_call", "id": item_id, "call_id": nth("call_", number), "name": name}
    if namespace is not None:
        fixed["namespace"] = namespace
    inside: list[Json] = [
        *({"type": "response.function_call_arguments.delta", **at, "delta": piece} for piece in pieces),
        {"type": "response.function_call_arguments.done", **at, "arguments": text, "name": name},
    ]
    opened = {**fixed, "arguments": "", "status": "in_progress"}
    return item_events(index, opened, inside, {**fixed, "arguments": text, "status": status})


def custom_call(
    index: int, number: int, name: str, *pieces: str, status: str = "completed", namespace: str | None = None
) -> list[Json]:
    item_id, text = nth("ctc_", number + 1), "".join(pieces)
    at = {"item_id": item_id, "output_index": index}
    fixed = {"type": "custom_tool_call", "id": item_id, "call_id": nth("call_", number), "name": name}
    if namespace is not None:
        fixed["namespace"] = namespace
    inside: list[Json] = [
        *({"type": "response.custom_tool_call_input.delta", **at, "delta": piece} for piece in pieces),
        {"type": "response.custom_tool_call_input.done", **at, "input": text},
    ]
    return item_events(
        index, {**fixed, "input": "", "status": "in_progress"}, inside, {**fixed, "input": text, "status": status}
    )


def stream(*items: Sequence[Json], end: tuple[str, str] = ("completed", "completed")) -> list[Json]:
    """The outline of a whole stream: the items' events between the lifecycle events, the output repeated at the end."""
    output = [events[-1]["item"] for events in items]
    return [*BEGUN, *(event for events in items for event in events), lifecycle(*end, output)]
