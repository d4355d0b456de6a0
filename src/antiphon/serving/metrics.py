"""The figures of one server: what became of its requests, what the engine's steps cost.

Rules
* Each figure has one writer: the event loop for requests, the engine's thread for steps. Who reads takes what is there.
* Nothing is done for a token that can be done for a step, and text is made only when it is asked for (`exposition`).
* A label is a word of ours or a status: never what a client sent.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from antiphon.engine.observe import StepReport

Outcome = Literal["completed", "incomplete", "failed", "cancelled"]
"""What became of a request that was not refused."""

OUTCOMES: tuple[Outcome, ...] = ("completed", "incomplete", "failed", "cancelled")

Phase = Literal["prefill", "decode"]
"""What a step computed: prompts, next tokens, or both."""

PHASES: tuple[Phase, ...] = ("prefill", "decode")

SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
)
"""Bounds of every histogram: a GPU's step takes 1 ms and more, a long prompt on a CPU takes minutes."""

NO_STEP = StepReport(
    seconds=0,
    native_seconds=0,
    decoding=0,
    prefilled=0,
    threads=0,
    running=0,
    waiting=0,
    cells_used=0,
    cells_total=0,
    prompt_tokens=0,
    cached_tokens=0,
    preempted=0,
    restored=0,
    ram_bytes=0,
    disk_bytes=0,
)


class Histogram:
    """Values counted by buckets. `counts` has one more entry than `bounds`: what is above all of them.

    The one of prometheus-client counts one value at a time and takes locks; this one takes the tokens of a step at once
    (`times`), and its one writer needs no lock.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts `value` so many times. A bound belongs to the bucket below it, as Prometheus has it."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)


class Metrics:
    """All figures of one server. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        # Written by the event loop.
        self.ended: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        self.refused: Counter[int] = Counter()  # by HTTP status
        self.malformed = {"text": 0, "arguments": 0}  # calls, by what could not be read and went out as it was
        self.open = 0  # responses that have begun and not ended
        self.peak_open = 0
        self.input_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self.first_token = Histogram()
        self.inter_token = Histogram()
        self.request = Histogram()
        # Written by the engine's thread.
        self.steps: dict[str, Histogram] = {phase: Histogram() for phase in PHASES}
        self.native_seconds = 0.0
        self.peak_running = 0
        self.report = NO_STEP  # the latest

    def observe_step(self, report: StepReport) -> None:
        """An `engine.observe.Observe`: keeps the report, adds up what it says of its step alone."""
        if report.decoding or report.prefilled:
            self.steps[_phase(report)].observe(report.seconds)
        self.native_seconds += report.native_seconds
        # A sequence that ended with the step does not run any more, but it did.
        running = max(report.running, report.decoding)
        if running > self.peak_running:
            self.peak_running = running
        self.report = report

    def refuse(self, status: int) -> None:
        """A request was refused before its answer began."""
        self.refused[status] += 1

    def opened(self) -> None:
        """A response has begun."""
        self.open += 1
        self.peak_open = max(self.peak_open, self.open)

    def closed(self) -> None:
        """A response that had begun has ended."""
        self.open -= 1

    @property
    def running(self) -> int:
        """Sequences that the engine runs. Between two reports, no more than there are responses."""
        return min(self.report.running, self.open)

    @property
    def waiting(self) -> int:
        """Requests in the engine's queue."""
        return min(self.report.waiting, self.open - self.running)

    @property
    def hit_ratio(self) -> float:
        """The part of all admitted prompt tokens that was not computed anew, 0 to 1."""
        return _ratio(self.report.cached_tokens, self.report.prompt_tokens)

    def summary(self) -> str:
        """The figures in one line, for the log."""
        refused = sum(self.refused.values())
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in self.ended.items())
        hits = _ratio(self.cached_tokens, self.input_tokens)
        return (
            f"served {sum(self.ended.values())} requests ({outcomes}), refused {refused}; "
            f"tokens: {self.input_tokens} in, {self.cached_tokens} of them cached (hit ratio {hits:.2f}), "
            f"{self.output_tokens} out; mean time to first token {_mean([self.first_token])}, "
            f"mean step {_mean(list(self.steps.values()))}; "
            f"at most {self.peak_open} open and {self.peak_running} computed at once"
        )


def _phase(report: StepReport) -> Phase:
    return "prefill" if report.prefilled else "decode"


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _mean(histograms: Sequence[Histogram]) -> str:
    count = sum(histogram.count for histogram in histograms)
    return f"{sum(histogram.sum for histogram in histograms) / count:.3f} s" if count else "-"
