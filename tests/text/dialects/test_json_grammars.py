"""The grammars of the dialects with JSON arguments let through what the models' templates write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from antiphon.text.constraint import Grammars
from antiphon.text.dialects.grammar import Wanted, output_grammar
from antiphon.text.messages import ToolDefinition
from tests.text.dialects.corpus_json_families import llama3_call
from tests.text.dialects.test_json_families import DIALECTS, STYLES
from tests.text.vocabulary import EndingTokenizer

TIME = ToolDefinition("time", "", {"type": "object", "properties": {}, "additionalProperties": False}, strict=True)
NOTE = ToolDefinition("note")
REQUIRED = Wanted(tools=(TIME, NOTE), calls="required")
ONE = Wanted(tools=(TIME, NOTE), calls="required", several=False)
THREE = [("note", '{"text": "</a> [b] ```"}'), ("time", "{}"), ("note", '{\n  "a": 1\n}')]

# What the grammar asks for, where it is not all that the parser takes.
FORCED: dict[str, Callable[[Sequence[tuple[str, str]]], str]] = {
    "llama3": lambda calls: "\n".join(llama3_call(arguments, name) for name, arguments in calls),
    "command-r-plus": lambda calls: STYLES["command-r-plus"].calls(calls).removesuffix("```"),
}


def let_through(dialect: str, wanted: Wanted, output: str, control: Sequence[str]) -> bool:
    """Whether the grammar takes the whole output, spelled markers among `control` being tokens."""
    tokenizer = EndingTokenizer(control)
    constraint = Grammars(tokenizer).constraint(output_grammar(DIALECTS[dialect], wanted, tokenizer.control))
    return all(constraint.accept(token) for token in tokenizer.encode(output, control=True)) and constraint.may_end


@pytest.mark.parametrize("as_tokens", [False, True], ids=["text", "tokens"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_grammar_is_what_the_templates_write(dialect: str, as_tokens: bool) -> None:
    style = STYLES[dialect]
    control = [*style.markers, *DIALECTS[dialect].parts] if as_tokens else []
    spelled = FORCED.get(dialect, style.calls)
    assert let_through(dialect, REQUIRED, spelled(THREE), control)
    assert let_through(dialect, ONE, spelled(THREE[:1]), control)
    assert not let_through(dialect, ONE, spelled(THREE), control)
    assert not let_through(dialect, REQUIRED, spelled([("nope", "{}")]), control)
    assert not let_through(dialect, REQUIRED, spelled([("time", '{"a": 1}')]), control)
    assert not let_through(dialect, REQUIRED, "Hello.", control)


def test_grammar_takes_ids() -> None:
    assert let_through("mistral", ONE, "[TOOL_CALLS]time[CALL_ID]ABC123def[ARGS]{}", ["[CALL_ID]", "[ARGS]"])
    assert let_through("mistral-list", ONE, '[TOOL_CALLS][{"name": "time", "arguments": {}, "id": "ABC123def"}]', [])
    assert let_through("command-r", ONE, '<|START_ACTION|>[{"tool_name": "time", "parameters": {}}]<|END_ACTION|>', [])
