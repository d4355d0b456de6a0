"""The real openai SDK for Python against a real server that plays a script."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI, AuthenticationError, BadRequestError, NotFoundError

from antiphon.api.settings import ApiSettings
from tests.server import RunningServer, scripted_server

HELLO = ["Hello", " there", ", how may I", " assist you today?"]
TOOL: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
CALL = ["<think>", "They ask", " about", "</think>", '<tool_call>\n{"name": "get_weather", "argu']
TURNS: list[dict[str, Any]] = [
    {"when": "weather in Paris", "steps": [*CALL, 'ments": {"city": "Paris"}}\n</tool_call>']},
    {"when": "18 degrees", "steps": ["It is ", "18 degrees", " in Paris."]},
    {"when": "boom", "steps": ["partial te", {"fail": "device lost"}]},
    {"steps": HELLO},
]
KEY = "secret-key"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with scripted_server(tmp_path, TURNS, settings=ApiSettings(api_keys=(KEY,))) as running:
        yield running


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as made:
        yield made


async def test_create(client: AsyncOpenAI) -> None:
    response = await client.responses.create(model="scripted-1", input="Hi", instructions="Be kind.")
    assert response.status == "completed"
    assert response.output_text == "".join(HELLO)
    assert response.instructions == "Be kind."
    assert response.usage is not None
    assert response.usage.output_tokens == len("".join(HELLO))


async def test_create_streamed(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="scripted-1", input="Hi", stream=True)
    events = [event async for event in stream]
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == HELLO
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "".join(HELLO)


async def test_the_stream_helper(client: AsyncOpenAI) -> None:
    async with client.responses.stream(model="scripted-1", input="Hi") as stream:
        snapshots = [event.snapshot async for event in stream if event.type == "response.output_text.delta"]
        response = await stream.get_final_response()
    assert snapshots == ["".join(HELLO[: n + 1]) for n in range(len(HELLO))]
    assert response.output_text == "".join(HELLO)


async def test_a_tool_loop_of_two_turns(client: AsyncOpenAI) -> None:
    conversation: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = await client.responses.create(model="scripted-1", input=conversation, tools=[TOOL])
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    call = first.output[1]
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    conversation += [item.model_dump() for item in first.output]
    conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"})
    second = await client.responses.create(model="scripted-1", input=conversation, tools=[TOOL])
    assert second.output_text == "It is 18 degrees in Paris."


async def test_a_tool_loop_with_the_stream_helper(client: AsyncOpenAI) -> None:
    conversation: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    async with client.responses.stream(model="scripted-1", input=conversation, tools=[TOOL]) as stream:
        seen = [event.type async for event in stream]
        first = await stream.get_final_response()
    assert "response.function_call_arguments.delta" in seen
    assert "response.reasoning_text.delta" in seen
    call = first.output[1]
    assert call.type == "function_call"
    conversation += first.output
    conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"})
    async with client.responses.stream(model="scripted-1", input=conversation, tools=[TOOL]) as stream:
        second = await stream.get_final_response()
    assert second.output_text == "It is 18 degrees in Paris."


async def test_the_output_limit_is_an_incomplete_response(client: AsyncOpenAI) -> None:
    response = await client.responses.create(model="scripted-1", input="Hi", max_output_tokens=7)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == "Hello t"


async def test_a_failure_in_the_stream_is_a_failed_response(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="scripted-1", input="boom", stream=True)
    events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "server_error"
    assert last.response.output_text == "partial te"
    assert "device lost" not in last.response.model_dump_json()


async def test_a_failure_of_a_whole_answer_is_a_500(client: AsyncOpenAI) -> None:
    with pytest.raises(APIStatusError) as raised:
        await client.responses.create(model="scripted-1", input="boom")
    assert raised.value.status_code == 500
    assert "device lost" not in raised.value.message


async def test_refusals_are_the_sdk_s_own_errors(client: AsyncOpenAI, server: RunningServer) -> None:
    with pytest.raises(BadRequestError) as bad:
        await client.responses.create(model="scripted-1", input="Hi", temperature=5)
    assert (bad.value.param, bad.value.code) == ("temperature", "invalid_value")
    with pytest.raises(NotFoundError) as missing:
        await client.responses.create(model="gpt-0", input="Hi")
    assert missing.value.code == "model_not_found"
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(AuthenticationError):
            await stranger.models.list()


async def test_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["scripted-1"]
    assert (await client.models.retrieve("scripted-1")).owned_by == "antiphon"
