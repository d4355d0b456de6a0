"""The reference's own example, event by event (wire contract, section 10)."""

from __future__ import annotations

from pathlib import Path

from tests.server import parse_events, scripted_server

HELLO = [{"steps": ["Hello", " there", ", how may I", " assist you today?"]}]
TEXT = "Hello there, how may I assist you today?"


async def test_the_example_comes_out_event_by_event(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, HELLO) as server:
        events = parse_events(await server.stream({"input": "Hi"}))
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 4,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["delta"] for event in events[4:8]] == HELLO[0]["steps"]
    assert [event["sequence_number"] for event in events] == list(range(12))
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == TEXT
