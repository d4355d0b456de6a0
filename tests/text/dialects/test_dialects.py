from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning, ReasoningDone, Text
from antiphon.text.dialects import DEFAULT_DIALECT, DIALECTS, Parser
from antiphon.text.dialects.json_calls import UNNAMED_LIMIT
from tests.text.dialects import corpus_gemma, corpus_harmony, corpus_json_families, corpus_named, corpus_pythonic
from tests.text.dialects.corpus import CORPUS, TOOLS, Case, called, said, spelled, thought
from tests.text.dialects.corpus_xml import XML_CORPUS
from tests.text.dialects.runs import check_order
from tests.three_cuts import merged, three_cuts

ALL = [
    pytest.param(dialect, case, id=f"{dialect}: {name}")
    for dialect, cases in CORPUS.items()
    for name, case in cases.items()
]
THINK_TAGS = ("<think>", "</think>")
CALL_TAGS = ("<tool_call>", "</tool_call>")


def parser(
    dialect: str = "hermes", *, calls: bool = True, control: Sequence[str] = (), reasoning_open: bool = False
) -> Parser:
    return DIALECTS[dialect].parser(tools=TOOLS, calls=calls, control=control, reasoning_open=reasoning_open)


def parse(subject: Parser, pieces: Sequence[str]) -> list[Fragment]:
    fragments = [fragment for piece in pieces for fragment in subject.feed(piece)] + subject.finish()
    assert all(getattr(fragment, "text", "some") for fragment in fragments), "no fragment is empty"
    return merged(fragments)


@pytest.mark.parametrize(("dialect", "case"), ALL)
def test_output_gives_these_fragments_however_it_is_cut(dialect: str, case: Case) -> None:
    def run(pieces: Sequence[str]) -> list[Fragment]:
        subject = parser(dialect, calls=case.calls, control=case.control, reasoning_open=case.reasoning_open)
        return parse(subject, pieces)

    if len(case.output) < 1000:
        assert three_cuts(run, case.output) == case.fragments
    else:  # as many splits as characters would take too long
        for pieces in ([case.output], list(case.output), [case.output[:700], case.output[700:]]):
            assert run(pieces) == case.fragments


# What goes out with each piece: as much as can be known.
STREAMS: dict[str, list[tuple[str, list[Fragment]]]] = {
    "text": [("Once", said("Once")), (" upon", said(" upon")), (" a ", said(" a")), ("time", said(" time"))],
    "half markers": [("a <", said("a")), ("b", said(" <b")), ("<tool_", []), ("x", said("<tool_x"))],
    "thinking": [
        ("<think>", []),
        ("\n", []),
        ("a ", [Reasoning("a")]),
        ("b", [Reasoning(" b")]),
        ("</think>", [ReasoningDone()]),
    ],
    "arguments as they come": [
        ('<tool_call>{"name": "search', []),
        ('"', [Call(name="search")]),
        (', "arguments": ', []),
        ("{", [Arguments("{")]),
        ('"q": "', [Arguments('"q": "')]),
        ("a</to", [Arguments("a</to")]),
        ('b"', [Arguments('b"')]),
        ("</to", []),
        ("!", [Arguments("</to!")]),
        ("}", [Arguments("}")]),
        ("}", [CallDone()]),
        ("</tool_call>\n", []),
        ("ok", said("ok")),
    ],
    "arguments that are a string": [
        ('<tool_call>{"name": "search", "arguments": "', [Call(name="search")]),
        ("{\\", [Arguments("{")]),
        ('"a', [Arguments('"a')]),
        ("\\u00e", []),
        ("4\\ud83d", [Arguments("ä")]),
        ("\\ude0", []),
        ("0", [Arguments("😀")]),
        ('"', []),
        ("}", [CallDone()]),
    ],
    "arguments before the name": [
        ('<tool_call>{"arguments": {"q": 1}, "name": "search', []),
        ('"', [Call(name="search"), Arguments('{"q": 1}')]),
        ("}", [CallDone()]),
    ],
    "refused as soon as it is known": [
        ('a <tool_call>{"name": "nope', said("a")),
        ('"', said(' <tool_call>{"name": "nope"')),
        (', "arguments": {"', said(', "arguments": {"')),
        ("<tool_call>", said("<tool_call>")),
        ("x", said("x")),
    ],
    "refused at the first wrong character": [("<tool_call>\n", []), ("x", said("<tool_call>\nx"))],
}


@pytest.mark.parametrize("stream", [pytest.param(stream, id=name) for name, stream in STREAMS.items()])
def test_nothing_is_held_back_that_can_be_known(stream: list[tuple[str, list[Fragment]]]) -> None:
    subject = parser()
    for piece, fragments in stream:
        assert merged(subject.feed(piece)) == fragments, piece


