"""What a request may hold, in every form that real clients send (wire contract, section 6)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.convert import MAX_DEPTH
from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.input_items import (
    InputCustomToolCall,
    InputCustomToolCallOutput,
    InputFunctionCall,
    InputFunctionCallOutput,
    InputMessage,
    InputOutputText,
    InputReasoning,
    InputReasoningText,
    InputRefusal,
    InputSummaryText,
    InputText,
    ItemReference,
    PlainText,
)
from antiphon.protocol.request import (
    INCLUDES,
    CreateResponse,
    Fields,
    JsonObjectFormat,
    JsonSchemaFormat,
    TextFormat,
    parse_request,
)
from antiphon.protocol.tools import (
    AllowedTools,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    NamedChoice,
    Namespace,
)
from tests.protocol.requests import AI_SDK, ALL_FIELDS, CODEX, DUMPED, READ, SCHEMA, VALID
from tests.protocol.support import Json


def parsed(name: str) -> CreateResponse:
    return parse_request(json.dumps(VALID[name]).encode())


@pytest.mark.parametrize("name", VALID)
def test_a_valid_request_is_taken(name: str) -> None:
    body = json.dumps(VALID[name]).encode()
    request = parse_request(body)
    assert request.size == len(body)
    assert request.stream == (VALID[name].get("stream") is True)


def test_the_table_has_every_field() -> None:
    assert set(ALL_FIELDS) == set(Fields.__struct_fields__)


# The fields that are kept as they came.
CARRIED = """
    model instructions max_output_tokens max_tool_calls temperature top_p top_logprobs parallel_tool_calls truncation
    metadata store stream background previous_response_id conversation context_management prompt service_tier user
    safety_identifier prompt_cache_key seed top_k min_p repetition_penalty presence_penalty frequency_penalty logit_bias
    chat_template_kwargs
