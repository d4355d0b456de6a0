"""What stands in events, items and responses: the contract's fields and order as data."""

from __future__ import annotations

from typing import Literal, NamedTuple

from antiphon.check.kinds import (
    BOOLEAN,
    COUNT,
    INTEGER,
    NAME,
    NUMBER,
    OBJECT,
    POSITIVE,
    STRING,
    STRING_OR_OBJECT,
    Kind,
    ListOf,
    Nullable,
    Record,
    Tagged,
    one_of,
)

TOP_LOGPROB = Record({"token": STRING, "logprob": NUMBER, "bytes": ListOf(COUNT)})
LOGPROB = Record({**TOP_LOGPROB.required, "top_logprobs": ListOf(TOP_LOGPROB)})

PART_FIELDS: dict[str, dict[str, Kind]] = {
    "output_text": {"type": NAME, "text": STRING, "annotations": ListOf(OBJECT), "logprobs": ListOf(LOGPROB)},
    "refusal": {"type": NAME, "refusal": STRING},
    "reasoning_text": {"type": NAME, "text": STRING},
    "summary_text": {"type": NAME, "text": STRING},
}
# The key that holds the text of a part of each type; the same key stands in the event that ends the text.
PART_TEXT = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}


def parts(*types: str) -> Tagged:
    return Tagged({kind: Record(PART_FIELDS[kind]) for kind in types})


STATUS = one_of("in_progress", "completed", "incomplete")
CALL_FIELDS: dict[str, Kind] = {"id": NAME, "type": NAME, "call_id": NAME, "name": NAME, "status": STATUS}

ITEM_FIELDS: dict[str, dict[str, Kind]] = {
    "message": {
        "id": NAME,
        "type": NAME,
        "role": one_of("assistant"),
        "status": STATUS,
        "content": ListOf(parts("output_text", "refusal")),
    },
    "reasoning": {
        "id": NAME,
        "type": NAME,
        "status": STATUS,
        "summary": ListOf(parts("summary_text")),
        "content": ListOf(parts("reasoning_text")),
    },
    "function_call": {**CALL_FIELDS, "arguments": STRING},
    "custom_tool_call": {**CALL_FIELDS, "input": STRING},
    "compaction": {"id": NAME, "type": NAME, "encrypted_content": NAME},
}
# Absent or of this kind; never null.
ITEM_OPTIONAL: dict[str, dict[str, Kind]] = {
    "reasoning": {"encrypted_content": NAME},
    "function_call": {"namespace": NAME},
    "custom_tool_call": {"namespace": NAME},
}
ENCRYPTED = ("reasoning", "compaction")  # the types of items that may have `encrypted_content`
# What an item has when it is done, and not when it opens.
ITEM_LATE = {"reasoning": ("encrypted_content",)}
ITEM_PREFIX = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
    "compaction": "cmp_",
}
RESPONSE_PREFIX, CALL_PREFIX = "resp_", "call_"
# What an item gathers while it is open: arrays of parts of certain types, or the one text of a call.
ITEM_PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "message": {"content": ("output_text", "refusal")},
    "reasoning": {"content": ("reasoning_text",), "summary": ("summary_text",)},
}
ITEM_TEXT = {"function_call": "arguments", "custom_tool_call": "input"}
ITEM = Tagged({kind: Record(fields, ITEM_OPTIONAL.get(kind, {})) for kind, fields in ITEM_FIELDS.items()})

USAGE_FIELDS: dict[str, Kind] = {
    "input_tokens": COUNT,
    "input_tokens_details": Record({"cached_tokens": COUNT, "cache_write_tokens": COUNT}),
    "output_tokens": COUNT,
    "output_tokens_details": Record({"reasoning_tokens": COUNT}),
    "total_tokens": COUNT,
}
ERROR_CODES = ("server_error", "rate_limit_exceeded", "invalid_prompt", "context_length_exceeded")
INCOMPLETE_REASONS = ("max_output_tokens", "content_filter")
ENDED_STATUSES = ("completed", "incomplete", "failed", "cancelled")

# These tell what has become of a response; every other field is the same in all its events.
RESPONSE_PROGRESS: dict[str, Kind] = {
    "status": one_of("queued", "in_progress", *ENDED_STATUSES),
    "completed_at": Nullable(INTEGER),
    "error": Nullable(Record({"code": one_of(*ERROR_CODES), "message": NAME, "type": NAME})),
    "incomplete_details": Nullable(Record({"reason": one_of(*INCOMPLETE_REASONS)})),
    "output": ListOf(ITEM),
    "usage": Nullable(Record(USAGE_FIELDS)),
}
RESPONSE_FIELDS: dict[str, Kind] = {
    "id": NAME,
    "object": one_of("response"),
    "created_at": INTEGER,
    **RESPONSE_PROGRESS,
    "background": BOOLEAN,
    "instructions": Nullable(STRING),
    "max_output_tokens": Nullable(POSITIVE),
    "max_tool_calls": Nullable(COUNT),
    "metadata": OBJECT,
    "model": NAME,
    "parallel_tool_calls": BOOLEAN,
    "previous_response_id": Nullable(NAME),
    "prompt_cache_key": Nullable(STRING),
    "reasoning": Nullable(Record({"effort": Nullable(NAME), "summary": Nullable(NAME)})),
    "safety_identifier": Nullable(STRING),
    "service_tier": NAME,
    "store": BOOLEAN,
    "temperature": NUMBER,
    "text": Record({"format": Record({"type": NAME})}, {"verbosity": Nullable(NAME)}),
    "tool_choice": STRING_OR_OBJECT,
    "tools": ListOf(Record({"type": NAME})),
    "top_logprobs": COUNT,
    "top_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "truncation": one_of("auto", "disabled"),
    "user": Nullable(STRING),
}
RESPONSE = Record(RESPONSE_FIELDS, {"conversation": Nullable(OBJECT)})

