"""Requests that are refused, by name: the body, the place that the refusal names, and its word for the fault."""

from __future__ import annotations

from typing import Any, NamedTuple

from antiphon.protocol.convert import MAX_DEPTH
from tests.protocol.requests import PATCH, READ, call, output, user
from tests.protocol.support import Json

TYPE, VALUE, MISSING, JSON = "invalid_type", "invalid_value", "missing_required_parameter", "invalid_json"


class Refusal(NamedTuple):
    body: Any
    param: str | None
    code: str


def items(*values: Any) -> Json:
    return {"input": list(values)}


def part(value: Any) -> Json:
    return items(user("Hi"), {"role": "user", "content": [value]})


def tools(*values: Any, **fields: Any) -> Json:
    return {"input": "Hi", "tools": list(values), **fields}


def text_format(**fields: Any) -> Json:
    return {"input": "Hi", "text": {"format": fields}}


def choice(value: Any, *declared: Any) -> Json:
    return tools(*declared, tool_choice=value)


def namespace(name: str, *inside: Any) -> Json:
    return {"type": "namespace", "name": name, "tools": list(inside)}


def named(name: str) -> Json:
    return {"type": "function", "name": name}


def nested(depth: int) -> Json:
    node: Json = {}
    for _ in range(depth - 1):
        node = {"a": node}
    return node


HOSTED = ["web_search", "file_search", "code_interpreter", "image_generation", "computer_use", "local_shell", "mcp"]
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "x"}

