"""The response object: every lifecycle event carries it whole (wire contract, section 4).

A key is never missing; `null` stands where there is nothing. Only `conversation` appears solely when it is used. What
the request set is echoed as it was applied.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.protocol.items import Item

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
IncompleteReason = Literal["max_output_tokens", "content_filter"]
FailureCode = Literal["server_error", "rate_limit_exceeded", "invalid_prompt", "context_length_exceeded"]


class Failure(Struct, frozen=True):
    """Why a response failed. `type` repeats the code: the AI SDK's schema demands it."""

    code: FailureCode
    message: str
    type: str = "server_error"


class IncompleteDetails(Struct, frozen=True):
    reason: IncompleteReason


class InputTokensDetails(Struct, frozen=True):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, frozen=True):
    reasoning_tokens: int = 0


class Usage(Struct, frozen=True, kw_only=True):
    """Counted from token ids, never estimated: `input_tokens` + `output_tokens` = `total_tokens`."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


def usage(prompt: int, output: int, *, cached: int = 0, cache_write: int = 0, reasoning: int = 0) -> Usage:
    """The usage object from counted tokens."""
    return Usage(
        input_tokens=prompt,
        input_tokens_details=InputTokensDetails(cached, cache_write),
        output_tokens=output,
        output_tokens_details=OutputTokensDetails(reasoning),
        total_tokens=prompt + output,
    )


class Response(Struct, frozen=True, kw_only=True):
    """The fields from `instructions` on echo the request; those before say what has become of it."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus = "in_progress"
    background: bool = False
    error: Failure | None = None
    incomplete_details: IncompleteDetails | None = None
    output: tuple[Item, ...] = ()
    usage: Usage | None = None
    model: str
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    conversation: Any | UnsetType = UNSET
    prompt_cache_key: str | None = None
    reasoning: Any = None
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = False
    temperature: float = 1.0
    text: Any
    tool_choice: Any = "auto"
    tools: Any = ()
    top_logprobs: int = 0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    truncation: str = "disabled"
    user: str | None = None
