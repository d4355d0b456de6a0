"""Thinking that must not be: no grammar lets a block through, and all else still comes through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.protocol.fragments import Call, Reasoning, Text
from antiphon.text.constraint import Grammars
from antiphon.text.dialects import DIALECTS, Dialect
from antiphon.text.dialects.grammar import Wanted, output_grammar
from antiphon.text.messages import ToolDefinition
from tests.text.dialects.test_grammar import markers, parsed
from tests.text.dialects.walks import walk
from tests.text.vocabulary import EndingTokenizer

TOOLS = (ToolDefinition("time", "", {"type": "object", "properties": {}, "additionalProperties": False}, strict=True),)
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": ["<think>", "x"]}}, "required": ["a"]}
THINKING = [dialect for dialect in DIALECTS.values() if dialect.thinking is not None]

WANTED: dict[str, dict[str, Any]] = {
    "text": {},
    "calls and text": {"tools": TOOLS, "calls": "allowed"},
    "one call or text": {"tools": TOOLS, "calls": "allowed", "several": False},
    "a call": {"tools": TOOLS, "calls": "required"},
    "a format": {"schema": SCHEMA},
}


def may_be_wanted(dialect: Dialect, wanted: Wanted) -> bool:
    return wanted.calls == "none" or dialect.calling is not None or dialect.own is not None


@pytest.mark.parametrize("tokens", [False, True], ids=["text", "tokens"])
@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("dialect", THINKING, ids=lambda dialect: dialect.name)
def test_nothing_that_is_let_through_is_thinking(dialect: Dialect, name: str, tokens: bool) -> None:
    tokenizer = EndingTokenizer(markers(dialect) if tokens else ())
    grammars = Grammars(tokenizer)
    for opened in (False, True):
        wanted = Wanted(thinking="closed" if opened else "forbidden", **WANTED[name])
        if not may_be_wanted(dialect, wanted):
            continue
        for seed in range(10):
            pieces, _ = walk(dialect, wanted, tokenizer, seed, grammars)
            settings = {"calls": wanted.calls != "none", "one_value": wanted.schema is not None}
            fragments = parsed(dialect, pieces, tokenizer, reasoning_open=opened, **settings)
            assert not any(isinstance(fragment, Reasoning) for fragment in fragments), pieces


def let_through(wanted: Wanted, text: str, control: Sequence[str] = ()) -> int:
    """How many tokens of the text the grammar of hermes lets through; -1 if all, and the output may end there."""
    tokenizer = EndingTokenizer(control)
    constraint = Grammars(tokenizer).constraint(output_grammar(DIALECTS["hermes"], wanted, tokenizer.control))
    tokens = tokenizer.encode(text, control=True)
    for n, token in enumerate(tokens):
        if not constraint.accept(token):
            return n
    return -1 if constraint.may_end else len(tokens)


CALL = '<tool_call>{"name": "time", "arguments": {}}</tool_call>'
FORBIDDEN, CLOSED = Wanted(thinking="forbidden"), Wanted(thinking="closed")
WITH_CALLS = Wanted(thinking="forbidden", tools=TOOLS, calls="allowed")


@pytest.mark.parametrize(
    ("wanted", "text", "reached"),
    [
        (FORBIDDEN, "Paris.", -1),
        (FORBIDDEN, "", -1),
        (FORBIDDEN, "a < b <thin <thinker> </think>\n\n", -1),
        (FORBIDDEN, "<think>", 6),
        (FORBIDDEN, "Well. <think>", 12),
        (FORBIDDEN, "<<think>", 7),
        (WITH_CALLS, f"Well. {CALL} Done.", -1),
        (WITH_CALLS, f"<think>{CALL}", 6),
        (WITH_CALLS, f"{CALL}<think>", len(CALL) + 6),
        (CLOSED, "</think>Paris.", -1),
        (CLOSED, "\n</think>\n\nParis.", -1),
        (CLOSED, "Hm", 0),
        (CLOSED, "\n\nHm", 2),
        (CLOSED, "</think><think>", 14),
    ],
)
def test_what_is_let_through(wanted: Wanted, text: str, reached: int) -> None:
    assert let_through(wanted, text) == reached


def test_markers_that_are_tokens_cannot_come() -> None:
    control = ["<think>", "</think>"]
    assert let_through(FORBIDDEN, "a <thin", control) == -1
    assert let_through(FORBIDDEN, "a <think>", control) == 2
    assert let_through(CLOSED, "</think>Paris.", control) == -1
    assert let_through(CLOSED, "</think><think>", control) == 1


def test_to_ask_for_no_thinking_is_to_ask_for_something() -> None:
    assert not FORBIDDEN.free and not CLOSED.free
    assert all(Wanted(thinking=thinking).free for thinking in ("none", "possible", "open"))


def test_a_call_may_still_come() -> None:
    tokenizer = EndingTokenizer()
    pieces, _ = walk(
        DIALECTS["hermes"], Wanted(thinking="closed", tools=TOOLS, calls="required"), tokenizer, 0, Grammars(tokenizer)
    )
    fragments = parsed(DIALECTS["hermes"], pieces, tokenizer, reasoning_open=True)
    assert [type(fragment) for fragment in fragments][:1] == [Call]
    assert not any(isinstance(fragment, Text) for fragment in fragments)
