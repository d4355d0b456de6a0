"""The XML-like dialects: what they make of outputs, however these are cut, and what their grammar lets through."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning, ReasoningDone, Text
from antiphon.text.dialects.dialect import Dialect
from antiphon.text.dialects.machine import Parser
from antiphon.text.dialects.xml_calls import DSML, DSML_V4, GLM, HEAD_LIMIT, MINIMAX_M2, QWEN3_CODER
from antiphon.text.dialects.xml_syntax import GAP_LIMIT
from antiphon.text.dialects.xml_values import SCALAR_LIMIT
from tests.text.dialects.corpus import Case, called, cut, said
from tests.text.dialects.corpus_xml import XML_CORPUS, XML_TOOLS, asked
from tests.text.dialects.xml_forms import FORMS, Form
from tests.three_cuts import merged, three_cuts

DIALECTS = [QWEN3_CODER, GLM, MINIMAX_M2, DSML, DSML_V4]

ALL = [
    pytest.param(dialect, case, id=f"{dialect.name}: {name}")
    for dialect in DIALECTS
    for name, case in XML_CORPUS[dialect.name].items()
]
EVERY_FORM = pytest.mark.parametrize("form", [pytest.param(form, id=name) for name, form in FORMS.items()])
EVERY_DIALECT = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


def parser(
    dialect: Dialect = QWEN3_CODER,
    *,
    tools: dict[str, Any] = XML_TOOLS,
    calls: bool = True,
    control: Sequence[str] = (),
    reasoning_open: bool = False,
) -> Parser:
    return dialect.parser(tools=tools, calls=calls, control=control, reasoning_open=reasoning_open)


def parse(subject: Parser, pieces: Sequence[str]) -> list[Fragment]:
    """What comes of pieces; those that begin with `^` are control tokens."""
    fragments: list[Fragment] = []
    for piece in pieces:
        fragments += subject.control(piece[1:]) if piece.startswith("^") else subject.feed(piece)
    fragments += subject.finish()
    assert all(getattr(fragment, "text", "some") for fragment in fragments), "no fragment is empty"
    return merged(fragments)


@pytest.mark.parametrize(("dialect", "case"), ALL)
def test_output_gives_these_fragments_however_it_is_cut(dialect: Dialect, case: Case) -> None:
    def run(pieces: Sequence[str]) -> list[Fragment]:
        subject = parser(dialect, calls=case.calls, control=case.control, reasoning_open=case.reasoning_open)
        return parse(subject, pieces)

    if len(case.output) < 300:
        assert three_cuts(run, case.output) == case.fragments
    else:  # as many splits as characters would take too long
        size = 1 if len(case.output) < 5000 else 61
        small = [case.output[at : at + size] for at in range(0, len(case.output), size)]
        for pieces in ([case.output], small, [case.output[:250], case.output[250:]]):
            assert run(pieces) == case.fragments


def test_every_dialect_has_a_corpus() -> None:
    assert XML_CORPUS.keys() == {dialect.name for dialect in DIALECTS}
    assert {form.dialect.name for form in FORMS.values()} == XML_CORPUS.keys()


@EVERY_FORM
def test_output_that_ends_anywhere(form: Form) -> None:
    """However far the call came, it is either text or a call; what it said by then, it says in the end, too."""
    output = form.spelled("book", title="a\nb", count="12", tags='["x"]')
    whole = parse(parser(form.dialect), [output])
    arguments = "".join(fragment.text for fragment in whole if isinstance(fragment, Arguments))
    for length in range(len(output)):
        fragments = parse(parser(form.dialect), [output[:length]])
        assert parse(parser(form.dialect), list(output[:length])) == fragments
        check_order(fragments)
        shown = "".join(fragment.text for fragment in fragments if isinstance(fragment, Arguments))
        if any(isinstance(fragment, Call) for fragment in fragments):
            said_by_then = shown.partition("</")[0].removesuffix("<").removesuffix("\\n").rstrip("\n")
            assert arguments.startswith(said_by_then)
        else:
            text = "".join(fragment.text for fragment in fragments if isinstance(fragment, Text))
            assert output[:length] in (text, form.before + text)


# What goes out with each piece: as much as can be known.
STREAMS: dict[str, tuple[Dialect, list[tuple[str, list[Fragment]]]]] = {
    "a string as it comes": (
        QWEN3_CODER,
        [
            ("<tool_call>\n<function=sea", []),
            ("rch", []),
            (">", [Call(name="search")]),
            ("\n<parameter=q", []),
            (">", [Arguments('{"q": "')]),
            ("\n", []),
            ("a", [Arguments("a")]),
            ("\n", []),
            ('b"', [Arguments('\\nb\\"')]),
            ("</para", []),
            ("!", [Arguments("</para!")]),
            ("\n</parameter>", []),
            ("\n<", []),
            ("parameter=", [Arguments('"')]),
            ("r>\nc\n</parameter>\n</function>", [Arguments(', "r": "c"}'), CallDone()]),
            ("\n</tool_call>\n", []),
            ("ok", said("ok")),
        ],
    ),
    "an end that is none": (
        MINIMAX_M2,
        [
            ('<invoke name="search"><parameter name="q">a</parameter>', [Call(name="search"), Arguments('{"q": "a')]),
            ("\n</", []),
            ("parameter>", [Arguments("</parameter>\\n")]),
            ("b", [Arguments("</parameter>b")]),
        ],
    ),
    "a number at its end": (
        GLM,
        [
            ("<tool_call>book", []),
            ("<arg_key>", [Call(name="book")]),
            ("count</arg_key><arg_value>", [Arguments('{"count": ')]),
            ("1", []),
            ("2</arg_value>", []),
            ("<arg_key>", [Arguments("12")]),
            ("title</arg_key><arg_value>", [Arguments(', "title": "')]),
        ],
    ),
    "a string in place of a number": (
        GLM,
        [
            ("<tool_call>book<arg_key>count</arg_key><arg_value>", [Call(name="book"), Arguments('{"count": ')]),
            ("f", [Arguments('"f')]),
            ("our", [Arguments("our")]),
        ],
    ),
    "a string where null may come": (
        GLM,
        [
            ("<tool_call>book<arg_key>note</arg_key><arg_value>", [Call(name="book"), Arguments('{"note": ')]),
            ("n" * SCALAR_LIMIT, []),
            ("o", [Arguments(f'"{"n" * SCALAR_LIMIT}o')]),
            ("n", [Arguments("n")]),
        ],
    ),
    "refused at the first wrong character": (QWEN3_CODER, [("<tool_call>\n", []), ("x", said("<tool_call>\nx"))]),
    "refused when the name is known": (
        DSML,
        [
            ('<｜DSML｜invoke name="nope', []),
            ('">', said('<｜DSML｜invoke name="nope">')),
            ("\n<｜DSML｜parameter", []),
            (' name="q" string="true">a', said('\n<｜DSML｜parameter name="q" string="true">a')),
        ],
    ),
}


@pytest.mark.parametrize(("dialect", "stream"), [pytest.param(*stream, id=name) for name, stream in STREAMS.items()])
def test_nothing_is_held_back_that_can_be_known(dialect: Dialect, stream: list[tuple[str, list[Fragment]]]) -> None:
    subject = parser(dialect)
    for piece, fragments in stream:
        assert merged(subject.feed(piece)) == fragments, piece


QWEN_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=")
GLM_TOKENS = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<think>")
MINIMAX_TOKENS = ("<minimax:tool_call>", "</minimax:tool_call>", "<think>")
DSML_TOKENS = ("｜DSML｜", "<think>")


@pytest.mark.parametrize(
    ("dialect", "control", "pieces", "fragments"),
    [
        (
            QWEN3_CODER,
            QWEN_TOKENS,
            [
                "^<tool_call>",
                "\n",
                "^<function=",
                "search>\n<parameter=q>\nUlm\n</parameter>\n</function>\n",
                "^</tool_call>",
                "b",
            ],
            [*asked("Ulm"), *said("b")],
        ),
        (QWEN3_CODER, QWEN_TOKENS, ["^<tool_call>", "\n<function=search>"], said("<tool_call>\n<function=search>")),
        (
            QWEN3_CODER,
            QWEN_TOKENS,
            ["^<function=", "search><parameter=q>a\n</parameter></tool_call>\n", "^</tool_call>"],
            called('{"q": "a\\n</parameter></tool_call>"}', "search"),
        ),
        (
            QWEN3_CODER,
            QWEN_TOKENS,
            ["^<function=", "search><parameter=q>a</parameter>\n", "^</tool_call>", "b"],
            [*asked("a"), *said("b")],
        ),
        (
            QWEN3_CODER,
            QWEN_TOKENS,
            ["^<function=", "search><parameter=q>a</para", "^<think>", "b</parameter>", "^<think>", "c"],
            cut('{"q": "a</para<think>b</parameter><think>c', "search"),
        ),
        (
            QWEN3_CODER,
            QWEN_TOKENS,
            ["^<function=", "search><parameter=q>a</parameter>\n</fun", "^</tool_call>"],
            called('{"q": "a</parameter>\\n</fun"}', "search"),
        ),
        (
            QWEN3_CODER,
            QWEN_TOKENS,
            ["^<function=", "search", "^</tool_call>", "b"],
            said("<function=search</tool_call>b"),
        ),
        (
            QWEN3_CODER,
            QWEN_TOKENS,
            ["^<function=", "search><parameter=q", "^<think>", ">a"],
            cut('{"q<think>": "a', "search"),
        ),
        (
            QWEN3_CODER,
            QWEN_TOKENS,
            ["^<function=", "search>", "^<think>", "a"],
            [*called("{}", "search"), *said("<think>a")],
        ),
        (
            QWEN3_CODER,
            QWEN_TOKENS,
            ["^<function=", "nope><parameter=q>a", "^</tool_call>", "b"],
            said("<function=nope><parameter=q>a</tool_call>b"),
        ),
        (
            QWEN3_CODER,
            QWEN_TOKENS,
            ["^<function=", "nope><parameter=q>a</parameter>", "^<function=", "search></function>"],
            [*said("<function=nope><parameter=q>a</parameter>"), *called("{}", "search")],
        ),
        (
            GLM,
            GLM_TOKENS,
            [
                "^<tool_call>",
                "search\n",
                "^<arg_key>",
                "q",
                "^</arg_key>",
                "^<arg_value>",
                "a",
                "^</arg_value>",
                "^</tool_call>",
            ],
            asked("a"),
        ),
        (GLM, GLM_TOKENS, ["^<tool_call>", "search", "^</tool_call>", "b"], [*called("{}", "search"), *said("b")]),
        (
            GLM,
            GLM_TOKENS,
            ["^<tool_call>", "search", "^<arg_key>", "q", "^</arg_key>", "^<arg_value>", "a", "^</tool_call>", "b"],
            [*asked("a"), *said("b")],
        ),
        (
            GLM,
            GLM_TOKENS,
            [
                "^<tool_call>",
                "search",
                "^<arg_key>",
                "q",
                "^</arg_key>",
                "^<arg_value>",
                "a</tool_call>",
                "^</arg_value>",
                "^</tool_call>",
            ],
            asked("a</tool_call>"),
        ),
        (
            GLM,
            GLM_TOKENS,
            ["^<tool_call>", "sea", "^<tool_call>", "search", "^</tool_call>"],
            [*said("<tool_call>sea"), *called("{}", "search")],
        ),
        (GLM, GLM_TOKENS, ["a", "^</tool_call>", "^<arg_key>"], said("a</tool_call><arg_key>")),
        (
            MINIMAX_M2,
            MINIMAX_TOKENS,
            [
                "^<minimax:tool_call>",
                '\n<invoke name="search">\n<parameter name="q">a</parameter>\n',
                "^</minimax:tool_call>",
                "b",
            ],
            [*asked("a"), *said("b")],
        ),
        (
            MINIMAX_M2,
            MINIMAX_TOKENS,
            ['<invoke name="search"><parameter name="q">a</minimax:tool_call>', "^</minimax:tool_call>", "b"],
            [*asked("a</minimax:tool_call>"), *said("b")],
        ),
        (
            DSML,
            DSML_TOKENS,
            [
                *("<", "^｜DSML｜", "function_calls>\n<", "^｜DSML｜", 'invoke name="search">\n<', "^｜DSML｜"),
                *('parameter name="q" string="true">a</', "^｜DSML｜", "parameter>\n</", "^｜DSML｜", "invoke>\n</"),
                *("^｜DSML｜", "function_calls>b"),
            ],
            [*asked("a"), *said("b")],
        ),
    ],
)
def test_markers_that_are_control_tokens(
    dialect: Dialect, control: Sequence[str], pieces: list[str], fragments: list[Fragment]
) -> None:
    assert parse(parser(dialect, control=control), pieces) == fragments


def check_order(fragments: Sequence[Fragment]) -> None:
    """Arguments and ends only within what they belong to; nothing else within a call; a call that ended said JSON."""
    last: Fragment | None = None
    for fragment in fragments:
        match fragment:
            case ReasoningDone():
                assert isinstance(last, Reasoning)
            case Arguments():
                assert isinstance(last, Call)
            case CallDone():
                assert isinstance(last, Arguments)
                assert isinstance(json.loads(last.text), dict)
            case _:
                assert not isinstance(last, Call | Arguments | Reasoning)
        last = fragment


# Outputs made of what the dialects look for, whole and torn.
PIECES = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "search", "book", "nope", ">", '">', "\n", " ",
    "</function>", "<parameter=", "count", "tags", "note", "</parameter>", "</par", "<", "</", "a", "é😀", '"', "\\",
    "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<minimax:tool_call>", "</minimax:tool_call>", "12", "]",
    '<invoke name="', "</invoke>", '<parameter name="', "<｜DSML｜function_calls>", '<｜DSML｜invoke name="', "'",
    '<｜DSML｜parameter name="', '" string="true">', '" string="false">', "</｜DSML｜parameter>", "</｜DSML｜invoke>",
    "<function=book>", "<parameter=tags>", "['x', \"y\"", "null", "True", "<parameter=q>\n", "\n</parameter>\n",
    "<tool_call>book", '<invoke name="book">', '<parameter name="count">', " " * GAP_LIMIT, "｜DSML｜",
    '<｜DSML｜invoke name="book">',
]  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
    st.sampled_from(DIALECTS),
    st.sampled_from([(), ("<tool_call>", "</tool_call>"), ("</tool_call>",), ("</minimax:tool_call>", "<function=")]),
)
def test_no_output_raises_and_no_cut_matters(output: str, dialect: Dialect, control: Sequence[str]) -> None:
    def run(pieces: Sequence[str]) -> list[Fragment]:
        return parse(parser(dialect, control=control), pieces)

    check_order(three_cuts(run, output))


@settings(deadline=None)
@given(st.lists(st.sampled_from([*PIECES, *(f"^{token}" for token in QWEN_TOKENS + GLM_TOKENS)]), max_size=25))
def test_no_tokens_raise(pieces: list[str]) -> None:
    for dialect in (QWEN3_CODER, GLM):
        check_order(parse(parser(dialect, control=QWEN_TOKENS + GLM_TOKENS), pieces))


strings = st.text(st.sampled_from("ab \n\t\"\\<>/é😀'"), max_size=8) | st.sampled_from(["</parameter>", "null", "[1]"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=6,
)


@EVERY_FORM
@settings(deadline=None, max_examples=40)
@given(title=strings, tags=st.lists(values, max_size=3), at=st.dictionaries(strings, values, max_size=3))
def test_what_was_spelled_is_read(form: Form, title: str, tags: list[Any], at: dict[str, Any]) -> None:
    """As the templates spell values: strings as they are, everything else as JSON."""
    output = form.spelled("book", title=title, tags=json.dumps(tags), at=json.dumps(at, ensure_ascii=False, indent=1))
    (call, arguments, done) = parse(parser(form.dialect), [output])
    assert isinstance(arguments, Arguments)
    assert json.loads(arguments.text) == {"title": title, "tags": tags, "at": at}


def test_a_head_is_held_back_no_longer_than_its_limit() -> None:
    subject = parser()
    assert subject.feed("<function=" + "x" * (HEAD_LIMIT - 10)) == []
    assert subject.feed("x") == said("<function=" + "x" * (HEAD_LIMIT - 10)) + said("x")
