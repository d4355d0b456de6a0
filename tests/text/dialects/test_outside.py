"""The visible text: calls without a marker, and sections that turn out to be none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning, Text
from antiphon.text.dialects import DIALECTS
from tests.text.dialects.corpus import TOOLS
from tests.three_cuts import merged, three_cuts

CALL = '{"name": "search", "parameters": {}}'
SEARCH: list[Fragment] = [Call(name="search"), Arguments("{}"), CallDone()]


@pytest.mark.parametrize(
    ("output", "fragments"),
    [
        (f"{CALL};{CALL}", SEARCH * 2),
        (f"{CALL} ;\n {CALL}", SEARCH * 2),
        (f"{CALL}; and", [*SEARCH, Text("; and")]),
        (f"{CALL};", [*SEARCH, Text(";")]),
        (f"; {CALL}", [Text(f"; {CALL}")]),
        (f"a {CALL}", [Text(f"a {CALL}")]),
        (f"{' ' * 2000}{CALL}", [Text(f"{' ' * 2000}{CALL}")]),
    ],
)
def test_a_call_without_a_marker_begins_where_nothing_stands_before_it(output: str, fragments: list[Fragment]) -> None:
    def run(pieces: Sequence[str]) -> list[Fragment]:
        parser = DIALECTS["llama3"].parser(tools=TOOLS, calls=True, control=(), reasoning_open=False)
        return merged([fragment for piece in pieces for fragment in parser.feed(piece)] + parser.finish())

    if len(output) < 1000:
        assert three_cuts(run, output) == fragments
    else:
        assert run([output]) == run([output[:700], output[700:]]) == run(list(output)) == fragments


SECTION = "<｜tool▁calls▁begin｜>"


def test_another_marker_than_a_call_makes_a_section_s_opening_text() -> None:
    control = {SECTION, "<think>", "</think>"}
    parser = DIALECTS["deepseek-v3"].parser(tools=TOOLS, calls=True, control=control, reasoning_open=False)
    out = [*parser.control(SECTION), *parser.feed(" "), *parser.control("<think>"), *parser.feed("so")]
    assert merged(out)[:1] == [Text(SECTION)]
    assert merged(out)[-1] == Reasoning("so")


def test_a_json_value_behind_a_closing_tag_holds_no_markers() -> None:
    value = '{"a": "<think>x</think>"}'

    def run(pieces: Sequence[str]) -> list[Fragment]:
        parser = DIALECTS["hermes"].parser(tools={}, calls=False, control=(), reasoning_open=False, one_value=True)
        return merged([fragment for piece in pieces for fragment in parser.feed(piece)] + parser.finish())

    assert three_cuts(run, f"</think>{value}") == [Text(value)]
