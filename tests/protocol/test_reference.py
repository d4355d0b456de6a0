"""Our streams have every field of the reference's fifteen events, of its types (wire contract, sections 2 and 10)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from antiphon.protocol.fragments import Arguments, Call, Reasoning, Text
from tests.protocol.support import Json, Step, fail, finish, on_the_wire, play
from tests.reference_events import EVENTS, Optional, faults

SAID = (Reasoning("Hm."), Text("Hello"), Call(name="go"), Arguments("{}"))


def _streams() -> dict[str, list[Json]]:
    ends: dict[str, Step] = {
        "completed": finish(),
        "incomplete": finish("max_output_tokens"),
        "content_filter": finish("content_filter"),
        "failed": fail,
    }
    cuts = range(len(SAID) + 1)
    return {f"{name} after {n}": on_the_wire(play(*SAID[:n], end=end)) for name, end in ends.items() for n in cuts}


STREAMS = _streams()


@pytest.mark.parametrize("name", STREAMS)
def test_no_event_lacks_a_field_of_the_reference(name: str) -> None:
    assert [fault for event in STREAMS[name] for fault in faults(event)] == []


def test_these_streams_hold_all_fifteen_events() -> None:
    assert len(EVENTS) == 15
    assert {event["type"] for events in STREAMS.values() for event in events} == set(EVENTS)


def _without(event: Json, path: tuple[str | int, ...]) -> Json:
    broken = deepcopy(event)
    node: Any = broken
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    return broken


@pytest.mark.parametrize("name", EVENTS)
def test_a_missing_field_and_a_wrong_type_are_found(name: str) -> None:
    event = next(event for events in STREAMS.values() for event in events if event["type"] == name)
    for field, spec in EVENTS[name].items():
        assert not isinstance(spec, Optional)
        assert faults(_without(event, (field,))), field
        assert faults({**event, field: None}), field
        assert faults({**event, field: [[]]}), field


# What the reference requires inside an event, by hand, so that a hole in the data shows.
REQUIRED_INSIDE = {
    "response.completed": [
        "response.id",
        "response.object",
        "response.created_at",
        "response.status",
        "response.output",
        "response.usage.input_tokens",
        "response.usage.input_tokens_details",
        "response.usage.input_tokens_details.cached_tokens",
        "response.usage.output_tokens",
        "response.usage.output_tokens_details",
        "response.usage.output_tokens_details.reasoning_tokens",
        "response.usage.total_tokens",
        "response.output.0.type",
    ],
    "response.content_part.added": ["part.type", "part.text"],
    "response.content_part.done": ["part.type", "part.text"],
}
ITEMS = {
    "message": ["id", "content", "role", "status", "type", "content.0.type", "content.0.text"],
    "reasoning": ["id", "type", "content.0.type", "content.0.text"],
    "function_call": ["arguments", "call_id", "name", "type"],
}


def _path(dotted: str) -> tuple[str | int, ...]:
    return tuple(int(key) if key.isdigit() else key for key in dotted.split("."))


@pytest.mark.parametrize("name", REQUIRED_INSIDE)
def test_a_field_missing_inside_an_event_is_found(name: str) -> None:
    event = next(e for e in STREAMS[f"completed after {len(SAID)}"] if e["type"] == name)
    for dotted in REQUIRED_INSIDE[name]:
        assert faults(_without(event, _path(dotted))), dotted


@pytest.mark.parametrize("kind", ITEMS)
def test_a_field_missing_in_an_item_is_found(kind: str) -> None:
    events = STREAMS[f"completed after {len(SAID)}"]
    event = next(e for e in events if e["type"] == "response.output_item.done" and e["item"]["type"] == kind)
    assert not faults(event)
    for dotted in ITEMS[kind]:
        assert faults(_without(event, ("item", *_path(dotted)))), dotted


def test_an_event_that_the_reference_does_not_know_is_named() -> None:
    assert faults({"type": "response.odd"}) == ["type: 'response.odd' is no event of the reference"]
