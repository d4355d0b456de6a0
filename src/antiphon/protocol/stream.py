"""Fragments of model output in, events of one response out: order, numbers, ids and the end are right by construction.

Rules
* Here live the order of events, the sequence numbers, the ids and the terminal event of one response. Nothing here
  reads a clock, draws an id, knows a key, does I/O or knows a model: clock, ids and sealing are arguments.
* Every method returns the events to send, in order. The caller sends them.
* The state is checked before anything changes: after a `ProtocolViolation` the stream is as it was, and can be ended.
* A stream that was started ends in exactly one of `finish`, `fail` and `cancel`.

States: new -> (queued) -> idle <-> message | reasoning | call -> ended.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Literal

from msgspec.structs import replace

from antiphon.protocol import events as ev
from antiphon.protocol import ids
from antiphon.protocol.errors import ProtocolViolation
from antiphon.protocol.fragments import (
    Arguments,
    Call,
    CallDone,
    Fragment,
    Reasoning,
    ReasoningDone,
    Refusal,
    Text,
)
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, ItemStatus
from antiphon.protocol.open_items import (
    REASONING_NAMES,
    OpenCall,
    OpenItem,
    OpenMessage,
    OpenReasoning,
    OpenSummary,
    Seal,
)
from antiphon.protocol.response import Failure, IncompleteDetails, IncompleteReason, Response, Usage

FinishReason = Literal["stop", "max_output_tokens", "content_filter"]


class ResponseStream:
    """The events of one response.

    `response` is the object with everything that is known before the first token. `summary` sends thinking as reasoning
    summaries; `reasoning_events` is a key of `REASONING_NAMES`. With `seal`, which must not raise, every block is
    closed with its text sealed in `encrypted_content`. `clock` gives Unix time in seconds.
    """

    def __init__(
        self,
        response: Response,
        *,
        new_id: ids.IdSource,
        clock: Callable[[], float],
        summary: bool = False,
        reasoning_events: str = "openai",
        seal: Seal | None = None,
    ) -> None:
        self._response = response
        self._new_id = new_id
        self._clock = clock
        self._summary = summary
        self._names = REASONING_NAMES[reasoning_events]
        self._seal = seal
        self._number = count().__next__
        self._state = "new"
        self._open: OpenItem | None = None
        self._output: list[Item] = []

    @property
    def state(self) -> str:
        """new, queued, idle (no item is open), message, reasoning, call, or ended."""
        return self._open.kind if self._open is not None else self._state

    def queue(self) -> list[ev.Event]:
        """`created` and `queued`: a background response that waits."""
        self._expect("queue()", "new")
        self._state = "queued"
        queued = replace(self._response, status="queued")
        return [ev.ResponseCreated(self._number(), queued), ev.ResponseQueued(self._number(), queued)]

    def start(self) -> list[ev.Event]:
        """`in_progress`, with `created` before it unless the response was queued."""
        self._expect("start()", "new", "queued")
        fresh, self._state = self._state == "new", "idle"
        running = replace(self._response, status="in_progress")
        created: list[ev.Event] = [ev.ResponseCreated(self._number(), running)] if fresh else []
        return [*created, ev.ResponseInProgress(self._number(), running)]

    def feed(self, fragment: Fragment) -> list[ev.Event]:
        """The events of one fragment. Raises `ProtocolViolation` where the state does not allow it."""
        # The hot path first: one more piece of the text that is open.
        if type(fragment) is Text:
            if type(self._open) is OpenMessage and fragment.text:
                return self._open.text(fragment.text, fragment.logprobs)
            return self._text(fragment)
        return _FEEDERS[type(fragment)](self, fragment)

    def finish(self, reason: FinishReason, usage: Usage) -> list[ev.Event]:
        """The model is done, or was cut by a limit: closes what is open and ends the response."""
        self._expect("finish()", "idle", "message", "reasoning", "call")
        events = [] if self._open or self._output else self._open_empty_message()
        if reason == "stop":
            events += self._close("completed")
            response = self._ended("completed", usage, completed_at=int(self._clock()))
            return [*events, ev.ResponseCompleted(self._number(), response)]
        events += self._close("incomplete")
        response = self._ended("incomplete", usage, reason=reason)
        return [*events, ev.ResponseIncomplete(self._number(), response)]

    def fail(self, failure: Failure, usage: Usage) -> list[ev.Event]:
        """The response cannot go on; what is open is closed as incomplete. Allowed in every state but new and ended."""
        self._expect("fail()", "queued", "idle", "message", "reasoning", "call")
        events = self._close("incomplete")
        response = self._ended("failed", usage, error=failure)
        return [*events, ev.ResponseFailed(self._number(), response)]

    def cancel(self, usage: Usage) -> list[ev.Event]:
        """Somebody cancelled: ends with `response.incomplete` whose response is `cancelled` (wire contract, 8)."""
        self._expect("cancel()", "queued", "idle", "message", "reasoning", "call")
        events = self._close("incomplete")
        return [*events, ev.ResponseIncomplete(self._number(), self._ended("cancelled", usage))]

    def _expect(self, what: str, *states: str) -> None:
        if self.state not in states:
            raise ProtocolViolation(self.state, what)

    def _running(self, what: str) -> None:
        if self._open is None and self._state != "idle":
            raise ProtocolViolation(self.state, what)

    def _expect_piece(self, what: str, text: str) -> None:
        self._running(what)
        if not text:
            raise ProtocolViolation(self.state, f"an empty {what}")

    def _text(self, fragment: Text) -> list[ev.Event]:
        self._expect_piece("text", fragment.text)
        message, events = self._message()
        return [*events, *message.text(fragment.text, fragment.logprobs)]

    def _refusal(self, fragment: Refusal) -> list[ev.Event]:
        self._expect_piece("refusal", fragment.text)
        message, events = self._message()
        return [*events, *message.refusal(fragment.text)]

    def _message(self) -> tuple[OpenMessage, list[ev.Event]]:
        if isinstance(self._open, OpenMessage):
            return self._open, []
        events = self._close("completed")
        message = OpenMessage(self._number, self._new_id(ids.MESSAGE), len(self._output))
        return message, [*events, *self._opened(message)]

    def _reasoning(self, fragment: Reasoning) -> list[ev.Event]:
        self._expect_piece("reasoning", fragment.text)
        if isinstance(self._open, OpenReasoning | OpenSummary):
            return self._open.reasoning(fragment.text)
        events = self._close("completed")
        at = (self._number, self._new_id(ids.REASONING), len(self._output), self._seal)
        block = OpenSummary(*at) if self._summary else OpenReasoning(*at, self._names)
        return [*events, *self._opened(block), *block.reasoning(fragment.text)]

    def _reasoning_done(self, fragment: ReasoningDone) -> list[ev.Event]:
        self._expect("the end of a thinking block", "reasoning")
        return self._close("completed")

    def _call(self, fragment: Call) -> list[ev.Event]:
        self._running("a call")
        if not fragment.name:
            raise ProtocolViolation(self.state, "a call without a name")
        events = self._close("completed")
        call = OpenCall(self._number, len(self._output), self._call_item(fragment))
        return [*events, *self._opened(call)]

    def _call_item(self, call: Call) -> FunctionCall | CustomToolCall:
        call_id = self._new_id(ids.CALL)
        namespace = {} if call.namespace is None else {"namespace": call.namespace}
        if call.custom:
            item_id = self._new_id(ids.CUSTOM_TOOL_CALL)
            return CustomToolCall(
                id=item_id, call_id=call_id, name=call.name, input="", status="in_progress", **namespace
            )
        item_id = self._new_id(ids.FUNCTION_CALL)
        return FunctionCall(
            id=item_id, call_id=call_id, name=call.name, arguments="", status="in_progress", **namespace
        )

    def _arguments(self, fragment: Arguments) -> list[ev.Event]:
        if not isinstance(self._open, OpenCall) or not fragment.text:
            raise ProtocolViolation(self.state, "an argument piece" if fragment.text else "an empty argument piece")
        return self._open.arguments(fragment.text)

    def _call_done(self, fragment: CallDone) -> list[ev.Event]:
        self._expect("the end of a call", "call")
        return self._close("completed")

    def _open_empty_message(self) -> list[ev.Event]:
        # Agent loops run wild on an empty `output`: an empty generation is a message with an empty text.
        message, events = self._message()
        return [*events, *message.empty()]

    def _opened(self, item: OpenItem) -> list[ev.Event]:
        self._open = item
        return item.opening()

    def _close(self, status: ItemStatus) -> list[ev.Event]:
        if self._open is None:
            return []
        item, events = self._open.closing(status)
        self._open = None
        self._output.append(item)
        return events

    def _ended(
        self,
        status: Literal["completed", "incomplete", "failed", "cancelled"],
        usage: Usage,
        *,
        completed_at: int | None = None,
        error: Failure | None = None,
        reason: IncompleteReason | None = None,
    ) -> Response:
        self._state = "ended"
        return replace(
            self._response,
            status=status,
            usage=usage,
            output=tuple(self._output),
            completed_at=completed_at,
            error=error,
            incomplete_details=IncompleteDetails(reason) if reason else None,
        )


_FEEDERS: dict[type, Callable[[ResponseStream, Any], list[ev.Event]]] = {
    Refusal: ResponseStream._refusal,
    Reasoning: ResponseStream._reasoning,
    ReasoningDone: ResponseStream._reasoning_done,
    Call: ResponseStream._call,
    Arguments: ResponseStream._arguments,
    CallDone: ResponseStream._call_done,
}
