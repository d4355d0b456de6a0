"""What the server said, sent back as an SDK dumps it, gives the same prompt byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from antiphon.serving.service import Options
from tests.server import RunningServer, scripted_server, text_of

TOOLS: Any = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": False,
    }
]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city":  "Paris", "s": "\\u20ac"}}\n</tool_call>'
TURNS: list[dict[str, Any]] = [
    {"when": "weather", "steps": ["<think>They", " ask</think>", "Let me see.", CALL, CALL]},
    {"steps": ["Fine."]},
]
ASKED = {"role": "user", "content": "weather"}
REASONING: list[dict[str, Any]] = [{}, {"reasoning": {"summary": "auto"}}]


def prompts(log: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in log.read_text().splitlines()]


async def answered(server: RunningServer, history: list[dict[str, Any]], output: list[dict[str, Any]]) -> None:
    """The next turn of the tool loop: what the model said, and the results of its calls."""
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "18 degrees"}
        for item in output
        if item["type"] == "function_call"
    ]
    answer = await server.create({"input": [*history, *output, *results], "tools": TOOLS})
    assert text_of(answer) == "Fine."


@pytest.mark.parametrize("reasoning", REASONING)
async def test_the_sdk_s_dump_gives_the_prompt_of_the_raw_items(tmp_path: Path, reasoning: dict[str, Any]) -> None:
    log = tmp_path / "prompts.jsonl"
    async with scripted_server(tmp_path, TURNS, options=Options(log_prompts=log)) as server:
        raw = (await server.create({"input": [ASKED], "tools": TOOLS, **reasoning}))["output"]
        assert [item["type"] for item in raw] == ["reasoning", "message", "function_call", "function_call"]
        for output in (raw, await dumped(server, reasoning), await streamed(server, reasoning), stripped(raw)):
            await answered(server, [ASKED], output)
    told = [prompt for prompt in prompts(log) if "18 degrees" in prompt]
    assert len(told) == 4
    assert len(set(told)) == 1
    assert "They ask" in told[0]
    assert "Let me see." in told[0]
    assert '{"city":  "Paris", "s": "\\u20ac"}' in told[0]


async def dumped(server: RunningServer, reasoning: dict[str, Any]) -> list[dict[str, Any]]:
    """The same answer through the SDK, dumped with its nulls."""
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        response: Response = await client.responses.create(
            model="scripted-1", input=[{"role": "user", "content": "weather"}], tools=TOOLS, **reasoning
        )
    output = [item.model_dump() for item in response.output]
    assert None in [value for item in output for value in item.values()]
    return output


async def streamed(server: RunningServer, reasoning: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of `output_item.done`, as agents collect them."""
    events = await server.events({"input": [ASKED], "tools": TOOLS, **reasoning})
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def stripped(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As clients send items that keep only what they need, with ids of their own."""
    return [{**item, "id": f"own-{n}", "status": None, "extra": {"a": [1]}} for n, item in enumerate(output)]
