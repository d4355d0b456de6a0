"""Grammars as constraints on the tokens of a vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from antiphon.engine.base import EngineFailure
from antiphon.engine.byte_tokenizer import ByteTokenizer
from antiphon.text.constraint import (
    ALIVE,
    REASON_LIMIT,
    GrammarConstraint,
    GrammarRefused,
    Grammars,
    GrammarsBusy,
    fault,
)
from antiphon.text.lark import GRAMMAR_LIMIT, Lark
from tests.text.vocabulary import EndingTokenizer

TOKENIZER = EndingTokenizer(("<|a|>", "<|b|>"))
GRAMMARS = Grammars(TOKENIZER)


def allowed(constraint: GrammarConstraint) -> set[int]:
    return set(np.flatnonzero(np.frombuffer(constraint.allowed(), np.uint8)).tolist())


def grammar(expression: str) -> str:
    return Lark(TOKENIZER.control).grammar(expression)


def test_what_may_come_next_is_what_the_grammar_says() -> None:
    constraint = GRAMMARS.constraint(grammar('"ab" | "ac"'))
    assert allowed(constraint) == {ord("a")}
    assert not constraint.may_end
    assert constraint.accept(ord("a"))
    assert allowed(constraint) == {ord("b"), ord("c")}
    assert constraint.accept(ord("c"))
    assert constraint.may_end
    assert allowed(constraint) == TOKENIZER.end


def test_a_token_that_must_not_come_is_told_and_nothing_follows_it() -> None:
    constraint = GRAMMARS.constraint(grammar('"ab"'))
    assert not constraint.accept(ord("b"))
    assert not constraint.accept(ord("a"))
    assert not constraint.may_end
    with pytest.raises(EngineFailure, match="cannot be followed"):
        constraint.allowed()


def test_control_tokens_are_symbols_and_their_spelling_is_not() -> None:
    a, b = TOKENIZER.encode("<|a|><|b|>", control=True)
    lark = Lark(TOKENIZER.control)
    constraint = GRAMMARS.constraint(lark.grammar(f"{lark.spelled('x<|a|>y')} {lark.text()}"))
    assert constraint.accept(ord("x"))
    assert allowed(constraint) == {a}
    assert constraint.accept(a)
    assert constraint.accept(ord("y"))
    assert allowed(constraint).isdisjoint({a, b})
    assert all(constraint.accept(token) for token in b"<|b|>")


def test_requests_of_one_grammar_do_not_see_each_other() -> None:
    text = grammar('"ab"')
    first, second = GRAMMARS.constraint(text), GRAMMARS.constraint(text)
    assert first.accept(ord("a"))
    assert allowed(second) == {ord("a")}


def test_a_vocabulary_without_an_end_can_be_constrained() -> None:
    tokenizer = ByteTokenizer(())
    constraint = Grammars(tokenizer).constraint(Lark({}).grammar('"a"'))
    assert constraint.accept(ord("a"))
    assert constraint.may_end


@pytest.mark.parametrize(
    "text",
    ["start: nowhere", "start: /(?=a)/", "", grammar(f'"{"x" * GRAMMAR_LIMIT}"')],
    ids=["name", "look", "none", "long"],
)
def test_what_the_engine_cannot_take_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(GrammarRefused) as refused:
        GRAMMARS.constraint(text)
    assert 0 < len(str(refused.value)) <= REASON_LIMIT + 3
    assert "\n" not in str(refused.value)


def test_faults_are_found_without_a_vocabulary() -> None:
    lark = Lark({})
    assert fault(lark.grammar(lark.json({"type": "object", "properties": {"a": {"type": "integer"}}}))) is None
    assert fault(lark.grammar(lark.json({"type": "string", "pattern": "(?=a)b"}))) is not None
    assert fault(lark.grammar(lark.json(False))) is not None
    assert "characters" in str(fault("x" * (GRAMMAR_LIMIT + 1)))


def chain(length: int, link: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Definitions in a row, each of which leads to the next."""
    links = {f"a{n}": link(f"#/$defs/a{n + 1}") for n in range(length)}
    return {"$ref": "#/$defs/a0", "$defs": {**links, f"a{length}": {"type": "integer"}}}


LINKS: dict[str, Callable[[str], dict[str, Any]]] = {
    "reference": lambda ref: {"$ref": ref},
    "property": lambda ref: {"type": "object", "properties": {"x": {"$ref": ref}}, "required": ["x"]},
    "all of": lambda ref: {"allOf": [{"$ref": ref}, {"minimum": 1}]},
    "any of": lambda ref: {"anyOf": [{"$ref": ref}, {"type": "null"}]},
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("length", [1_000, 8_000])
def test_a_long_chain_of_definitions_is_taken_or_refused(link: str, length: int) -> None:
    """On a stack of the usual size it would end the process."""
    lark = Lark(TOKENIZER.control)
    text = lark.grammar(lark.json(chain(length, LINKS[link])))
    try:
        assert allowed(GRAMMARS.constraint(text))
    except GrammarRefused as refused:
        assert "too large" in str(refused) or "too big" in str(refused)
    reason = fault(text)
    assert reason is None or "too large" in reason or "too big" in reason


def large(name: str) -> str:
    """A grammar of nearly the largest size, quickly compiled."""
    return grammar(f'"{name}"') + f"// {'x' * (GRAMMAR_LIMIT - 100)}\n"


def test_large_grammars_are_not_kept_for_ever() -> None:
    grammars = Grammars(TOKENIZER)
    small = grammar('"a"')
    grammars.constraint(small)
    for n in range(2 * ALIVE // GRAMMAR_LIMIT):
        assert grammars.constraint(large(str(n))).accept(ord(str(n)[0]))
    assert grammars.constraint(small).accept(ord("a"))


def test_only_so_many_large_grammars_are_followed_at_once() -> None:
    grammars = Grammars(TOKENIZER)
    running = [grammars.constraint(large(str(n))) for n in range(ALIVE // GRAMMAR_LIMIT)]
    with pytest.raises(GrammarsBusy):
        grammars.constraint(large("more"))
    assert running[0].accept(ord("0"))
    del running[0]
    assert grammars.constraint(large("more")).accept(ord("m"))
    assert grammars.constraint(large("other")).accept(ord("o"))  # the one before is kept, and gives way
