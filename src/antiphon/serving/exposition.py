"""`Metrics` for Prometheus: every name, unit and help text, in one place. `docs/operating.md` lists the same names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from antiphon.serving.metrics import Histogram, Metrics


class _Figure(NamedTuple):
    """One number. A counter's name gets `_total`; `unit` is the end of the name, for OpenMetrics."""

    name: str
    unit: str
    help: str
    read: Callable[[Metrics], float]


class _Labelled(NamedTuple):
    """A counter for each value of a label."""

    name: str
    label: str
    help: str
    read: Callable[[Metrics], Mapping[str, float]]


class _Spread(NamedTuple):
    """A histogram in seconds for each value of a label; without a label there is one, named ""."""

    name: str
    label: str
    help: str
    read: Callable[[Metrics], Mapping[str, Histogram]]


_LABELLED = (
    _Labelled(
        "antiphon_requests",
        "outcome",
        "Requests for a response by what became of them.",
        lambda m: {**m.ended, "refused": sum(m.refused.values())},
    ),
    _Labelled(
        "antiphon_refused_requests",
        "status",
        "Requests that were refused before an answer began, by HTTP status; 401 counts those of every route.",
        lambda m: {str(status): count for status, count in m.refused.items()},
    ),
    _Labelled(
        "antiphon_malformed_calls",
        "read",
        "Calls that could not be read: as calls, and are text; or their arguments, which went out as written.",
        lambda m: m.malformed,
    ),
)

_COUNTERS = (
    _Figure("antiphon_input_tokens", "tokens", "Prompt tokens of answers that ended.", lambda m: m.input_tokens),
    _Figure(
        "antiphon_cached_tokens",
        "tokens",
        "Prompt tokens of answers that ended, if not computed anew.",
        lambda m: m.cached_tokens,
    ),
    _Figure("antiphon_output_tokens", "tokens", "Tokens of answers, as they are written.", lambda m: m.output_tokens),
    _Figure(
        "antiphon_engine_prompt_tokens",
        "tokens",
        "Prompt tokens of sequences that were admitted, each once.",
        lambda m: m.report.prompt_tokens,
    ),
    _Figure(
        "antiphon_engine_cached_tokens",
        "tokens",
        "Prompt tokens of admitted sequences, if not computed anew.",
        lambda m: m.report.cached_tokens,
    ),
    _Figure(
        "antiphon_engine_restored_tokens",
        "tokens",
        "Computed tokens that came back from memory or disk.",
        lambda m: m.report.restored,
    ),
    _Figure(
        "antiphon_engine_preemptions",
        "",
        "Running sequences that had to give up their cells.",
        lambda m: m.report.preempted,
    ),
    _Figure("antiphon_engine_native_seconds", "seconds", "Time of steps in machine code.", lambda m: m.native_seconds),
)

_GAUGES = (
    _Figure("antiphon_open_responses", "", "Responses that have begun and not ended.", lambda m: m.open),
    _Figure("antiphon_waiting_requests", "", "Requests in the engine's queue.", lambda m: m.waiting),
    _Figure("antiphon_running_requests", "", "Sequences that are computed.", lambda m: m.running),
    _Figure("antiphon_engine_threads", "", "Threads of the latest step.", lambda m: m.report.threads),
    _Figure("antiphon_cells", "", "Cells of the KV cache.", lambda m: m.report.cells_total),
    _Figure(
        "antiphon_used_cells", "", "Cells of the KV cache in use, shared ones once.", lambda m: m.report.cells_used
    ),
    _Figure(
        "antiphon_prefix_hit_ratio",
        "ratio",
        "Part of all admitted prompt tokens that was not computed anew.",
        lambda m: m.hit_ratio,
    ),
    _Figure(
        "antiphon_prefix_ram_bytes", "bytes", "Prefixes in memory outside of the cache.", lambda m: m.report.ram_bytes
    ),
    _Figure("antiphon_prefix_disk_bytes", "bytes", "Prefixes in files.", lambda m: m.report.disk_bytes),
)

_SPREADS = (
    _Spread(
        "antiphon_step_duration_seconds", "phase", "Time of an engine's step by what it computed.", lambda m: m.steps
    ),
    _Spread(
        "antiphon_time_to_first_token_seconds",
        "",
        "Time from a request's head to its first token.",
        lambda m: {"": m.first_token},
    ),
    _Spread(
        "antiphon_inter_token_seconds",
        "",
        "Time between tokens of an answer; tokens that came together share it.",
        lambda m: {"": m.inter_token},
    ),
    _Spread(
        "antiphon_request_duration_seconds",
        "",
        "Time from a request's head to the end of its answer.",
        lambda m: {"": m.request},
    ),
)


def registry_of(metrics: Metrics) -> CollectorRegistry:
    """A registry that holds these figures and nothing else."""
    registry = CollectorRegistry()
    registry.register(_Collector(metrics))
    return registry


class _Collector:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """A snapshot, family by family. Called by the registry for each scrape."""
        for labelled in _LABELLED:
            family = CounterMetricFamily(labelled.name, labelled.help, labels=[labelled.label])
            for value, count in labelled.read(self._metrics).items():
                family.add_metric([value], count)
            yield family
        for figure in _COUNTERS:
            yield CounterMetricFamily(figure.name, figure.help, figure.read(self._metrics), unit=figure.unit)
        for figure in _GAUGES:
            yield GaugeMetricFamily(figure.name, figure.help, figure.read(self._metrics), unit=figure.unit)
        for spread in _SPREADS:
            yield self._histograms(spread)

    def _histograms(self, spread: _Spread) -> Metric:
        labels = [spread.label] if spread.label else []
        family = HistogramMetricFamily(spread.name, spread.help, labels=labels, unit="seconds")
        for value, histogram in spread.read(self._metrics).items():
            family.add_metric([value] if spread.label else [], _buckets(histogram), histogram.sum)
        return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """How many values are at most so large, for each bound: Prometheus's buckets hold those below them too."""
    names = [*map(str, histogram.bounds), "+Inf"]
    return list(zip(names, accumulate(histogram.counts), strict=True))