def test_in_reasoning() -> None:
    subject = parser()
    seen = []
    for piece in ("a", "<think>", "b", "</think>", "c", "<tool_call>", "{", "x"):
        subject.feed(piece)
        seen.append(subject.in_reasoning)
    assert seen == [False, True, True, False, False, False, False, False]
    assert parser(reasoning_open=True).in_reasoning
    assert not parser("plain", reasoning_open=True).in_reasoning


def tokens(subject: Parser, *pieces: str) -> list[Fragment]:
    """Feeds the pieces; those that begin with `^` are control tokens."""
    fragments: list[Fragment] = []
    for piece in pieces:
        fragments += subject.control(piece[1:]) if piece.startswith("^") else subject.feed(piece)
    return merged(fragments + subject.finish())


@pytest.mark.parametrize(
    ("pieces", "fragments"),
    [
        (["^<think>", "\na\n", "^</think>", "\nb"], [*thought("a"), *said("b")]),
        (["^<think>", "a</think>b", "^</think>", "c"], [*thought("a</think>b"), *said("c")]),
        (["<think>", "^</think>", "a"], said("<think></think>a")),
        (["^</think>", "\na"], said("a")),
        (["a", "^</think>", "b"], said("a</think>b")),
        (["^<think>", "a", "^<tool_call>", "b", "^</think>"], thought("a<tool_call>b")),
        (["^<think>", "\n", "^</think>", "a"], said("a")),
        (["^<tool_call>", '{"name": "search", "arguments": {}}', "^</tool_call>"], called("{}", "search")),
        (
            ["^<tool_call>", '{"name": "search", "arguments": {"a": "<tool_call>"}}'],
            called('{"a": "<tool_call>"}', "search"),
        ),
        (
            ["^<tool_call>", '{"name": "search", "arguments": {"a": "</tool_call>', "^</tool_call>", "b"],
            [*called('{"a": "</tool_call>', "search"), *said("b")],
        ),
        (
            [
                "^<tool_call>",
                '{"name": "search", "arguments": {"a": [</tool_call>',
                "^<tool_call>",
                '{"name": "search"}',
            ],
            [*called('{"a": [</tool_call>', "search"), *called("{}", "search")],
        ),
        (
            ["^<tool_call>", '{"name": "search", "arguments": "\\', "^<think>", '"}'],
            [Call(name="search"), Arguments("\\<think>"), CallDone()],
        ),
        (["^<tool_call>", '{"name', "^</tool_call>", "b"], said('<tool_call>{"name</tool_call>b')),
        (["^<tool_call>", '{"name": ', "^<think>", "b"], said('<tool_call>{"name": <think>b')),
        (["^<tool_call>", "{", "^<think>", "b"], said("<tool_call>{<think>b")),
        (["^<tool_call>", "^<tool_call>", '{"name": "search"}'], [*said("<tool_call>"), *called("{}", "search")]),
        (["^</tool_call>", "a", "^</tool_call>"], said("a</tool_call>")),
    ],
)
def test_markers_that_are_control_tokens(pieces: list[str], fragments: list[Fragment]) -> None:
    assert tokens(parser(control=(*THINK_TAGS, *CALL_TAGS)), *pieces) == fragments


def test_control_token_ends_a_half_marker() -> None:
    subject = parser(control=("<tool_call>",))
    assert tokens(subject, "a <thi", "^<tool_call>", '{"name": "search"}') == [*said("a <thi"), *called("{}", "search")]


def test_control_tokens_that_are_no_markers_give_nothing() -> None:
    subject = parser()
    assert [subject.control(token) for token in ("<|im_end|>", "<|python_tag|>", "")] == [[], [], []]
    assert tokens(parser("plain"), "a", "^<think>", "b") == said("ab")
    assert tokens(parser("think"), "a", "^<tool_call>", "b") == said("ab")


def test_call_tokens_are_text_where_calls_are_not_allowed() -> None:
    subject = parser(calls=False, control=CALL_TAGS)
    assert tokens(subject, "^<tool_call>", "{}", "^</tool_call>") == said("<tool_call>{}</tool_call>")


@pytest.mark.parametrize("fits", [True, False])
def test_call_that_shows_no_name_for_too_long_is_text(fits: bool) -> None:
    """The limit falls on one and the same character however the output is cut."""
    opening, closing = '<tool_call>{"arguments": "', '","name":"search"'
    filling = "x" * (UNNAMED_LIMIT - len(opening) - len(closing) + (not fits))
    unnamed = opening + filling + closing
    call = [Call(name="search"), Arguments(filling), CallDone()]
    expected = [*(call if fits else said(unnamed + "}")), *called()]
    output = f"{unnamed}}}{spelled()}"
    near = UNNAMED_LIMIT - 30
    for pieces in ([output], [output[:near], *output[near:]], [output[:UNNAMED_LIMIT], output[UNNAMED_LIMIT:]]):
        assert parse(parser(), pieces) == expected


