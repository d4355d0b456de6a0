"""What the checker finds, and the names of the rules that it finds broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

RULES: Mapping[str, str] = {
    "framing": "each event is `event: TYPE` LF `data: JSON` LF LF; comments only before the first; no CR",
    "json": "the data is one JSON object in UTF-8, without duplicate keys, NaN or lone surrogates",
    "event.name": "the `event:` line repeats the type of the JSON",
    "event.type": "only known types of events are sent",
    "fields": "every required key is there and has its type; unknown extra keys are allowed",
    "sequence": "`sequence_number` starts at 0 and grows by one",
    "keepalive": "`keepalive` follows `response.created` and repeats the number before it",
    "order": "created, queued if in background, in_progress, the items one after another, one terminal event",
    "done": "`data: [DONE]` ends the stream, once",
    "output_index": "`output_index` is dense, in the order of opening",
    "content_index": "`content_index` (`summary_index`, `annotation_index`) is the place in the item",
    "id.format": "an id is its kind's prefix and at least 24 characters",
    "id.unique": "no two items have one id, no two calls one call_id",
    "id.constant": "an item keeps its id, a response its own, from the first event to the last",
    "delta.empty": "no delta is empty",
    "text.sum": "the text of a done event is the sum of its deltas, and so are its log-probabilities",
    "part": "a part opens empty, is of a type that its item may hold, and ends as its events said",
    "item": "an item opens empty and ends as its events said",
    "item.status": "in_progress while open, then completed; incomplete only last, in a response that was cut",
    "reasoning": "thinking goes out once: as content, or as a summary in one part if the request asked for one",
    "encrypted": "`encrypted_content` is in every reasoning item that is done or in none; else only in a compaction",
    "calls": "without parallel_tool_calls there is at most one call",
    "response.status": "the status fits the event",
    "response.constant": "what the response echoes is the same in every event",
    "output": "the final output is the items' done events, value for value; empty only if failed or cancelled",
    "usage": "null until the terminal event, then counts that add up",
    "error": "there is an `error` in a failed response and in no other",
    "incomplete": "there are `incomplete_details` in an incomplete response and in no other",
    "completed_at": "null until the terminal event; a completed response has it, not before `created_at`",
}


@dataclass(frozen=True)
class Violation:
    """`rule` is a key of `RULES`; `event_index` counts the events of the stream from 0, whatever their numbers say."""

    rule: str
    event_index: int
    message: str

    def __str__(self) -> str:
        return f"event {self.event_index}: {self.rule}: {self.message}"


Report = Callable[[str, str], None]
"""Takes a rule and a message."""