REFUSALS: dict[str, Refusal] = {
    # The top level.
    "no input": Refusal({}, "input", MISSING),
    "null input": Refusal({"input": None}, "input", MISSING),
    "a list": Refusal([], None, TYPE),
    "a string": Refusal("Hi", None, TYPE),
    "null": Refusal(None, None, TYPE),
    "include unknown": Refusal({"input": "", "include": ["reasoning.encrypted_content", "x"]}, "include[1]", VALUE),
    "include of numbers": Refusal({"input": "", "include": [1]}, "include[0]", TYPE),
    "include of null": Refusal({"input": "", "include": [None]}, "include[0]", TYPE),
    "verbosity": Refusal({"input": "", "text": {"verbosity": "loud"}}, "text.verbosity", VALUE),
    "effort": Refusal({"input": "", "reasoning": {"effort": "huge"}}, "reasoning.effort", VALUE),
    "effort of a wrong type": Refusal({"input": "", "reasoning": {"effort": 1}}, "reasoning.effort", TYPE),
    "summary": Refusal({"input": "", "reasoning": {"summary": "long"}}, "reasoning.summary", VALUE),
    "generate_summary": Refusal(
        {"input": "", "reasoning": {"generate_summary": "long"}}, "reasoning.generate_summary", VALUE
    ),
    "obfuscation": Refusal(
        {"input": "", "stream_options": {"include_obfuscation": 1}}, "stream_options.include_obfuscation", TYPE
    ),
    "metadata number": Refusal({"input": "", "metadata": {"a": 1}}, "metadata", TYPE),
    "metadata null": Refusal({"input": "", "metadata": {"a": None}}, "metadata", TYPE),
    "metadata long value": Refusal({"input": "", "metadata": {"a": "v" * 513}}, "metadata.a", VALUE),
    "bias of a wrong type": Refusal({"input": "", "logit_bias": {"5": "1"}}, "logit_bias", TYPE),
    "stop number": Refusal({"input": "", "stop": ["x", 1]}, "stop[1]", TYPE),
    "stop null": Refusal({"input": "", "stop": [None]}, "stop[0]", TYPE),
    "stop empty": Refusal({"input": "", "stop": ["x", ""]}, "stop[1]", VALUE),
    "stop long": Refusal({"input": "", "stop": ["x" * 257]}, "stop[0]", VALUE),
    "kwargs nested": Refusal(
        {"input": "", "chat_template_kwargs": nested(MAX_DEPTH + 1)}, "chat_template_kwargs", VALUE
    ),
    "a value that looks like a path": Refusal({"input": "", "truncation": "x` - at `$.evil`"}, "truncation", VALUE),
    "a huge value": Refusal({"input": "", "truncation": "x" * 100_000}, "truncation", VALUE),
    # Input items.
    "item string": Refusal(items(user("Hi"), "Hi"), "input[1]", TYPE),
    "item null": Refusal(items(None), "input[0]", TYPE),
    "item list": Refusal(items([]), "input[0]", TYPE),
    "item without type": Refusal(items({"content": "Hi"}), "input[0].type", MISSING),
    "item of unknown type": Refusal(items({"type": "thought"}), "input[0].type", VALUE),
    "item type number": Refusal(items({"type": 5}), "input[0].type", VALUE),
    "item type list": Refusal(items({"type": ["message"]}), "input[0].type", VALUE),
    "role unknown": Refusal(items({"role": "tool", "content": "Hi"}), "input[0].role", VALUE),
    "role number": Refusal(items({"role": 1, "content": "Hi"}), "input[0].role", TYPE),
    "role missing": Refusal(items({"type": "message", "content": "Hi"}), "input[0].role", MISSING),
    "role null": Refusal(items({"type": "message", "role": None}), "input[0].role", MISSING),
    "id number": Refusal(items({"role": "user", "content": "", "id": 1}), "input[0].id", TYPE),
    "content number": Refusal(items(user("Hi"), {"role": "user", "content": 1}), "input[1].content", TYPE),
    "content object": Refusal(items({"role": "user", "content": {}}), "input[0].content", TYPE),
    "part string": Refusal(part("Hi"), "input[1].content[0]", TYPE),
    "part null": Refusal(part(None), "input[1].content[0]", TYPE),
    "part without type": Refusal(part({"text": "Hi"}), "input[1].content[0].type", MISSING),
    "part of unknown type": Refusal(part({"type": "input_audio"}), "input[1].content[0].type", VALUE),
    "part without text": Refusal(part({"type": "input_text"}), "input[1].content[0].text", MISSING),
    "part with null text": Refusal(part({"type": "input_text", "text": None}), "input[1].content[0].text", MISSING),
    "part with number": Refusal(part({"type": "input_text", "text": 1}), "input[1].content[0].text", TYPE),
    "output part": Refusal(part({"type": "output_text", "text": []}), "input[1].content[0].text", TYPE),
    "refusal part": Refusal(part({"type": "refusal"}), "input[1].content[0].refusal", MISSING),
    "image": Refusal(part({"type": "input_image", "image_url": {}}), "input[1].content[0].image_url", TYPE),
    "file": Refusal(part({"type": "input_file", "filename": 1}), "input[1].content[0].filename", TYPE),
    "reference without id": Refusal(items({"type": "item_reference"}), "input[0].id", MISSING),
    "reference of null": Refusal(items({"id": None}), "input[0].id", MISSING),
    "reference of a number": Refusal(items({"id": 1}), "input[0].id", TYPE),
    "compaction": Refusal(items({"type": "compaction"}), "input[0].encrypted_content", MISSING),
    # Reasoning.
    "reasoning string": Refusal(items({"type": "reasoning", "content": "Hm"}), "input[0].content", TYPE),
    "reasoning part": Refusal(
        items({"type": "reasoning", "content": [{"type": "output_text", "text": ""}]}),
        "input[0].content[0].type",
        VALUE,
    ),
    "summary string": Refusal(items({"type": "reasoning", "summary": "Hm"}), "input[0].summary", TYPE),
    "summary part": Refusal(
        items({"type": "reasoning", "summary": [{"type": "summary_text"}]}), "input[0].summary[0].text", MISSING
    ),
    "encrypted content": Refusal(
        items({"type": "reasoning", "encrypted_content": {}}), "input[0].encrypted_content", TYPE
    ),
    # Calls and outputs.
    "call without id": Refusal(
        items({"type": "function_call", "name": "a", "arguments": ""}), "input[0].call_id", MISSING
    ),
    "call with an empty id": Refusal(items(call("")), "input[0].call_id", VALUE),
    "call with a long id": Refusal(items(call("x" * 257)), "input[0].call_id", VALUE),
    "call without name": Refusal(
        items({"type": "function_call", "call_id": "a", "arguments": ""}), "input[0].name", MISSING
    ),
    "call with arguments as an object": Refusal(items({**call("a"), "arguments": {}}), "input[0].arguments", TYPE),
    "custom call without input": Refusal(
        items({"type": "custom_tool_call", "call_id": "a", "name": "b"}), "input[0].input", MISSING
    ),
    "output without output": Refusal(
        items(call("a"), {"type": "function_call_output", "call_id": "a"}), "input[1].output", MISSING
    ),
    "output number": Refusal(items(call("a"), {**output("a"), "output": 5}), "input[1].output", TYPE),
    "output part missing": Refusal(
        items(call("a"), {**output("a"), "output": [{"type": "input_text"}]}), "input[1].output[0].text", MISSING
    ),
    "output without call": Refusal(items(call("a"), output("b")), "input[1].call_id", VALUE),
    "custom output without call": Refusal(
        items({"type": "custom_tool_call_output", "call_id": "a", "output": ""}), "input[0].call_id", VALUE
    ),
    "two outputs for a call": Refusal(items(call("a"), output("a"), output("a")), "input[2].call_id", VALUE),
    "two outputs for a stored call": Refusal(
        {**items(output("a"), output("a")), "previous_response_id": "resp_1"}, "input[1].call_id", VALUE
    ),
    # Tools.
    "tool string": Refusal(tools("read"), "tools[0]", TYPE),
    "tool without type": Refusal(tools({"name": "read"}), "tools[0].type", MISSING),
    "tool type number": Refusal(tools({"type": 1}), "tools[0].type", VALUE),
    "tool without name": Refusal(tools({"type": "function"}), "tools[0].name", MISSING),
    "tool in the form of chat": Refusal(tools({"type": "function", "function": READ}), "tools[0].name", MISSING),
    "tool name null": Refusal(tools({**READ, "name": None}), "tools[0].name", MISSING),
    "tool name number": Refusal(tools(PATCH, {**READ, "name": 1}), "tools[1].name", TYPE),
    "tool name empty": Refusal(tools({**READ, "name": ""}), "tools[0].name", VALUE),
    "tool name of 65": Refusal(tools({**READ, "name": "a" * 65}), "tools[0].name", VALUE),
    "tool name with a blank": Refusal(tools({**READ, "name": "a b"}), "tools[0].name", VALUE),
    "tool name with a dot": Refusal(tools({**READ, "name": "a.b"}), "tools[0].name", VALUE),
    "tool name with a letter outside ASCII": Refusal(tools({**READ, "name": "é"}), "tools[0].name", VALUE),
    "tool name with a line feed": Refusal(tools({**READ, "name": "read\n"}), "tools[0].name", VALUE),
    "custom tool name": Refusal(tools({**PATCH, "name": "a b"}), "tools[0].name", VALUE),
    "tool description": Refusal(tools({**READ, "description": 1}), "tools[0].description", TYPE),
    "tool parameters": Refusal(tools({**READ, "parameters": []}), "tools[0].parameters", TYPE),
    "tool parameters nested": Refusal(
        tools({**READ, "parameters": nested(MAX_DEPTH + 1)}), "tools[0].parameters", VALUE
    ),
    "tool parameters nested in a list": Refusal(
        tools({**READ, "parameters": {"a": [nested(MAX_DEPTH - 1)]}}), "tools[0].parameters", VALUE
    ),
    "tool strict": Refusal(tools({**READ, "strict": "yes"}), "tools[0].strict", TYPE),
    "tool names equal": Refusal(tools(READ, PATCH, READ), "tools[2].name", VALUE),
    "tool names of two kinds equal": Refusal(tools(READ, {**PATCH, "name": "read"}), "tools[1].name", VALUE),
    "grammar string": Refusal(tools({**PATCH, "format": "lark"}), "tools[0].format", TYPE),
    "grammar type": Refusal(tools({**PATCH, "format": {"type": "bnf"}}), "tools[0].format.type", VALUE),
    "grammar without type": Refusal(tools({**PATCH, "format": {}}), "tools[0].format.type", MISSING),
    "grammar syntax": Refusal(
        tools({**PATCH, "format": {**GRAMMAR, "syntax": "bnf"}}), "tools[0].format.syntax", VALUE
    ),
    "grammar without syntax": Refusal(
        tools({**PATCH, "format": {**GRAMMAR, "syntax": None}}), "tools[0].format.syntax", MISSING
    ),
    "grammar without definition": Refusal(
        tools({**PATCH, "format": {**GRAMMAR, "definition": None}}), "tools[0].format.definition", MISSING
    ),
    "namespace without tools": Refusal(tools({"type": "namespace", "name": "a"}), "tools[0].tools", MISSING),
    "namespace name": Refusal(tools(namespace("a b")), "tools[0].name", VALUE),
    "namespace tools": Refusal(tools({**namespace("a"), "tools": {}}), "tools[0].tools", TYPE),
    "namespace tool name": Refusal(
        tools(READ, namespace("a", {**READ, "name": "a b"})), "tools[1].tools[0].name", VALUE
    ),
    "namespace tool without name": Refusal(
        tools(READ, namespace("a", READ, {"type": "function"})), "tools[1].tools[1].name", MISSING
    ),
    "namespace in a namespace": Refusal(tools(namespace("a", namespace("b"))), "tools[0].tools[0].type", VALUE),
    "namespace tools equal": Refusal(tools(namespace("a", READ, READ)), "tools[0].tools[1].name", VALUE),
    "namespace clashes with a tool": Refusal(
        tools(named("a__read"), namespace("a", READ)), "tools[1].tools[0].name", VALUE
    ),
    "namespace clashes with another": Refusal(
        tools(namespace("a", named("b__c")), namespace("a__b", named("c"))), "tools[1].tools[0].name", VALUE
    ),
    "additional tools missing": Refusal(items({"type": "additional_tools"}), "input[0].tools", MISSING),
    "additional tools object": Refusal(items({"type": "additional_tools", "tools": {}}), "input[0].tools", TYPE),
    "additional tool": Refusal(
        items({"type": "additional_tools", "tools": [namespace("a", {"type": "custom"})]}),
        "input[0].tools[0].tools[0].name",
        MISSING,
    ),
    "additional tools equal": Refusal(
        items({"type": "additional_tools", "tools": [READ, READ]}), "input[0].tools[1].name", VALUE
    ),
    # The choice among tools.
    "choice without type": Refusal(choice({"name": "read"}, READ), "tool_choice.type", MISSING),
    "choice type number": Refusal(choice({"type": 1}, READ), "tool_choice.type", VALUE),
    "choice without name": Refusal(choice({"type": "function"}, READ), "tool_choice.name", MISSING),
    "choice in the form of chat": Refusal(
        choice({"type": "function", "function": {"name": "read"}}, READ), "tool_choice.name", MISSING
    ),
    "choice undeclared": Refusal(choice(named("write"), READ), "tool_choice.name", VALUE),
    "choice without tools": Refusal({"input": "", "tool_choice": named("read")}, "tool_choice.name", VALUE),
    "choice of another kind": Refusal(choice({"type": "custom", "name": "read"}, READ), "tool_choice.name", VALUE),
    "choice with a huge name": Refusal(choice(named("x" * 100_000), READ), "tool_choice.name", VALUE),
    "required without tools": Refusal({"input": "", "tool_choice": "required"}, "tool_choice", VALUE),
    "required of no tools": Refusal(choice("required"), "tool_choice", VALUE),
    "required of hosted tools": Refusal(choice("required", {"type": "web_search"}), "tool_choice", VALUE),
    "required of an empty namespace": Refusal(choice("required", namespace("a")), "tool_choice", VALUE),
    "allowed without mode": Refusal(
        choice({"type": "allowed_tools", "tools": [named("read")]}, READ), "tool_choice.mode", MISSING
    ),
    "allowed mode": Refusal(
        choice({"type": "allowed_tools", "mode": "none", "tools": []}, READ), "tool_choice.mode", VALUE
    ),
    "allowed without tools": Refusal(
        choice({"type": "allowed_tools", "mode": "auto"}, READ), "tool_choice.tools", MISSING
    ),
    "allowed string": Refusal(
        choice({"type": "allowed_tools", "mode": "auto", "tools": ["read"]}, READ), "tool_choice.tools[0]", TYPE
    ),
    "allowed none, but required": Refusal(
        choice({"type": "allowed_tools", "mode": "required", "tools": []}, READ), "tool_choice.tools", VALUE
    ),
    "allowed undeclared": Refusal(
        choice({"type": "allowed_tools", "mode": "auto", "tools": [named("read"), named("write")]}, READ),
        "tool_choice.tools[1].name",
        VALUE,
    ),
    "allowed hosted": Refusal(
        choice({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "name": "a"}]}, {"type": "mcp"}),
        "tool_choice.tools[0].type",
        VALUE,
    ),
    # The format of the text.
    "format string": Refusal({"input": "", "text": {"format": "json"}}, "text.format", TYPE),
    "format without type": Refusal(text_format(name="x"), "text.format.type", MISSING),
    "format unknown": Refusal(text_format(type="xml"), "text.format.type", VALUE),
    "schema without name": Refusal(text_format(type="json_schema", schema={}), "text.format.name", MISSING),
    "schema name": Refusal(text_format(type="json_schema", name="a b", schema={}), "text.format.name", VALUE),
    "schema missing": Refusal(text_format(type="json_schema", name="x"), "text.format.schema", MISSING),
    "schema null": Refusal(text_format(type="json_schema", name="x", schema=None), "text.format.schema", MISSING),
    "schema boolean": Refusal(text_format(type="json_schema", name="x", schema=True), "text.format.schema", TYPE),
    "schema nested": Refusal(
        text_format(type="json_schema", name="x", schema=nested(MAX_DEPTH + 1)), "text.format.schema", VALUE
    ),
    "schema strict": Refusal(
        text_format(type="json_schema", name="x", schema={}, strict=1), "text.format.strict", TYPE
    ),
}
REFUSALS |= {
    f"choice of the hosted tool {name}": Refusal(
        choice({"type": name}, READ, {"type": name}), "tool_choice.type", VALUE
    )
    for name in HOSTED
}

