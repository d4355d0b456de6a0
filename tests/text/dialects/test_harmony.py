from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning, ReasoningDone, Text
from antiphon.text.dialects.grammar import Wanted
from antiphon.text.dialects.harmony import HARMONY, HEADER_LIMIT, MARKERS, Header, read_header
from antiphon.text.messages import ToolDefinition
from tests.text.dialects.corpus import Case, called, cut, said, thought
from tests.text.dialects.corpus_harmony import HARMONY as CORPUS
from tests.text.dialects.corpus_harmony import NASTY, TO_CALL, ULM
from tests.text.dialects.runs import check_beginnings, check_order, let_through, parse, parser, read, tokens
from tests.three_cuts import merged, three_cuts


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CORPUS.items()])
def test_output_gives_these_fragments_however_it_is_cut(case: Case) -> None:
    assert read(HARMONY, case) == case.fragments


def as_tokens(output: str) -> list[str]:
    """The output with its markers as tokens."""
    for marker in MARKERS:
        output = output.replace(marker, f"\0^{marker}\0")
    return output.split("\0")


# Whose markers are half, or spelled in text.
SPELLED = {name for name, case in CORPUS.items() if case.control or "half" in name or "in a string" in name}


@pytest.mark.parametrize("name", [name for name in CORPUS if name not in SPELLED])
def test_markers_are_control_tokens_of_the_real_vocabulary(name: str) -> None:
    case = CORPUS[name]
    subject = parser(HARMONY, calls=case.calls, control=MARKERS, reasoning_open=case.reasoning_open)
    fragments: list[Fragment] = []
    for piece in as_tokens(case.output):
        fragments += subject.control(piece[1:]) if piece.startswith("^") else subject.feed(piece)
    assert merged(fragments + subject.finish()) == case.fragments


def test_output_may_end_at_any_character() -> None:
    check_beginnings(
        HARMONY,
        f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{TO_CALL}{ULM}<|end|><|start|>assistant"
        "<|channel|>final<|message|>Yes.<|return|>",
    )


# What goes out with each piece: as much as can be known.
STREAM: list[tuple[str, list[Fragment]]] = [
    ("<|channel|>", []),
    ("analysis", []),
    ("<|message|>", []),
    ("Hm", [Reasoning("Hm")]),
    (". ", [Reasoning(". ")]),
    ("<|end|>", [ReasoningDone()]),
    ("<|start|>", []),
    ("assistant", []),
    ("<|channel|>commentary to=functions.", []),
    ("search ", []),
    ("<|constrain|>json", []),
    ("<|message|>", [Call(name="search")]),
    (" ", []),
    ('{"q', [Arguments('{"q')]),
    ('": "<|end|>', [Arguments('": "<|end|>')]),
    ('"', [Arguments('"')]),
    ("<|", []),
    ("}", [Arguments("<|}")]),
    ("<|end|>", [CallDone()]),
    ("<|start|>assistant<|channel|>final<|message|> ", [Text(" ")]),
    ("Yes. <", [Text("Yes. ")]),
    ("b", [Text("<b")]),
]


def test_nothing_is_held_back_that_can_be_known() -> None:
    subject = parser(HARMONY)
    for piece, fragments in STREAM:
        assert merged(subject.feed(piece)) == fragments, piece


def test_in_reasoning() -> None:
    subject = parser(HARMONY)
    seen = []
    for piece in ("<|channel|>analysis", "<|message|>", "a", "<|end|>", "<|start|>assistant", "<|message|>b"):
        subject.feed(piece)
        seen.append(subject.in_reasoning)
    assert seen == [False, True, True, False, False, False]
    assert parser(HARMONY, reasoning_open=True).in_reasoning


@pytest.mark.parametrize(
    ("pieces", "fragments"),
    [
        (["^<|channel|>", "final", "^<|message|>", "I write <|channel|>analysis<|message|>."],
         said("I write <|channel|>analysis<|message|>.")),
        (["^<|channel|>", "analysis", "^<|message|>", "<|end|>", "^<|end|>"], thought("<|end|>")),
        (["^<|channel|>", "commentary to=functions.get_weather ", "^<|constrain|>", "json", "^<|message|>", NASTY],
         called(NASTY)),
        (["^<|channel|>", "commentary to=functions.get_weather", "^<|message|>", '{"a": "b', "^<|call|>"],
         called('{"a": "b')),
        (["^<|channel|>", "commentary to=functions.get_weather", "^<|message|>", '{"a": "b', "^<|message|>", '"}'],
         called('{"a": "b<|message|>"}')),
        (["^<|channel|>", "commentary to=functions.get_weather", "^<|message|>", '{"a": "b<|call|>'],
         cut('{"a": "b<|call|>')),
        (["^<|channel|>", "fin<|message|>al", "^<|message|>", "a"], said("<|channel|>fin<|message|>al<|message|>a")),
        (["^<|foo|>", "a", "^<think>"], said("a")),
    ],
)  # fmt: skip
def test_text_that_spells_a_marker_is_text(pieces: list[str], fragments: list[Fragment]) -> None:
    assert tokens(HARMONY, pieces, MARKERS) == fragments


