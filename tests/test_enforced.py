"""What a request demands holds for the real default model, whatever the seed: calls, schemas, grammars."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import pytest
import pytest_asyncio

from antiphon.engine.base import Engine
from antiphon.engine.llama import load
from antiphon.engine.worker import WorkerEngine
from antiphon.serving.service import Report
from tests.default_model import default_model_path
from tests.server import RunningServer, running_server, text_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

LANES = 8


async def default_engine(report: Report) -> Engine:
    path, cells = default_model_path(), LANES * 2048
    # One thread: two wait for each other where something else runs, and tests may run beside anything.
    backend = await asyncio.to_thread(load, path, context_length=2048, lanes=LANES, cells=cells, threads=1)
    return WorkerEngine(backend)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    async with running_server(default_engine) as server:
        yield server


def tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": True}


SHORT = {"type": "string", "maxLength": 20}
TOOLS = [
    tool("get_weather", "Weather of a city.", {"city": SHORT, "unit": {"enum": ["celsius", "fahrenheit"]}}),
    tool("get_time", "The time in a city.", {"city": SHORT}),
    tool("set_alarm", "Sets an alarm.", {"hour": {"type": "integer", "minimum": 0, "maximum": 23}}),
]
PARAMETERS = {tool["name"]: tool["parameters"] for tool in TOOLS}


async def all_of(server: RunningServer, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return await asyncio.gather(*(server.create(body) for body in bodies))


async def test_a_required_call_is_a_valid_call_for_every_seed(server: RunningServer) -> None:
    asked = {"input": "Tell me a joke.", "tools": TOOLS, "tool_choice": "required", "max_output_tokens": 400}
    responses = await all_of(server, [{**asked, "seed": seed, "parallel_tool_calls": False} for seed in range(50)])
    for response in responses:
        assert response["status"] == "completed"
        [item] = response["output"]
        assert item["type"] == "function_call"
        jsonschema.validate(json.loads(item["arguments"]), PARAMETERS[item["name"]])
    assert len({json.dumps([item["name"] for item in response["output"]]) for response in responses}) > 1


@pytest.mark.parametrize("name", sorted(PARAMETERS))
async def test_a_named_call_is_a_call_of_that_tool(server: RunningServer, name: str) -> None:
    choice = {"type": "function", "name": name}
    asked = {"input": "Tell me a joke.", "tools": TOOLS, "tool_choice": choice, "max_output_tokens": 400}
    for response in await all_of(server, [{**asked, "seed": seed, "parallel_tool_calls": False} for seed in range(8)]):
        assert [item["name"] for item in response["output"]] == [name]


async def test_only_allowed_tools_are_called(server: RunningServer) -> None:
    allowed = [{"type": "function", "name": "get_time"}, {"type": "function", "name": "set_alarm"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    asked = {"input": "What is the weather in Ulm?", "tools": TOOLS, "tool_choice": choice, "max_output_tokens": 400}
    for response in await all_of(server, [{**asked, "seed": seed, "parallel_tool_calls": False} for seed in range(8)]):
        assert {item["name"] for item in response["output"]} <= {"get_time", "set_alarm"}


SCHEMAS: dict[str, dict[str, Any]] = {
    "person": {
        "type": "object",
        "properties": {"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "choice": {"enum": ["red", "green", 3, None]},
    "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 5},
    "nested": {
        "type": "object",
        "properties": {
            "at": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                "required": ["x", "y"],
                "additionalProperties": False,
            }
        },
        "required": ["at"],
        "additionalProperties": False,
    },
    "union": {"anyOf": [{"type": "integer", "minimum": 5, "maximum": 99}, {"const": "none"}]},
    "pattern": {
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"}},
        "required": ["code"],
        "additionalProperties": False,
    },
    "date": {
        "type": "object",
        "properties": {"on": {"type": "string", "format": "date"}},
        "required": ["on"],
        "additionalProperties": False,
    },
    "reference": {
        "$defs": {
            "leaf": {
                "type": "object",
                "properties": {"v": {"type": "boolean"}},
                "required": ["v"],
                "additionalProperties": False,
            }
        },
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/leaf"}, "right": {"$ref": "#/$defs/leaf"}},
        "required": ["left", "right"],
        "additionalProperties": False,
    },
    "nullable": {
        "type": "object",
        "properties": {"note": {"type": ["string", "null"], "maxLength": 10}, "n": {"type": "number", "maximum": 9}},
        "required": ["note", "n"],
        "additionalProperties": False,
    },
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"enum": ["a", "b"]}],
        "items": False,
        "minItems": 2,
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
async def test_a_schema_holds_for_every_seed(server: RunningServer, name: str) -> None:
    shape = {"type": "json_schema", "name": name, "schema": SCHEMAS[name], "strict": True}
    asked = {"input": "Give me an example.", "text": {"format": shape}, "max_output_tokens": 400}
    for response in await all_of(server, [{**asked, "seed": seed} for seed in range(10)]):
        assert response["status"] == "completed", response
        jsonschema.validate(
            json.loads(text_of(response)),
            SCHEMAS[name],
            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
        )


async def test_any_object_is_an_object(server: RunningServer) -> None:
    asked = {"input": "{}", "text": {"format": {"type": "json_object"}}, "max_output_tokens": 200}
    responses = await all_of(server, [{**asked, "seed": seed} for seed in range(8)])
    finished = [response for response in responses if response["status"] == "completed"]
    assert all(isinstance(json.loads(text_of(response)), dict) for response in finished)
    assert all(text_of(response).lstrip().startswith("{") for response in responses)


LARK = """\
start: move ("; " move)*
move: PIECE? SQUARE "-" SQUARE
PIECE: /[KQRBN]/
SQUARE: /[a-h][1-8]/
"""


async def test_a_grammar_holds_for_every_seed(server: RunningServer) -> None:
    play = {"type": "custom", "name": "play", "format": {"type": "grammar", "syntax": "lark", "definition": LARK}}
    choice = {"type": "custom", "name": "play"}
    asked = {"input": "Play chess.", "tools": [play], "tool_choice": choice, "parallel_tool_calls": False}
    responses = await all_of(server, [{**asked, "seed": seed, "max_output_tokens": 300} for seed in range(8)])
    move = "[KQRBN]?[a-h][1-8]-[a-h][1-8]"
    for response in responses:
        [item] = response["output"]
        assert (item["type"], item["name"]) == ("custom_tool_call", "play")
        assert re.match(move, item["input"])
        if response["status"] == "completed":
            assert re.fullmatch(rf"{move}(; {move})*", item["input"])


async def test_at_most_one_call_among_text(server: RunningServer) -> None:
    asked = {"input": "What is the time in Ulm?", "tools": TOOLS, "parallel_tool_calls": False}
    for response in await all_of(server, [{**asked, "seed": seed, "max_output_tokens": 80} for seed in range(8)]):
        assert [item["type"] for item in response["output"]].count("function_call") <= 1
