"""The figures: what a step and an answer add to them, how they are told to Prometheus and in the log's last line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from antiphon.engine.base import Finish, Step, StepStream
from antiphon.engine.observe import StepReport
from antiphon.protocol.request import parse_request
from antiphon.serving.exposition import registry_of
from antiphon.serving.metrics import NO_STEP, SECONDS, Histogram, Metrics
from antiphon.serving.service import Service
from tests.engines import GivenEngine
from tests.server import scripted_server


def report(**figures: Any) -> StepReport:
    """A step of which nothing but `figures` is told."""
    nothing = {name: getattr(NO_STEP, name) for name in NO_STEP.__struct_fields__}
    return StepReport(**{**nothing, **figures})


def told(metrics: Metrics, name: str, **labels: str) -> float:
    """A sample as Prometheus sees it."""
    value = registry_of(metrics).get_sample_value(name, labels)
    assert value is not None, name
    return value


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.1, 1000.0):
        histogram.observe(value)
    histogram.observe(1.25, 4)
    assert histogram.counts == [2, 6, 2]
    assert histogram.count == 10
    assert histogram.sum == 0.0 + 1.0 + 1.5 + 2.0 + 2.1 + 1000.0 + 4 * 1.25


def test_buckets_reach_from_a_millisecond_to_minutes_and_are_told_as_sums() -> None:
    metrics = Metrics()
    for value in (0.0005, 0.3, 0.3, 10_000.0):
        metrics.request.observe(value)
    name = "antiphon_request_duration_seconds"
    assert (SECONDS[0], SECONDS[-1]) == (0.001, 600.0)
    assert told(metrics, f"{name}_bucket", le="0.001") == 1
    assert told(metrics, f"{name}_bucket", le="0.25") == 1
    assert told(metrics, f"{name}_bucket", le="0.5") == 3
    assert told(metrics, f"{name}_bucket", le="600.0") == 3
    assert told(metrics, f"{name}_bucket", le="+Inf") == told(metrics, f"{name}_count") == 4
    assert told(metrics, f"{name}_sum") == pytest.approx(10_000.6005)


@pytest.mark.parametrize(
    ("figures", "phase"),
    [({"prefilled": 7}, "prefill"), ({"decoding": 2}, "decode")],
)
def test_a_step_counts_for_what_it_computed(figures: dict[str, int], phase: str) -> None:
    metrics = Metrics()
    metrics.observe_step(report(seconds=0.5, **figures))
    for name in ("prefill", "decode"):
        assert told(metrics, "antiphon_step_duration_seconds_count", phase=name) == (name == phase)
    assert told(metrics, "antiphon_step_duration_seconds_sum", phase=phase) == 0.5


def test_what_is_so_far_is_told_as_it_is_and_what_is_of_a_step_is_added_up() -> None:
    metrics = Metrics()
    so_far = {"prompt_tokens": 100, "cached_tokens": 40, "preempted": 2, "restored": 30}
    now = {"cells_used": 50, "cells_total": 200, "ram_bytes": 1000, "disk_bytes": 2000, "threads": 2}
    metrics.observe_step(report(native_seconds=0.25, prompt_tokens=80, ram_bytes=9))
    metrics.observe_step(report(native_seconds=0.5, **so_far, **now))
    assert told(metrics, "antiphon_engine_native_seconds_total") == 0.75
    assert told(metrics, "antiphon_engine_prompt_tokens_total") == 100
    assert told(metrics, "antiphon_engine_cached_tokens_total") == 40
    assert told(metrics, "antiphon_prefix_hit_ratio") == 0.4
    assert told(metrics, "antiphon_engine_preemptions_total") == 2
    assert told(metrics, "antiphon_engine_restored_tokens_total") == 30
    assert told(metrics, "antiphon_used_cells") == 50
    assert told(metrics, "antiphon_cells") == 200
    assert told(metrics, "antiphon_engine_threads") == 2
    assert told(metrics, "antiphon_prefix_ram_bytes") == 1000
    assert told(metrics, "antiphon_prefix_disk_bytes") == 2000


def test_queue_and_running_fall_with_the_responses_though_no_step_says_so() -> None:
    metrics = Metrics()
    for _ in range(5):
        metrics.opened()
    metrics.observe_step(report(running=2, waiting=3))
    assert (told(metrics, "antiphon_running_requests"), told(metrics, "antiphon_waiting_requests")) == (2, 3)
    for left, running, waiting in ((4, 2, 2), (3, 2, 1), (2, 2, 0), (1, 1, 0), (0, 0, 0)):
        metrics.closed()
        assert told(metrics, "antiphon_open_responses") == left
        assert told(metrics, "antiphon_running_requests") == running
        assert told(metrics, "antiphon_waiting_requests") == waiting


def test_every_name_is_ours_and_ends_in_its_unit() -> None:
    metrics = Metrics()
    metrics.refuse(429)
    encode, _ = choose_encoder("application/openmetrics-text")
    text = encode(registry_of(metrics)).decode()
    families = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    assert families
    for family in families:
        assert family.name.startswith("antiphon_")
        assert family.documentation.endswith(".")
        for unit in ("seconds", "bytes", "tokens", "ratio"):
            assert (unit in family.name.split("_")) == (family.unit == unit), family.name
        assert family.name.endswith(family.unit)
        if family.type == "histogram":
            assert family.unit == "seconds"


def test_servers_in_one_process_do_not_share_figures() -> None:
    one, other = Metrics(), Metrics()
    one.refuse(400)
    assert told(one, "antiphon_requests_total", outcome="refused") == 1
    assert told(other, "antiphon_requests_total", outcome="refused") == 0
    assert all(not family.name.startswith("antiphon") for family in prometheus_client.REGISTRY.collect())


def test_the_line_for_the_log() -> None:
    metrics = Metrics()
    assert metrics.summary() == (
        "served 0 requests (0 completed, 0 incomplete, 0 failed, 0 cancelled), refused 0; "
        "tokens: 0 in, 0 of them cached (hit ratio 0.00), 0 out; mean time to first token -, mean step -; "
        "at most 0 open and 0 computed at once"
    )
    metrics.ended.update(completed=3, cancelled=1)
    metrics.refuse(404)
    metrics.refuse(429)
    metrics.input_tokens, metrics.cached_tokens, metrics.output_tokens = 200, 150, 30
    for seconds in (0.25, 0.75):
        metrics.first_token.observe(seconds)
    for _ in range(2):
        metrics.opened()
    metrics.observe_step(report(seconds=0.5, prefilled=9, running=1))
    metrics.observe_step(report(seconds=0.1, decoding=2))
    assert metrics.summary() == (
        "served 4 requests (3 completed, 0 incomplete, 0 failed, 1 cancelled), refused 2; "
        "tokens: 200 in, 150 of them cached (hit ratio 0.75), 30 out; mean time to first token 0.500 s, "
        "mean step 0.300 s; at most 2 open and 2 computed at once"
    )


class Timed:
    """A service whose clock moves only when it is told to, and a response whose steps are put by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.engine = GivenEngine([], dialect="plain", cached=3)
        self.metrics = Metrics(lambda: self.seconds)
        self.service = Service(metrics=self.metrics)

    async def begin(self, body: bytes = b'{"input": "Hi"}') -> tuple[Any, StepStream]:
        """A response whose first events were read, and where its steps go."""
        if not self.service.ready:
            await self.service.load(self.engine.load)
        events = (await self.service.create(parse_request(body))).events()
        await anext(events)
        return events, self.engine.live[-1]

    async def step(self, events: Any, stream: StepStream, seconds: float, *steps: str, last: bool = False) -> None:
        """So many seconds later these steps come, all at once."""
        self.seconds += seconds
        made = [Step(tuple(step.encode())) for step in steps]
        stream.extend([*made, Step((), Finish.STOP)] if last else made)
        async for _ in events:
            if not last:
                return


