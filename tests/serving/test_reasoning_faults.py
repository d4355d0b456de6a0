"""Kinds of faults that users of Responses servers have met with reasoning, each with a small case of our own.

As in `tests/test_known_faults.py`, every stream here passes the event checker. Models begin to think in three ways, and
each case is tried with all: by a marker that is text, by one that is a token, and because the template has begun it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from antiphon.engine.base import Finish, Step
from antiphon.protocol.request import parse_request
from antiphon.serving.prepare import is_quick
from antiphon.serving.sealed import Sealer
from antiphon.serving.service import Options, Service
from antiphon.text.template import CHATML
from tests.engines import GivenEngine
from tests.server import SPECIAL, RunningServer, error_of, running_server, scripted_server, text_of, untouched

THOUGHT = ["They", " ask.", " STOP", " Well."]
ANSWER = ["Par", "is STOP", " no"]
THINKING = "".join(THOUGHT)
SEALER = Sealer(bytes(32))
F: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}}

# How thinking begins: settings of the script, and the model's first token or tokens.
BEGINNINGS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "text": ({}, list("<think>")),
    "token": ({"special_tokens": [*SPECIAL, "<think>", "</think>"]}, ["<think>"]),
    "template": ({"chat_template": CHATML + "{{ '<think>\\n' }}"}, []),
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Thinker:
    """A server whose model thinks. `opening`: the tokens that come before its thinking."""

    def __init__(self, server: RunningServer, opening: int, log: Path) -> None:
        self.server = server
        self.opening = opening
        self._log = log

    async def both(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The final response, streamed and whole."""
        return [(await self.server.events(body))[-1]["response"], await self.server.create(body)]

    @contextmanager
    def prompts(self) -> Iterator[list[str]]:
        """The prompts that are made in the block, once it has ended."""
        before = self._log.stat().st_size
        made: list[str] = []
        yield made
        made += [json.loads(line)["prompt"] for line in self._log.read_bytes()[before:].splitlines()]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=BEGINNINGS)
async def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Thinker]:
    top, opening = BEGINNINGS[request.param]
    folder = tmp_path_factory.mktemp("thinker")
    steps = ["".join(opening) + THOUGHT[0], *THOUGHT[1:], "</think>", "\n\n", *ANSWER]
    turns: list[dict[str, Any]] = [
        {"when": "question", "steps": steps},
        {"when": "empty", "steps": ["".join(opening) + "\n", "\n</think>", "Yes"]},
        {"steps": [*(["</think>"] if not opening else []), "Fine"]},
    ]
    log = folder / "prompts.jsonl"
    service = Service(Options(log_prompts=log), sealer=SEALER)
    async with scripted_server(folder, turns, top=top, service=service) as server:
        yield Thinker(server, len(opening), log)


@pytest_asyncio.fixture(loop_scope="module")
async def thinker(shared: Thinker) -> AsyncIterator[Thinker]:
    """After each case it still answers."""
    async with untouched(shared.server):
        yield shared
        assert text_of(await shared.server.create({"input": "Hi"})) == "Fine"


def shown(item: dict[str, Any]) -> str:
    return "".join(part["text"] for part in [*item["content"], *item.get("summary", [])])


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def deltas(events: list[dict[str, Any]], kind: str) -> list[str]:
    return [event["delta"] for event in events if event["type"] == f"response.{kind}.delta"]


async def test_reasoning_is_an_item_is_counted_and_streams(thinker: Thinker) -> None:
    events = await thinker.server.events({"input": "question"})
    assert deltas(events, "reasoning_text") == THOUGHT
    assert deltas(events, "output_text") == ANSWER
    for response in await thinker.both({"input": "question"}):
        assert kinds(response) == ["reasoning", "message"]
        assert [shown(item) for item in response["output"]] == [THINKING, "".join(ANSWER)]
        assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == len(THINKING)


async def test_a_summary_streams_and_the_text_goes_out_once(thinker: Thinker) -> None:
    body = {"input": "question", "reasoning": {"summary": "auto"}}
    events = await thinker.server.events(body)
    assert deltas(events, "reasoning_summary_text") == THOUGHT
    assert not any("reasoning_text" in event["type"] for event in events)
    assert json.dumps(events[-1]).count(THINKING) == 1
    for response in await thinker.both(body):
        assert response["output"][0]["summary"] == [{"type": "summary_text", "text": THINKING}]
        assert response["output"][0]["content"] == []
        assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == len(THINKING)


