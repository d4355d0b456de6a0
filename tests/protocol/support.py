"""Streams for the tests of the protocol: counted ids, a clock that stands still, and the wire's form of the events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from antiphon.check import assert_valid
from antiphon.protocol import sse
from antiphon.protocol.events import Event, ReasoningDelta, ReasoningDone
from antiphon.protocol.fragments import Fragment
from antiphon.protocol.response import Failure, Response, Usage, usage
from antiphon.protocol.stream import FinishReason, ResponseStream

Json = dict[str, Any]
Step = Callable[[ResponseStream], list[Event]]
"""Something that is done to a stream; returns the events that it gave."""

CREATED_AT = 1_735_722_153
NOW = CREATED_AT + 7.9
USAGE = usage(9, 11, cached=4, cache_write=2, reasoning=3)
FAILURE = Failure("server_error", "The engine stopped.")


def nth(prefix: str, number: int) -> str:
    """The id that a stream of these tests mints as its `number`-th, counted over all kinds from 1."""
    return f"{prefix}{number:032d}"


def seal(text: str) -> str:
    """Stands for what nobody can read."""
    return f"sealed {text[::-1]}"


def new_stream(
    *, summary: bool = False, reasoning_events: str = "openai", sealed: bool = False, **echoed: Any
) -> ResponseStream:
    numbers = count(1)
    if summary:
        echoed["reasoning"] = {"effort": None, "summary": "auto"}
    response = Response(
        id=nth("resp_", 0), created_at=CREATED_AT, model="m", text={"format": {"type": "text"}}, **echoed
    )
    return ResponseStream(
        response,
        new_id=lambda prefix: nth(prefix, next(numbers)),
        clock=lambda: NOW,
        summary=summary,
        reasoning_events=reasoning_events,
        seal=seal if sealed else None,
    )


def start(stream: ResponseStream) -> list[Event]:
    return stream.start()


def queue(stream: ResponseStream) -> list[Event]:
    return stream.queue()


def cancel(stream: ResponseStream) -> list[Event]:
    return stream.cancel(USAGE)


def fail(stream: ResponseStream) -> list[Event]:
    return stream.fail(FAILURE, USAGE)


def finish(reason: FinishReason = "stop", counted: Usage = USAGE) -> Step:
    return lambda stream: stream.finish(reason, counted)


def feed(fragment: Fragment) -> Step:
    return lambda stream: stream.feed(fragment)


def play(*fragments: Fragment, end: Step | None = None, stream: ResponseStream | None = None) -> list[Event]:
    """The events of a response that says `fragments`; ends with `finish("stop")` unless told otherwise."""
    stream = stream or new_stream()
    events = stream.start()
    for fragment in fragments:
        events += stream.feed(fragment)
    return events + (end or finish())(stream)


def sent(events: Sequence[Event]) -> bytes:
    """What goes over the wire: the events and the end of the stream."""
    return sse.encode(events) + sse.DONE


def decoded(data: bytes) -> list[Json]:
    """The events of a whole stream as JSON; holds the framing: the names, and `[DONE]` once and last."""
    pairs = sse.SSEDecoder().feed(data)
    assert pairs.pop() == ("message", b"[DONE]")
    events: list[Json] = [json.loads(body) for _, body in pairs]
    assert [name for name, _ in pairs] == [event["type"] for event in events]
    return events


def on_the_wire(events: Sequence[Event]) -> list[Json]:
    """The events as a client gets them, after the checks that hold for every stream."""
    open_responses = any(isinstance(event, ReasoningDelta | ReasoningDone) for event in events)
    data = sent(events)
    assert_valid(data, reasoning_events="open-responses" if open_responses else "openai")
    found = decoded(data)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def outline(events: Sequence[Event]) -> list[Json]:
    """`on_the_wire` without the numbers (they are the places in the list), and of a response its status and output."""
    found = on_the_wire(events)
    for event in found:
        del event["sequence_number"]
        if "response" in event:
            response = event.pop("response")
            event |= {"status": response["status"], "output": response["output"]}
    return found
