"""The ASGI application: routes to endpoints, and the gate before them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from antiphon import __version__
from antiphon.api.errors import json_response, on_departure, on_fault, on_http_exception, on_refusal
from antiphon.api.gate import Gate
from antiphon.api.responses import ResponsesEndpoint
from antiphon.api.settings import ApiSettings
from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.ids import IdSource, random_id
from antiphon.serving.exposition import registry_of
from antiphon.serving.metrics import Metrics
from antiphon.serving.service import Service

OPEN_METRICS = "application/openmetrics-text"

Endpoint = Callable[[Request], Awaitable[ASGIApp]]


class _Handler:
    """An endpoint as an ASGI application. (Starlette wraps functions only, and counts on their `Response` class.)"""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._endpoint(Request(scope, receive, send))
        await answer(scope, receive, send)


def routes(service: Service, settings: ApiSettings) -> list[Route]:
    """Every path that is served."""
    responses = ResponsesEndpoint(service, settings)
    models = _Models(service)
    return [
        Route("/", _Handler(_root), methods=["GET"]),
        Route("/health", _Handler(_Health(service)), methods=["GET"]),
        Route("/metrics", _Handler(_Metrics(service.metrics)), methods=["GET"]),
        Route("/v1/models", _Handler(models.list), methods=["GET"]),
        Route("/v1/models/{name:path}", _Handler(models.get), methods=["GET"]),
        Route("/v1/responses", _Handler(responses.create), methods=["POST"]),
        Route("/v1/responses", _Handler(responses.upgrade), methods=["GET"]),
    ]


def create_app(service: Service, settings: ApiSettings, *, new_id: IdSource = random_id) -> ASGIApp:
    """The application of a service."""
    app = Starlette(
        routes=routes(service, settings),
        exception_handlers={
            RequestRefused: on_refusal,
            HTTPException: on_http_exception,
            ClientDisconnect: on_departure,
            Exception: on_fault,
        },
    )
    app.router.redirect_slashes = False  # A redirect would repeat whatever host the client named.
    return Gate(app, keys=settings.api_keys, new_id=new_id, refused=service.metrics.refuse)


async def _root(request: Request) -> Response:
    return json_response({"name": "antiphon", "version": __version__})


class _Health:
    """200 when requests are served; 503 with the progress while the model loads."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, request: Request) -> Response:
        progress = self._service.progress
        ready = self._service.ready
        state = {"stage": progress.stage, "progress": progress.fraction}
        if ready:
            return json_response({"status": "ok", **state})
        refused = self._service.unavailable()
        body = {"status": "unavailable", **state, **refused.body()}
        return json_response(body, status=503, headers={"retry-after": str(refused.retry_after)})


class _Metrics:
    """The figures for Prometheus: its text format, or OpenMetrics for who prefers it. There from the start on."""

    def __init__(self, metrics: Metrics) -> None:
        self._registry = registry_of(metrics)

    async def __call__(self, request: Request) -> Response:
        kinds = [kind.partition(";")[0].strip() for kind in request.headers.get("accept", "").lower().split(",")]
        # Without the client's version: the library falls over one that is no number, and promises any that is one.
        encode, content_type = choose_encoder(OPEN_METRICS if OPEN_METRICS in kinds else "")
        return Response(encode(self._registry), media_type=content_type)


class _Models:
    """The models that are served, in OpenAI's form."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def list(self, request: Request) -> Response:
        data = [self._entry(name) for name in self._service.model_names()]
        # Codex asks with `?client_version=` and reads `models`: it wants a list, and takes an empty one.
        return json_response({"object": "list", "data": data, "models": []})

    async def get(self, request: Request) -> Response:
        name = request.path_params["name"]
        self._service.model_named(name)
        return json_response(self._entry(name))

    def _entry(self, name: str) -> dict[str, object]:
        created = self._service.model.created_at
        return {"id": name, "object": "model", "created": created, "owned_by": "antiphon"}