async def test_thinking_of_nothing_is_no_item(thinker: Thinker) -> None:
    for response in await thinker.both({"input": "empty"}):
        assert (kinds(response), text_of(response)) == (["message"], "Yes")
        assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 0


@pytest.mark.parametrize("reasoning", [None, {"summary": "auto"}], ids=["text", "summary"])
async def test_wherever_the_limit_falls_thinking_is_never_the_answer(thinker: Thinker, reasoning: Any) -> None:
    usage = (await thinker.server.create({"input": "question"}))["usage"]
    for limit in range(thinker.opening + 1, usage["output_tokens"]):
        body = {"input": "question", "max_output_tokens": limit, "reasoning": reasoning}
        streamed, whole = await thinker.both(body)
        assert [shown(item) for item in streamed["output"]] == [shown(item) for item in whole["output"]]
        assert (whole["status"], whole["usage"]["output_tokens"]) == ("incomplete", limit)
        thought, *said = whole["output"]
        assert thought["type"] == "reasoning"
        assert f"{THINKING}</think>".startswith(shown(thought))
        if said:
            assert shown(thought) == THINKING
            assert "".join(ANSWER).startswith(text_of(whole))


async def test_a_stop_string_does_not_act_in_thinking(thinker: Thinker) -> None:
    for response in await thinker.both({"input": "question", "stop": "STOP"}):
        assert [shown(item) for item in response["output"]] == [THINKING, "Paris "]
        assert response["status"] == "completed"


async def test_what_agents_always_ask_for_is_given(thinker: Thinker) -> None:
    include = ["reasoning.encrypted_content", "message.output_text.logprobs", "file_search_call.results"]
    body = {"input": "question", "include": include, "reasoning": {"effort": None, "summary": None}, "store": False}
    for response in await thinker.both(body):
        thought, said = response["output"]
        assert SEALER.open(thought["encrypted_content"]) == THINKING
        assert b"ask" not in base64.urlsafe_b64decode(thought["encrypted_content"])
        assert "".join(entry["token"] for entry in said["content"][0]["logprobs"]) == "".join(ANSWER)


async def test_an_effort_that_cannot_be_chosen_is_refused_before_the_first_byte(thinker: Thinker) -> None:
    for stream in (False, True):
        answer = await thinker.server.post({"input": "question", "reasoning": {"effort": "high"}, "stream": stream})
        assert (answer.status_code, error_of(answer)["param"]) == (400, "reasoning.effort")


def summary(text: str) -> list[dict[str, Any]]:
    return [{"type": "summary_text", "text": text}]


def content(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "reasoning_text", "text": text} for text in texts]


# Reasoning as clients send it back, and what the model is shown of it.
REPLAYED: dict[str, tuple[dict[str, Any], str]] = {
    "a summary alone": ({"summary": summary("in short")}, "in short"),
    "a summary and a null": ({"summary": summary("in short"), "content": None}, "in short"),
    "the text counts for more than its summary": ({"summary": summary("in short"), "content": content("long")}, "long"),
    "every part counts": ({"summary": [], "content": content("one", " two", " three")}, "one two three"),
    "sealed alone": ({"summary": [], "encrypted_content": SEALER.seal("secret")}, "secret"),
    "sealed and a summary": ({"summary": summary("in short"), "encrypted_content": SEALER.seal("secret")}, "secret"),
    "sealed and no other key": ({"encrypted_content": SEALER.seal("secret")}, "secret"),
    "only nulls": ({"summary": [], "content": None, "encrypted_content": None, "status": None}, ""),
    "nothing at all": ({}, ""),
}


@pytest.mark.parametrize("form", REPLAYED)
async def test_reasoning_that_comes_back_is_used(thinker: Thinker, form: str) -> None:
    item, expected = REPLAYED[form]
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "18 degrees"}
    history = [{"role": "user", "content": "Hi"}, {"type": "reasoning", "id": "rs_1", **item}, call, result]
    with thinker.prompts() as made:
        assert text_of(await thinker.server.create({"input": history, "tools": [F]})) == "Fine"
    (prompt,) = made
    replayed = f"<think>\n{expected}\n</think>" if expected else ""
    assert replayed in prompt
    assert prompt.count("</think>") == bool(expected)
    assert expected == "in short" or "in short" not in prompt