_LIFECYCLE: dict[str, Kind] = {"response": RESPONSE}
_ITEM: dict[str, Kind] = {"output_index": COUNT, "item": ITEM}
_INSIDE: dict[str, Kind] = {"item_id": NAME, "output_index": COUNT}
_CONTENT: dict[str, Kind] = {**_INSIDE, "content_index": COUNT}
_CONTENT_PART: dict[str, Kind] = {**_CONTENT, "part": parts("output_text", "refusal", "reasoning_text")}
_LOGPROBS: dict[str, Kind] = {"logprobs": ListOf(LOGPROB)}
_SUMMARY: dict[str, Kind] = {**_INSIDE, "summary_index": COUNT}
_SUMMARY_PART: dict[str, Kind] = {**_SUMMARY, "part": parts("summary_text")}

# The fields beside `type`, which chose the row.
EVENT_FIELDS: dict[str, dict[str, Kind]] = {
    kind: {"sequence_number": COUNT, **fields}
    for kind, fields in {
        "response.created": _LIFECYCLE,
        "response.queued": _LIFECYCLE,
        "response.in_progress": _LIFECYCLE,
        "response.completed": _LIFECYCLE,
        "response.incomplete": _LIFECYCLE,
        "response.failed": _LIFECYCLE,
        "response.output_item.added": _ITEM,
        "response.output_item.done": _ITEM,
        "response.content_part.added": _CONTENT_PART,
        "response.content_part.done": _CONTENT_PART,
        "response.output_text.delta": {**_CONTENT, "delta": STRING, **_LOGPROBS},
        "response.output_text.done": {**_CONTENT, "text": STRING, **_LOGPROBS},
        "response.output_text.annotation.added": {**_CONTENT, "annotation_index": COUNT, "annotation": OBJECT},
        "response.refusal.delta": {**_CONTENT, "delta": STRING},
        "response.refusal.done": {**_CONTENT, "refusal": STRING},
        "response.reasoning_text.delta": {**_CONTENT, "delta": STRING},
        "response.reasoning_text.done": {**_CONTENT, "text": STRING},
        "response.reasoning_summary_part.added": _SUMMARY_PART,
        "response.reasoning_summary_part.done": _SUMMARY_PART,
        "response.reasoning_summary_text.delta": {**_SUMMARY, "delta": STRING},
        "response.reasoning_summary_text.done": {**_SUMMARY, "text": STRING},
        "response.function_call_arguments.delta": {**_INSIDE, "delta": STRING},
        "response.function_call_arguments.done": {**_INSIDE, "arguments": STRING, "name": NAME},
        "response.custom_tool_call_input.delta": {**_INSIDE, "delta": STRING},
        "response.custom_tool_call_input.done": {**_INSIDE, "input": STRING},
        "keepalive": {},
    }.items()
}


class Inside(NamedTuple):
    """What an event does inside the open item.

    `array` is where the part stands ("": the text belongs to the item itself); `part` is the type of part that it
    speaks of ("": its own `part` says so).
    """

    action: Literal["open", "delta", "annotate", "finish", "close"]
    array: str
    part: str = ""


INSIDE: dict[str, Inside] = {
    "response.content_part.added": Inside("open", "content"),
    "response.content_part.done": Inside("close", "content"),
    "response.output_text.delta": Inside("delta", "content", "output_text"),
    "response.output_text.done": Inside("finish", "content", "output_text"),
    "response.output_text.annotation.added": Inside("annotate", "content", "output_text"),
    "response.refusal.delta": Inside("delta", "content", "refusal"),
    "response.refusal.done": Inside("finish", "content", "refusal"),
    "response.reasoning_text.delta": Inside("delta", "content", "reasoning_text"),
    "response.reasoning_text.done": Inside("finish", "content", "reasoning_text"),
    "response.reasoning_summary_part.added": Inside("open", "summary"),
    "response.reasoning_summary_part.done": Inside("close", "summary"),
    "response.reasoning_summary_text.delta": Inside("delta", "summary", "summary_text"),
    "response.reasoning_summary_text.done": Inside("finish", "summary", "summary_text"),
    "response.function_call_arguments.delta": Inside("delta", "", "function_call"),
    "response.function_call_arguments.done": Inside("finish", "", "function_call"),
    "response.custom_tool_call_input.delta": Inside("delta", "", "custom_tool_call"),
    "response.custom_tool_call_input.done": Inside("finish", "", "custom_tool_call"),
}
INDEX_KEY = {"content": "content_index", "summary": "summary_index"}

# Open Responses has other names for two of them.
OPEN_RESPONSES_NAMES = {
    "response.reasoning.delta": "response.reasoning_text.delta",
    "response.reasoning.done": "response.reasoning_text.done",
}


class Lifecycle(NamedTuple):
    """Where an event of the whole response may stand, and where the stream is after it."""

    after: tuple[str, ...]
    then: str
    statuses: tuple[str, ...]


LIFECYCLE: dict[str, Lifecycle] = {
    "response.created": Lifecycle(("nothing",), "created", ("queued", "in_progress")),
    "response.queued": Lifecycle(("created",), "queued", ("queued",)),
    "response.in_progress": Lifecycle(("created", "queued"), "in progress", ("in_progress",)),
    "response.completed": Lifecycle(("in progress",), "ended", ("completed",)),
    "response.incomplete": Lifecycle(("in progress", "queued"), "ended", ("incomplete", "cancelled")),
    "response.failed": Lifecycle(("in progress", "queued"), "ended", ("failed",)),
}
# What fails or is cancelled while it waits was never in progress.
TERMINAL_FROM_QUEUE = ("failed", "cancelled")
