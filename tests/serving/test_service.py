"""What a request asks for reaches the engine, shapes the answer, and is echoed as it was applied."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from antiphon.engine.base import Finish, Sampling, Step, TokenLogprob
from antiphon.serving.service import Options
from tests.engines import GivenEngine
from tests.server import RunningServer, error_of, running_server, scripted_server, text_of, untouched

F = {"type": "function", "name": "f", "description": "F.", "parameters": {"type": "object"}, "strict": False}
F_CALL = '<tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call>'
G_CALL = '<tool_call>{"name": "g", "arguments": {}}</tool_call>'
HOSTED = {"type": "web_search"}
TURNS: list[dict[str, Any]] = [
    {"when": "think", "steps": ["<think>so", " it is</think>", "Yes"]},
    {"when": "call twice", "steps": ["One. ", F_CALL, F_CALL]},
    {"when": "unknown", "steps": [G_CALL]},
    {"when": "stop", "steps": ["one ST", "OP two"]},
    {"when": "empty", "steps": []},
    {"when": "limit", "steps": ["Hel"], "finish": "length"},
    {"steps": ["Hello", " there"]},
]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    async with scripted_server(tmp_path_factory.mktemp("service"), TURNS) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def server(shared: RunningServer) -> AsyncIterator[RunningServer]:
    async with untouched(shared):
        yield shared


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


async def both(server: RunningServer, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The final response, streamed and whole."""
    return [(await server.events(body))[-1]["response"], await server.create(body)]


async def test_without_settings_the_defaults_are_echoed(server: RunningServer) -> None:
    for response in await both(server, {"input": "Hi"}):
        assert response["tools"] == []
        assert (response["tool_choice"], response["parallel_tool_calls"]) == ("auto", True)
        assert (response["temperature"], response["top_p"], response["truncation"]) == (1.0, 1.0, "disabled")
        assert (response["store"], response["background"], response["service_tier"]) == (False, False, "default")
        assert (response["reasoning"], response["metadata"]) == (None, {})
        assert response["text"] == {"format": {"type": "text"}}


async def test_what_was_set_is_echoed_as_it_was_applied(server: RunningServer) -> None:
    settings: dict[str, Any] = {
        "instructions": "Be kind.",
        "max_output_tokens": 100,
        "max_tool_calls": 3,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "temperature": 0.0,
        "tool_choice": "none",
        "top_p": 0.5,
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "truncation": "auto",
        "user": "u",
    }
    for response in await both(server, {"input": "Hi", "tools": [F, HOSTED], "store": False, **settings}):
        assert {key: response[key] for key in settings} == settings
        assert response["tools"] == [F]


async def test_log_probabilities_are_echoed_only_if_they_were_asked_for(server: RunningServer) -> None:
    include = ["message.output_text.logprobs"]
    for body, asked in (({"top_logprobs": 3}, 0), ({"top_logprobs": 3, "include": include}, 3)):
        for response in await both(server, {"input": "Hi", **body}):
            assert response["top_logprobs"] == asked
            entries = response["output"][0]["content"][0]["logprobs"]
            assert "".join(entry["token"] for entry in entries) == ("Hello there" if asked else "")
            assert all(entry["top_logprobs"] for entry in entries)


async def test_a_call_streams_and_thinking_is_an_item_of_its_own(server: RunningServer) -> None:
    for response in await both(server, {"input": "think", "tools": [F]}):
        assert kinds(response) == ["reasoning", "message"]
        assert response["output"][0]["content"] == [{"type": "reasoning_text", "text": "so it is"}]
        assert response["output"][0]["summary"] == []
        assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": len("so it is")}


@pytest.mark.parametrize("key", ["summary", "generate_summary"])
async def test_a_summary_is_sent_instead_of_the_thinking_if_it_was_asked_for(server: RunningServer, key: str) -> None:
    for response in await both(server, {"input": "think", "reasoning": {key: "auto"}}):
        assert response["output"][0]["summary"] == [{"type": "summary_text", "text": "so it is"}]
        assert response["output"][0]["content"] == []
        assert response["reasoning"] == {"effort": None, "summary": "auto"}


async def test_one_call_at_most_without_parallel_calls(server: RunningServer) -> None:
    body = {"input": "call twice", "tools": [F]}
    for response in await both(server, body):
        assert kinds(response) == ["message", "function_call", "function_call"]
        assert len({item["call_id"] for item in response["output"][1:]}) == 2
    for response in await both(server, {**body, "parallel_tool_calls": False}):
        assert kinds(response) == ["message", "function_call"]
        assert response["status"] == "completed"


@pytest.mark.parametrize("more", [{"tool_choice": "none", "tools": [F]}, {}, {"tools": [HOSTED]}])
async def test_where_nothing_can_be_called_markers_are_text(server: RunningServer, more: dict[str, Any]) -> None:
    for response in await both(server, {"input": "call twice", **more}):
        assert kinds(response) == ["message"]
        assert text_of(response) == "One. " + F_CALL + F_CALL


async def test_a_call_of_a_tool_that_was_not_declared_is_text(server: RunningServer) -> None:
    for response in await both(server, {"input": "unknown", "tools": [F]}):
        assert kinds(response) == ["message"]
        assert text_of(response) == G_CALL


async def test_a_stop_string_ends_the_answer_before_it(server: RunningServer) -> None:
    for stop in ("STOP", ["nothing", "STOP"]):
        for response in await both(server, {"input": "stop", "stop": stop}):
            assert (text_of(response), response["status"]) == ("one ", "completed")
            assert response["usage"]["output_tokens"] == len("one STOP")


