"""What the operator chose about HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct


class ApiSettings(Struct, frozen=True, kw_only=True):
    """`body_limit` in bytes, before and after decompression; `clock` is monotonic, in seconds."""

    api_keys: tuple[str, ...] = ()
    body_limit: int = 32 * 1024 * 1024
    keepalive_seconds: float = 15.0
    keepalive_events: bool = True
    shutdown_seconds: int = 10  # for clients to read the end of their answers; one that does not read is cut off
    request_seconds: float = 30.0  # for a request's head, and between two pieces of its body
    clock: Callable[[], float] = time.monotonic
