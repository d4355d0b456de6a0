"""The real openai-agents SDK against a real server that plays a script: its loop runs tools and ends with an answer.

Every turn is one that a model could have written that is held to what the SDK asks for.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, StopAtTools, function_tool
from agents.items import TResponseInputItem
from openai import AsyncOpenAI, InternalServerError
from pydantic import BaseModel

from antiphon.serving.service import Options
from tests.clients.checked import checked_server


def call(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


PARIS = call("get_weather", {"city": "Paris"})
ROME = call("get_weather", {"city": "Rome"})
ANSWER = {"when": "18 degrees", "steps": ["It is ", "18 degrees", " in Paris."]}
LOOP = [{"when": "weather", "steps": ["<think>They ask", ".</think>", "I look.\n", PARIS[:31], PARIS[31:]]}, ANSWER]


class Weather(BaseModel):
    city: str
    degrees: int
    sky: Literal["clear", "cloudy"]


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: 18 degrees"


class Loop(NamedTuple):
    """Runs agents on a model that plays a script; `prompts` is the file where its prompts are."""

    model: OpenAIResponsesModel
    prompts: Path

    def agent(self, **options: Any) -> Agent[None]:
        return Agent(**{"name": "helper", "model": self.model, "tools": [get_weather], **options})

    async def run(self, agent: Agent[None], asked: str | list[TResponseInputItem], *, streamed: bool) -> Any:
        """The result, which is complete."""
        quiet = RunConfig(tracing_disabled=True)
        if not streamed:
            return await Runner.run(agent, asked, run_config=quiet, max_turns=4)
        result = Runner.run_streamed(agent, asked, run_config=quiet, max_turns=4)
        async for _ in result.stream_events():
            pass
        return result

    def shown(self) -> list[str]:
        """What the model was shown, request by request."""
        return [json.loads(line)["prompt"] for line in self.prompts.read_text().splitlines()]


@asynccontextmanager
async def playing(folder: Path, turns: list[dict[str, Any]]) -> AsyncIterator[Loop]:
    options = Options(log_prompts=folder / "prompts.jsonl")
    async with checked_server(folder, turns, options=options) as server:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
            yield Loop(OpenAIResponsesModel(model="scripted-1", openai_client=client), folder / "prompts.jsonl")


both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@both
async def test_a_tool_loop(tmp_path: Path, streamed: bool) -> None:
    async with playing(tmp_path, LOOP) as loop:
        result = await loop.run(
            loop.agent(instructions="Be brief."), "What is the weather in Paris?", streamed=streamed
        )
    assert result.final_output == "It is 18 degrees in Paris."
    kinds = [item.type for item in result.new_items]
    assert kinds == [
        "reasoning_item",
        "message_output_item",
        "tool_call_item",
        "tool_call_output_item",
        "message_output_item",
    ]
    assert all("Be brief." in prompt for prompt in loop.shown())
    assert result.context_wrapper.usage.output_tokens == sum(len(step) for turn in LOOP for step in turn["steps"])


async def test_the_events_of_a_streamed_loop(tmp_path: Path) -> None:
    async with playing(tmp_path, LOOP) as loop:
        result = Runner.run_streamed(loop.agent(), "The weather?", run_config=RunConfig(tracing_disabled=True))
        events = [event async for event in result.stream_events()]
    raw = [event.data for event in events if event.type == "raw_response_event"]
    deltas = [event.delta for event in raw if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "I look.It is 18 degrees in Paris."
    arguments = [event.delta for event in raw if event.type == "response.function_call_arguments.delta"]
    assert json.loads("".join(arguments)) == {"city": "Paris"}
    assert [event.name for event in events if event.type == "run_item_stream_event"] == [
        "reasoning_item_created",
        "message_output_created",
        "tool_called",
        "tool_output",
        "message_output_created",
    ]


@both
async def test_two_calls_in_one_turn(tmp_path: Path, streamed: bool) -> None:
    turns = [{"when": "both", "steps": [PARIS, "\n", ROME]}, {"when": "18 degrees", "steps": ["The same."]}]
    async with playing(tmp_path, turns) as loop:
        result = await loop.run(loop.agent(), "How is it in both?", streamed=streamed)
    assert result.final_output == "The same."
    assert "Paris: 18 degrees" in loop.shown()[1] and "Rome: 18 degrees" in loop.shown()[1]


@both
async def test_a_conversation_goes_on_with_its_items(tmp_path: Path, streamed: bool) -> None:
    turns = [*LOOP, {"when": "warmer", "steps": ["No."]}]
    async with playing(tmp_path, turns) as loop:
        first = await loop.run(loop.agent(), "The weather in Paris?", streamed=streamed)
        asked = [*first.to_input_list(), {"role": "user", "content": "Is it warmer in Rome?"}]
        second = await loop.run(loop.agent(), asked, streamed=streamed)
    assert second.final_output == "No."
    told = loop.shown()[2]
    assert all(said in told for said in ("The weather in Paris?", "I look.", "Paris: 18", "It is 18 degrees in Paris."))


@both
async def test_a_required_call(tmp_path: Path, streamed: bool) -> None:
    async with playing(tmp_path, [{"when": "Hi", "steps": [PARIS]}, ANSWER]) as loop:
        agent = loop.agent(model_settings=ModelSettings(tool_choice="required", parallel_tool_calls=False))
        result = await loop.run(agent, "Hi.", streamed=streamed)
    assert result.final_output == "It is 18 degrees in Paris.", "after a call the SDK asks for none any more"


async def test_a_required_call_ends_the_run_where_the_agent_says_so(tmp_path: Path) -> None:
    async with playing(tmp_path, [{"steps": [PARIS]}]) as loop:
        choice = ModelSettings(tool_choice="get_weather")
        agent = loop.agent(model_settings=choice, tool_use_behavior=StopAtTools(stop_at_tool_names=["get_weather"]))
        result = await loop.run(agent, "Hi.", streamed=False)
    assert result.final_output == "Paris: 18 degrees"


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        (["Text instead."], {"model_settings": ModelSettings(tool_choice="required")}),
        ([call("get_weather", {"town": "Paris"})], {}),
        (['{"city": "Paris"}'], {"tools": [], "output_type": Weather}),
    ],
    ids=["no call", "a strict tool's arguments", "an output type"],
)
async def test_what_breaks_the_request_is_no_answer(tmp_path: Path, steps: list[str], options: dict[str, Any]) -> None:
    async with playing(tmp_path, [{"steps": steps}]) as loop:
        with pytest.raises(InternalServerError):
            await loop.run(loop.agent(**options), "Hi.", streamed=False)


@both
async def test_an_output_type(tmp_path: Path, streamed: bool) -> None:
    weather = Weather(city="Paris", degrees=18, sky="clear")
    written = weather.model_dump_json()
    turns = [{"when": "Report", "steps": [PARIS]}, {"when": "18 degrees", "steps": [written[:20], written[20:]]}]
    async with playing(tmp_path, turns) as loop:
        result = await loop.run(loop.agent(output_type=Weather), "Report.", streamed=streamed)
    assert result.final_output == weather


@both
async def test_a_handoff(tmp_path: Path, streamed: bool) -> None:
    handoff = call("transfer_to_french", {})
    turns: list[dict[str, Any]] = [{"when": "Bonjour", "steps": [handoff]}, {"steps": ["Bonjour", " !"]}]
    async with playing(tmp_path, turns) as loop:
        french = loop.agent(name="french", instructions="Répondez.")
        result = await loop.run(loop.agent(handoffs=[french]), "Bonjour.", streamed=streamed)
    assert (result.final_output, result.last_agent.name) == ("Bonjour !", "french")
    assert "Répondez." in loop.shown()[1]
