"""The tools of a request for the model, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.fragments import Call
from antiphon.protocol.request import CreateResponse, parse_request
from antiphon.protocol.tools import AllowedTools, NamedChoice
from antiphon.serving.toolbox import Toolbox
from antiphon.text.messages import InputGrammar, ToolDefinition

PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}
INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
LARK = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"\n'}
REGEX = {"type": "grammar", "syntax": "regex", "definition": "a+"}


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, **more}


def custom(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "custom", "name": name, **more}


def namespace(name: str, *tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": list(tools), **more}


def additional(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "additional_tools", "tools": list(tools)}


def request(*tools: dict[str, Any], items: list[dict[str, Any]] | None = None, **more: Any) -> CreateResponse:
    body = {"input": [{"role": "user", "content": "hi"}, *(items or [])], "tools": list(tools), **more}
    return parse_request(json.dumps(body).encode())


def toolbox(*tools: dict[str, Any], items: list[dict[str, Any]] | None = None) -> Toolbox:
    return Toolbox(request(*tools, items=items))


def names(box: Toolbox) -> list[str]:
    return [definition.name for definition in box.definitions]


def test_a_function_is_what_it_is() -> None:
    box = toolbox(function("f", description="F.", parameters=PARAMETERS, strict=True), function("g", strict=None))
    assert box.definitions == [ToolDefinition("f", "F.", PARAMETERS, strict=True), ToolDefinition("g")]
    assert box.schemas() == {"f": PARAMETERS, "g": {}}
    assert not box.renames
    assert box.restored(Call(name="f")) == Call(name="f")


def test_a_custom_tool_is_a_function_of_one_string() -> None:
    box = toolbox(custom("c", description="C."), custom("d", format={"type": "text"}))
    assert box.definitions == [
        ToolDefinition("c", "C.", INPUT, strict=True),
        ToolDefinition("d", "", INPUT, strict=True),
    ]
    assert box.renames
    assert box.restored(Call(name="c")) == Call(name="c", custom=True)


@pytest.mark.parametrize(
    ("format", "told"),
    [
        (LARK, 'The input is a text that obeys this grammar in Lark\'s notation:\nstart: "a"'),
        (REGEX, "The input is a text that obeys this regular expression:\na+"),
    ],
)
def test_the_model_is_told_of_the_grammar_of_an_input(format: dict[str, str], told: str) -> None:
    with_words, without = toolbox(custom("c", description="C.", format=format), custom("d", format=format)).definitions
    grammar = InputGrammar(format["syntax"], format["definition"])  # type: ignore[arg-type]
    assert with_words == ToolDefinition("c", f"C.\n\n{told}", INPUT, strict=True, input=grammar)
    assert without.description == told


def test_the_tools_of_a_namespace_have_its_name_and_its_description() -> None:
    box = toolbox(
        namespace("files", function("list", description="Lists."), custom("patch"), description="Of files."),
        namespace("bare", function("list", parameters=PARAMETERS)),
        function("list"),
    )
    assert box.definitions == [
        ToolDefinition("files__list", "Lists.\n\nOf files."),
        ToolDefinition("files__patch", "Of files.", INPUT, strict=True),
        ToolDefinition("bare__list", "", PARAMETERS),
        ToolDefinition("list"),
    ]
    assert box.renames
    assert box.restored(Call(name="files__list")) == Call(name="list", namespace="files")
    assert box.restored(Call(name="files__patch")) == Call(name="patch", namespace="files", custom=True)
    assert box.restored(Call(name="list")) == Call(name="list")


def test_a_namespace_alone_renames() -> None:
    assert toolbox(namespace("n", function("f"))).renames


def test_tools_among_the_items_are_declared_wherever_they_stand() -> None:
    items = [additional(namespace("n", custom("c"))), {"role": "user", "content": "and"}, additional(function("g"))]
    box = toolbox(function("f"), items=items)
    assert names(box) == ["f", "n__c", "g"]
    assert box.param("g") == "input[3].tools[0].parameters"
    assert box.param("n__c") == "input[1].tools[0].tools[0].format.definition"


def test_where_the_arguments_of_a_tool_are_said_to_be_as_they_must() -> None:
    box = toolbox(function("f"), namespace("n", function("g"), custom("c")))
    assert [box.param(name) for name in ("f", "n__g", "n__c")] == [
        "tools[0].parameters",
        "tools[1].tools[0].parameters",
        "tools[1].tools[1].format.definition",
    ]


def test_what_is_not_run_here_is_left_out_and_told() -> None:
    box = toolbox(
        {"type": "web_search"},
        function("f"),
        namespace("n", {"type": "tool_search"}, function("g")),
        items=[additional({"type": "mcp", "server_label": "a"})],
    )
    assert names(box) == ["f", "n__g"]
    assert [(tool.type, tool.path) for tool in box.hosted] == [
        ("web_search", "tools[0]"),
        ("tool_search", "tools[2].tools[0]"),
        ("mcp", "input[1].tools[0]"),
    ]


@pytest.mark.parametrize(
    ("tools", "more", "param"),
    [
        ([function("f")], [custom("f")], "input[1].tools[0].name"),
        ([function("f")], [function("g"), function("f", strict=True)], "input[1].tools[1].name"),
        ([function("n__f")], [namespace("n", function("f"))], "input[1].tools[0].tools[0].name"),
    ],
)
def test_two_tools_of_one_name_are_refused(tools: list[Any], more: list[Any], param: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        toolbox(*tools, items=[additional(*more)])
    assert (refused.value.status, refused.value.param) == (400, param)


def test_a_tool_that_is_declared_again_is_the_same() -> None:
    again = namespace("n", function("f", parameters=PARAMETERS))
    assert names(toolbox(again, items=[additional(again), additional(again)])) == ["n__f"]


TOOLS = [function("f"), function("g"), custom("c"), namespace("n", function("f"), custom("c"), custom("d"))]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (function("g"), {"g"}),
        (function("f"), {"f", "n__f"}),
        (custom("d"), {"n__d"}),
        ({"type": "allowed_tools", "mode": "auto", "tools": [function("g"), custom("c")]}, {"g", "c", "n__c"}),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, set()),
    ],
)
def test_the_tools_that_a_choice_means(choice: dict[str, Any], expected: set[str]) -> None:
    made = request(*TOOLS, tool_choice=choice)
    assert isinstance(made.tool_choice, NamedChoice | AllowedTools)
    assert Toolbox(made).named(made.tool_choice) == expected