""".split()


def test_every_field_is_kept() -> None:
    request = parsed("all fields")
    for name in CARRIED:
        assert getattr(request.fields, name) == ALL_FIELDS[name], name
    assert request.fields.reasoning is not None and request.fields.text is not None
    assert (request.fields.reasoning.effort, request.fields.reasoning.summary) == ("high", "auto")
    assert request.fields.text.verbosity == "low"
    assert request.stops == ("x", "y" * 256)
    assert request.include == {"message.output_text.logprobs", "reasoning.encrypted_content"}
    assert request.format == JsonSchemaFormat(name="x", schema=SCHEMA, strict=True)
    assert request.tool_choice == NamedChoice("function", "read")
    read = FunctionTool(name="read", description="Reads.", parameters=SCHEMA, strict=True)
    patch = CustomTool("apply_patch", "Patches.", Grammar("grammar", "lark", "start: /.+/"))
    assert request.tools == [read, patch, Namespace("files", [read, patch], "Files.")]


def test_null_is_as_absent() -> None:
    null, absent = parsed("all fields null"), parsed("string")
    null.size = absent.size
    assert null == absent
    assert (absent.tool_choice, absent.format, absent.stops, absent.include) == ("auto", TextFormat(), (), frozenset())
    assert absent.items == [InputMessage("user", "Hi")]


def test_null_is_as_absent_inside_too() -> None:
    request = parsed("inner fields null")
    assert request.items == [InputMessage("user", "")]
    assert request.tools == [FunctionTool("read"), CustomTool("patch"), Namespace("files", [])]
    assert request.format == TextFormat()


def test_roles_and_parts_are_kept_in_order() -> None:
    assert [item.role for item in parsed("every role").items if isinstance(item, InputMessage)] == [
        "user",
        "assistant",
        "system",
        "developer",
    ]
    (message,) = parsed("every part").items
    assert isinstance(message, InputMessage)
    assert message.content == [InputText("a"), InputOutputText("b"), PlainText("c"), InputRefusal("d")]
    assert [part.text for part in message.content] == ["a", "b", "c", "d"]


def test_what_an_sdk_dumped_is_taken_back() -> None:
    _, first, second, message, call, output, _ = parsed("dumped by an SDK").items
    assert first == InputReasoning([], [], id="rs_1")
    assert second == InputReasoning([InputSummaryText("So.")], [InputReasoningText("Hm.")], id="rs_2")
    assert message == InputMessage("assistant", [InputOutputText("Yes."), InputRefusal("No.")], "msg_1")
    assert call == InputFunctionCall("call_1", "read", "{}", id="fc_1")
    assert output == InputFunctionCallOutput("call_1", "ok")
    assert len(DUMPED) == 5


def test_a_request_of_codex() -> None:
    request = parsed("Codex")
    custom, output = request.items[-2:]
    assert custom == InputCustomToolCall("c2", "apply_patch", "*** Begin Patch", "files", "client-4")
    assert output == InputCustomToolCallOutput("c2", [InputText("a"), InputText("b")])
    assert [item.id for item in request.items[:4]] == [item.get("id") for item in CODEX["input"][:4]]
    assert request.tools[2:] == [HostedTool("web_search", "tools[2]"), HostedTool("tool_search", "tools[3]")]


def test_a_request_of_the_ai_sdk() -> None:
    items = parsed("AI SDK").items
    assert items[2:4] == [ItemReference("rs_1"), ItemReference("fc_1")]
    assert len(items) == len(AI_SDK["input"])


def test_tool_choices() -> None:
    assert parsed("required").tool_choice == "required"
    assert parsed("tools as an item").tool_choice == NamedChoice("function", "late")
    choice = parsed("allowed tools").tool_choice
    assert isinstance(choice, AllowedTools)
    assert choice.mode == "required"
    assert [tool["name"] for tool in choice.tools] == ["read", "apply_patch"]


def test_formats_and_stops() -> None:
    assert parsed("json object").format == JsonObjectFormat()
    assert parsed("one stop").stops == ("\n",)


@pytest.mark.parametrize("value", sorted(INCLUDES))
def test_every_known_include_is_taken(value: str) -> None:
    assert parse_request(json.dumps({"input": "", "include": [value]}).encode()).include == {value}


def test_of_two_equal_keys_the_last_counts() -> None:
    assert parse_request(b'{"input": "a", "input": "b"}').items == [InputMessage("user", "b")]


def nested(depth: int) -> Json:
    """An object of `depth` levels with a value in the innermost."""
    node: Json = {"a": 1}
    for _ in range(depth - 1):
        node = {"a": node}
    return node


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{**READ, "parameters": nested(MAX_DEPTH)}]},
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": nested(MAX_DEPTH)}}},
        {"chat_template_kwargs": nested(MAX_DEPTH)},
    ],
)
def test_json_may_be_nested_up_to_the_bound(body: Json) -> None:
    parse_request(json.dumps({"input": "Hi", **body}).encode())


def test_any_number_may_stand_where_it_means_nothing() -> None:
    body = b'{"input": "Hi", "x": -1e-400, "chat_template_kwargs": {"n": %d}}' % 10**400
    assert parse_request(body).fields.chat_template_kwargs == {"n": 10**400}


# Fuzzing: whatever stands in the place of any value, the answer is a request or a refusal, and nothing else escapes.

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, 2**31, 2**63, 10**30, -0.0, 1.5, 1e300, "", "a", "function", "x" * 300, "\x00"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "name", "role", "id", "tools", "content", "a"]), inner, max_size=3)
    ),
    max_leaves=4,
)


def _places(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    children: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from _places(child, (*path, key))


def _replaced(body: Json, path: tuple[str | int, ...], value: Any) -> Json:
    changed = copy.deepcopy(body)
    node: Any = changed
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return changed


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(sorted(VALID)), st.data())
def test_nothing_but_a_refusal_ever_escapes(name: str, data: st.DataObject) -> None:
    body = VALID[name]
    for _ in range(data.draw(st.integers(1, 3))):
        places = list(_places(body))
        body = _replaced(body, data.draw(st.sampled_from(places)), data.draw(json_values))
    try:
        request = parse_request(json.dumps(body).encode())
    except RequestRefused as refusal:
        error = refusal.body()["error"]
        assert list(error) == ["message", "type", "param", "code"]
        assert (refusal.status, error["type"]) == (400, "invalid_request_error")
        assert error["message"] and error["code"]
    else:
        assert request.fields.input is not None


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_bytes_that_are_no_request_are_refused(data: bytes) -> None:
    for body in (data, b'{"input": ' + data, b'{"input": "' + data + b'"}'):
        try:
            parse_request(body)
        except RequestRefused as refusal:
            assert refusal.status == 400