async def test_an_empty_generation_is_an_empty_message(server: RunningServer) -> None:
    for response in await both(server, {"input": "empty"}):
        assert (kinds(response), text_of(response), response["status"]) == (["message"], "", "completed")
        assert response["usage"]["output_tokens"] == 0


async def test_the_end_of_the_context_is_an_incomplete_response(server: RunningServer) -> None:
    for response in await both(server, {"input": "limit"}):
        assert (response["status"], response["completed_at"]) == ("incomplete", None)
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["output"][-1]["status"] == "incomplete"


def warning(answer: httpx.Response) -> str | None:
    found: str | None = answer.headers.get("x-antiphon-warning")
    return found


async def test_tools_that_were_left_out_are_named_in_a_header(server: RunningServer) -> None:
    tools = [F, {"type": "web_search", "search_context_size": "low"}, {"type": "mcp", "server_label": "x"}]
    for stream in (False, True):
        answer = await server.post({"input": "Hi", "tools": tools, "stream": stream})
        assert answer.status_code == 200
        assert "web_search" in str(warning(answer))
        assert "mcp" in str(warning(answer))
        assert warning(await server.post({"input": "Hi", "tools": [F], "stream": stream})) is None


async def test_a_tool_s_type_cannot_write_headers(server: RunningServer) -> None:
    names = ["a\r\nset-cookie: stolen=1", "b\r\n\r\n<html>", "\u20ac", "x" * 100_000, "", "\0"]
    names += [f"tool_{n}" for n in range(1000)]
    for stream in (False, True):
        answer = await server.post({"input": "Hi", "tools": [{"type": name} for name in names], "stream": stream})
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers
        assert 0 < len(str(warning(answer))) < 8000


async def test_strict_tools_refuses_them(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, TURNS, options=Options(strict_tools=True)) as server:
        answer = await server.post({"input": "Hi", "tools": [F, HOSTED]})
        assert (await server.create({"input": "Hi", "tools": [F]}))["status"] == "completed"
    assert answer.status_code == 400
    error = error_of(answer)
    assert (error["code"], error["param"]) == ("unsupported_value", "tools[1].type")


async def test_the_names_of_open_responses_for_thinking(tmp_path: Path) -> None:
    options = Options(reasoning_events="open-responses")
    async with scripted_server(tmp_path, TURNS, options=options) as server:
        events = await server.events({"input": "think"})
    thinking = [event["type"] for event in events if ".reasoning" in event["type"]]
    assert thinking == ["response.reasoning.delta"] * 2 + ["response.reasoning.done"]


ONE_STEP = [Step(tuple(b"a"), Finish.STOP, (TokenLogprob(97, -0.1),))]


async def asked(body: dict[str, Any]) -> tuple[GivenEngine, httpx.Response]:
    """What an engine gets of a request."""
    engine = GivenEngine(ONE_STEP, cached=5)
    async with running_server(engine.load) as server:
        return engine, await server.post({"input": "Hi", **body})


async def test_the_engine_gets_the_sampling_that_was_asked_for() -> None:
    settings = {
        "temperature": 0.0,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "presence_penalty": -2.0,
        "frequency_penalty": 2.0,
        "seed": 42,
    }
    more = {"logit_bias": {"97": -100, "0": 5.5}, "top_logprobs": 2, "include": ["message.output_text.logprobs"]}
    engine, answer = await asked({**settings, **more, "max_output_tokens": 9})
    assert answer.status_code == 200
    (generation,) = engine.asked
    assert generation.sampling == Sampling(**settings, logit_bias={97: -100.0, 0: 5.5}, top_logprobs=2)  # type: ignore[arg-type]
    assert generation.max_tokens == 9
    assert generation.id == answer.json()["id"]


async def test_without_settings_the_engine_gets_its_defaults() -> None:
    engine, answer = await asked({})
    assert engine.asked[0].sampling == Sampling()
    assert engine.asked[0].max_tokens is None
    used = answer.json()["usage"]
    assert used["input_tokens"] == len(engine.asked[0].prompt)
    assert used["input_tokens_details"] == {"cached_tokens": 5, "cache_write_tokens": 0}
    assert used["total_tokens"] == used["input_tokens"] + used["output_tokens"]


@pytest.mark.parametrize("seed", [-1, 0, 2**63 - 1, -(2**63)])
async def test_every_seed_reaches_the_engine(seed: int) -> None:
    engine, _ = await asked({"seed": seed})
    assert engine.asked[0].sampling.seed == seed


@pytest.mark.parametrize("key", ["258", "-1", "1.5", "a", "", "9" * 30, "\u0663", " 1"])
async def test_a_bias_of_no_token_is_refused(key: str) -> None:
    engine, answer = await asked({"logit_bias": {"97": 1, key: 1}})
    assert answer.status_code == 400
    assert error_of(answer)["param"] == f"logit_bias.{key}"
    assert engine.asked == []


async def test_nothing_starts_for_a_request_that_is_refused() -> None:
    too_long = {"input": "x" * 20_000}
    for body in ({"store": True}, {"model": "gpt-x"}, too_long, {"reasoning": {"effort": "low"}}):
        engine, answer = await asked({**body, "stream": True})
        assert answer.status_code in (400, 404)
        error_of(answer)
        assert engine.asked == []