def test_a_token_behind_half_a_marker() -> None:
    control = ("<|end|>",)
    pieces = ["<|channel|>final<|message|>a <|mess", "^<|end|>", "<|start|>assistant<|message|>b"]
    assert tokens(HARMONY, pieces, control) == said("a <|mess\n\nb")


def test_text_behind_a_call_that_a_token_ends_is_no_part_of_it() -> None:
    output = [
        "<|channel|>commentary to=functions.get_weather<|message|>[1",
        "^<|end|>",
        '"<|start|>assistant<|message|>b',
    ]
    assert tokens(HARMONY, output, ("<|end|>",)) == [*called("[1"), *said('"\n\nb')]


@pytest.mark.parametrize("fits", [True, False])
def test_a_header_has_a_limit(fits: bool) -> None:
    """It falls on one and the same character however the output is cut."""
    header = "<|channel|>final"
    output = f"{header}{' ' * (HEADER_LIMIT - len(header) + (not fits))}<|message|>a"
    fragments = said("a") if fits else said(output)
    assert three_cuts(lambda pieces: parse(parser(HARMONY), pieces), output) == fragments


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("", Header()),
        ("<|start|>assistant", Header()),
        (" assistant ", Header()),
        ("<|channel|>analysis", Header("analysis")),
        ("<|channel|>commentary<|channel|>final", Header("final")),
        (" to=functions.a-b_c.d<|channel|>commentary", Header("commentary", "functions.a-b_c.d")),
        ("<|channel|>final to=assistant", Header("final")),
        ("<|channel|>finally", None),
        ("<|channel|>Final", None),
        ("json", None),
        ("<|constrain|>json", None),
        ("<|start|>user", None),
        ("<|start|><|start|>assistant", None),
    ],
)
def test_headers(text: str, header: Header | None) -> None:
    assert read_header(text) == header


PIECES = [
    *MARKERS, "assistant", "analysis", "commentary", "final", " to=functions.search", " to=nobody", " json",
    "functions.", "{", "}", '"', "\\", "[", "1", " ", "\n", "a", "é", "<", "<|", "|>", "<|channel|>analysis<|message|>",
    "<|start|>assistant", "<|channel|>commentary to=functions.search <|constrain|>json<|message|>",
    "<|channel|>final<|message|>",
]  # fmt: skip
outputs = st.lists(st.sampled_from(PIECES), max_size=15).map("".join)


@settings(deadline=None)
@given(outputs, st.booleans(), st.booleans(), st.sets(st.sampled_from(MARKERS)))
def test_no_output_raises_and_no_cut_matters(output: str, calls: bool, thinking: bool, control: set[str]) -> None:
    case = Case(output, [], calls=calls, reasoning_open=thinking, control=tuple(sorted(control)))
    check_order(read(HARMONY, case))


@settings(deadline=None)
@given(st.lists(st.sampled_from([*PIECES, *(f"^{marker}" for marker in MARKERS)]), max_size=15))
def test_no_tokens_raise(pieces: list[str]) -> None:
    check_order(tokens(HARMONY, pieces, MARKERS))


WORDS = st.text(st.sampled_from("ab <|\n"), min_size=1, max_size=8)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["analysis", "commentary", "final", "other"]), WORDS), max_size=5))
def test_no_content_is_lost_or_trimmed(messages: list[tuple[str, str]]) -> None:
    pieces: list[str] = []
    for channel, content in messages:
        pieces += ["^<|channel|>", channel, "^<|message|>", content, "^<|end|>", "^<|start|>", "assistant"]
    fragments = tokens(HARMONY, pieces, MARKERS)
    thinking = [fragment.text for fragment in fragments if isinstance(fragment, Reasoning)]
    assert thinking == [content for channel, content in messages if channel == "analysis"]
    visible = "".join(fragment.text for fragment in fragments if isinstance(fragment, Text))
    for channel, content in messages:
        if channel != "analysis":
            assert content in visible