def test_name_nested_beyond_all_measure_is_text() -> None:
    output = f'<tool_call>{{"name": {"[" * 50_000}{"]" * 50_000}}}'
    assert parse(parser(), [output]) == said(output)


def test_endless_key_is_not_kept() -> None:
    subject = parser()
    subject.feed('<tool_call>{"name": "search", "')
    piece = "k" * 4096
    tracemalloc.start()
    try:
        assert [subject.feed(piece) for _ in range(500)] == [[]] * 500
        assert tracemalloc.get_traced_memory()[1] < 500_000  # of 2 MB
    finally:
        tracemalloc.stop()
    assert subject.feed('": 1, "arguments": {}}') == [Arguments("{}"), CallDone()]


def test_held_text_goes_out_when_the_limit_is_reached() -> None:
    subject = parser()
    assert subject.feed('<tool_call>{"arguments": "' + "x" * (UNNAMED_LIMIT - 26)) == []
    assert [type(fragment) for fragment in subject.feed("x")] == [Text, Text]


def test_every_dialect_has_a_corpus() -> None:
    corpora = {
        **CORPUS,
        **corpus_json_families.CORPUS,
        **corpus_named.CORPUS,
        **XML_CORPUS,
        "llama-pythonic": corpus_pythonic.LLAMA_PYTHONIC,
        "lfm2": corpus_pythonic.LFM2,
        "gemma": corpus_gemma.GEMMA,
        "gemma-4": corpus_gemma.GEMMA_4,
        "gpt-oss": corpus_harmony.HARMONY,
    }
    assert corpora.keys() == DIALECTS.keys()
    assert all(len(cases) >= 20 for name, cases in corpora.items() if name != "plain")
    assert DEFAULT_DIALECT in DIALECTS
    assert all(name == dialect.name for name, dialect in DIALECTS.items())


# Outputs made of what the dialects look for, whole and torn.
PIECES = [
    *THINK_TAGS, *CALL_TAGS, "<", "</", "<tool_", "call>", "think>", " ", "\n", "\n\n", "a", "b", "é", "😀",
    '"', "\\", "{", "}", "[", "]", ":", ",", '"name"', '"arguments"', '"parameters"', '"search"', '"nope"',
    '{"name": "search", "arguments": ', '<tool_call>{"name": "search", "arguments": {"a": "',
    '<tool_call>{"name": "nope", "arguments": "', "\\u00e4", "\\ud83d", "\\ude00", "1", "null",
]  # fmt: skip
outputs = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@given(
    outputs,
    st.sampled_from(sorted(DIALECTS)),
    st.booleans(),
    st.booleans(),
    st.sets(st.sampled_from([*THINK_TAGS, *CALL_TAGS])),
)
def test_no_output_raises_and_no_cut_matters(
    output: str, dialect: str, calls: bool, reasoning_open: bool, control: set[str]
) -> None:
    def run(pieces: Sequence[str]) -> list[Fragment]:
        return parse(parser(dialect, calls=calls, control=sorted(control), reasoning_open=reasoning_open), pieces)

    check_order(three_cuts(run, output))


@given(st.lists(st.sampled_from(PIECES + [f"^{tag}" for tag in (*THINK_TAGS, *CALL_TAGS)]), max_size=25))
def test_no_tokens_raise(pieces: list[str]) -> None:
    check_order(tokens(parser(control=(*THINK_TAGS, *CALL_TAGS)), *pieces))


@given(outputs)
def test_without_calls_nothing_is_lost_but_tags_and_separators(output: str) -> None:
    """With the tags as tokens, and no tools, every spelled character is there."""
    subject = DIALECTS["hermes"].parser(tools={}, calls=True, control=THINK_TAGS, reasoning_open=False)
    fragments = parse(subject, [output])
    shown = "".join(fragment.text for fragment in fragments if isinstance(fragment, Text))
    assert [type(fragment) for fragment in fragments] == [Text] * bool(shown)
    assert _solid(shown) in _without_closing_tags(_solid(output))


def _solid(text: str) -> str:
    return "".join(text.split())


def _without_closing_tags(text: str) -> set[str]:
    """The text, and what is left of it when closing tags at its start are passed over."""
    variants = {text}
    while text.startswith("</tool_call>"):
        text = text.removeprefix("</tool_call>")
        variants.add(text)
    return variants


@pytest.mark.parametrize("name", DIALECTS)
def test_no_text_is_no_fragment(name: str) -> None:
    subject = DIALECTS[name].parser(tools=TOOLS, calls=True, control=(), reasoning_open=False)
    assert subject.feed("") == []
    assert merged(subject.feed("a") + subject.feed("") + subject.finish()) == said("a")
