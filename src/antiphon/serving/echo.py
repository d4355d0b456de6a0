"""The response object before the first token: what the request set, as it was applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.protocol.request import LOGPROBS, CreateResponse
from antiphon.protocol.response import Response
from antiphon.protocol.tools import CustomTool, FunctionTool, Grammar, HostedTool, Namespace, Tool


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
        tools=_tools(request.tools),
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
    text: dict[str, Any] = {"format": msgspec.to_builtins(request.format)}
    if request.fields.text is not None and request.fields.text.verbosity is not None:
        text["verbosity"] = request.fields.text.verbosity
    return text


def _tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The tools as the client declared them, without those that were left out of the prompt."""
    return [_tool(tool) for tool in tools if not isinstance(tool, HostedTool)]


def _tool(tool: FunctionTool | CustomTool | Namespace) -> dict[str, Any]:
    named = {"name": tool.name, "description": tool.description}
    if isinstance(tool, Namespace):
        return {"type": "namespace", **named, "tools": _tools(tool.tools)}
    if isinstance(tool, CustomTool):
        return {"type": "custom", **named, "format": _format(tool.format)}
    return {"type": "function", **named, "parameters": tool.parameters, "strict": bool(tool.strict)}


def _format(format: Grammar | None) -> dict[str, Any]:
    if format is None or format.type == "text":
        return {"type": "text"}
    return {"type": "grammar", "syntax": format.syntax, "definition": format.definition}
