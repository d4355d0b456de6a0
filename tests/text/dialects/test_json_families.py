"""The dialects with JSON arguments: what is common to them all, and calls as JSON objects."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Text
from antiphon.text.dialects.json_families import JSON_FAMILIES
from antiphon.text.dialects.machine import Parser
from tests.text.dialects import corpus_json_families, corpus_named
from tests.text.dialects.corpus import TOOLS, Case, called, said
from tests.text.dialects.corpus_json_families import Style, llama3_call
from tests.text.dialects.runs import check_order
from tests.three_cuts import merged, three_cuts

DIALECTS = {dialect.name: dialect for dialect in JSON_FAMILIES}
STYLES: dict[str, Style] = {**corpus_json_families.STYLES, **corpus_named.STYLES}
CORPUS = {**corpus_json_families.CORPUS, **corpus_named.CORPUS}
ALL = [
    pytest.param(dialect, case, id=f"{dialect}: {name}")
    for dialect, cases in CORPUS.items()
    for name, case in cases.items()
]


def parser(dialect: str, *, calls: bool = True, control: Sequence[str] = (), reasoning_open: bool = False) -> Parser:
    return DIALECTS[dialect].parser(tools=TOOLS, calls=calls, control=control, reasoning_open=reasoning_open)


def parse(subject: Parser, pieces: Sequence[str]) -> list[Fragment]:
    fragments = [fragment for piece in pieces for fragment in subject.feed(piece)] + subject.finish()
    assert all(getattr(fragment, "text", "some") for fragment in fragments), "no fragment is empty"
    return merged(fragments)


def tokens(subject: Parser, *pieces: str) -> list[Fragment]:
    """Feeds the pieces; those that begin with `^` are control tokens."""
    fragments: list[Fragment] = []
    for piece in pieces:
        fragments += subject.control(piece[1:]) if piece.startswith("^") else subject.feed(piece)
    return merged(fragments + subject.finish())


@pytest.mark.parametrize(("dialect", "case"), ALL)
def test_output_gives_these_fragments_however_it_is_cut(dialect: str, case: Case) -> None:
    def run(pieces: Sequence[str]) -> list[Fragment]:
        return parse(
            parser(dialect, calls=case.calls, control=case.control, reasoning_open=case.reasoning_open), pieces
        )

    if len(case.output) < 1000:
        assert three_cuts(run, case.output) == case.fragments
    else:  # as many splits as characters would take too long
        for pieces in ([case.output], list(case.output), [case.output[:700], case.output[700:]]):
            assert run(pieces) == case.fragments


def test_every_dialect_has_a_corpus() -> None:
    assert len(DIALECTS) == len(JSON_FAMILIES)
    assert CORPUS.keys() == DIALECTS.keys() == STYLES.keys()
    assert all(len(cases) >= 20 for cases in CORPUS.values())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_unfinished_at_every_character(dialect: str) -> None:
    """Text before the name is known, then a call with what there is of its arguments; the same piece by piece."""
    output = STYLES[dialect].call('{"a": [1, "]}é\\n"]}', "search")
    sent: list[Fragment] = []
    subject = parser(dialect)
    for n in range(len(output) + 1):
        fragments = parse(parser(dialect), [output[:n]])
        match fragments:
            case []:
                assert not output[:n]
            case [Text(text)]:
                assert output[:n].strip().removesuffix(text.strip()) in ("", STYLES[dialect].section)
            case [Call(name="search"), *rest]:
                arguments = "".join(fragment.text for fragment in rest if isinstance(fragment, Arguments))
                assert '{"a": [1, "]}é\\n"]}'.startswith(arguments)
            case _:
                raise AssertionError(fragments)
        sent += subject.feed(output[n : n + 1])
    assert merged(sent + subject.finish()) == called('{"a": [1, "]}é\\n"]}', "search")


# What goes out with each piece: as much as can be known.
STREAMS: dict[str, list[tuple[str, list[Fragment]]]] = {
    "llama3": [
        ("{", []),
        ('"name": "search', []),
        ('", "parameters": {', [Call(name="search"), Arguments("{")]),
        ('"a": 1', [Arguments('"a": 1')]),
        ("}}", [Arguments("}"), CallDone()]),
        (" ;", []),
        (' {"name": "search"', [Call(name="search")]),
    ],
    "granite": [
        ("<|tool_call|>[", []),
        ('{"name": "search"', [Call(name="search")]),
        ("}]", [Arguments("{}"), CallDone()]),
        ("\nok", said("ok")),
    ],
    "command-r-plus": [
        ("Action: ```", []),
        ('json\n[{"tool_name": "search"}', [Call(name="search"), Arguments("{}"), CallDone()]),
        ("]\n`", []),
        ("`x", said("``x")),
    ],
}


@pytest.mark.parametrize("dialect", STREAMS)
def test_nothing_is_held_back_that_can_be_known(dialect: str) -> None:
    subject = parser(dialect)
    for piece, fragments in STREAMS[dialect]:
        assert merged(subject.feed(piece)) == fragments, piece


def test_an_answer_that_is_json_streams() -> None:
    subject = parser("llama3")
    assert subject.feed('{"city') == []
    assert merged(subject.feed('": [1, ')) == said('{"city": [1,')
    assert merged(subject.feed("2, {}]")) == said(" 2, {}]")


@pytest.mark.parametrize(
    ("dialect", "pieces", "fragments"),
    [
        ("llama3", ["^<|python_tag|>", llama3_call()], called()),
        ("llama3", ["^<|python_tag|>", "print()"], said("<|python_tag|>print()")),
        (
            "granite",
            ["^<|tool_call|>", '[{"name": "search", "arguments": {"a": "', "^<|tool_call|>", '[{"name": "search"}]'],
            [*called('{"a": "', "search"), *called("{}", "search")],
        ),
        (
            "command-r",
            ["^<|START_RESPONSE|>", "a", "^<|END_RESPONSE|>", "^<|START_ACTION|>", '[{"tool_name": "search"}]'],
            [*said("a"), *called("{}", "search")],
        ),
        (
            "nemotron",
            ["^<TOOLCALL>", '[{"name": "search"}]', "^</TOOLCALL>", "\nok"],
            [*called("{}", "search"), *said("ok")],
        ),
    ],
)
def test_markers_that_are_control_tokens(dialect: str, pieces: list[str], fragments: list[Fragment]) -> None:
    control = [piece[1:] for piece in pieces if piece.startswith("^")]
    assert tokens(parser(dialect, control=control), *pieces) == fragments


# Outputs made of what these dialects look for, whole and torn.
PIECES = [
    " ", "\n", ";", ",", ":", '"', "\\", "{", "}", "[", "]", "{}", "<", "`", "```", "json", "1", "a", "é", "function",
    "search", "nope", "functions.search:0", '"name": "search"', '"tool_name": "search"', '"parameters": {"q": 1}',
    '{"name": "search", "arguments": ', '[{"tool_name": "search"}', '{"name": "nope", "arguments": "', "[ARGS]",
    "[CALL_ID]x", corpus_named.SEP, corpus_named.KIMI_SEP,
]  # fmt: skip


@st.composite
def outputs(draw: st.DrawFn) -> tuple[str, list[str], frozenset[str]]:
    """A dialect, the pieces of an output (control tokens begin with `^`), and the markers that are control tokens."""
    dialect = draw(st.sampled_from(sorted(DIALECTS)))
    markers = sorted({*DIALECTS[dialect].markers, *DIALECTS[dialect].parts})
    control = draw(st.sets(st.sampled_from(markers)))
    torn = [half for marker in markers for half in (marker[: len(marker) // 2], marker[len(marker) // 2 :])]
    pieces = st.sampled_from([*PIECES, *markers, *markers, *torn, *(f"^{marker}" for marker in sorted(control))])
    return dialect, draw(st.lists(pieces, max_size=20)), frozenset(control)


@given(outputs())
def test_no_output_raises_and_no_cut_matters(output: tuple[str, list[str], frozenset[str]]) -> None:
    dialect, pieces, control = output
    whole = tokens(parser(dialect, control=sorted(control)), *_joined(pieces))
    assert whole == tokens(parser(dialect, control=sorted(control)), *_split(pieces))
    check_order(whole)


def _joined(pieces: Sequence[str]) -> list[str]:
    """Text between control tokens as one piece."""
    joined: list[str] = []
    for piece in pieces:
        if joined and not piece.startswith("^") and not joined[-1].startswith("^"):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _split(pieces: Sequence[str]) -> list[str]:
    """Text character by character."""
    return [part for piece in pieces for part in ([piece] if piece.startswith("^") else piece)]
