"""`/metrics` of a whole server: what requests of every kind come to, who may read it, in which format."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.api.settings import ApiSettings
from antiphon.engine.base import Engine, EngineBusy, EngineFailure
from antiphon.serving.exposition import registry_of
from antiphon.serving.metrics import Metrics
from antiphon.serving.service import Options, Report
from tests.engines import RefusingEngine
from tests.server import RunningServer, running_server, scripted_server

TURNS: list[dict[str, Any]] = [
    {"when": "boom", "steps": ["a", {"fail": "device lost"}]},
    {"when": "hang", "steps": ["a", {"hang": True}]},
    {"steps": ["Hello", " there"]},
]
DOCUMENT = Path(__file__).parents[2] / "docs" / "operating.md"
OPEN_METRICS = "application/openmetrics-text"


async def scraped(server: RunningServer) -> dict[str, float]:
    """The samples by name and labels, as they stand in the text."""
    answer = await server.client.get("/metrics")
    assert answer.status_code == 200
    lines = [line for line in answer.text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def outcomes(server: RunningServer) -> dict[str, float]:
    """How many requests came to what, without those that are none."""
    return counted(await scraped(server), "antiphon_requests_total", "outcome")


def counted(samples: dict[str, float], name: str, label: str) -> dict[str, float]:
    found = {re.fullmatch(rf'{name}{{{label}="(.*)"}}', sample): value for sample, value in samples.items()}
    return {match[1]: value for match, value in found.items() if match and value}


@pytest.mark.parametrize("stream", [False, True])
async def test_every_answer_counts_once_by_what_became_of_it(tmp_path: Path, stream: bool) -> None:
    async with scripted_server(tmp_path, TURNS) as server:
        for body in ({"input": "Hi"}, {"input": "Hi", "max_output_tokens": 3}, {"input": "boom"}):
            await server.post({"stream": stream, **body})
        assert await outcomes(server) == {"completed": 1, "incomplete": 1, "failed": 1}
        asking = asyncio.create_task(server.post({"input": "hang", "stream": stream}))
        await server.busy()
        assert (await scraped(server))["antiphon_open_responses"] == 1
        asking.cancel()
        await asyncio.wait([asking])
        while "cancelled" not in (found := await outcomes(server)):
            pass
        assert found == {"completed": 1, "incomplete": 1, "failed": 1, "cancelled": 1}
        samples = await scraped(server)
    assert samples["antiphon_open_responses"] == 0
    assert samples["antiphon_output_tokens_total"] == len("Hello there") + 3 + 1 + 1
    assert samples["antiphon_time_to_first_token_seconds_count"] == 4
    assert samples["antiphon_inter_token_seconds_count"] == len("Hello there") - 1 + 2
    assert samples["antiphon_request_duration_seconds_count"] == 4


async def test_tokens_are_those_that_clients_were_told(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, TURNS) as server:
        used = [(await server.create({"input": text}))["usage"] for text in ("Hi", "Hello", "x" * 100)]
        samples = await scraped(server)
    assert samples["antiphon_input_tokens_total"] == sum(usage["input_tokens"] for usage in used)
    assert samples["antiphon_output_tokens_total"] == sum(usage["output_tokens"] for usage in used)


async def test_refusals_count_by_status_and_hold_nothing_that_a_client_sent(tmp_path: Path) -> None:
    settings = ApiSettings(body_limit=10_000)
    async with scripted_server(tmp_path, TURNS, settings=settings) as server:
        for body in ({}, {"input": "Hi", "store": True}, {"input": "Hi", "model": "gpt-mine"}):
            await server.post(body)
        await server.client.post("/v1/responses", content=b"{", headers={"content-encoding": "mine"})
        await server.post({"input": "x" * 20_000})
        text = (await server.client.get("/metrics")).text
        samples = await scraped(server)
    assert counted(samples, "antiphon_requests_total", "outcome") == {"refused": 5}
    refused = counted(samples, "antiphon_refused_requests_total", "status")
    assert refused == {"400": 2, "404": 1, "413": 1, "415": 1}
    assert "mine" not in text
    assert samples["antiphon_request_duration_seconds_count"] == 0


@pytest.mark.parametrize(
    ("error", "outcome", "refused"),
    [
        (EngineBusy(), "refused", {"429": 1.0}),
        (EngineFailure("gone"), "refused", {"503": 1.0}),
        (RuntimeError("a fault of ours"), "failed", {}),
    ],
)
async def test_an_engine_that_takes_nothing(error: Exception, outcome: str, refused: dict[str, float]) -> None:
    async with running_server(RefusingEngine(error).load) as server:
        await server.post({"input": "Hi"})
        samples = await scraped(server)
    assert counted(samples, "antiphon_requests_total", "outcome") == {outcome: 1}
    assert counted(samples, "antiphon_refused_requests_total", "status") == refused


async def test_a_client_that_leaves_while_it_sends_has_cancelled(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, TURNS) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        while not (found := await outcomes(server)):
            pass
    assert found == {"cancelled": 1}


async def test_with_keys_metrics_ask_for_one_and_wrong_ones_are_counted(tmp_path: Path) -> None:
    settings = ApiSettings(api_keys=("k",))
    async with scripted_server(tmp_path, TURNS, settings=settings) as server:
        async with httpx.AsyncClient(base_url=server.url) as stranger:
            assert (await stranger.get("/metrics")).status_code == 401
            assert (await stranger.post("/v1/responses", json={"input": "Hi"})).status_code == 401
        samples = await scraped(server)
    assert counted(samples, "antiphon_refused_requests_total", "status") == {"401": 2}


async def test_metrics_are_there_while_the_model_loads(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def load(report: Report) -> Engine:
        await go_on.wait()
        return RefusingEngine(EngineBusy())

    async with running_server(load, wait=False) as server:
        assert (await server.post({"input": "Hi"})).status_code == 503
        samples = await scraped(server)
        go_on.set()
    assert counted(samples, "antiphon_refused_requests_total", "status") == {"503": 1}


@pytest.mark.parametrize(
    ("accept", "open_metrics"),
    [
        ("application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1", True),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; version=1.0.0", True),
        ("application/openmetrics-text; version=abc", True),
        ("application/openmetrics-text; version=99.0.0; escaping=x", True),
        ("*/*", False),
        ("", False),
        ("text/plain;version=abc", False),
        ("application/json", False),
        (",;=,", False),
    ],
)
async def test_the_format_is_the_one_that_was_asked_for(tmp_path: Path, accept: str, open_metrics: bool) -> None:
    async with scripted_server(tmp_path, TURNS) as server:
        answer = await server.client.get("/metrics", headers={"accept": accept})
    kind = (
        f"{OPEN_METRICS}; version=1.0.0; charset=utf-8" if open_metrics else "text/plain; version=0.0.4; charset=utf-8"
    )
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert answer.text.endswith("# EOF\n") == open_metrics


async def test_the_last_line_of_the_log_holds_the_figures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with scripted_server(tmp_path, TURNS, options=Options()) as server:
        used = (await server.create({"input": "Hi"}))["usage"]
        hanging = asyncio.create_task(server.post({"input": "hang"}))
        await server.busy()
    await hanging
    (line,) = [record.getMessage() for record in caplog.records if record.name == "antiphon.api.server"]
    assert line.startswith("served 2 requests (1 completed, 0 incomplete, 1 failed, 0 cancelled), refused 0; ")
    assert f" {used['output_tokens'] + 1} out; " in line
    assert line.endswith("at most 1 open and 0 computed at once")


async def test_the_line_is_there_when_nothing_was_served_but_not_behind_a_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with scripted_server(tmp_path, TURNS):
        pass
    lines = [record.getMessage() for record in caplog.records if record.name == "antiphon.api.server"]
    assert lines == [Metrics().summary()]
    caplog.clear()

    async def load(report: Report) -> Engine:
        raise FileNotFoundError("no such model")

    with pytest.raises(FileNotFoundError):
        async with running_server(load):
            pass
    assert [record for record in caplog.records if record.name == "antiphon.api.server"] == []


def test_the_document_lists_every_metric_and_no_other() -> None:
    listed = re.findall(r"`(antiphon_[a-z_]+)`", DOCUMENT.read_text())
    families = list(registry_of(Metrics()).collect())
    names = [family.name + ("_total" if family.type == "counter" else "") for family in families]
    assert listed == names
