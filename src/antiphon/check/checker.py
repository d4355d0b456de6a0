"""The event checker: reads a stream as a stranger would, and says which rules of the wire contract it breaks.

Rules
* It shares no code with the server and imports nothing of it: one misunderstanding cannot be on both sides.
* It never raises over a stream, however broken: what it finds is a list of `Violation`.
* After a violation it goes on with what the stream says: the first one is a cause, later ones may follow from it.
"""

from __future__ import annotations

from typing import Any, Literal

from antiphon.check.frames import MAX_FRAME_BYTES, Comment, Done, FrameReader
from antiphon.check.items import Ids, OpenItem, check_id
from antiphon.check.kinds import Kind, Record, is_integer, same
from antiphon.check.response import check_item, check_progress
from antiphon.check.tables import (
    EVENT_FIELDS,
    INSIDE,
    LIFECYCLE,
    OPEN_RESPONSES_NAMES,
    RESPONSE_PREFIX,
    RESPONSE_PROGRESS,
    TERMINAL_FROM_QUEUE,
)
from antiphon.check.violation import Violation

# A broken stream repeats its fault in every event; nobody reads more than this.
MAX_VIOLATIONS = 1000

ReasoningNames = Literal["openai", "open-responses"]


class EventChecker:
    """Checks one stream: `feed` it bytes, or give it parsed events with `event`; then `close` it.

    `reasoning_events` says which of the two names the events of thinking must have. `keepalive_comments` allows
    comments everywhere, as a server sends them that was told to send no `keepalive` events.
    """

    def __init__(
        self,
        *,
        reasoning_events: ReasoningNames = "openai",
        keepalive_comments: bool = False,
        max_frame: int = MAX_FRAME_BYTES,
    ) -> None:
        self.violations: list[Violation] = []
        self._names = OPEN_RESPONSES_NAMES if reasoning_events == "open-responses" else {}
        self._comments = keepalive_comments
        self._frames = FrameReader(self._report, max_frame)
        self._fed = False
        self._done = False
        self._seen = 0
        self._next_number = 0
        self._phase = "nothing"
        self._response: dict[str, Any] = {}  # as the first event showed it
        self._open: OpenItem | None = None
        self._output: list[dict[str, Any]] = []
        self._ids = Ids(self._report)

    def feed(self, data: bytes) -> None:
        """The next bytes of the stream, cut anywhere."""
        self._fed = True
        for frame in self._frames.feed(data):
            if self._done:
                self._report("done", "something follows [DONE]")
            if isinstance(frame, Done):
                self._end()
            elif isinstance(frame, Comment):
                self._comment()
            else:
                if frame.name != frame.event.get("type"):
                    self._report("event.name", f"{frame.name!r} above the type {frame.event.get('type')!r}")
                self.event(frame.event)

    def event(self, event: dict[str, Any]) -> None:
        """The next event, parsed."""
        kind = event.get("type")
        fields = self._fields(kind) if isinstance(kind, str) else None
        if kind == "keepalive":
            self._keepalive(event)
        else:
            self._number(event)
        if fields is None:
            self._report("event.type", f"{kind!r} is no event of this stream")
        elif faults := list(Record(fields).faults(event, str(kind))):
            for fault in faults:
                self._report("fields", fault)
        else:
            try:
                self._known(self._names.get(str(kind), str(kind)), event)
            except RecursionError:
                self._report("json", "nested too deeply to be compared")
        self._seen += 1

    def close(self) -> list[Violation]:
        """The stream is over. Returns everything that was found."""
        self._frames.close()
        if self._phase != "ended":
            self._report("order", "the stream ends without a terminal event")
        if self._fed and not self._done:
            self._report("done", "the stream ends without [DONE]")
        return self.violations

    def _report(self, rule: str, message: str) -> None:
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(Violation(rule, self._seen, message))

    def _fields(self, kind: str) -> dict[str, Kind] | None:
        """The fields of an event of this type; None if the stream may not hold it."""
        if kind in self._names.values():
            return None  # the other name of the same event was asked for
        return EVENT_FIELDS.get(self._names.get(kind, kind))

    def _end(self) -> None:
        if not self._done and self._phase != "ended":
            self._report("done", "[DONE] before the terminal event")
        self._done = True

    def _comment(self) -> None:
        if self._phase != "nothing" and not self._comments:
            self._report("framing", "a comment after the first event")

    def _number(self, event: dict[str, Any]) -> None:
        number = event.get("sequence_number")
        if is_integer(number):
            if number != self._next_number:
                self._report("sequence", f"number {number} where {self._next_number} is due")
            self._next_number = number + 1

    def _keepalive(self, event: dict[str, Any]) -> None:
        if self._phase in ("nothing", "ended"):
            self._report("keepalive", "a keepalive before the first event or after the last")
        elif event.get("sequence_number") != self._next_number - 1:
            self._report("keepalive", "a keepalive repeats the number of the event before it")

    def _known(self, kind: str, event: dict[str, Any]) -> None:
        """An event whose fields are right."""
        if kind == "keepalive":
            return
        if kind in LIFECYCLE:
            self._lifecycle(kind, event["response"])
        elif self._phase != "in progress":
            self._report("order", f"{kind} when the response is {self._phase}")
        elif kind == "response.output_item.added":
            self._item_added(event)
        elif self._open is None:
            self._report("order", f"{kind} when no item is open")
        elif kind in INSIDE:
            self._open.inside(kind, event)
        else:
            self._item_done(self._open, event)

    def _item_added(self, event: dict[str, Any]) -> None:
        if self._open is not None:
            self._report("order", "an item opens while another is open")
            self._output.append(event["item"])
        if event["output_index"] != len(self._output):
            self._report("output_index", f"{event['output_index']} where {len(self._output)} is due")
        self._ids.add(event["item"])
        self._open = OpenItem(event["item"], event["output_index"], self._report)

    def _item_done(self, item: OpenItem, event: dict[str, Any]) -> None:
        item.done(event)
        self._open = None
        self._output.append(event["item"])
        check_item(event["item"], self._response, self._report)

    def _lifecycle(self, kind: str, response: dict[str, Any]) -> None:
        place = LIFECYCLE[kind]
        if self._phase not in place.after:
            self._report("order", f"{kind} after {self._phase}")
        if response["status"] not in place.statuses:
            self._report("response.status", f"{response['status']} in {kind}")
        if self._phase == "queued" and place.then == "ended" and response["status"] not in TERMINAL_FROM_QUEUE:
            self._report("order", f"{response['status']} without response.in_progress")
        self._background(kind, response)
        self._constant(response)
        check_progress(response, self._report)
        if place.then == "ended":
            self._terminal(response)
        elif response["output"]:
            self._report("output", f"{kind} has output")
        self._phase = place.then

    def _background(self, kind: str, response: dict[str, Any]) -> None:
        """A response in the background waits in a queue, and no other does."""
        waits = kind == "response.queued" or response["status"] == "queued"
        if waits and not response["background"]:
            self._report("order", f"{kind} of a queued response that is not in background")
        if kind == "response.in_progress" and response["background"] and self._phase == "created":
            self._report("order", "a response in background without response.queued")
        if kind == "response.created" and response["background"] and response["status"] != "queued":
            self._report("response.status", "a response in background is created queued")

    def _constant(self, response: dict[str, Any]) -> None:
        if not self._response:
            self._response = response
            check_id(response["id"], RESPONSE_PREFIX, self._report)
        if response["id"] != self._response["id"]:
            self._report("id.constant", f"response {response['id']!r} was {self._response['id']!r}")
        for key in sorted((response.keys() | self._response.keys()) - RESPONSE_PROGRESS.keys() - {"id"}):
            if not same(response.get(key), self._response.get(key)):
                self._report("response.constant", f"{key} was {self._response.get(key)!r}")

    def _terminal(self, response: dict[str, Any]) -> None:
        if self._open is not None:
            self._report("order", "the response ends while an item is open")
        if not same(response["output"], self._output):
            self._report("output", "the final output is not the items' done events")


def check_stream(
    data: bytes, *, reasoning_events: ReasoningNames = "openai", keepalive_comments: bool = False
) -> list[Violation]:
    """Everything that is wrong with a whole stream, from its first byte to its last; empty if nothing is."""
    checker = EventChecker(reasoning_events=reasoning_events, keepalive_comments=keepalive_comments)
    checker.feed(data)
    return checker.close()


def assert_valid(data: bytes, *, reasoning_events: ReasoningNames = "openai", keepalive_comments: bool = False) -> None:
    """Raises `AssertionError` with every violation, one a line."""
    found = check_stream(data, reasoning_events=reasoning_events, keepalive_comments=keepalive_comments)
    if found:
        raise AssertionError("\n".join(map(str, found)))
