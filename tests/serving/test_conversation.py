"""Items to turns: every kind, in order, nothing lost; and what truncation may drop."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.input_items import parse_input
from antiphon.serving.conversation import conversation, turns_of, without_oldest
from antiphon.text.messages import Message, ToolCall

USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": [{"type": "output_text", "text": "well"}]}


def call(id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


def output(id: str, text: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": text}


def thought(*texts: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text} for text in texts], **more}


def turns(items: Any, instructions: str | None = None) -> list[Message]:
    return conversation(instructions, parse_input(items))


def assistant(text: str = "", *calls: ToolCall, reasoning: str = "") -> Message:
    return Message("assistant", text, reasoning=reasoning, calls=calls)


def result(id: str, text: str = "done", name: str = "f") -> Message:
    return Message("tool", text, call_id=id, name=name)


A, B = ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")
HI = Message("user", "hi")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("hi", [HI]),
        ([], [Message("user", "")]),
        ("", [Message("user", "")]),
        ([USER, SAID, USER], [HI, assistant("well"), HI]),
        ([{"role": "developer", "content": "be kind"}, USER], [Message("system", "be kind"), HI]),
        ([USER, {"role": "system", "content": "now"}, USER], [HI, Message("system", "now"), HI]),
        ([{"type": "message", "role": "user", "content": None}], [Message("user", "")]),
        ([{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}], [assistant("no")]),
        ([USER, call("a"), output("a")], [HI, assistant("", A), result("a")]),
        ([USER, call("a"), call("b"), output("a"), output("b")], [HI, assistant("", A, B), result("a"), result("b")]),
        (
            [USER, call("a"), output("a"), call("b"), output("b")],
            [HI, assistant("", A), result("a"), assistant("", B), result("b")],
        ),
        ([USER, output("a"), call("a")], [HI, assistant("", A), result("a")]),
        (
            [output("b"), output("a"), USER, call("a"), call("b")],
            [HI, assistant("", A, B), result("a"), result("b")],
        ),
        ([thought("so", " it is"), SAID, call("a")], [assistant("well", A, reasoning="so it is")]),
        ([thought("one"), thought("two"), SAID], [assistant("well", reasoning="one\n\ntwo")]),
        ([SAID, SAID], [assistant("well\n\nwell")]),
        ([call("a"), SAID, output("a")], [assistant("well", A), result("a")]),
        ([SAID, {"role": "assistant", "content": ""}], [assistant("well")]),
    ],
)
def test_items_become_turns(items: Any, expected: list[Message]) -> None:
    assert turns(items) == expected


def test_instructions_come_first_as_system_text() -> None:
    assert turns("hi", "be kind") == [Message("system", "be kind"), HI]
    assert turns([{"role": "system", "content": "more"}], "be kind") == [
        Message("system", "be kind"),
        Message("system", "more"),
    ]


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("kind", ["input_text", "output_text", "text"])
def test_all_text_parts_count(role: str, kind: str) -> None:
    parts = [{"type": kind, "text": text} for text in ("one", "two", "three")]
    (message,) = turns([{"role": role, "content": parts}])
    assert message.content == "one\ntwo\nthree"


def test_the_parts_of_an_output_count_too() -> None:
    parts = [{"type": "input_text", "text": "one"}, {"type": "output_text", "text": "two"}]
    assert turns([call("a"), output("a", parts)])[1] == result("a", "one\ntwo")


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (thought("so"), "so"),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]}, "short"),
        (thought("so", summary=[{"type": "summary_text", "text": "short"}]), "so"),
        ({"type": "reasoning", "content": None, "summary": [], "encrypted_content": None, "id": "rs_1"}, ""),
        (thought("one", "two", "three"), "onetwothree"),
    ],
)
def test_what_was_thought_is_the_content_or_else_the_summary(item: dict[str, Any], expected: str) -> None:
    (message,) = turns([item, SAID])
    assert message.reasoning == expected


def test_a_custom_tool_s_call_is_a_function_call_with_one_string() -> None:
    custom = {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": 'say "hi"\n'}
    answer = {"type": "custom_tool_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "ok"}]}
    message, tool = turns([custom, answer])
    assert message.calls[0].parsed() == {"input": 'say "hi"\n'}
    assert tool == result("a", "ok", "patch")


def test_the_tool_of_a_namespace_has_both_names() -> None:
    item = {**call("a", "list"), "namespace": "files"}
    message, tool = turns([item, output("a")])
    assert message.calls[0].name == "files__list"
    assert tool.name == "files__list"


def test_a_custom_tool_of_a_namespace_is_called_as_the_model_knows_it() -> None:
    """As the toolbox names it and the model writes it, so that the prompt shows calls as they were made."""
    custom = {"type": "custom_tool_call", "call_id": "a", "namespace": "files", "name": "patch", "input": "é\t"}
    (message,) = turns([custom])
    assert message.calls == (ToolCall("a", "files__patch", '{"input":"é\\t"}'),)


def test_tools_among_the_items_are_no_turns() -> None:
    tools = {"type": "additional_tools", "tools": [{"type": "function", "name": "f"}]}
    assert turns([tools, USER, tools, SAID, tools, call("a"), output("a")]) == [HI, assistant("well", A), result("a")]


def test_arguments_stay_the_model_s_own_text() -> None:
    text = '{"city":  "Paris", '
    assert turns([call("a", arguments=text)])[0].calls[0].arguments == text


SYSTEM = Message("system", "be kind")


def user(text: str) -> Message:
    return Message("user", text)


def test_turns_begin_at_user_messages_and_leave_system_text_out() -> None:
    early, late = [user("1"), assistant("one")], [user("2"), assistant("", A), result("a"), assistant("two")]
    assert turns_of([SYSTEM, *early, SYSTEM, *late]) == [early, late]
    assert turns_of([assistant("first"), *late]) == [[assistant("first")], late]
    assert turns_of([SYSTEM]) == []


def test_the_oldest_turns_go_and_system_text_stays() -> None:
    messages = [SYSTEM, user("1"), assistant("one"), Message("system", "more"), user("2"), assistant("two"), user("3")]
    assert without_oldest(messages, 0) == messages
    assert without_oldest(messages, 1) == [SYSTEM, Message("system", "more"), *messages[4:]]
    assert without_oldest(messages, 2) == [SYSTEM, Message("system", "more"), user("3")]


def test_equal_messages_are_told_apart() -> None:
    hello = user("hi")
    messages = [hello, assistant("one"), user("hi"), assistant("two")]
    assert without_oldest(messages, 1) == messages[2:]


def test_a_call_and_its_output_are_of_one_turn_even_if_the_user_spoke_between() -> None:
    """Dropping the turn of the call would leave half of the pair."""
    messages = turns([user_item("1"), call("a"), user_item("2"), output("a"), user_item("3")])
    for count in range(len(turns_of(messages)) + 1):
        left = without_oldest(messages, count)
        calls = {call.id for message in left for call in message.calls}
        results = {message.call_id for message in left if message.role == "tool"}
        assert calls == results, count
    assert without_oldest(messages, 1) == [user("3")]


def user_item(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}
