"""A span for each request: its names, its parent, its end; and nothing of what was said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from antiphon.engine.base import EngineFailure
from antiphon.serving.service import Service
from tests.engines import RefusingEngine
from tests.server import RunningServer, running_server, scripted_server

TURNS: list[dict[str, Any]] = [
    {"when": "boom", "steps": ["a", {"fail": "device lost"}]},
    {"when": "hang", "steps": ["a", {"hang": True}]},
    {"when": "think", "steps": ["<think>so", "</think>Yes"]},
    {"when": "silent", "steps": []},
    {"steps": ["Hello", " there"]},
]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Traced:
    """A server whose spans are kept."""

    def __init__(self, server: RunningServer, kept: InMemorySpanExporter) -> None:
        self.server = server
        self._kept = kept

    async def span(self) -> ReadableSpan:
        """The one span that ended since the last time; waits for it."""
        while not (spans := self._kept.get_finished_spans()):  # noqa: ASYNC110  # an exporter has no event for it
            await asyncio.sleep(0)
        self._kept.clear()
        (span,) = spans
        return span

    async def of(self, body: dict[str, Any], **kwargs: Any) -> ReadableSpan:
        await self.server.post(body, **kwargs)
        return await self.span()


def tracing() -> tuple[TracerProvider, InMemorySpanExporter]:
    """A provider of its own, not the process's."""
    kept, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return provider, kept


@pytest_asyncio.fixture
async def traced(tmp_path: Path) -> AsyncIterator[Traced]:
    provider, kept = tracing()
    async with scripted_server(tmp_path, TURNS, service=Service(tracing=provider)) as server:
        yield Traced(server, kept)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_span_says_what_was_asked_for_and_what_came_of_it(traced: Traced) -> None:
    asked = {"model": "scripted-1", "max_output_tokens": 50, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "seed": 7}
    answer = await traced.server.create({"input": "think", **asked, "presence_penalty": 1, "frequency_penalty": 0.5})
    span = await traced.span()
    assert (span.name, span.kind, span.parent) == ("chat scripted-1", SpanKind.SERVER, None)
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "antiphon",
        "gen_ai.request.model": "scripted-1",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 3,
        "gen_ai.request.seed": 7,
        "gen_ai.request.presence_penalty": 1,
        "gen_ai.request.frequency_penalty": 0.5,
        "gen_ai.response.id": answer["id"],
        "gen_ai.response.model": "scripted-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": answer["usage"]["input_tokens"],
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": answer["usage"]["output_tokens"],
        "gen_ai.usage.reasoning.output_tokens": 2,
        "antiphon.outcome": "completed",
    }


async def test_a_stream_tells_when_its_first_token_came(traced: Traced) -> None:
    told = attributes(await traced.of({"input": "Hi", "stream": True}))
    assert told["gen_ai.request.stream"] is True
    assert told["gen_ai.response.time_to_first_chunk"] > 0
    assert told["gen_ai.request.model"] == "scripted-1", "none was named: the one that is served"
    silent = attributes(await traced.of({"input": "silent", "stream": True}))
    assert "gen_ai.response.time_to_first_chunk" not in silent
    whole = attributes(await traced.of({"input": "Hi"}))
    assert "gen_ai.response.time_to_first_chunk" not in whole
    assert "gen_ai.request.stream" not in whole


async def test_the_caller_s_span_is_the_parent(traced: Traced) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
    span = await traced.of({"input": "Hi"}, headers=headers)
    assert span.parent is not None and span.context is not None
    assert trace.format_span_id(span.parent.span_id) == PARENT
    assert trace.format_trace_id(span.context.trace_id) == TRACE
    assert span.context.trace_state.get("vendor") == "1"
    assert span.parent.is_remote


async def test_what_the_caller_does_not_record_is_not_recorded(traced: Traced) -> None:
    await traced.server.post({"input": "Hi"}, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    assert attributes(await traced.of({"input": "Hi", "seed": 5}))["gen_ai.request.seed"] == 5


@pytest.mark.parametrize(
    "header",
    ["", "nonsense", f"00-{TRACE}-{PARENT}", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", "é" * 50],
)
async def test_a_parent_that_is_none_is_ignored(traced: Traced, header: str) -> None:
    span = await traced.of({"input": "Hi"}, headers=[(b"traceparent", header.encode())])
    assert span.parent is None
    assert attributes(span)["antiphon.outcome"] == "completed"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_end_of_each_kind(traced: Traced, stream: bool) -> None:
    cut = await traced.of({"input": "Hi", "stream": stream, "max_output_tokens": 3})
    assert attributes(cut)["gen_ai.response.finish_reasons"] == ("length",)
    assert (attributes(cut)["antiphon.outcome"], cut.status.status_code) == ("incomplete", StatusCode.UNSET)
    failed = await traced.of({"input": "boom", "stream": stream})
    assert attributes(failed)["gen_ai.response.finish_reasons"] == ("error",)
    assert attributes(failed)["error.type"] == "server_error"
    assert attributes(failed)["gen_ai.usage.output_tokens"] == 1
    assert failed.status.status_code is StatusCode.ERROR
    assert "device" not in failed.to_json()
    asking = asyncio.create_task(traced.server.post({"input": "hang", "stream": stream}))
    await traced.server.busy()
    asking.cancel()
    left = await traced.span()
    assert (attributes(left)["antiphon.outcome"], left.status.status_code) == ("cancelled", StatusCode.UNSET)


async def test_a_refusal_is_an_error_only_if_it_is_the_server_s(traced: Traced) -> None:
    refused = await traced.of({"input": "Hi", "model": "gpt-mine"})
    assert refused.name == "chat"
    assert attributes(refused) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "antiphon",
        "antiphon.outcome": "refused",
        "http.response.status_code": 404,
    }
    assert refused.status.status_code is StatusCode.UNSET
    provider, kept = tracing()
    engine = RefusingEngine(EngineFailure("gone"))
    async with running_server(engine.load, service=Service(tracing=provider)) as server:
        span = await Traced(server, kept).of({"input": "Hi"})
    assert span.status.status_code is StatusCode.ERROR
    assert (attributes(span)["http.response.status_code"], attributes(span)["error.type"]) == (503, "503")


async def test_nothing_that_was_said_is_in_a_span(traced: Traced) -> None:
    secret = "xyzzy"
    tool = {"type": "function", "name": secret, "description": secret, "parameters": {"type": "object"}}
    body = {
        "input": [{"role": "user", "content": secret}],
        "instructions": secret,
        "stop": [secret],
        "tools": [tool],
        "metadata": {secret: secret},
        "user": secret,
        "prompt_cache_key": secret,
        "safety_identifier": secret,
    }
    span = await traced.of(body)
    assert attributes(span)["antiphon.outcome"] == "completed"
    for words in (secret, "Hello", "there"):
        assert words not in span.to_json()


async def test_without_a_provider_nothing_is_recorded_and_nothing_breaks(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, TURNS) as server:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        for stream in (False, True):
            assert (await server.post({"input": "Hi", "stream": stream}, headers=headers)).status_code == 200
        assert (await server.post({}, headers=headers)).status_code == 400