# Grammars.

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (ToolDefinition("get_weather", "", SCHEMA, strict=True), ToolDefinition("search"))
REQUIRED = Wanted(tools=TOOLS, calls="required", thinking="possible")
ALLOWED = Wanted(tools=TOOLS, calls="allowed", thinking="possible")
ONE = Wanted(tools=TOOLS, calls="required", several=False)
FORMAT = Wanted(schema=SCHEMA, thinking="possible")
FORMAT_OR_CALL = Wanted(schema=SCHEMA, tools=TOOLS, calls="allowed")
OPEN = Wanted(tools=TOOLS, calls="required", thinking="open")

AGAIN = "<|end|><|start|>assistant"
THOUGHT = f"<|channel|>analysis<|message|>I <b>think</b>.{AGAIN}"
WORDS_FIRST = f"<|channel|>commentary<|message|>I look.{AGAIN}"
FINAL = "<|channel|>final<|message|>"
CALL = f"{TO_CALL}{ULM}"
OTHER = '<|channel|>commentary to=functions.search json<|message|>{"q": [1]}'
BY_ROLE = f" to=functions.get_weather<|channel|>commentary json<|message|>{ULM}"


@pytest.mark.parametrize("spelled", [False, True], ids=["tokens", "text"])
@pytest.mark.parametrize(
    ("wanted", "output"),
    [
        (ALLOWED, f"{FINAL}Hello there."),
        (ALLOWED, f"{THOUGHT}{FINAL}Hello there."),
        (ALLOWED, f"{THOUGHT}{WORDS_FIRST}{THOUGHT}{CALL}"),
        (ALLOWED, f"{CALL}{AGAIN}{OTHER}"),
        (ALLOWED, BY_ROLE),
        (REQUIRED, f"{THOUGHT}{THOUGHT}{OTHER}"),
        (REQUIRED, "<|channel|>commentary to=functions.search<|message|>{}"),
        (REQUIRED, " to=functions.search<|channel|>commentary <|constrain|>json<|message|>{}"),
        (ONE, CALL),
        (OPEN, f"I think.{AGAIN}{CALL}"),
        (FORMAT, f"{THOUGHT}{FINAL}{ULM}"),
        (FORMAT_OR_CALL, f"{FINAL}{ULM}"),
        (FORMAT_OR_CALL, CALL),
    ],
)
def test_what_the_grammar_lets_through_is_read_as_that(wanted: Wanted, output: str, spelled: bool) -> None:
    pieces = [output] if spelled else as_tokens(output)
    control = () if spelled else MARKERS
    assert let_through(HARMONY, wanted, pieces, control) == "".join(pieces) + "$"
    subject = parser(HARMONY, control=control, reasoning_open=wanted.thinking == "open")
    fragments: list[Fragment] = []
    for piece in pieces:
        fragments += subject.control(piece[1:]) if piece.startswith("^") else subject.feed(piece)
    fragments = merged(fragments + subject.finish())
    calls = [fragment.name for fragment in fragments if isinstance(fragment, Call)]
    assert len(calls) == output.count("to=functions.") == sum(isinstance(fragment, CallDone) for fragment in fragments)
    for fragment in fragments:
        if isinstance(fragment, Arguments):
            json.loads(fragment.text)


@pytest.mark.parametrize(
    ("wanted", "output", "passed"),
    [
        (REQUIRED, f"{FINAL}a", "^<|channel|>"),
        (REQUIRED, WORDS_FIRST, "^<|channel|>commentary"),
        (REQUIRED, "<|channel|>commentary to=functions.nope", "^<|channel|>commentary to=functions."),
        (REQUIRED, "Hello", ""),
        (REQUIRED, f'{TO_CALL}{{"town"', "".join(as_tokens(TO_CALL)) + '{"'),
        (ONE, THOUGHT, "^<|channel|>"),
        (ONE, f"{CALL}{AGAIN}", "".join(as_tokens(CALL))),
        (FORMAT, f"{FINAL}Hello", "".join(as_tokens(FINAL))),
        (FORMAT_OR_CALL, WORDS_FIRST, "^<|channel|>commentary"),
    ],
)
def test_the_grammar_lets_nothing_else_through(wanted: Wanted, output: str, passed: str) -> None:
    assert let_through(HARMONY, wanted, as_tokens(output), MARKERS).removesuffix("$") == passed
