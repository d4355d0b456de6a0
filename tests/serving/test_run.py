"""Hang and fail everywhere, and the output limit at every token: the client always gets its end, the engine is free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from antiphon.api.settings import ApiSettings
from antiphon.protocol.request import parse_request
from antiphon.serving.run import STEPS_A_WRITE
from tests.server import RunningServer, parse_events, scripted_server, text_of, untouched

SILENCE = 0.01
"""Seconds before a keep-alive, which tells a test that a script hangs where it should."""

MESSAGE = ["Hel", "lo", " wor", "ld"]
REASONING = ["<think>", "I ", "think", " so", "</think>", "Yes"]
CALL = ['<tool_call>{"name": "f"', ', "argu', 'ments": {"a"', ": 1}", "}</tool", "_call>"]
BETWEEN = ["<think>a", "</think>b", '<tool_call>{"name": "f", "arguments": {}}', "</tool_call>", "c"]
SCRIPTS = {"message": MESSAGE, "reasoning": REASONING, "call": CALL, "between": BETWEEN}
PLACES = [(kind, n) for kind, steps in SCRIPTS.items() for n in range(len(steps) + 1)]
TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]

pytestmark = pytest.mark.asyncio(loop_scope="module")


def turns() -> list[dict[str, Any]]:
    """For each script: it hangs, and it fails, before step n; and it is played whole."""
    found: list[dict[str, Any]] = []
    for kind, n in PLACES:
        steps = SCRIPTS[kind][:n]
        found.append({"when": f"hang {kind} {n}<", "steps": [*steps, {"hang": True}]})
        found.append({"when": f"fail {kind} {n}<", "steps": [*steps, {"fail": "device lost"}]})
    return found + [{"when": f"play {kind}<", "steps": steps} for kind, steps in SCRIPTS.items()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    settings = ApiSettings(keepalive_seconds=SILENCE)
    async with scripted_server(tmp_path_factory.mktemp("run"), turns(), settings=settings) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def server(shared: RunningServer) -> AsyncIterator[RunningServer]:
    """Afterwards the engine is free and the next request is answered."""
    async with untouched(shared):
        yield shared
    assert text_of(await shared.create({"input": "play message<"})) == "".join(MESSAGE)


def request(words: str, **more: Any) -> dict[str, Any]:
    return {"input": words, "tools": TOOLS, **more}


@pytest.mark.parametrize(("kind", "n"), PLACES)
async def test_a_failure_ends_in_a_failed_response(server: RunningServer, kind: str, n: int) -> None:
    events = parse_events(await server.stream(request(f"fail {kind} {n}<")))
    last = events[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert "device" not in last["response"]["error"]["message"]
    assert last["response"]["usage"]["output_tokens"] == len("".join(SCRIPTS[kind][:n]))
    assert (await server.post(request(f"fail {kind} {n}<"))).status_code == 500
    assert server.running == 0


@pytest.mark.parametrize(("kind", "n"), PLACES)
async def test_a_client_that_leaves_a_hanging_response_frees_it(server: RunningServer, kind: str, n: int) -> None:
    async with server.live(request(f"hang {kind} {n}<")) as stream:
        await stream.until(b"event: keepalive\n")
    await server.idle()


def masked(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items without what is minted anew in each response."""
    return [{key: value for key, value in item.items() if key not in ("id", "call_id")} for item in output]


@pytest.mark.parametrize("kind", SCRIPTS)
async def test_the_limit_at_every_token(server: RunningServer, kind: str) -> None:
    """Streamed and whole are the same, usage is exact, and one token more than there is changes nothing."""
    whole = "".join(SCRIPTS[kind])
    for n in range(1, len(whole) + 2):
        body = request(f"play {kind}<", max_output_tokens=n)
        streamed = parse_events(await server.stream(body))[-1]["response"]
        answered = await server.create(body)
        assert masked(streamed["output"]) == masked(answered["output"]), n
        for response in (streamed, answered):
            assert response["usage"]["output_tokens"] == min(n, len(whole))
            assert response["status"] == ("incomplete" if n <= len(whole) else "completed")
            assert response["max_output_tokens"] == n
            thinking = sum(len(text) for kind, text, _ in shown(response["output"]) if kind == "reasoning")
            assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == thinking, n
        assert shown(streamed["output"]) == expected(kind, n), n


def shown(output: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Type, text and status of each item."""
    texts = [
        item["arguments"] if item["type"] == "function_call" else "".join(part["text"] for part in item["content"])
        for item in output
    ]
    return [(item["type"], text, item["status"]) for item, text in zip(output, texts, strict=True)]


def expected(kind: str, n: int) -> list[tuple[str, str, str]]:
    """What the first `n` tokens (one a character) of a script are, read off the script by hand."""
    whole = "".join(SCRIPTS[kind])
    text, cut = whole[:n], "incomplete" if n <= len(whole) else "completed"
    if kind == "message":
        return [("message", text, cut)]
    if kind == "reasoning":
        return thought(text, "<think>", "</think>", cut)
    if kind == "call":
        return called(text, cut)
    items = thought(text, "<think>", "</think>", cut)
    rest = text.partition("</think>b")[2]
    if '"name": "f"' not in rest:
        return items
    return [items[0], ("message", "b", "completed"), *called(rest, cut)]


def thought(text: str, opening: str, closing: str, cut: str) -> list[tuple[str, str, str]]:
    if not text.startswith(opening):
        return [("message", text, cut)]
    thinking, closed, after = text.removeprefix(opening).partition(closing)
    if not thinking:
        return [("message", "", cut)]
    items = [("reasoning", thinking, "completed" if closed else cut)]
    return [*items, ("message", after, cut)] if after else items


def called(text: str, cut: str) -> list[tuple[str, str, str]]:
    named, start = '"name": "f"', '"arguments": '
    if named not in text:
        return [("message", text, cut)]
    _, _, arguments = text.partition(start)
    end = arguments.find("}") + 1 or len(arguments)
    after = arguments[end:].removeprefix("}").removeprefix("</tool_call>")
    if "</tool_call>".startswith(after):
        after = ""
    closed = arguments[end : end + 1] == "}"
    items = [("function_call", arguments[:end], "completed" if closed else cut)]
    return [*items, ("message", after, cut)] if after else items


async def test_much_at_once_leaves_the_others_their_turn(tmp_path: Path) -> None:
    turns = [0]

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async with scripted_server(tmp_path, [{"steps": list("abcd"), "repeat": 256}]) as running:
        run = await running.service.create(parse_request(b'{"input": "x"}'))
        steps = 0
        other = asyncio.create_task(others())
        async for events in run.events():
            steps += sum(event.__struct_config__.tag == "response.output_text.delta" for event in events)
        other.cancel()
    assert steps == 1024, "and each step is a delta of its own"
    assert turns[0] >= 1024 // STEPS_A_WRITE - 1


async def test_who_is_cut_off_by_the_end_of_the_server_is_told_so(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, [{"steps": ["a", {"hang": True}]}]) as running:
        run = await running.service.create(parse_request(b'{"input": "x"}'), request_id="req_1")
        answering = asyncio.create_task(run.respond())
        await asyncio.sleep(0)
        await running.service.close()
        response = await answering
    assert response.error is not None
    assert response.error.message == "The server is shutting down (request req_1)."
