"""What metrics and its span learn of one request.

Rules
* It ends once: by what keeps its run from beginning, or by its run.
* Times are taken when tokens are handed on, once for all that are handed on together.
"""

from __future__ import annotations

from opentelemetry.trace import Span

from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Usage
from antiphon.serving.metrics import Metrics, Outcome
from antiphon.serving.spans import describe, end_span, refuse_span


class RequestRecord:
    """Made when a request arrives; owns its span."""

    __slots__ = ("_first", "_last", "_metrics", "_open", "_output_tokens", "_span", "_started", "_stream")

    def __init__(self, metrics: Metrics, span: Span) -> None:
        self._metrics = metrics
        self._span = span
        self._started = metrics.clock()
        self._first: float | None = None  # when the first token was handed on
        self._last = 0.0  # when the latest was
        self._output_tokens = 0
        self._stream = False
        self._open = False

    def accepted(self, request: CreateResponse, *, response_id: str, model: str) -> None:
        """The request is served, by the model of this name."""
        self._stream = request.stream
        describe(self._span, request, response_id=response_id, model=model)

    def opened(self) -> None:
        """The response has begun."""
        self._open = True
        self._metrics.opened()

    def delivered(self, output_tokens: int) -> None:
        """The answer has so many tokens by now, and those that are new are being handed on."""
        new = output_tokens - self._output_tokens
        if not new:
            return
        metrics, now = self._metrics, self._metrics.clock()
        if self._first is None:
            self._first = now
            metrics.first_token.observe(now - self._started)
            if new > 1:  # the others came with the first
                metrics.inter_token.observe(0.0, new - 1)
        else:
            metrics.inter_token.observe((now - self._last) / new, new)
        self._last = now
        self._output_tokens = output_tokens
        metrics.output_tokens += new

    def calls_read(self, *, as_text: int, unreadable: int) -> None:
        """So many calls could not be read as such, or not their arguments."""
        self._metrics.malformed["text"] += as_text
        self._metrics.malformed["arguments"] += unreadable

    def ended(self, outcome: Outcome, usage: Usage | None = None) -> None:
        """The request came to this."""
        metrics = self._metrics
        metrics.ended[outcome] += 1
        metrics.request.observe(metrics.clock() - self._started)
        if self._open:
            metrics.closed()
        if usage is not None:
            metrics.input_tokens += usage.input_tokens
            metrics.cached_tokens += usage.input_tokens_details.cached_tokens
        first = self._first - self._started if self._stream and self._first is not None else None
        end_span(self._span, outcome, usage, first)

    def refused(self, status: int) -> None:
        """The request was answered with this status, and nothing else."""
        self._metrics.refuse(status)
        refuse_span(self._span, status)