async def test_time_to_the_first_token_and_between_tokens() -> None:
    timed = Timed()
    events, stream = await timed.begin()
    await timed.step(events, stream, 2.0, "a")
    await timed.step(events, stream, 0.5, "b")
    await timed.step(events, stream, 0.25, "c", last=True)
    assert (timed.metrics.first_token.count, timed.metrics.first_token.sum) == (1, 2.0)
    assert (timed.metrics.inter_token.count, timed.metrics.inter_token.sum) == (2, 0.75)
    assert (timed.metrics.request.count, timed.metrics.request.sum) == (1, 2.75)


async def test_tokens_that_come_together_share_their_time_whatever_the_steps() -> None:
    """However they are cut, there are as many times as tokens less one, and they add up to first to last token."""
    timed = Timed()
    events, stream = await timed.begin()
    await timed.step(events, stream, 1.0, "abc")
    await timed.step(events, stream, 0.8, "de", "fg")
    await timed.step(events, stream, 0.3, "h", last=True)
    assert timed.metrics.first_token.sum == 1.0
    assert timed.metrics.inter_token.count == len("abcdefgh") - 1
    assert timed.metrics.inter_token.sum == pytest.approx(1.1)
    assert told(timed.metrics, "antiphon_inter_token_seconds_bucket", le="0.25") == 2 + 4
    assert timed.metrics.output_tokens == len("abcdefgh")


