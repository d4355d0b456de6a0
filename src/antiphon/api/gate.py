"""What every request passes: its id, and the key, which also says whose it is.

Pure ASGI, so that a stream goes through it without a second task or a copy.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.api.errors import refusal_response
from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.ids import IdSource

PUBLIC = frozenset({"/health"})
"""Paths for probes, which have no key."""

MAX_REQUEST_ID = 128
"""Characters of a client's own request id that are echoed: a UUID has 36."""


class Gate:
    """Adds `x-request-id` to every answer and lets through only who has one of the keys; without keys, everybody.

    `refused` is told the status of each refusal, for the metrics.
    """

    def __init__(self, app: ASGIApp, *, keys: Sequence[str], new_id: IdSource, refused: Callable[[int], None]) -> None:
        self._app = app
        self._keys = [(key.encode(), owner_of(key)) for key in keys]
        self._new_id = new_id
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = _own_id(headers.get(b"x-request-id")) or self._new_id("req_").encode()
        owner = self._owner(headers)
        scope.setdefault("state", {}).update(request_id=request_id.decode(), owner=owner or "")

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        if scope["path"] in PUBLIC or owner is not None:
            await self._app(scope, receive, send_with_id)
        else:
            await self._refuse(scope, receive, send_with_id)

    def _owner(self, headers: dict[bytes, bytes]) -> str | None:
        """Whose key is shown; "" for everybody if there are no keys; None for nobody's."""
        if not self._keys:
            return ""
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        given = token.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        # Every key is compared, in constant time: how long it takes tells nothing about them.
        shown = [owner for key, owner in self._keys if hmac.compare_digest(given, key)]
        return shown[0] if shown else None

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = RequestRefused(
            "The API key is missing or wrong.", code="invalid_api_key", status=401, kind="authentication_error"
        )
        self._refused(refused.status)
        answer = refusal_response(refused)
        answer.headers["www-authenticate"] = "Bearer"
        await answer(scope, receive, send)


def owner_of(key: str) -> str:
    """A key's name inside the server, the same after a restart. It tells keys apart; a key cannot be read from it."""
    return hashlib.blake2b(key.encode(), digest_size=8, person=b"antiphon owner").hexdigest()


def _own_id(value: bytes | None) -> bytes | None:
    """A client's id, if it is short and printable."""
    if value and len(value) <= MAX_REQUEST_ID and all(0x20 < byte < 0x7F for byte in value):
        return value
    return None
