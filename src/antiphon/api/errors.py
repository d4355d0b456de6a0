"""One error shape on every route: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import logging
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from antiphon.protocol.errors import RequestRefused

log = logging.getLogger(__name__)


def json_response(data: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(data), status, headers, media_type="application/json")


def refusal_response(refused: RequestRefused) -> Response:
    """A refusal's answer. 429 and 503 always say when to come back: Codex retries a 429 only then."""
    headers = {}
    if refused.retry_after is not None:
        headers["retry-after"] = str(refused.retry_after)
    if refused.status == 413:
        headers["connection"] = "close"  # The rest of the body is not read.
    return json_response(refused.body(), status=refused.status, headers=headers)


async def on_refusal(request: Request, error: Exception) -> Response:
    """Starlette's handler for `RequestRefused`."""
    assert isinstance(error, RequestRefused)
    return refusal_response(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own refusals: unknown routes and methods."""
    assert isinstance(error, HTTPException)
    words = HTTPStatus(error.status_code).phrase
    code = words.lower().replace(" ", "_")
    message = f"{words}: {request.method} {request.url.path[:200]}"
    refused = RequestRefused(message, code=code, status=error.status_code)
    answer = refusal_response(refused)
    answer.headers.update(error.headers or {})
    return answer


async def on_departure(request: Request, error: Exception) -> Response:
    """The client left while it sent its body: nobody reads the answer, and no fault is logged."""
    return refusal_response(RequestRefused("The request was cut off.", code="invalid_body"))


async def on_fault(request: Request, error: Exception) -> Response:
    """Anything else is a fault of ours: logged, told in general words."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    request_id = request.scope.get("state", {}).get("request_id", "unknown")
    message = f"The server failed to handle the request ({request_id})."
    refused = RequestRefused(message, code="server_error", status=500, kind="server_error")
    return refusal_response(refused)