SWITCH = CHATML + (
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
)


async def test_an_effort_of_none_is_none(tmp_path: Path) -> None:
    turns: list[dict[str, Any]] = [
        {"when": "</think>\n\n$", "scope": "prompt", "steps": ["Paris"]},
        {"steps": ["<think>They ask</think>", "Paris"]},
    ]
    async with scripted_server(tmp_path, turns, top={"chat_template": SWITCH}) as server:
        for effort, items in (("none", ["message"]), ("high", ["reasoning", "message"])):
            response = await server.create({"input": "Hi", "reasoning": {"effort": effort}})
            assert (kinds(response), text_of(response)) == (items, "Paris")
            assert response["reasoning"] == {"effort": effort, "summary": None}
            reasoning_tokens = response["usage"]["output_tokens_details"]["reasoning_tokens"]
            assert (reasoning_tokens == 0) == (effort == "none")


async def test_an_effort_of_none_keeps_thinking_out_where_the_template_has_no_switch() -> None:
    """By a constraint on the tokens; here only what the engine is told."""
    engine = GivenEngine([Step(tuple(b"Paris"), Finish.STOP)])
    async with running_server(engine.load) as server:
        for effort in ("none", None):
            response = await server.create({"input": "Hi", "reasoning": {"effort": effort}})
            assert response["reasoning"] == {"effort": effort, "summary": None}
    forbidding, free = (generation.sampling.constraint for generation in engine.asked)
    assert free is None
    assert forbidding is not None
    assert [forbidding.accept(token) for token in b"a <think>"] == [True] * 8 + [False]


@pytest.mark.parametrize(
    ("template", "dialect", "status"),
    [
        (None, "hermes", 200),
        (CHATML, "hermes", 200),
        (CHATML + "{{ '<think>' }}", "hermes", 200),
        (CHATML + "{{ '<my:think>' }}", "hermes", 400),
        (CHATML + "{{ 'Let me reason step by step.' }}", "hermes", 400),
        (None, "plain", 200),
        (CHATML + "{{ '<think>' }}", "plain", 400),
    ],
)
async def test_an_effort_of_none_is_refused_where_nobody_knows_how_thinking_begins(
    template: str | None, dialect: str, status: int
) -> None:
    engine = GivenEngine([Step(tuple(b"Paris"), Finish.STOP)], dialect=dialect)
    engine.info = replace(engine.info, chat_template=template)
    async with running_server(engine.load) as server:
        answer = await server.post({"input": "Hi", "reasoning": {"effort": "none"}})
    assert answer.status_code == status
    assert status == 200 or error_of(answer)["param"] == "reasoning.effort"


@pytest.mark.parametrize(("effort", "given"), [("none", True), ("high", False)])
async def test_an_effort_that_a_template_s_variable_contradicts_is_refused(
    tmp_path: Path, effort: str, given: bool
) -> None:
    turns: list[dict[str, Any]] = [{"steps": ["Paris"]}]
    async with scripted_server(tmp_path, turns, top={"chat_template": SWITCH}) as server:
        body = {"input": "Hi", "reasoning": {"effort": effort}}
        answer = await server.post({**body, "chat_template_kwargs": {"enable_thinking": given}})
        error = error_of(answer)
        same = await server.create({**body, "chat_template_kwargs": {"enable_thinking": not given}})
    assert (answer.status_code, error["param"]) == (400, "chat_template_kwargs.enable_thinking")
    assert same["reasoning"]["effort"] == effort


async def test_what_keeps_thinking_out_is_not_made_on_the_event_loop() -> None:
    """The first grammar takes half a second, in which no other answer would go on."""
    efforts = ("none", "high", None)
    bodies = (json.dumps({"input": "Hi", "reasoning": {"effort": effort}}) for effort in efforts)
    quick = dict(zip(efforts, (is_quick(parse_request(body.encode())) for body in bodies), strict=True))
    assert quick == {"none": False, "high": True, None: True}