async def test_tokens_are_counted_as_they_come_and_prompts_at_the_end() -> None:
    timed = Timed()
    events, stream = await timed.begin()
    await timed.step(events, stream, 1.0, "ab")
    assert (timed.metrics.output_tokens, timed.metrics.input_tokens, timed.metrics.open) == (2, 0, 1)
    await timed.step(events, stream, 1.0, last=True)
    prompt = len(timed.engine.asked[0].prompt)
    assert (timed.metrics.output_tokens, timed.metrics.input_tokens, timed.metrics.cached_tokens) == (2, prompt, 3)
    assert (timed.metrics.open, timed.metrics.peak_open) == (0, 1)


async def test_tokens_behind_a_stop_string_are_nobody_s() -> None:
    timed = Timed()
    events, stream = await timed.begin(b'{"input": "Hi", "stop": "b"}')
    await timed.step(events, stream, 1.0, "abcd", last=True)
    assert timed.metrics.output_tokens == len("ab")
    assert timed.metrics.ended["completed"] == 1


async def test_an_answer_without_a_token_has_no_first_one() -> None:
    timed = Timed()
    events, stream = await timed.begin()
    await timed.step(events, stream, 1.0, last=True)
    assert timed.metrics.first_token.count == timed.metrics.inter_token.count == 0
    assert timed.metrics.request.sum == 1.0


async def test_who_leaves_before_the_end_has_cancelled() -> None:
    timed = Timed()
    events, stream = await timed.begin()
    await timed.step(events, stream, 1.0, "a")
    await events.aclose()
    assert timed.metrics.ended == {"completed": 0, "incomplete": 0, "failed": 0, "cancelled": 1}
    assert timed.metrics.open == 0
    assert timed.engine.live == []
    events, stream = await timed.begin()
    await events.aclose()  # at the very first event
    assert (timed.metrics.ended["cancelled"], timed.metrics.open, timed.engine.live) == (2, 0, [])


@pytest.mark.parametrize(
    ("output", "text", "arguments"),
    [
        ("Hello", 0, 0),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', 0, 0),
        ('<tool_call>{"name": "g", "arguments": {}}</tool_call>', 1, 0),
        ("<tool_call>nothing</tool_call> and <tool_call>again", 2, 0),
        ('<tool_call>{"name": "f", "arguments": [}}</tool_call>', 0, 1),
        ('<tool_call>{"name": "f", "arguments": [1]}</tool_call><tool_call>x', 1, 1),
    ],
)
async def test_malformed_calls_are_counted(tmp_path: Path, output: str, text: int, arguments: int) -> None:
    turns: list[dict[str, Any]] = [{"steps": [output]}, {"steps": list(output)}]
    turns[0]["times"] = 1
    async with scripted_server(tmp_path, turns) as server:
        for times in (1, 2):
            await server.create({"input": "Hi", "tools": [{"type": "function", "name": "f"}]})
            assert server.service.metrics.malformed == {"text": times * text, "arguments": times * arguments}