# Bodies that are no JSON, or JSON that no program should have to read.
BODIES: dict[str, Refusal] = {
    "empty": Refusal(b"", None, JSON),
    "cut": Refusal(b'{"input": "Hi"', None, JSON),
    "trailing bytes": Refusal(b'{"input": "Hi"} x', None, JSON),
    "single quotes": Refusal(b"{'input': 'Hi'}", None, JSON),
    "trailing comma": Refusal(b'{"input": "Hi",}', None, JSON),
    "not UTF-8": Refusal(b'{"input": "\xff"}', None, JSON),
    "not UTF-8 in a key": Refusal(b'{"\xff": 1}', None, JSON),
    "UTF-16": Refusal('{"input": "Hi"}'.encode("utf-16"), None, JSON),
    "byte order mark": Refusal(b'\xef\xbb\xbf{"input": "Hi"}', None, JSON),
    "high surrogate at the end": Refusal(b'{"input": "\\ud800"}', None, JSON),
    "high surrogate in the middle": Refusal(b'{"input": "\\ud800, and so on"}', None, JSON),
    "low surrogate": Refusal(b'{"input": "\\udc00"}', None, JSON),
    "two high surrogates": Refusal(b'{"input": "\\ud800\\ud800"}', None, JSON),
    "surrogate as UTF-8": Refusal(b'{"input": "\xed\xa0\x80"}', None, JSON),
    "control character": Refusal(b'{"input": "a\nb"}', None, JSON),
    "NaN": Refusal(b'{"input": "Hi", "temperature": NaN}', None, JSON),
    "Infinity": Refusal(b'{"input": "Hi", "temperature": -Infinity}', None, JSON),
    "1e400": Refusal(b'{"input": "Hi", "temperature": 1e400}', None, JSON),
    "1e400 in free JSON": Refusal(b'{"input": "Hi", "chat_template_kwargs": {"a": 1e400}}', None, JSON),
    "an integer of 400 digits": Refusal(b'{"input": "Hi", "temperature": %d}' % 10**400, "temperature", VALUE),
    "an integer of 5,000 digits": Refusal(b'{"input": "Hi", "seed": 1%s}' % (b"0" * 5000), None, JSON),
    "an integer with an exponent": Refusal(b'{"input": "", "max_output_tokens": 1e2}', "max_output_tokens", TYPE),
    "100,000 open arrays": Refusal(b"[" * 100_000, None, JSON),
    "100,000 arrays": Refusal(b'{"input": %s%s}' % (b"[" * 100_000, b"]" * 100_000), None, JSON),
    "100,000 objects": Refusal(b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, None, JSON),
    "900 arrays": Refusal(b'{"input": %s%s}' % (b"[" * 900, b"]" * 900), "input[0]", TYPE),
    "900 objects in a schema": Refusal(
        b'{"input": "", "tools": [{"type": "function", "name": "a", "parameters": %s1%s}]}'
        % (b'{"a": ' * 900, b"}" * 900),
        "tools[0].parameters",
        VALUE,
    ),
    "400 namespaces": Refusal(
        b'{"input": "", "tools": [%s%s]}' % (b'{"type": "namespace", "name": "a", "tools": [' * 400, b"]}" * 400),
        "tools[0].tools[0].type",
        VALUE,
    ),
}
