"""A span for each request, in OpenTelemetry's words.

Attribute names: the conventions for generative AI (github.com/open-telemetry/semantic-conventions-genai,
docs/gen-ai/client-inference.md) as of November 2026. They describe the client's span; ours is the server's half of it.
`antiphon.outcome` is our own.

No attribute holds what was asked or answered: prompts, answers, tools and stop strings stay out. A model's name is one
that is served.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from antiphon import __version__
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Usage
from antiphon.serving.metrics import Outcome

_W3C = TraceContextTextMapPropagator()
_START: Mapping[str, AttributeValue] = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "antiphon"}
_FINISH = {"completed": "stop", "incomplete": "length"}  # "error" for whatever did not come to its end


def tracer_of(provider: TracerProvider | None) -> Tracer:
    """A tracer; without a provider that of the process, which does nothing as long as nobody has installed an SDK."""
    return trace.get_tracer("antiphon", __version__, provider)


def start_span(tracer: Tracer, headers: Mapping[str, str]) -> Span:
    """The span of a request that arrives, a child of the one that its `traceparent` names."""
    return tracer.start_span("chat", _W3C.extract(headers), SpanKind.SERVER, _START)


def describe(span: Span, request: CreateResponse, *, response_id: str, model: str) -> None:
    """What was asked for, once it is known to be served by `model`."""
    if not span.is_recording():
        return
    fields = request.fields
    name = fields.model or model
    asked: dict[str, AttributeValue | None] = {
        "gen_ai.request.model": name,
        "gen_ai.request.stream": request.stream or None,
        "gen_ai.request.max_tokens": fields.max_output_tokens,
        "gen_ai.request.temperature": fields.temperature,
        "gen_ai.request.top_p": fields.top_p,
        "gen_ai.request.top_k": fields.top_k,
        "gen_ai.request.presence_penalty": fields.presence_penalty,
        "gen_ai.request.frequency_penalty": fields.frequency_penalty,
        "gen_ai.request.seed": fields.seed,
        "gen_ai.request.reasoning.level": fields.reasoning.effort if fields.reasoning else None,
        "gen_ai.response.id": response_id,
        "gen_ai.response.model": model,
    }
    span.update_name(f"chat {name}")
    span.set_attributes({key: value for key, value in asked.items() if value is not None})


def end_span(span: Span, outcome: Outcome, usage: Usage | None, first_token: float | None) -> None:
    """Ends the span of a request that was not refused. `first_token`: seconds to it, for a stream that came so far."""
    if span.is_recording():
        span.set_attribute("antiphon.outcome", outcome)
        span.set_attribute("gen_ai.response.finish_reasons", [_FINISH.get(outcome, "error")])
        if usage is not None:
            span.set_attributes(_counted(usage))
        if first_token is not None:
            span.set_attribute("gen_ai.response.time_to_first_chunk", first_token)
        if outcome == "failed":
            _fail(span, "server_error")
    span.end()


def refuse_span(span: Span, status: int) -> None:
    """Ends the span of a request that was refused. What a client did wrong is no error of a server's span (HTTP
    conventions); 5xx is.
    """
    if span.is_recording():
        span.set_attributes({"antiphon.outcome": "refused", "http.response.status_code": status})
        if status >= 500:
            _fail(span, str(status))
    span.end()


def _counted(usage: Usage) -> dict[str, AttributeValue]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.input_tokens_details.cached_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.output_tokens_details.reasoning_tokens,
    }


def _fail(span: Span, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR))
