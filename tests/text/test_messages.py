from __future__ import annotations

import pytest

from antiphon.text.messages import ToolCall


def test_arguments_that_are_an_object_are_parsed() -> None:
    assert ToolCall("c", "f", ' {"a": [1, {"b": "\\u00fc"}]}\n').parsed() == {"a": [1, {"b": "ü"}]}


@pytest.mark.parametrize("arguments", ["", "{", '{"a": 1', "[1]", '"text"', "null", "3", "{'a': 1}", "\ud800"])
def test_anything_else_is_no_object(arguments: str) -> None:
    assert ToolCall("c", "f", arguments).parsed() is None


def test_arguments_nested_without_end_are_no_object() -> None:
    assert ToolCall("c", "f", '{"a":' * 100_000).parsed() is None
