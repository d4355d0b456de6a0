"""What is valid but not served is refused by name; `tests/test_docs.py` holds the list against the README."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.request import parse_request
from antiphon.serving.support import check_support

TOOL = {"type": "function", "name": "f"}
HOSTED = ("web_search", "file_search", "code_interpreter", "image_generation", "computer_use", "local_shell", "mcp")
IMAGE = {"type": "input_image", "image_url": "data:,"}
TEXT = {"type": "input_text", "text": "a"}
CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a"}


def check(body: dict[str, Any], *, strict_tools: bool = False) -> None:
    check_support(parse_request(json.dumps({"input": "hi", **body}).encode()), strict_tools=strict_tools)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"background": True}, "background"),
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"context_management": []}, "context_management"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input[0].type"),
        ({"input": [{"type": "compaction_trigger"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [TEXT, IMAGE]}]}, "input[0].content[1].type"),
        (
            {"input": [CALL, {"type": "function_call_output", "call_id": "a", "output": [IMAGE]}]},
            "input[1].output[0].type",
        ),
    ],
)
def test_what_is_not_served_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        check(body)
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "unsupported_value", param)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"background": False, "store": False, "previous_response_id": None, "conversation": None, "prompt": None},
        {"service_tier": "auto"},
        {"service_tier": "default", "stream_options": {"include_obfuscation": False}},
        {"text": {"format": {"type": "text"}, "verbosity": "low"}},
        {"text": {"format": {"type": "json_object"}}},
        {"text": {"format": {"type": "json_schema", "name": "s", "schema": {}}}},
        {"tools": [{**TOOL, "strict": False}], "tool_choice": "auto"},
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": [{**TOOL, "strict": True}], "tool_choice": "required"},
        {"tools": [TOOL, {"type": "custom", "name": "c"}], "tool_choice": TOOL},
        {"tools": [{"type": "namespace", "name": "n", "tools": [TOOL, *({"type": name} for name in HOSTED)]}]},
        {"input": [{"type": "additional_tools", "tools": [TOOL, *({"type": name} for name in HOSTED)]}]},
        {"tools": [{"type": name} for name in HOSTED]},
        {"include": ["message.output_text.logprobs", "file_search_call.results", "reasoning.encrypted_content"]},
        {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "client_metadata": {"a": [1]}},
        {"input": [{"type": "reasoning", "summary": [], "encrypted_content": None}]},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
def test_what_changes_nothing_or_is_served_passes(body: dict[str, Any]) -> None:
    check(body)


@pytest.mark.parametrize("name", HOSTED)
def test_hosted_tools_are_refused_only_if_the_operator_says_so(name: str) -> None:
    check({"tools": [TOOL, {"type": name}]})
    with pytest.raises(RequestRefused, match=name) as refused:
        check({"tools": [TOOL, {"type": name}]}, strict_tools=True)
    assert (refused.value.code, refused.value.param) == ("unsupported_value", "tools[1].type")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (
            {"tools": [TOOL, {"type": "namespace", "name": "n", "tools": [TOOL, {"type": "mcp"}]}]},
            "tools[1].tools[1].type",
        ),
        ({"input": [{"type": "additional_tools", "tools": [{"type": "mcp"}]}]}, "input[0].tools[0].type"),
    ],
)
def test_so_are_those_that_stand_elsewhere(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRefused, match="mcp") as refused:
        check(body, strict_tools=True)
    assert refused.value.param == param


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_the_template_s_own_variables_cannot_be_set(name: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        check({"chat_template_kwargs": {name: []}})
    assert refused.value.param == f"chat_template_kwargs.{name}"
