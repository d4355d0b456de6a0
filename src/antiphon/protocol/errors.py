"""The two ways in which something can be wrong: theirs (`RequestRefused`) and ours (`ProtocolViolation`).

Anything else that escapes this package is a bug.
"""

from __future__ import annotations

from typing import Any

MAX_MESSAGE = 1000
"""Characters of a refusal. Ours are short; some quote the request, which may be as large as a body."""


class RequestRefused(Exception):
    """A request that is not served, in the words that the client gets.

    `status` is the HTTP status, `param` the path of the fault such as `tools[0].name`, `code` a word for programs.
    `retry_after` (seconds) is set with every 429 and 503.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = "invalid_value",
        status: int = 400,
        kind: str = "invalid_request_error",
        retry_after: int | None = None,
    ) -> None:
        if len(message) > MAX_MESSAGE:
            message = message[:MAX_MESSAGE] + "..."
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status
        self.kind = kind
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The error object of every route: all four keys, always."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}


def unsupported(param: str, what: str) -> RequestRefused:
    """A valid field that this server does not serve: refused by name, never dropped in silence."""
    return RequestRefused(f"{what} is not supported by this server.", param=param, code="unsupported_value")


class ProtocolViolation(Exception):
    """Our own code fed a `ResponseStream` something that its state does not allow. The state is as it was before."""

    def __init__(self, state: str, what: str) -> None:
        super().__init__(f"{what} is not allowed in state {state}")
        self.state = state
        self.what = what
