"""Valid streams, written by hand from the wire contract; nothing of the server made them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Event = dict[str, Any]

TAIL = "0123456789abcdef01234567"  # the shortest that an id may have
RESP, MSG, RS, FC, CTC, CALL, CMP = (p + TAIL for p in ("resp_", "msg_", "rs_", "fc_", "ctc_", "call_", "cmp_"))
USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
    "output_tokens": 11,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 20,
}
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": None,
    "parameters": {"type": "object"},
    "strict": True,
}
LOGPROB = {
    "token": "Hel",
    "logprob": -0.5,
    "bytes": [72, 101, 108],
    "top_logprobs": [{"token": "Hel", "logprob": -0.5, "bytes": [72, 101, 108]}],
}


def response(status: str = "in_progress", **changes: Any) -> dict[str, Any]:
    """A whole response object with everything that the status demands."""
    ended = status not in ("queued", "in_progress")
    failure = {"code": "server_error", "message": "The model failed.", "type": "server_error"}
    return {
        "id": RESP,
        "object": "response",
        "created_at": 1_735_722_153,
        "completed_at": 1_735_722_160 if status == "completed" else None,
        "status": status,
        "background": False,
        "error": failure if status == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": 20,
        "max_tool_calls": None,
        "metadata": {"key": "value"},
        "model": "scripted-1",
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": "auto",
        "tools": [TOOL],
        "top_logprobs": 0,
        "top_p": 0.9,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "truncation": "disabled",
        "usage": USAGE if ended else None,
        "user": None,
        **changes,
    }


def ev(kind: str, **fields: Any) -> Event:
    return {"type": f"response.{kind}", "sequence_number": 0, **fields}


def pieces(kind: str, key: str, where: dict[str, Any], texts: Sequence[str], **done: Any) -> list[Event]:
    """The deltas of a text, and the event that ends it."""
    deltas = [ev(f"{kind}.delta", **where, delta=text) for text in texts]
    return [*deltas, ev(f"{kind}.done", **where, **{key: "".join(texts)}, **done)]


def item_events(index: int, opened: dict[str, Any], inner: Sequence[Event], done: dict[str, Any]) -> list[Event]:
    whole = {**opened, **done}
    added = ev("output_item.added", output_index=index, item=opened)
    return [added, *inner, ev("output_item.done", output_index=index, item=whole)]


def message(index: int, *texts: str, status: str = "completed", item_id: str = MSG) -> list[Event]:
    where = {"item_id": item_id, "output_index": index, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    part = {**empty, "text": "".join(texts)}
    inner = [
        ev("content_part.added", **where, part=empty),
        *({**event, "logprobs": []} for event in pieces("output_text", "text", where, texts)),
        ev("content_part.done", **where, part=part),
    ]
    opened = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    return item_events(index, opened, inner, {"status": status, "content": [part]})


def refusal(index: int, *texts: str) -> list[Event]:
    """A message that says something, then refuses: two parts."""
    said = message(index, "Well. ")
    where = {"item_id": MSG, "output_index": index, "content_index": 1}
    part = {"type": "refusal", "refusal": "".join(texts)}
    inner = [
        ev("content_part.added", **where, part={"type": "refusal", "refusal": ""}),
        *pieces("refusal", "refusal", where, texts),
        ev("content_part.done", **where, part=part),
    ]
    whole = said[-1]["item"]
    return [*said[:-1], *inner, ev("output_item.done", output_index=index, item={**whole, "content": [*whole["content"], part]})]  # fmt: skip  # noqa: E501


def rich_text(index: int) -> list[Event]:
    """A message whose text has log-probabilities and an annotation."""
    added, opened, first, second, text_done, part_done, done = message(index, "Hel", "lo")
    where = {"item_id": MSG, "output_index": index, "content_index": 0}
    first, text_done = {**first, "logprobs": [LOGPROB]}, {**text_done, "logprobs": [LOGPROB]}
    note = {"type": "url_citation", "url": "https://example.org/", "title": "x", "start_index": 0, "end_index": 2}
    annotation = ev("output_text.annotation.added", **where, annotation_index=0, annotation=note)
    part = {**part_done["part"], "annotations": [note], "logprobs": [LOGPROB]}
    part_done = {**part_done, "part": part}
    done = {**done, "item": {**done["item"], "content": [part]}}
    return [added, opened, first, annotation, second, text_done, part_done, done]


def reasoning(
    index: int, *texts: str, status: str = "completed", item_id: str = RS, names: str = "reasoning_text", **extra: Any
) -> list[Event]:
    where = {"item_id": item_id, "output_index": index, "content_index": 0}
    part = {"type": "reasoning_text", "text": "".join(texts)}
    inner = [
        ev("content_part.added", **where, part={"type": "reasoning_text", "text": ""}),
        *pieces(names, "text", where, texts),
        ev("content_part.done", **where, part=part),
    ]
    opened = {"id": item_id, "type": "reasoning", "status": "in_progress", "summary": [], "content": []}
    return item_events(index, opened, inner, {"status": status, "content": [part], **extra})


def summary(index: int, *texts: str, **extra: Any) -> list[Event]:
    where = {"item_id": RS, "output_index": index, "summary_index": 0}
    part = {"type": "summary_text", "text": "".join(texts)}
    inner = [
        ev("reasoning_summary_part.added", **where, part={"type": "summary_text", "text": ""}),
        *pieces("reasoning_summary_text", "text", where, texts),
        ev("reasoning_summary_part.done", **where, part=part),
    ]
    opened = {"id": RS, "type": "reasoning", "status": "in_progress", "summary": [], "content": []}
    return item_events(index, opened, inner, {"status": "completed", "summary": [part], **extra})


def call(index: int, *texts: str, status: str = "completed", number: int = 0, **extra: Any) -> list[Event]:
    item_id, call_id = f"{FC}{number}", f"{CALL}{number}"
    where = {"item_id": item_id, "output_index": index}
    inner = pieces("function_call_arguments", "arguments", where, texts, name="get_weather")
    ids = {"id": item_id, "type": "function_call", "call_id": call_id}
    opened = {**ids, "name": "get_weather", "arguments": "", "status": "in_progress", **extra}
    return item_events(index, opened, inner, {"status": status, "arguments": "".join(texts)})


def custom_call(index: int, *texts: str) -> list[Event]:
    inner = pieces("custom_tool_call_input", "input", {"item_id": CTC, "output_index": index}, texts)
    ids = {"id": CTC, "type": "custom_tool_call", "call_id": CALL}
    opened = {**ids, "name": "shell", "input": "", "status": "in_progress"}
    return item_events(index, opened, inner, {"status": "completed", "input": "".join(texts)})


def compaction(index: int) -> list[Event]:
    return item_events(index, {"id": CMP, "type": "compaction", "encrypted_content": "c2VjcmV0"}, [], {})


def stream(*items: list[Event], end: str = "completed", status: str | None = None, **changes: Any) -> list[Event]:
    """A response that runs and ends with `response.END`."""
    running = response(**changes)
    begin = [ev("created", response=running), ev("in_progress", response=running)]
    return numbered([*begin, *(event for item in items for event in item), *ending(items, end, status, **changes)])


def ending(items: Sequence[list[Event]], end: str, status: str | None = None, **changes: Any) -> list[Event]:
    output = [item[-1]["item"] for item in items]
    return [ev(end, response=response(status or end, **{**changes, "output": output}))]


def background(*items: list[Event], end: str, status: str | None = None, ran: bool = True) -> list[Event]:
    queued, running = (response(state, background=True) for state in ("queued", "in_progress"))
    begin = [ev("created", response=queued), ev("queued", response=queued)]
    begin += [ev("in_progress", response=running)] if ran else []
    inner = [event for item in items for event in item]
    return numbered([*begin, *inner, *ending(items, end, status, background=True)])


def numbered(events: Sequence[Event]) -> list[Event]:
    """The events with their numbers; a keepalive repeats the one before it. No two events share an object."""
    numbers, number = [], -1
    for event in events:
        number += event["type"] != "keepalive"
        numbers.append(number)
    fresh = [json.loads(json.dumps(event)) for event in events]
    return [{**event, "sequence_number": number} for event, number in zip(fresh, numbers, strict=True)]


def with_keepalive(events: list[Event]) -> list[Event]:
    """A keepalive after every event but the last."""
    silence = {"type": "keepalive", "sequence_number": 0}
    return numbered([each for event in events[:-1] for each in (event, silence)] + events[-1:])


DONE = b"data: [DONE]\n\n"


def frame(event: Event) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def wire(events: Sequence[Event]) -> bytes:
    return b"".join(map(frame, events)) + DONE


STREAMS: dict[str, list[Event]] = {
    "message": stream(message(0, "Hello", " there", ", how may I", " assist you today?")),
    "empty": stream(message(0)),
    "unicode": stream(message(0, "naïve \u2028", "日本", "🙂\r\n")),
    "rich text": stream(rich_text(0)),
    "refusal": stream(refusal(0, "I can", "not")),
    "reasoning": stream(reasoning(0, "They", " ask"), message(1, "Hi")),
    "two thoughts": stream(reasoning(0, "a"), reasoning(1, "b", item_id=RS + "1"), message(2, "c")),
    "encrypted": stream(reasoning(0, "They", encrypted_content="c2VjcmV0"), message(1, "Hi")),
    "encrypted summary": stream(summary(0, "They", encrypted_content="c2VjcmV0"), message(1, "Hi")),
    "cut encrypted": stream(reasoning(0, "Th", status="incomplete", encrypted_content="c2VjcmV0"), end="incomplete"),
    "summary": stream(summary(0, "They", " ask"), message(1, "Hi")),
    "call": stream(message(0, "Let me see."), call(1, '{"city": ', '"Paris"}')),
    "two calls": stream(call(0, "{", "}"), call(1, "{}", number=1, namespace="weather")),
    "one call": stream(call(0, "{}"), parallel_tool_calls=False),
    "custom call": stream(custom_call(0, "ls", " -l")),
    "compaction": stream(compaction(0)),
    "conversation": stream(message(0, "Hi"), conversation={"id": "conv_" + TAIL}),
    "cut text": stream(message(0, "Hel", status="incomplete"), end="incomplete"),
    "cut reasoning": stream(reasoning(0, "Th", status="incomplete"), end="incomplete"),
    "cut call": stream(message(0, "a"), call(1, '{"ci', status="incomplete"), end="incomplete"),
    "cut between": stream(reasoning(0, "Th"), end="incomplete"),
    "failed at once": stream(end="failed"),
    "failed": stream(reasoning(0, "Th"), message(1, "Hel", status="incomplete"), end="failed"),
    "cancelled": stream(message(0, "Hel", status="incomplete"), end="incomplete", status="cancelled"),
    "background": background(message(0, "Hi"), end="completed"),
    "cancelled in the queue": background(end="incomplete", status="cancelled", ran=False),
    "failed in the queue": background(end="failed", ran=False),
    "keepalive": with_keepalive(stream(message(0, "Hi"))),
}
