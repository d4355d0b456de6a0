"""The event checker accepts every valid stream, however it is cut, and names the rule that a broken one breaks."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from antiphon.check import RULES, EventChecker, Violation, assert_valid, check_response, check_stream
from antiphon.check.checker import MAX_VIOLATIONS
from antiphon.check.frames import Comment, Done, EventFrame, Frame, FrameReader
from tests.check.streams import (
    DONE,
    FC,
    MSG,
    STREAMS,
    TAIL,
    Event,
    background,
    call,
    ev,
    frame,
    message,
    numbered,
    reasoning,
    response,
    stream,
    summary,
    wire,
    with_keepalive,
)

each_stream = pytest.mark.parametrize("name", STREAMS)


def check_events(events: list[Event]) -> list[Violation]:
    checker = EventChecker()
    for event in events:
        checker.event(event)
    return checker.close()


def check_in_pieces(pieces: list[bytes]) -> list[Violation]:
    checker = EventChecker()
    for piece in pieces:
        checker.feed(piece)
    return checker.close()


def rules(found: list[Violation]) -> set[str]:
    return {violation.rule for violation in found}


# What is accepted


@each_stream
def test_valid_streams_are_accepted(name: str) -> None:
    assert_valid(wire(STREAMS[name]))
    assert check_events(STREAMS[name]) == []


@each_stream
def test_it_does_not_matter_where_a_stream_is_cut(name: str) -> None:
    data = wire(STREAMS[name])
    assert check_in_pieces([data[at : at + 1] for at in range(len(data))]) == []
    for at in range(0, len(data), 397):
        assert check_in_pieces([data[:at], data[at:]]) == []


def test_every_two_cuts_of_a_few_frames() -> None:
    data = b": keep-alive\n\n" + frame({"type": "a", "x": "\u00e9"}) + frame({"type": "b"}) + DONE

    def frames(*pieces: bytes) -> list[Frame]:
        reader = FrameReader(lambda rule, message: pytest.fail(f"{rule}: {message}"))
        found = [each for piece in pieces for each in reader.feed(piece)]
        reader.close()
        return found

    whole = frames(data)
    assert whole == [Comment(), EventFrame("a", {"type": "a", "x": "\u00e9"}), EventFrame("b", {"type": "b"}), Done()]
    for one, two in itertools.combinations_with_replacement(range(len(data) + 1), 2):
        assert frames(data[:one], data[one:two], data[two:]) == whole


def test_a_fault_is_found_wherever_the_stream_is_cut() -> None:
    data = wire(STREAMS["empty"]).replace(
        b"\n\nevent: response.output_item.added", b"\r\n\r\nevent: response.output_item.added"
    )
    whole = check_stream(data)
    assert [(found.rule, found.event_index) for found in whole] == [("framing", 1)]
    assert all(check_in_pieces([data[:at], data[at:]]) == whole for at in range(0, len(data), 61))


def test_comments_before_the_first_event() -> None:
    assert_valid(b": keep-alive\n\n: keep-alive\n\n" + wire(STREAMS["message"]))
    assert_valid(b": keep-alive\n" + wire(STREAMS["message"]))


def test_comments_in_place_of_keepalive_events() -> None:
    data = b"".join(frame(event) + b": keep-alive\n\n" for event in STREAMS["message"]) + DONE
    assert check_stream(data, keepalive_comments=True) == []
    assert rules(check_stream(data)) == {"framing"}


def test_unknown_keys_hurt_nobody() -> None:
    events = copy.deepcopy(STREAMS["reasoning"])
    for event in events:
        event["obfuscation"] = "xx"
        for inner in ("response", "item", "part"):
            if inner in event:
                event[inner]["extra"] = None
    for event in events:
        if event["type"] == "response.output_item.done":
            event["item"] = copy.deepcopy(event["item"])
            event["item"]["content"][0]["extra"] = None
    events[-1]["response"]["output"] = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert check_events(events) == []


def test_both_names_of_the_reasoning_events() -> None:
    data = wire(stream(reasoning(0, "a", "b", names="reasoning"), message(1, "c")))
    assert check_stream(data, reasoning_events="open-responses") == []
    assert check_stream(data)[0].rule == "event.type"
    assert check_stream(wire(STREAMS["reasoning"]), reasoning_events="open-responses")[0].rule == "event.type"


# What is refused

Change = Callable[[list[Event]], list[Event]]


def first(events: list[Event], kind: str) -> int:
    return next(index for index, event in enumerate(events) if event["type"].removeprefix("response.") == kind)


def put(kind: str, path: str, value: Any) -> Change:
    """Sets the value at `path` in the first event of a kind."""

    def change(events: list[Event]) -> list[Event]:
        *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
        target: Any = events[first(events, kind)]
        for key in parents:
            target = target[key]
        target[last] = value
        return events

    return change


def cut(kind: str, path: str) -> Change:
    """Removes the key at `path` from the first event of a kind."""

    def change(events: list[Event]) -> list[Event]:
        *parents, last = path.split(".")
        target: Any = events[first(events, kind)]
        for key in parents:
            target = target[int(key) if key.isdigit() else key]
        del target[last]
        return events

    return change


def drop(*kinds: str) -> Change:
    """Removes the first event of each kind, and numbers the rest anew."""

    def change(events: list[Event]) -> list[Event]:
        for kind in kinds:
            del events[first(events, kind)]
        return numbered(events)

    return change


def twice(kind: str) -> Change:
    def change(events: list[Event]) -> list[Event]:
        index = first(events, kind)
        return numbered([*events[: index + 1], *events[index:]])

    return change


def swap(kind: str) -> Change:
    """Exchanges the first event of a kind with the one after it, and numbers them anew."""

    def change(events: list[Event]) -> list[Event]:
        index = first(events, kind)
        events[index], events[index + 1] = events[index + 1], events[index]
        return numbered(events)

    return change


def insert(before: str, event: Event) -> Change:
    def change(events: list[Event]) -> list[Event]:
        index = first(events, before)
        return numbered([*events[:index], event, *events[index:]])

    return change


def everywhere(path: str, value: Any) -> Change:
    """Sets a field of the response object in every event that carries it."""

    def change(events: list[Event]) -> list[Event]:
        for event in events:
            if "response" in event:
                event["response"][path] = value
        return events

    return change


def output(index: int, key: str, value: Any) -> Change:
    """Sets a key of an item in its done event and in the final output alike."""

    def change(events: list[Event]) -> list[Event]:
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        for item in (done[index], events[-1]["response"]["output"][index]):
            item[key] = value
        return events

    return change


DELTA = {"item_id": MSG, "output_index": 0, "content_index": 0, "delta": "x", "logprobs": []}
SUMMARY_PART = {"item_id": MSG, "output_index": 0, "summary_index": 0, "part": {"type": "summary_text", "text": ""}}
ANNOTATION = {"item_id": MSG, "output_index": 0, "content_index": 0, "annotation_index": 0, "annotation": {}}
COMPLETED = response("completed", output=[])

# The rule of the first violation, the stream, and what is done to it.
BROKEN: list[tuple[str, str, Change]] = [
    ("event.type", "message", put("output_text.delta", "type", "response.output_text.chunk")),
    ("event.type", "message", put("output_text.delta", "type", 7)),
    ("event.type", "message", insert("completed", {"type": "error", "status": 500, "error": {}})),
    ("event.type", "message", insert("completed", {"type": "response.cancelled", "response": COMPLETED})),
    ("fields", "message", put("output_item.added", "item.type", "web_search_call")),
    ("fields", "message", put("output_item.added", "item", [])),
    ("fields", "message", put("output_text.delta", "content_index", "0")),
    ("fields", "message", put("output_text.delta", "content_index", True)),
    ("fields", "message", put("output_text.delta", "output_index", -1)),
    ("fields", "message", put("output_text.delta", "logprobs", None)),
    ("fields", "rich text", put("output_text.delta", "logprobs.0.bytes", None)),
    ("fields", "message", cut("output_text.delta", "logprobs")),
    ("fields", "message", cut("output_text.done", "logprobs")),
    ("fields", "message", cut("content_part.added", "part.annotations")),
    ("fields", "message", cut("content_part.added", "part.logprobs")),
    ("fields", "call", cut("function_call_arguments.done", "name")),
    ("fields", "reasoning", put("output_item.added", "item.encrypted_content", None)),
    ("fields", "encrypted", put("output_item.done", "item.encrypted_content", None)),
    ("fields", "encrypted", put("output_item.done", "item.encrypted_content", "")),
    ("fields", "reasoning", cut("output_item.added", "item.summary")),
    ("fields", "message", put("created", "response.model", None)),
    ("fields", "message", put("created", "response.created_at", 1.5)),
    ("fields", "message", cut("created", "response.user")),
    ("fields", "message", put("created", "response.output", None)),
    ("fields", "message", cut("completed", "response.usage.input_tokens_details.cache_write_tokens")),
    ("fields", "failed", put("failed", "response.error.code", "boom")),
    ("fields", "failed", cut("failed", "response.error.type")),
    ("fields", "cut text", put("incomplete", "response.incomplete_details.reason", "stop")),
    ("sequence", "message", put("created", "sequence_number", 1)),
    ("sequence", "message", put("output_text.delta", "sequence_number", 3)),
    ("sequence", "message", put("completed", "sequence_number", 99)),
    ("sequence", "message", lambda events: [*events[:5], *events[6:]]),
    ("keepalive", "keepalive", put("keepalive", "sequence_number", 1)),
    ("keepalive", "message", lambda events: [{"type": "keepalive", "sequence_number": 0}, *events]),
    ("keepalive", "message", lambda events: [*events, {"type": "keepalive", "sequence_number": 11}]),
    ("order", "message", drop("created")),
    ("order", "message", drop("in_progress")),
    ("order", "message", drop("created", "in_progress")),
    ("order", "message", drop("completed")),
    ("order", "message", drop("output_item.added")),
    ("order", "message", drop("content_part.added")),
    ("order", "message", drop("output_text.done")),
    ("order", "message", drop("content_part.done")),
    ("order", "message", drop("output_item.done")),
    ("order", "message", drop("output_text.done", "content_part.done")),
    ("order", "message", drop("content_part.added", "output_text.done", "content_part.done")),
    ("order", "call", drop("function_call_arguments.done")),
    ("order", "reasoning", drop("output_item.done")),
    ("order", "background", drop("queued")),
    ("order", "message", insert("in_progress", ev("queued", response=response("queued")))),
    ("order", "message", twice("created")),
    ("order", "message", twice("in_progress")),
    ("order", "message", twice("output_item.added")),
    ("order", "message", twice("content_part.added")),
    ("order", "message", twice("output_text.done")),
    ("order", "message", twice("content_part.done")),
    ("order", "message", twice("output_item.done")),
    ("order", "message", twice("completed")),
    ("order", "call", twice("function_call_arguments.done")),
    ("order", "message", swap("created")),
    ("order", "message", swap("in_progress")),
    ("order", "message", swap("output_item.added")),
    ("order", "message", swap("content_part.added")),
    ("order", "message", swap("output_text.done")),
    ("order", "message", swap("content_part.done")),
    ("order", "message", swap("output_item.done")),
    ("order", "message", insert("output_item.added", ev("output_text.delta", **DELTA))),
    ("order", "message", insert("content_part.done", ev("output_text.delta", **DELTA))),
    ("order", "message", lambda events: numbered([*events, events[4]])),
    ("order", "message", insert("content_part.done", ev("refusal.delta", **DELTA))),
    ("order", "refusal", insert("refusal.delta", ev("output_text.annotation.added", **ANNOTATION))),
    ("order", "empty", drop("content_part.added", "output_text.done", "content_part.done")),
    ("order", "compaction", insert("output_item.done", ev("output_text.delta", **{**DELTA, "item_id": "cmp_" + TAIL}))),
    ("output_index", "message", put("output_item.added", "output_index", 1)),
    ("output_index", "message", lambda events: stream(message(1, "Hi"))),
    ("output_index", "message", put("output_text.delta", "output_index", 1)),
    ("output_index", "message", put("output_item.done", "output_index", 1)),
    ("output_index", "call", put("function_call_arguments.delta", "output_index", 0)),
    ("content_index", "message", put("content_part.added", "content_index", 1)),
    ("content_index", "message", put("output_text.delta", "content_index", 1)),
    ("content_index", "message", put("output_text.done", "content_index", 1)),
    ("content_index", "message", put("content_part.done", "content_index", 1)),
    ("content_index", "summary", put("reasoning_summary_text.delta", "summary_index", 1)),
    ("content_index", "rich text", put("output_text.annotation.added", "annotation_index", 1)),
    ("id.format", "message", everywhere("id", "resp_short")),
    ("id.format", "message", everywhere("id", "msg_" + TAIL)),
    ("id.format", "message", put("output_item.added", "item.id", "rs_" + TAIL)),
    ("id.format", "message", put("output_item.added", "item.id", "msg_" + TAIL[:-1])),
    ("id.format", "call", put("output_item.added", "item.id", "msg_" + TAIL + " ")),
    ("id.format", "custom call", put("output_item.added", "item.call_id", FC)),
    ("id.unique", "two calls", lambda events: numbered(stream(call(0, "{}"), call(1, "{}")))),
    ("id.unique", "two thoughts", lambda events: numbered(stream(reasoning(0, "a"), reasoning(1, "b")))),
    ("id.constant", "message", put("in_progress", "response.id", "resp_" + TAIL[::-1])),
    ("id.constant", "message", put("completed", "response.id", "resp_" + TAIL[::-1])),
    ("id.constant", "message", put("output_item.added", "item.id", "msg_" + TAIL[::-1])),
    ("id.constant", "message", put("output_text.delta", "item_id", "msg_" + TAIL[::-1])),
    ("id.constant", "message", put("content_part.done", "item_id", "msg_" + TAIL[::-1])),
    ("id.constant", "message", put("output_item.done", "item.id", "msg_" + TAIL[::-1])),
    ("id.constant", "custom call", put("output_item.done", "item.call_id", "call_" + TAIL[::-1])),
    ("delta.empty", "message", put("output_text.delta", "delta", "")),
    ("delta.empty", "refusal", put("refusal.delta", "delta", "")),
    ("delta.empty", "reasoning", put("reasoning_text.delta", "delta", "")),
    ("delta.empty", "summary", put("reasoning_summary_text.delta", "delta", "")),
    ("delta.empty", "one call", put("function_call_arguments.delta", "delta", "")),
    ("delta.empty", "custom call", put("custom_tool_call_input.delta", "delta", "")),
    ("text.sum", "message", put("output_text.done", "text", "Hello")),
    ("text.sum", "message", put("output_text.delta", "delta", "hello")),
    ("text.sum", "message", drop("output_text.delta")),
    ("text.sum", "message", twice("output_text.delta")),
    ("text.sum", "message", swap("output_text.delta")),
    ("text.sum", "rich text", put("output_text.done", "logprobs", [])),
    ("text.sum", "rich text", put("output_text.delta", "logprobs.0.logprob", -0.25)),
    ("text.sum", "refusal", put("refusal.done", "refusal", "")),
    ("text.sum", "reasoning", put("reasoning_text.done", "text", "")),
    ("text.sum", "summary", put("reasoning_summary_text.done", "text", "")),
    ("text.sum", "one call", put("function_call_arguments.done", "arguments", "{ }")),
    ("text.sum", "custom call", put("custom_tool_call_input.done", "input", "")),
    ("part", "message", put("content_part.added", "part.text", "Hello")),
    ("part", "message", put("content_part.added", "part", {"type": "reasoning_text", "text": ""})),
    ("part", "message", insert("content_part.added", ev("reasoning_summary_part.added", **SUMMARY_PART))),
    ("part", "message", put("content_part.done", "part.text", "Hello")),
    ("part", "rich text", put("content_part.done", "part.logprobs", [])),
    ("part", "rich text", put("content_part.done", "part.annotations", [])),
    ("part", "rich text", drop("output_text.annotation.added")),
    ("part", "reasoning", put("content_part.done", "part.text", "")),
    ("item", "message", put("output_item.added", "item.content", [{"type": "refusal", "refusal": ""}])),
    ("item", "one call", put("output_item.added", "item.arguments", "{")),
    ("item", "message", put("output_item.done", "item.content.0.text", "Hello")),
    ("item", "message", put("output_item.done", "item.content", [])),
    ("item", "one call", put("function_call_arguments.done", "name", "get_time")),
    ("item", "one call", put("output_item.done", "item.name", "get_time")),
    ("item", "one call", put("output_item.done", "item.arguments", "{ }")),
    ("item", "custom call", put("output_item.done", "item.input", "")),
    ("item", "reasoning", put("output_item.done", "item.content", [])),
    ("item", "summary", put("output_item.done", "item.summary", [])),
    ("item", "compaction", put("output_item.done", "item.encrypted_content", "x")),
    ("item", "encrypted", put("output_item.added", "item.encrypted_content", "c2VjcmV0")),
    ("encrypted", "encrypted", output(1, "encrypted_content", "x")),
    ("encrypted", "call", output(1, "encrypted_content", None)),
    ("encrypted", "two thoughts", output(0, "encrypted_content", "x")),
    ("item.status", "message", put("output_item.added", "item.status", "completed")),
    ("item.status", "message", put("output_item.done", "item.status", "in_progress")),
    ("item.status", "message", output(0, "status", "incomplete")),
    ("item.status", "cut call", output(0, "status", "incomplete")),
    ("reasoning", "summary", everywhere("reasoning", None)),
    ("reasoning", "summary", everywhere("reasoning", {"effort": "low", "summary": None})),
    ("calls", "two calls", everywhere("parallel_tool_calls", False)),
    ("response.status", "message", put("created", "response.status", "incomplete")),
    ("response.status", "message", put("in_progress", "response.status", "queued")),
    ("response.status", "message", put("completed", "response.status", "cancelled")),
    ("response.status", "cut text", put("incomplete", "response.status", "failed")),
    ("response.status", "failed", put("failed", "response.status", "cancelled")),
    ("response.status", "background", put("created", "response.status", "in_progress")),
    ("response.status", "background", put("queued", "response.status", "in_progress")),
    ("response.constant", "message", put("in_progress", "response.created_at", 1_735_722_154)),
    ("response.constant", "message", put("completed", "response.temperature", 1.0)),
    ("response.constant", "message", put("completed", "response.metadata", {})),
    ("response.constant", "message", put("completed", "response.conversation", {"id": "conv_1"})),
    ("response.constant", "conversation", cut("completed", "response.conversation")),
    ("output", "message", put("in_progress", "response.output", [{**message(0)[-1]["item"]}])),
    ("output", "message", put("completed", "response.output.0.content.0.text", "Hello")),
    ("output", "reasoning", lambda events: [*events[:-1], {**events[-1], "response": COMPLETED}]),
    ("output", "reasoning", lambda events: (events[-1]["response"]["output"].reverse(), events)[1]),
    ("output", "message", lambda events: stream()),
    ("output", "message", lambda events: stream(end="incomplete")),
    ("usage", "message", put("created", "response.usage", response("completed")["usage"])),
    ("usage", "message", put("completed", "response.usage", None)),
    ("usage", "failed", put("failed", "response.usage", None)),
    ("usage", "cancelled", put("incomplete", "response.usage", None)),
    ("usage", "message", put("completed", "response.usage.total_tokens", 21)),
    ("usage", "message", put("completed", "response.usage.output_tokens_details.reasoning_tokens", 12)),
    ("usage", "message", put("completed", "response.usage.input_tokens_details.cached_tokens", 10)),
    ("usage", "message", put("completed", "response.usage.input_tokens_details.cache_write_tokens", 10)),
    ("error", "message", put("created", "response.error", response("failed")["error"])),
    ("error", "message", put("completed", "response.error", response("failed")["error"])),
    ("error", "failed", put("failed", "response.error", None)),
    ("incomplete", "message", put("completed", "response.incomplete_details", {"reason": "content_filter"})),
    ("incomplete", "cut text", put("incomplete", "response.incomplete_details", None)),
    ("incomplete", "cancelled", put("incomplete", "response.incomplete_details", {"reason": "content_filter"})),
    ("completed_at", "message", put("created", "response.completed_at", 1_735_722_160)),
    ("completed_at", "message", put("completed", "response.completed_at", None)),
    ("completed_at", "message", put("completed", "response.completed_at", 1_735_722_152)),
    ("order", "background", lambda events: background(end="incomplete", ran=False)),
]


@pytest.mark.parametrize(
    ("rule", "name", "change"), BROKEN, ids=[f"{n}-{rule}" for n, (rule, _, _) in enumerate(BROKEN)]
)
def test_broken_events_are_refused(rule: str, name: str, change: Change) -> None:
    events = change(copy.deepcopy(STREAMS[name]))
    found = check_events(events)
    assert found, "nothing was found"
    assert found[0].rule == rule, "\n".join(map(str, found))
    assert rules(check_stream(wire(events))) >= {rule}


def test_reasoning_goes_out_once() -> None:
    both = copy.deepcopy(summary(0, "They ask"))
    inner = copy.deepcopy(reasoning(0, "They ask"))[1:-1]
    done = both.pop()
    done["item"]["content"] = [inner[-1]["part"]]
    assert rules(check_events(stream([*both, *inner, done]))) == {"reasoning"}


def test_a_summary_has_one_part() -> None:
    events = copy.deepcopy(summary(0, "They ask"))
    second = [{**event, "summary_index": 1} for event in copy.deepcopy(events[1:-1])]
    done = events.pop()
    done["item"]["summary"] = [events[-1]["part"]] * 2
    assert rules(check_events(stream([*events, *second, done]))) == {"reasoning"}


EMPTY = wire(STREAMS["empty"])
COMMENT = b": keep-alive\n\n"

# The rule of the first violation and the bytes.
BROKEN_BYTES: list[tuple[str, bytes]] = [
    ("order", b""),
    ("framing", EMPTY[:-1]),
    ("framing", EMPTY.replace(b"\n", b"\r\n")),
    ("framing", EMPTY.replace(b"\n", b"\r")),
    ("framing", b"\n\n" + EMPTY),
    ("framing", b"\xef\xbb\xbf" + EMPTY),
    ("framing", EMPTY.replace(b"\n\n", b"\n\n\n", 1)),
    ("framing", EMPTY.replace(b"\n\n", b"\n", 1)),
    ("framing", EMPTY.replace(b"\ndata: ", b"\ndata:", 1)),
    ("framing", EMPTY.replace(b"event: ", b"event:", 1)),
    ("framing", EMPTY.replace(b"\ndata: ", b"\nid: 1\ndata: ", 1)),
    ("framing", EMPTY.replace(b"\ndata: ", b"\n: keep-alive\ndata: ", 1)),
    ("framing", EMPTY.replace(b'data: {"type"', b'data: {\ndata: "type"', 1)),
    ("framing", EMPTY.replace(b"event: response.created\n", b"")),
    ("framing", EMPTY.replace(b"event: response.in_progress", COMMENT + b"event: response.in_progress")),
    ("framing", EMPTY.replace(b"data: [DONE]", COMMENT + b"data: [DONE]")),
    ("framing", EMPTY.replace(b"data: [DONE]", b"event: done\ndata: [DONE]")[:-2] + b"\ndata: x\n\n"),
    ("json", EMPTY.replace(b"data: [DONE]", b"event: done\ndata: [DONE]")),
    ("json", EMPTY.replace(b'data: {"type"', b'data: {"type', 1)),
    ("json", EMPTY.replace(b'data: {"type"', b'data: {"type": "response.created", "type"', 1)),
    ("json", EMPTY.replace(b'"top_p": 0.9', b'"top_p": NaN', 1)),
    ("json", EMPTY.replace(b'"user": null', b'"user": "\\ud800"', 1)),
    ("json", EMPTY.replace(b'"user": null', b'"user": "\xff"', 1)),
    ("json", EMPTY.replace(b'"user": null', b'"x": ' + b"[" * 100_000, 1)),
    ("json", b"event: response.created\ndata: []\n\n" + EMPTY),
    ("event.name", EMPTY.replace(b"event: response.created", b"event: message")),
    ("event.name", EMPTY.replace(b"event: response.created", b"event: response.created ")),
    ("done", EMPTY.removesuffix(DONE)),
    ("done", EMPTY + DONE),
    ("done", EMPTY + COMMENT),
    ("done", EMPTY + frame(STREAMS["empty"][-1])),
    ("done", DONE + EMPTY),
    ("done", DONE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "data"), BROKEN_BYTES, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(BROKEN_BYTES)]
)
def test_broken_bytes_are_refused(rule: str, data: bytes) -> None:
    found = check_stream(data)
    assert found, "nothing was found"
    assert found[0].rule == rule, "\n".join(map(str, found))


def test_every_rule_is_broken_here_once() -> None:
    broken = {rule for rule, _, _ in BROKEN} | {rule for rule, _ in BROKEN_BYTES}
    assert broken == set(RULES)


def test_a_stream_may_end_anywhere_but_is_not_accepted() -> None:
    data = wire(STREAMS["reasoning"])
    for at in range(0, len(data) - 1, 41):
        assert check_stream(data[:at]), f"the first {at} bytes"


# Sweeps: every event, every key and every value of a valid stream matters


@each_stream
def test_no_event_can_be_missing(name: str) -> None:
    events = STREAMS[name]
    for index, event in enumerate(events):
        if event["type"] != "keepalive":
            assert check_events(numbered([*events[:index], *events[index + 1 :]])), f"without event {index}"


@each_stream
def test_no_event_can_come_twice(name: str) -> None:
    events = STREAMS[name]
    for index, event in enumerate(events):
        if event["type"] != "keepalive":
            assert check_events(numbered([*events[: index + 1], *events[index:]])), f"event {index} twice"


@each_stream
def test_no_two_events_can_change_places(name: str) -> None:
    events = STREAMS[name]
    for index in range(len(events) - 1):
        one, other = events[index : index + 2]
        # An annotation names no place among the deltas.
        if not {one["type"], other["type"]} & {"keepalive", "response.output_text.annotation.added"}:
            assert check_events(numbered([*events[:index], other, one, *events[index + 2 :]])), (
                f"events {index} and next"
            )


SWEPT = [
    "rich text",
    "reasoning",
    "encrypted",
    "summary",
    "one call",
    "custom call",
    "cut text",
    "failed",
    "background",
]
# The response object is large and much the same everywhere: it is swept in these.
SWEPT_WHOLE = ["cut text", "failed", "background"]
# What an event may say freely: no other event repeats it.
FREE = {
    "response.completed_at",
    "response.error.message",
    "response.error.type",
    "response.usage.input_tokens_details.cached_tokens",
    "response.usage.input_tokens_details.cache_write_tokens",
    "response.usage.output_tokens_details.reasoning_tokens",
}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything below `value`, and of all between."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from leaves(entry, (*path, index))


def changed(event: Event, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Event:
    """A copy of the event in which `change(container, key)` was done at `path`."""
    event = copy.deepcopy(event)
    target: Any = event
    for key in path[:-1]:
        target = target[key]
    change(target, path[-1])
    return event


def remove(container: Any, key: Any) -> None:
    del container[key]


def retype(container: Any, key: Any) -> None:
    container[key] = 7.5 if isinstance(container[key], list | dict) else [{}]


def alter(container: Any, key: Any) -> None:
    value = container[key]
    if isinstance(value, bool):
        container[key] = not value
    elif isinstance(value, str):
        container[key] = value + "x"
    elif isinstance(value, int | float):
        container[key] = value + 1
    elif value is None:
        container[key] = "x"
    elif isinstance(value, list):
        value.append(copy.deepcopy(value[0]) if value else {})
    else:
        value.clear()


@pytest.mark.parametrize("name", SWEPT)
@pytest.mark.parametrize("change", [remove, retype, alter])
def test_every_value_matters(name: str, change: Callable[[Any, Any], None]) -> None:
    events = STREAMS[name]
    accepted = set()
    for index, event in enumerate(events):
        if "response" in event and name not in SWEPT_WHOLE:
            continue
        for path in leaves(event):
            broken = changed(event, path, change)
            if not check_events([*events[:index], broken, *events[index + 1 :]]):
                accepted.add(".".join(map(str, path)))
    assert accepted <= (FREE if change is alter else set())


def test_nothing_makes_the_checker_raise() -> None:
    values: list[Any] = [None, [], {}, "x", 7, {"type": None}, {"type": {}}, {"type": "response.created"}]
    for value in values:
        checker = EventChecker()
        checker.feed(b"event: x\ndata: " + json.dumps(value).encode() + b"\n\n")
        assert checker.close()


def test_events_may_be_nested_too_deeply_to_be_compared() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    checker = EventChecker()
    checker.event(ev("created", response=response(metadata={"deep": deep})))
    assert rules(checker.violations) == {"json"}


def test_a_frame_has_a_limit() -> None:
    checker = EventChecker(max_frame=100)
    for _ in range(25):
        checker.feed(b"data: " + b"x" * 4)
    assert rules(checker.violations) == {"framing"}
    assert "longer than 100 bytes" in checker.violations[0].message


def test_the_list_of_violations_has_a_limit() -> None:
    checker = EventChecker()
    checker.feed(b"x\n\n" * (MAX_VIOLATIONS + 10))
    assert len(checker.close()) == MAX_VIOLATIONS


def test_assert_valid_shows_every_violation() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_valid(EMPTY.removesuffix(DONE).replace(b'"sequence_number": 3', b'"sequence_number": 4'))
    lines = str(caught.value).splitlines()
    assert lines[0] == "event 3: sequence: number 4 where 3 is due"
    assert lines[-1] == "event 8: done: the stream ends without [DONE]"


def test_parsed_events_need_no_done() -> None:
    checker = EventChecker()
    for event in with_keepalive(STREAMS["call"]):
        checker.event(event)
    assert checker.close() == []
    assert rules(EventChecker().close()) == {"order"}


# Responses that were not streamed


def final(name: str) -> dict[str, Any]:
    whole: dict[str, Any] = copy.deepcopy(STREAMS[name][-1]["response"])
    return whole


@each_stream
def test_final_responses_are_accepted(name: str) -> None:
    assert check_response(final(name)) == []


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_responses_that_have_not_ended_are_accepted(status: str) -> None:
    assert check_response(response(status, background=True)) == []


@pytest.mark.parametrize(
    ("rule", "name", "changes"),
    [
        ("fields", "message", {"object": "chat.completion"}),
        ("fields", "message", {"output": None}),
        ("id.format", "message", {"id": "resp_1"}),
        ("id.format", "message", {"output": [{**final("message")["output"][0], "id": "x"}]}),
        ("id.unique", "message", {"output": final("message")["output"] * 2}),
        ("item.status", "message", {"output": [{**final("message")["output"][0], "status": "in_progress"}]}),
        ("item.status", "message", {"status": "incomplete", "incomplete_details": {"reason": "content_filter"},
                                    "output": [{**final("message")["output"][0], "status": "in_progress"}]}),
        ("reasoning", "summary", {"reasoning": None}),
        ("encrypted", "call", {"output": [{**item, "encrypted_content": "x"} for item in final("call")["output"]]}),
        ("calls", "two calls", {"parallel_tool_calls": False}),
        ("output", "message", {"output": []}),
        ("usage", "message", {"usage": None}),
        ("error", "failed", {"error": None}),
        ("incomplete", "cut text", {"incomplete_details": None}),
        ("completed_at", "message", {"completed_at": 0}),
    ],
)  # fmt: skip
def test_broken_responses_are_refused(rule: str, name: str, changes: dict[str, Any]) -> None:
    found = check_response({**final(name), **changes})
    assert found, "nothing was found"
    assert found[0].rule == rule, "\n".join(map(str, found))


@pytest.mark.parametrize("value", [None, [], "response", 7])
def test_what_is_no_response_is_refused(value: Any) -> None:
    assert rules(check_response(value)) == {"fields"}
