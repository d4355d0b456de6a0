"""Small requests that would cost much are refused, or cost little."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.engine.base import Finish, Step
from antiphon.protocol.tools import MAX_TOOLS
from antiphon.text.escaped_grammar import escaped_grammar
from antiphon.text.messages import InputGrammar
from tests.engines import GivenEngine
from tests.server import error_of, running_server

F: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}


def strict(parameters: dict[str, Any]) -> dict[str, Any]:
    return {**F, "parameters": parameters, "strict": True}


def tree(levels: int, width: int) -> dict[str, Any]:
    """Alternatives that each lead to as many: `width` to the power of `levels` in all."""
    links = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * width} for n in range(levels)}
    return {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a0"}},
        "required": ["x"],
        "additionalProperties": False,
        "$defs": {**links, f"a{levels}": {"type": "string"}},
    }


async def answered(dialect: str, body: dict[str, Any]) -> Any:
    engine = GivenEngine([Step(tuple(b"ok"), Finish.STOP)], dialect=dialect, context_length=1_000_000)
    async with running_server(engine.load) as server:
        return await server.post({"input": "Hi", "tool_choice": "required", **body})


@pytest.mark.parametrize("dialect", ["hermes", "qwen3-coder", "glm-4.x", "gemma-4", "llama-pythonic", "gpt-oss"])
@pytest.mark.parametrize(("levels", "width"), [(12, 8), (22, 2), (400, 1)])
async def test_alternatives_that_multiply_are_not_written_out(dialect: str, levels: int, width: int) -> None:
    answer = await answered(dialect, {"tools": [strict(tree(levels, width))]})
    assert answer.status_code == 200 or error_of(answer)["param"].startswith("tools"), answer.text


async def test_definitions_are_not_copied_without_end() -> None:
    definitions = {f"d{n}": {"enum": [f"{n} " * 20]} for n in range(400)}
    properties = {f"p{n}": {"anyOf": [{"$ref": f"#/$defs/d{n}"}, {"type": "object"}]} for n in range(400)}
    parameters = {"type": "object", "properties": properties, "$defs": definitions, "additionalProperties": False}
    error = error_of(await answered("llama-pythonic", {"tools": [strict(parameters)]}))
    assert "characters" in error["message"]


async def test_what_is_ignored_is_written_once() -> None:
    grammar = f'start: {"A " * 5_000}\nA: "a"\n%ignore /{"b" * 10_000}/'
    tool = {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": grammar}}
    _, rules = escaped_grammar(InputGrammar("lark", grammar), "x")
    assert sum(map(len, rules)) < 10 * len(grammar)
    assert (await answered("hermes", {"tools": [tool]})).status_code == 200


async def test_tools_are_counted_wherever_they_are_declared() -> None:
    items = [
        {"type": "additional_tools", "tools": [{**F, "name": f"f{n}_{m}"} for m in range(MAX_TOOLS // 2)]}
        for n in range(3)
    ]
    error = error_of(await answered("hermes", {"input": items, "tool_choice": "auto"}))
    assert (error["param"], str(MAX_TOOLS) in error["message"]) == ("tools", True)


async def test_allowed_tools_are_counted() -> None:
    allowed = [{"type": "function", "name": "f"}] * (MAX_TOOLS + 1)
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    assert error_of(await answered("hermes", {"tools": [F], "tool_choice": choice}))["param"] == "tool_choice.tools"


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"type": "string", "pattern": "[^\\s\\S]"}])
async def test_a_schema_that_nothing_obeys_is_refused(schema: dict[str, Any]) -> None:
    shape = {"type": "json_schema", "name": "s", "schema": schema}
    error = error_of(await answered("hermes", {"tool_choice": "auto", "text": {"format": shape}}))
    assert error["param"] == "text.format.schema"


@pytest.mark.parametrize("choice", ["required", "auto"])
@pytest.mark.parametrize(
    ("syntax", "definition"),
    [("regex", "[^\\s\\S]"), ("lark", "start: start"), ("lark", 'start: A\nA: "a" & "b"')],
)
async def test_a_grammar_that_no_input_obeys_is_refused(syntax: str, definition: str, choice: str) -> None:
    format = {"type": "grammar", "syntax": syntax, "definition": definition}
    body = {"tools": [F, {"type": "custom", "name": "c", "format": format}], "tool_choice": choice}
    assert error_of(await answered("hermes", body))["param"] == "tools[1].format.definition"


async def test_no_allowed_tool_is_no_call() -> None:
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    engine = GivenEngine([Step(tuple(call.encode()), Finish.STOP)])
    choice = {"type": "allowed_tools", "mode": "auto", "tools": []}
    async with running_server(engine.load) as server:
        response = await server.create({"input": "Hi", "tools": [F], "tool_choice": choice})
    assert [item["type"] for item in response["output"]] == ["message"]
