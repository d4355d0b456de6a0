"""The response object before the first token: what the request set, as it was applied."""

from __future__ import annotations

from typing import Any

from antiphon.protocol.request import LOGPROBS, CreateResponse
from antiphon.protocol.response import Response
from antiphon.protocol.tools import FunctionTool


def first_response(
    request: CreateResponse, *, response_id: str, model: str, created_at: int, effort: str | None = None
) -> Response:
    """The object of `response.created`; every later state is a change of it. `effort` is the one that was applied."""
    fields = request.fields
    return Response(
        id=response_id,
        created_at=created_at,
        model=model,
        instructions=fields.instructions,
        max_output_tokens=fields.max_output_tokens,
        max_tool_calls=fields.max_tool_calls,
        metadata=fields.metadata or {},
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        prompt_cache_key=fields.prompt_cache_key,
        reasoning=_reasoning(request, effort),
        safety_identifier=fields.safety_identifier,
        temperature=1.0 if fields.temperature is None else fields.temperature,
        text=_text(request),
        tool_choice=request.tool_choice,
        tools=[_tool(tool) for tool in request.tools if isinstance(tool, FunctionTool)],
        top_logprobs=(fields.top_logprobs or 0) if LOGPROBS in request.include else 0,
        top_p=1.0 if fields.top_p is None else fields.top_p,
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        truncation=fields.truncation or "disabled",
        user=fields.user,
    )


def wants_summary(request: CreateResponse) -> str | None:
    """The summary that was asked for; `generate_summary` is the field's old name."""
    reasoning = request.fields.reasoning
    return (reasoning.summary or reasoning.generate_summary) if reasoning else None


def _reasoning(request: CreateResponse, effort: str | None) -> dict[str, Any] | None:
    return {"effort": effort, "summary": wants_summary(request)} if request.fields.reasoning else None


def _text(request: CreateResponse) -> dict[str, Any]:
    text: dict[str, Any] = {"format": {"type": "text"}}
    if request.fields.text is not None and request.fields.text.verbosity is not None:
        text["verbosity"] = request.fields.text.verbosity
    return text


def _tool(tool: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),
    }
