"""Kinds of faults that users of Responses servers have met, each with a small case of our own.

Every stream here passes the event checker (the fixture sees to it), which holds most of what is said about shape: every
required field on every event, one counter, one id for an item from beginning to end, indices that are dense, deltas
inside their parts. The cases below are the outputs and requests that used to bring such faults out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.server import RunningServer, error_of, scripted_server, text_of, untouched

F = {"type": "function", "name": "f", "parameters": {"type": "object"}}
G = {"type": "function", "name": "g", "parameters": {"type": "object"}}
ONE = '<tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call>'
TWO = '<tool_call>{"name": "g", "arguments": {"m": [2]}}</tool_call>'
MARKED = '{"text": "a </tool_call> and <tool_call> and </parameter>"}'
OPEN = '<tool_call>{"name": "f", "arguments": {"n": '

Shape = list[tuple[str, str]]
"""Type and text (arguments of a call) of each item."""

OUTPUTS: dict[str, tuple[list[Any], Shape]] = {
    "plain text, an id for each event": (["a", "b"], [("message", "ab")]),
    "one call has an id and a call_id": ([ONE], [("function_call", '{"n": 1}')]),
    "arguments of two calls keep apart": (
        [ONE, TWO],
        [("function_call", '{"n": 1}'), ("function_call", '{"m": [2]}')],
    ),
    "one step holds the end of a call and the start of the next thing": (
        [OPEN, "1}}</tool_call><think>so</think>done" + OPEN, "2}}", "</tool_call>end"],
        [
            ("function_call", '{"n": 1}'),
            ("reasoning", "so"),
            ("message", "done"),
            ("function_call", '{"n": 2}'),
            ("message", "end"),
        ],
    ),
    "text before, between and behind calls is not lost": (
        ["a" + ONE + "b" + TWO + "c"],
        [
            ("message", "a"),
            ("function_call", '{"n": 1}'),
            ("message", "b"),
            ("function_call", '{"m": [2]}'),
            ("message", "c"),
        ],
    ),
    "arguments that hold markers are not cut": (
        [f'<tool_call>{{"name": "f", "arguments": {MARKED}}}</tool_call>'],
        [("function_call", MARKED)],
    ),
    "a call that opens inside an unfinished one ends it": (
        [OPEN, TWO],
        [("function_call", '{"n": '), ("function_call", '{"m": [2]}')],
    ),
    "thinking that speaks of calls calls nothing": (
        ["<think>the model writes <tool_call> here</think>ok"],
        [("reasoning", "the model writes <tool_call> here"), ("message", "ok")],
    ),
    "a malformed call is text, not an error": (
        ["<tool_call>to=f {oops</tool_call>"],
        [("message", "<tool_call>to=f {oops</tool_call>")],
    ),
    "a call without arguments": (['<tool_call>{"name": "f"}</tool_call>'], [("function_call", "{}")]),
    "numbers stay numbers": ([OPEN, "5.0}}", "</tool_call>"], [("function_call", '{"n": 5.0}')]),
    "nothing at all is one empty message": ([], [("message", "")]),
    "thinking twice is two items": (
        ["<think>a</think>", "<think>b</think>", "c"],
        [("reasoning", "a"), ("reasoning", "b"), ("message", "c")],
    ),
}
CUT: dict[str, tuple[str, int, Shape]] = {
    "cut inside a call: no marker in the text": ("cut call", 50, [("function_call", '{"n": 1')]),
    "cut inside thinking: it is not sent again as the answer": ("cut think", 10, [("reasoning", "abc")]),
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


def turns() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for n, (steps, _) in enumerate(OUTPUTS.values()):
        found.append({"when": f"output {n}<", "steps": steps})
        characters = [character for step in steps for character in step]
        found.append({"when": f"single {n}<", "steps": characters})
    return [
        *found,
        {"when": "cut call", "steps": [OPEN + "12345}}</tool_call>"]},
        {"when": "cut think", "steps": ["<think>abcdef</think>g"]},
        {"when": "device", "steps": ["<think>a</think>b", OPEN, {"fail": "lost"}]},
        {"when": "story", "steps": ["Once ", "upon ", "a ", "time"]},
        {"when": "long call", "steps": [OPEN, "[1, ", "2, ", "3]", "}}</tool_call>"]},
        {"steps": ["Hello"]},
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    top = {"context_length": 2000}
    async with scripted_server(tmp_path_factory.mktemp("faults"), turns(), top=top) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def server(shared: RunningServer) -> AsyncIterator[RunningServer]:
    """After each case it still answers."""
    async with untouched(shared):
        yield shared
        assert text_of(await shared.create({"input": "Hi"})) == "Hello"


def shape(output: list[dict[str, Any]]) -> Shape:
    return [
        (
            item["type"],
            item["arguments"] if "arguments" in item else "".join(part["text"] for part in item["content"]),
        )
        for item in output
    ]


@pytest.mark.parametrize("name", OUTPUTS)
async def test_outputs(server: RunningServer, name: str) -> None:
    """In the steps of the script and one character a step, streamed and whole: the same items."""
    number = list(OUTPUTS).index(name)
    for words in (f"output {number}<", f"single {number}<"):
        body = {"input": words, "tools": [F, G]}
        events = await server.events(body)
        last = events[-1]["response"]
        assert shape(last["output"]) == OUTPUTS[name][1], words
        assert shape((await server.create(body))["output"]) == OUTPUTS[name][1], words
        assert last["status"] == "completed"
        assert [event["item"] for event in events if event["type"].endswith("item.done")] == last["output"]


@pytest.mark.parametrize("name", CUT)
async def test_outputs_that_the_limit_cuts(server: RunningServer, name: str) -> None:
    words, limit, expected = CUT[name]
    body = {"input": words, "tools": [F], "max_output_tokens": limit}
    for response in ((await server.events(body))[-1]["response"], await server.create(body)):
        (item,) = response["output"]
        kind, text = shape([item])[0]
        assert (kind, item["status"], response["status"]) == (expected[0][0], "incomplete", "incomplete")
        assert text.startswith(expected[0][1])
        assert response["usage"]["output_tokens"] == limit


async def test_an_engine_s_failure_ends_the_stream_with_closed_items(server: RunningServer) -> None:
    events = await server.events({"input": "device", "tools": [F]})
    last = events[-1]
    assert last["type"] == "response.failed"
    assert shape(last["response"]["output"]) == [("reasoning", "a"), ("message", "b"), ("function_call", '{"n": ')]
    assert last["response"]["output"][-1]["status"] == "incomplete"


async def test_text_streams_though_there_are_tools(server: RunningServer) -> None:
    events = await server.events({"input": "story", "tools": [F]})
    assert sum(event["type"] == "response.output_text.delta" for event in events) == 4


async def test_arguments_stream_and_do_not_come_in_one_lump(server: RunningServer) -> None:
    events = await server.events({"input": "long call", "tools": [F]})
    assert sum(event["type"] == "response.function_call_arguments.delta" for event in events) >= 4


USER = {"role": "user", "content": "Hi"}
CALL = {"type": "function_call", "id": "x", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "ok", "status": "completed", "id": None}
SAID = {"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": None}]}

ACCEPTED: dict[str, dict[str, Any]] = {
    "a message without a type": {"input": [USER, SAID, USER]},
    "a message with the nulls of an SDK": {
        "input": [{"id": "msg_1", "type": "message", "status": None, **SAID, "phase": None}, USER]
    },
    "user, assistant as a string, user": {"input": [USER, {"role": "assistant", "content": "a"}, USER]},
    "a replayed call and its output": {"input": [USER, SAID, CALL, RESULT, USER]},
    "a call that has no output yet": {"input": [USER, CALL, USER]},
    "reasoning with nothing but a summary": {
        "input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}, SAID, USER]
    },
    "reasoning with null content and several parts": {
        "input": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": t} for t in "ab"], "summary": []},
            USER,
        ]
    },
    "two developer messages": {"input": [{"role": "developer", "content": text} for text in "ab"] + [USER]},
    "a developer message in the middle": {"input": [USER, {"role": "developer", "content": "a"}, USER]},
    "instructions and a system message": {"instructions": "a", "input": [{"role": "system", "content": "b"}, USER]},
    "tools of types that this server does not run": {
        "input": "Hi",
        "tools": [F, {"type": "web_search"}, {"type": "tool_search"}],
    },
    "includes that cannot be filled": {"input": "Hi", "include": ["web_search_call.action.sources"]},
    "a list of parts as an output": {
        "input": [CALL, {**RESULT, "output": [{"type": "input_text", "text": t} for t in "ab"]}, USER]
    },
    "fields that only one client knows": {"input": "Hi", "client_metadata": {"a": "b"}, "stream_options": None},
    "an empty probe": {"input": [], "max_output_tokens": 16},
    "nulls for everything that is not set": {
        "input": "Hi",
        "tools": None,
        "tool_choice": None,
        "reasoning": None,
        "text": None,
        "metadata": None,
        "stop": None,
        "store": None,
        "include": None,
        "truncation": None,
        "parallel_tool_calls": None,
    },
}


@pytest.mark.parametrize("name", ACCEPTED)
async def test_requests_that_are_answered(server: RunningServer, name: str) -> None:
    assert text_of(await server.create(ACCEPTED[name])) == "Hello"
    assert (await server.events(ACCEPTED[name]))[-1]["type"] == "response.completed"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an effort that no one knows": ({"reasoning": {"effort": "extreme"}}, "reasoning.effort"),
    "a schema that cannot be enforced is not quietly ignored": (
        {"text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "string", "pattern": "(?=a)b"}}}},
        "text.format.schema",
    ),
    "a strict tool that cannot be enforced is not quietly loose": (
        {"tools": [{**F, "strict": True, "parameters": {"not": {}}}], "tool_choice": "required"},
        "tools[0].parameters",
    ),
    "storing is not quietly left out": ({"store": True}, "store"),
    "a top_k below zero": ({"top_k": -1}, "top_k"),
    "a prompt longer than the context": ({"input": "x" * 3000}, "input"),
    "an output without its call": ({"input": [RESULT]}, "input[0].call_id"),
    "two outputs of one call": ({"input": [CALL, RESULT, RESULT]}, "input[2].call_id"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_requests_that_are_refused_before_the_first_byte(server: RunningServer, name: str) -> None:
    body, param = REFUSED[name]
    for stream in (False, True):
        answer = await server.post({"input": "Hi", **body, "stream": stream})
        assert answer.status_code == 400
        assert error_of(answer)["param"] == param
        assert server.running == 0
