"""Every event that this server may send, and no other (wire contract, section 2).

`event:` and the JSON's `type` are the struct's tag. `sequence_number` starts at 0 and grows by one with each event of a
response; `keepalive` repeats the number of the event before it, since it belongs to one connection only.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.protocol.items import Item, Logprob, Part, SummaryText
from antiphon.protocol.response import Response


class _Lifecycle(Struct, frozen=True):
    sequence_number: int
    response: Response


class ResponseCreated(_Lifecycle, frozen=True, tag="response.created"): ...


class ResponseQueued(_Lifecycle, frozen=True, tag="response.queued"): ...


class ResponseInProgress(_Lifecycle, frozen=True, tag="response.in_progress"): ...


class ResponseCompleted(_Lifecycle, frozen=True, tag="response.completed"): ...


class ResponseIncomplete(_Lifecycle, frozen=True, tag="response.incomplete"): ...


class ResponseFailed(_Lifecycle, frozen=True, tag="response.failed"): ...


class _ItemEvent(Struct, frozen=True):
    sequence_number: int
    output_index: int
    item: Item


class OutputItemAdded(_ItemEvent, frozen=True, tag="response.output_item.added"): ...


class OutputItemDone(_ItemEvent, frozen=True, tag="response.output_item.done"): ...


class _PartEvent(Struct, frozen=True):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: Part


class ContentPartAdded(_PartEvent, frozen=True, tag="response.content_part.added"): ...


class ContentPartDone(_PartEvent, frozen=True, tag="response.content_part.done"): ...


# Deltas are the hot path: no cyclic garbage can start at them, so the collector need not look.
class _ContentDelta(Struct, frozen=True, gc=False):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str


class OutputTextDelta(_ContentDelta, frozen=True, gc=False, tag="response.output_text.delta"):
    logprobs: tuple[Logprob, ...] = ()


class RefusalDelta(_ContentDelta, frozen=True, gc=False, tag="response.refusal.delta"): ...


class ReasoningTextDelta(_ContentDelta, frozen=True, gc=False, tag="response.reasoning_text.delta"): ...


class ReasoningDelta(ReasoningTextDelta, frozen=True, gc=False, tag="response.reasoning.delta"):
    """Open Responses' name of the same event."""


class _ContentDone(Struct, frozen=True):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int


class OutputTextDone(_ContentDone, frozen=True, tag="response.output_text.done"):
    text: str
    logprobs: tuple[Logprob, ...] = ()


class RefusalDone(_ContentDone, frozen=True, tag="response.refusal.done"):
    refusal: str


class ReasoningTextDone(_ContentDone, frozen=True, tag="response.reasoning_text.done"):
    text: str


class ReasoningDone(ReasoningTextDone, frozen=True, tag="response.reasoning.done"):
    """Open Responses' name of the same event."""


class AnnotationAdded(Struct, frozen=True, tag="response.output_text.annotation.added"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    annotation_index: int
    annotation: Any


class _SummaryPart(Struct, frozen=True):
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


class SummaryPartAdded(_SummaryPart, frozen=True, tag="response.reasoning_summary_part.added"): ...


class SummaryPartDone(_SummaryPart, frozen=True, tag="response.reasoning_summary_part.done"): ...


class SummaryTextDelta(Struct, frozen=True, gc=False, tag="response.reasoning_summary_text.delta"):
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    delta: str


class SummaryTextDone(Struct, frozen=True, tag="response.reasoning_summary_text.done"):
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    text: str


class _CallDelta(Struct, frozen=True, gc=False):
    sequence_number: int
    item_id: str
    output_index: int
    delta: str


class FunctionCallArgumentsDelta(_CallDelta, frozen=True, gc=False, tag="response.function_call_arguments.delta"): ...


class CustomToolCallInputDelta(_CallDelta, frozen=True, gc=False, tag="response.custom_tool_call_input.delta"): ...


class FunctionCallArgumentsDone(Struct, frozen=True, tag="response.function_call_arguments.done"):
    sequence_number: int
    item_id: str
    output_index: int
    arguments: str
    name: str


class CustomToolCallInputDone(Struct, frozen=True, tag="response.custom_tool_call_input.done"):
    sequence_number: int
    item_id: str
    output_index: int
    input: str


class KeepAlive(Struct, frozen=True, tag="keepalive"):
    """Silence on one connection; never stored, never replayed."""

    sequence_number: int


class ErrorEvent(Struct, frozen=True, tag="error"):
    """Only where no response object exists (WebSocket mode). Without a numeric `status` Codex hangs."""

    status: int
    error: Any


LifecycleEvent = (
    ResponseCreated | ResponseQueued | ResponseInProgress | ResponseCompleted | ResponseIncomplete | ResponseFailed
)

Event = (
    LifecycleEvent
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | RefusalDelta
    | RefusalDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | ReasoningDelta
    | ReasoningDone
    | AnnotationAdded
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryTextDelta
    | SummaryTextDone
    | FunctionCallArgumentsDelta
    | FunctionCallArgumentsDone
    | CustomToolCallInputDelta
    | CustomToolCallInputDone
)
