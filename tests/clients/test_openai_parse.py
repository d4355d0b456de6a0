"""Structured output with the real openai SDK: its pydantic models go out as schemas and come back as objects.

Against a script, which says exactly what arrives and when; and against the real default model, which is too small to
keep to any schema by itself: whatever the seed, its answer is an object of the model.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Annotated, Any

import pytest
import pytest_asyncio
from openai import APIStatusError, AsyncOpenAI, BadRequestError, pydantic_function_tool
from openai.types.responses.response_text_config_param import ResponseTextConfigParam
from pydantic import BaseModel, ConfigDict, Field

from antiphon.engine.base import Engine
from antiphon.engine.llama import load
from antiphon.engine.worker import WorkerEngine
from antiphon.serving.service import Options, Report
from tests.clients.checked import checked_server
from tests.default_model import default_model_path
from tests.server import running_server
from tests.text.real_templates import real_templates

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

Short = Annotated[str, Field(max_length=8)]


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Topping(BaseModel):
    name: Short
    grams: Annotated[int, Field(ge=0, le=500)]


class Order(BaseModel):
    """Has what schemas of pydantic have: references, an enumeration, a list, numbers with bounds, an optional field."""

    dish: Short
    size: Size
    toppings: Annotated[list[Topping], Field(max_length=1)]
    note: Short | None


class FindTable(BaseModel):
    """Finds a free table."""

    model_config = ConfigDict(extra="forbid")
    guests: Annotated[int, Field(ge=1, le=12)]
    outside: bool


ORDER = Order(dish="Pizza ½", size=Size.LARGE, toppings=[Topping(name="olives", grams=40)], note=None)
WRITTEN = ORDER.model_dump_json()
PIECES = [WRITTEN[n : n + 7] for n in range(0, len(WRITTEN), 7)]
CALL = {"name": "FindTable", "arguments": {"guests": 4, "outside": True}}
TURNS: list[dict[str, Any]] = [
    {"when": "think first", "steps": ["<think>A piz", "za, then.</think>", *PIECES]},
    {"when": "a table", "steps": [f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"]},
    {"when": "break it", "steps": [WRITTEN[:-1], ', "more": 1}']},
    {"steps": PIECES},
]
TABLE: Any = pydantic_function_tool(FindTable)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scripted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AsyncOpenAI]:
    thinker = {"chat_template": real_templates()["Qwen-Qwen3-0.6B"]}
    async with (
        checked_server(tmp_path_factory.mktemp("parse"), TURNS, top=thinker) as server,
        client_of(server.url) as client,
    ):
        yield client


async def default_engine(report: Report) -> Engine:
    # One thread: two wait for each other where something else runs, and tests may run beside anything.
    backend = await asyncio.to_thread(load, default_model_path(), context_length=1024, lanes=4, threads=1)
    return WorkerEngine(backend)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real() -> AsyncIterator[AsyncOpenAI]:
    async with (
        running_server(default_engine, options=Options(name="smollm2")) as server,
        client_of(server.url) as client,
    ):
        yield client


def client_of(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


@pytest.mark.parametrize("asked", ["Order.", "Order, but think first."])
async def test_parse(scripted: AsyncOpenAI, asked: str) -> None:
    response = await scripted.responses.parse(model="scripted-1", input=asked, text_format=Order)
    assert response.output_parsed == ORDER
    assert response.output_text == WRITTEN


@pytest.mark.parametrize("asked", ["Order.", "Order, but think first."])
async def test_the_stream_helper_parses(scripted: AsyncOpenAI, asked: str) -> None:
    async with scripted.responses.stream(model="scripted-1", input=asked, text_format=Order) as stream:
        events = [event async for event in stream]
        response = await stream.get_final_response()
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == PIECES
    assert [event.parsed for event in events if event.type == "response.output_text.done"] == [ORDER]
    assert response.output_parsed == ORDER


async def test_the_schema_is_the_one_of_the_model(scripted: AsyncOpenAI) -> None:
    """What breaks it is not played."""
    with pytest.raises(APIStatusError) as raised:
        await scripted.responses.parse(model="scripted-1", input="Order, and break it.", text_format=Order)
    assert raised.value.status_code == 500


async def test_parse_of_a_tool_s_arguments(scripted: AsyncOpenAI) -> None:
    response = await scripted.responses.parse(
        model="scripted-1", input="Find a table.", tools=[TABLE], tool_choice="required", text_format=Order
    )
    [call] = response.output
    assert call.type == "function_call"
    assert call.parsed_arguments == FindTable(guests=4, outside=True)
    assert response.output_parsed is None


async def test_the_stream_helper_parses_a_tool_s_arguments(scripted: AsyncOpenAI) -> None:
    asked: Any = {"model": "scripted-1", "input": "Find a table.", "tools": [TABLE]}
    async with scripted.responses.stream(**asked) as stream:
        response = await stream.get_final_response()
    [call] = response.output
    assert call.type == "function_call"
    assert call.parsed_arguments == FindTable(guests=4, outside=True)


async def test_a_schema_that_cannot_be_enforced_is_refused(scripted: AsyncOpenAI) -> None:
    text: ResponseTextConfigParam = {
        "format": {"type": "json_schema", "name": "odd", "strict": True, "schema": {"not": {"type": "string"}}}
    }
    with pytest.raises(BadRequestError) as raised:
        await scripted.responses.create(model="scripted-1", input="Order.", text=text)
    assert raised.value.param == "text.format.schema"


SEEDS = range(3)


async def test_a_real_model_s_answer_is_an_object(real: AsyncOpenAI) -> None:
    async def asked(seed: int) -> Order | None:
        response = await real.responses.parse(
            model="smollm2", input="One large pizza with olives.", text_format=Order, extra_body={"seed": seed}
        )
        assert response.status == "completed"
        return response.output_parsed

    orders = await asyncio.gather(*map(asked, SEEDS))
    assert all(isinstance(order, Order) for order in orders)
    assert len({repr(order) for order in orders}) > 1, "seeds tell the answers apart"


async def test_a_real_model_s_streamed_answer_is_an_object(real: AsyncOpenAI) -> None:
    async def asked(seed: int) -> None:
        request: Any = {"model": "smollm2", "input": "A small soup, please.", "extra_body": {"seed": seed}}
        async with real.responses.stream(**request, text_format=Order) as stream:
            events = [event async for event in stream]
            response = await stream.get_final_response()
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert isinstance(response.output_parsed, Order)
        assert Order.model_validate_json("".join(deltas)) == response.output_parsed
        assert len(deltas) > 1

    await asyncio.gather(*map(asked, SEEDS))


async def test_a_real_model_s_call_is_parsed(real: AsyncOpenAI) -> None:
    async def asked(seed: int) -> Any:
        response = await real.responses.parse(
            model="smollm2",
            input="Tell me a joke.",
            tools=[TABLE],
            tool_choice="required",
            parallel_tool_calls=False,
            extra_body={"seed": seed},
        )
        [call] = response.output
        assert call.type == "function_call"
        return call.parsed_arguments

    assert all(isinstance(arguments, FindTable) for arguments in await asyncio.gather(*map(asked, SEEDS)))
