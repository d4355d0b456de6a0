"""Custom tools, namespaces and tools among the items, from the request to the events and back into a prompt."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from antiphon.serving.service import Options
from tests.server import RunningServer, error_of, scripted_server, untouched

PATCH = '*** Begin Patch\n*** Delete File: "é"\\\n*** End Patch\n'
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch\\n" /.+/ "\\n*** End Patch\\n"'}
CUSTOM = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": GRAMMAR}
PLAIN = {"type": "custom", "name": "run", "description": None, "format": {"type": "text"}}
LIST = {"type": "function", "name": "list", "description": "Lists.", "parameters": {"type": "object"}, "strict": False}
FILES = {"type": "namespace", "name": "files", "description": "Of files.", "tools": [LIST, CUSTOM]}


def spoken(name: str, arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}</tool_call>"


def said(name: str, arguments: Any) -> list[str]:
    """A call in steps of three characters."""
    text = spoken(name, arguments)
    return [text[at : at + 3] for at in range(0, len(text), 3)]


TURNS: list[dict[str, Any]] = [
    {"when": "done", "steps": ["Fine."]},
    {"when": "patch", "steps": ["<think>so</think>", *said("apply_patch", {"input": PATCH}), "ok"]},
    {"when": "inner", "steps": [*said("files__apply_patch", {"input": PATCH}), *said("files__list", {"n": 1})]},
    {"when": "run", "steps": said("run", "ls -l")},
    {"when": "cut", "steps": said("run", {"input": "abcdefgh"})},
    {"steps": ["Hello"]},
]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[RunningServer, Path]]:
    folder = tmp_path_factory.mktemp("custom")
    log = folder / "prompts.jsonl"
    async with scripted_server(folder, TURNS, options=Options(log_prompts=log)) as server:
        yield server, log


@pytest_asyncio.fixture(loop_scope="module")
async def server(shared: tuple[RunningServer, Path]) -> AsyncIterator[RunningServer]:
    async with untouched(shared[0]):
        yield shared[0]


def calls_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a response without their ids."""
    ids = ("id", "call_id")
    return [
        {key: value for key, value in item.items() if key not in ids}
        for item in response["output"]
        if item["type"].endswith("_call")
    ]


def custom_call(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "custom_tool_call", "name": name, "input": text, "status": "completed", **more}


async def test_the_input_of_a_custom_tool_streams_as_plain_text(server: RunningServer) -> None:
    body = {"input": "patch", "tools": [CUSTOM]}
    events = await server.events(body)
    deltas = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    (done,) = [event for event in events if event["type"] == "response.custom_tool_call_input.done"]
    assert "".join(deltas) == done["input"] == PATCH
    assert len(deltas) > 5
    last = events[-1]["response"]
    assert calls_of(last) == [custom_call("apply_patch", PATCH)]
    assert [item["type"] for item in last["output"]] == ["reasoning", "custom_tool_call", "message"]
    assert calls_of(await server.create(body)) == calls_of(last)


async def test_the_calls_of_a_namespace_say_so(server: RunningServer) -> None:
    events = await server.events({"input": "inner", "tools": [FILES]})
    assert calls_of(events[-1]["response"]) == [
        custom_call("apply_patch", PATCH, namespace="files"),
        {
            "type": "function_call",
            "namespace": "files",
            "name": "list",
            "arguments": '{"n": 1}',
            "status": "completed",
        },
    ]
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert [(item["name"], item["namespace"]) for item in added] == [("apply_patch", "files"), ("list", "files")]


async def test_an_input_that_was_not_wrapped_is_the_same_input(server: RunningServer) -> None:
    assert calls_of(await server.create({"input": "run", "tools": [PLAIN]})) == [custom_call("run", "ls -l")]


async def test_an_input_that_the_limit_cuts_is_what_has_come(server: RunningServer) -> None:
    size = len(spoken("run", {"input": "abcd"})) - len('"}}</tool_call>')
    response = await server.create({"input": "cut", "tools": [PLAIN], "max_output_tokens": size})
    assert response["status"] == "incomplete"
    assert calls_of(response) == [custom_call("run", "abcd") | {"status": "incomplete"}]


async def test_tools_among_the_items_can_be_called_and_chosen(server: RunningServer) -> None:
    tools = {"type": "additional_tools", "role": "developer", "tools": [CUSTOM]}
    items = [{"role": "user", "content": "patch"}, tools]
    for more in ({}, {"tool_choice": "auto"}, {"tools": [LIST]}):
        assert calls_of(await server.create({"input": items, **more})) == [custom_call("apply_patch", PATCH)]
    assert calls_of(await server.create({"input": items, "tool_choice": "none"})) == []


async def test_the_tools_are_echoed_as_they_were_declared(server: RunningServer) -> None:
    hosted = {"type": "web_search"}
    inner = {**FILES, "tools": [*FILES["tools"], hosted]}
    response = await server.create({"input": "Hi", "tools": [CUSTOM, hosted, inner, PLAIN, LIST]})
    assert response["tools"] == [CUSTOM, FILES, PLAIN, LIST]
    bare = await server.create({"input": "Hi", "tools": [{"type": "custom", "name": "run"}]})
    assert bare["tools"] == [PLAIN]


async def test_two_tools_of_one_name_are_refused_wherever_they_stand(server: RunningServer) -> None:
    tools = {"type": "additional_tools", "tools": [{"type": "function", "name": "run"}]}
    answer = await server.post({"input": [tools], "tools": [PLAIN]})
    assert error_of(answer)["param"] == "input[0].tools[0].name"


async def test_a_grammar_that_cannot_be_enforced_is_refused_by_name(server: RunningServer) -> None:
    format = {"type": "grammar", "syntax": "regex", "definition": "(?=a)"}
    tools = [LIST, {"type": "namespace", "name": "n", "tools": [{**CUSTOM, "format": format}]}]
    answer = await server.post({"input": "Hi", "tools": tools, "tool_choice": "required"})
    error = error_of(answer)
    assert (error["param"], error["code"]) == ("tools[1].tools[0].format.definition", "unsupported_value")
    assert "(?=" in error["message"]


async def test_the_next_prompt_shows_the_call_as_it_was_made(shared: tuple[RunningServer, Path]) -> None:
    server, log = shared
    asked = {"role": "user", "content": "inner"}
    output = (await server.create({"input": [asked], "tools": [FILES]}))["output"]
    results = [
        {
            "type": item["type"] + "_output",
            "call_id": item["call_id"],
            "output": [{"type": "input_text", "text": "done"}],
        }
        for item in output
    ]
    raw = [asked, *output, *results]
    dumped = [asked, *({**item, "status": None, "id": f"own-{n}"} for n, item in enumerate(output)), *results]
    for items in (raw, dumped):
        assert (await server.create({"input": items, "tools": [FILES]}))["status"] == "completed"
    *_, one, other = [json.loads(line)["prompt"] for line in log.read_text().splitlines()]
    assert one == other
    assert "files__apply_patch" in one
    assert json.dumps({"input": PATCH}, ensure_ascii=False, separators=(",", ":"))[1:-1] in one
    assert "The input is a text that obeys" in one
