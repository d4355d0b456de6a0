"""The use-cases: a request becomes a run, the models are listed, the state of loading is told."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from opentelemetry.trace import TracerProvider

from antiphon.engine.base import Engine, EngineBusy, EngineFailure, Generation, StepStream
from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.ids import RESPONSE, IdSource, random_id
from antiphon.protocol.request import ENCRYPTED_REASONING, CreateResponse
from antiphon.protocol.stream import ResponseStream
from antiphon.serving.echo import first_response, wants_summary
from antiphon.serving.generation import output_reader, sampling_of
from antiphon.serving.metrics import Metrics
from antiphon.serving.model import ServedModel
from antiphon.serving.prepare import Prepared, is_quick, prepare
from antiphon.serving.prompt import applied_effort
from antiphon.serving.prompt_log import PromptLog
from antiphon.serving.prompt_threads import PromptThreads
from antiphon.serving.record import RequestRecord
from antiphon.serving.run import Run
from antiphon.serving.sealed import KEY_BYTES, Sealer, opened
from antiphon.serving.spans import start_span, tracer_of
from antiphon.serving.support import check_support
from antiphon.serving.toolbox import Toolbox

log = logging.getLogger(__name__)


class LoadProgress(Struct, frozen=True):
    """How far loading is: what is being done, and the part of it that is done, 0 to 1."""

    stage: str
    fraction: float = 0.0


class Options(Struct, frozen=True, kw_only=True):
    """What the operator chose about serving. `name` and `dialect` overrule what the engine says of its model."""

    name: str | None = None
    dialect: str | None = None
    strict_tools: bool = False
    reasoning_events: Literal["openai", "open-responses"] = "openai"
    names: tuple[str, ...] = ()  # further names that the model answers to
    prefix_scope: Literal["owner", "server"] = "owner"  # who shares computed prompts
    log_prompts: Path | None = None  # every rendered prompt is appended here, a JSON line each


MAX_WARNINGS = 16
"""Warnings in a header: proxies cut or refuse headers above some kilobytes."""

_TYPE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Report = Callable[[LoadProgress], None]
Loader = Callable[[Report], Awaitable[Engine]]
"""Fetches and loads a model; may report from any thread."""


class Service:
    """All of one server. `clock` gives Unix time in seconds, `now` the local time that templates may print.

    `tracing` makes the spans of requests; without it the process's own provider does, if it has one. `sealer` seals
    reasoning that clients carry; without it, with a key that lives as long as the service.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        new_id: IdSource = random_id,
        clock: Callable[[], float] = time.time,
        now: Callable[[], datetime] = datetime.now,
        metrics: Metrics | None = None,
        tracing: TracerProvider | None = None,
        sealer: Sealer | None = None,
    ) -> None:
        self._options = options or Options()
        self._sealer = sealer or Sealer(os.urandom(KEY_BYTES))
        self._new_id = new_id
        self._clock = clock
        self._now = now
        self.metrics = metrics or Metrics()
        self._tracer = tracer_of(tracing)
        self._model: ServedModel | None = None
        self._draining = False
        path = self._options.log_prompts
        self._prompt_log = PromptLog(path) if path else None
        self._prompts = PromptThreads[Prepared](self.unavailable)
        self.progress = LoadProgress("starting")

    async def load(self, loader: Loader) -> None:
        """Loads the model; until then every request is refused with 503. Raises what the loader raises,
        `EngineFailure` for an unknown dialect, `TemplateError` for a chat template that cannot be used.
        """
        engine = await loader(self._report)
        try:
            self._model = ServedModel(
                engine,
                name=self._options.name,
                dialect=self._options.dialect,
                now=self._now,
                created_at=int(self._clock()),
            )
        except Exception:
            await engine.aclose()
            raise
        self.progress = LoadProgress("ready", 1.0)

    def _report(self, progress: LoadProgress) -> None:
        self.progress = progress

    @property
    def ready(self) -> bool:
        return self._model is not None and not self._draining and self._model.engine.alive

    @property
    def model(self) -> ServedModel:
        """The loaded model. Raises `RequestRefused` (503) while loading or draining."""
        if self._model is None or self._draining:
            raise self.unavailable()
        return self._model

    def unavailable(self) -> RequestRefused:
        """What a client is told while nothing is served."""
        if self._draining:
            message = "The server is shutting down."
        elif self._model is None:
            message = "The model is still loading."
        else:
            message = "The engine has failed; the server must be started again."
        return RequestRefused(message, code="server_unavailable", status=503, kind="server_error", retry_after=2)

    def drain(self) -> None:
        """Takes no more requests."""
        self._draining = True

    async def close(self) -> None:
        """Ends what is running (each response ends as failed) and frees the model. Idempotent.

        Prompts that are being made are given up, at the latest when llama.cpp has read the part it is reading.
        """
        self.drain()
        await self._prompts.close()
        if self._model is not None:
            await self._model.engine.aclose()
        if self._prompt_log is not None:
            self._prompt_log.close()

    def model_named(self, name: str | None) -> ServedModel:
        """The model of a request. Raises `RequestRefused` (404) for a name that is not served."""
        served = self.model_names()
        if name is not None and name not in served:
            message = f"The model {name!r} does not exist; this server serves {', '.join(served)}."
            raise RequestRefused(message, param="model", code="model_not_found", status=404)
        return self.model

    def model_names(self) -> Sequence[str]:
        """All names that are served, the model's own first."""
        return (self.model.name, *self._options.names)

    def record(self, headers: Mapping[str, str]) -> RequestRecord:
        """A request for a response has arrived: where its figures go. Its `traceparent` is in the headers."""
        return RequestRecord(self.metrics, start_span(self._tracer, headers))

    async def create(
        self,
        request: CreateResponse,
        *,
        request_id: str = "",
        owner: str = "",
        record: RequestRecord | None = None,
    ) -> Run:
        """Starts a response. Everything that can be refused is refused here, before the first byte.

        `request_id` is what a client is told if the answer fails later; the response's own id if there is none. What
        is computed for one `owner` is reused for that owner alone, unless the operator chose to share. The run ends the
        `record` that it is given; a refusal does not. Cancelled, it leaves nothing running but what `close` waits for.

        Raises `RequestRefused`: what is not served, a prompt that does not fit, a full queue (429), an engine that is
        gone (503).
        """
        check_support(request, strict_tools=self._options.strict_tools)
        model = self.model_named(request.fields.model)
        request = opened(request, self._sealer)
        toolbox = Toolbox(request)
        sampling = sampling_of(request, model)
        prepared = await self._prepared(model, request, toolbox)
        prompt = prepared.prompt
        response_id = self._new_id(RESPONSE)
        record = record or self.record({})
        record.accepted(request, response_id=response_id, model=model.name)
        reader = output_reader(model, prompt, request, toolbox)
        stream = self._stream(request, response_id, model)
        if self._prompt_log is not None:
            self._prompt_log.write(response_id, prompt)
        steps = _submit(
            model,
            Generation(
                id=response_id,
                prompt=prompt.tokens,
                max_tokens=request.fields.max_output_tokens,
                sampling=replace(sampling, constraint=prepared.constraint),
                owner=owner if self._options.prefix_scope == "owner" else "",
            ),
        )
        return Run(
            request_id=request_id or response_id,
            stream=stream,
            reader=reader,
            steps=steps,
            prompt_tokens=len(prompt.tokens),
            record=record,
            warnings=_warnings(toolbox, response_id),
        )

    async def _prepared(self, model: ServedModel, request: CreateResponse, toolbox: Toolbox) -> Prepared:
        if is_quick(request):
            return prepare(model, request, toolbox)
        return await self._prompts.make(request.size, partial(prepare, model, request, toolbox))

    def _stream(self, request: CreateResponse, response_id: str, model: ServedModel) -> ResponseStream:
        created_at = int(self._clock())
        return ResponseStream(
            first_response(
                request,
                response_id=response_id,
                model=model.name,
                created_at=created_at,
                effort=applied_effort(model, request),
            ),
            new_id=self._new_id,
            clock=self._clock,
            summary=wants_summary(request) is not None,
            reasoning_events=self._options.reasoning_events,
            seal=self._sealer.seal if ENCRYPTED_REASONING in request.include else None,
        )


def _submit(model: ServedModel, generation: Generation) -> StepStream:
    try:
        return model.engine.submit(generation)
    except EngineBusy as busy:
        raise RequestRefused(
            "Too many requests are waiting.",
            code="rate_limit_exceeded",
            status=429,
            kind="rate_limit_error",
            retry_after=busy.retry_after,
        ) from None
    except EngineFailure as failure:
        log.error("the engine takes no requests: %s", failure)
        message = "The model is not available."
        raise RequestRefused(message, code="server_error", status=503, kind="server_error", retry_after=5) from None


def _warnings(toolbox: Toolbox, response_id: str) -> tuple[str, ...]:
    """What was left out of the prompt, by name. A name goes into a header and the log, so only a harmless one does."""
    hosted = {tool.type for tool in toolbox.hosted}
    names = sorted({name if _TYPE_NAME.fullmatch(name) else "of an unknown type" for name in hosted})[:MAX_WARNINGS]
    warnings = tuple(f"the tool {name} is not run by this server and was left out" for name in names)
    for warning in warnings:
        log.warning("%s: %s", response_id, warning)
    return warnings
