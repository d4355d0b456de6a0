"""Calls with the name in front."""

from __future__ import annotations

import tracemalloc

import pytest

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning
from antiphon.text.dialects.named_calls import HEAD_LIMIT
from tests.text.dialects.corpus import called, cut, said
from tests.text.dialects.corpus_json_families import ULM
from tests.text.dialects.corpus_named import BEGIN, END, SECTION, SECTION_END, SEP
from tests.text.dialects.test_json_families import parse, parser, tokens
from tests.three_cuts import merged

KIMI = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
KIMI_END = "<|tool_calls_section_end|>"

# What goes out with each piece: as much as can be known.
STREAMS: dict[str, list[tuple[str, list[Fragment]]]] = {
    "mistral": [
        ("[TOOL_CALLS]sea", []),
        ("rch[", []),
        ("ARGS]", [Call(name="search")]),
        ("{", [Arguments("{")]),
        ('"a": "[TOOL', [Arguments('"a": "[TOOL')]),
        ('"}', [Arguments('"}'), CallDone()]),
        ("[TOOL_CALLS]nope{", said("[TOOL_CALLS]nope{")),
        ('"[TOOL_CALLS]search[ARGS]{}"', said('"[TOOL_CALLS]search[ARGS]{}"')),
        ("}", said("}")),
        ("[TOOL_CALLS]search[ARGS]", [Call(name="search")]),
        ('"{\\', [Arguments("{")]),
        ('"a', [Arguments('"a')]),
        ('"', [CallDone()]),
    ],
    "deepseek-v3": [
        (f"{SECTION}{BEGIN}function{SEP}search\n``", []),
        ("`", [Call(name="search")]),
        ("json\n", []),
        ('{"a"', [Arguments('{"a"')]),
        ("}", [Arguments("}"), CallDone()]),
        ("\n``", []),
        ("`", []),
        (END, []),
        (SECTION_END, []),
        ("ok", said("ok")),
    ],
    "deepseek-v3.1": [
        (f"{SECTION}{BEGIN}search{SEP}", [Call(name="search")]),
        ("{1 <", [Arguments("{1 ")]),
        ("｜tool", []),
        (" ", [Arguments("<｜tool ")]),
        (END, [CallDone()]),
    ],
    "kimi-k2": [
        ("<|tool_call_begin|>functions.search:0", []),
        ("<|tool_call_argument_begin|>", [Call(name="search")]),
        ("{}", [Arguments("{}"), CallDone()]),
    ],
}


@pytest.mark.parametrize("dialect", STREAMS)
def test_nothing_is_held_back_that_can_be_known(dialect: str) -> None:
    subject = parser(dialect)
    for piece, fragments in STREAMS[dialect]:
        assert merged(subject.feed(piece)) == fragments, piece


@pytest.mark.parametrize(
    ("dialect", "pieces", "fragments"),
    [
        ("mistral", ["^[TOOL_CALLS]", "get_weather", "^[ARGS]", ULM], called()),
        ("mistral", ["^[TOOL_CALLS]", "get_weather", "^[CALL_ID]", "ABC123def", "^[ARGS]", ULM], called()),
        ("mistral", ["^[TOOL_CALLS]", '[{"name": "search"}]'], called("{}", "search")),
        (
            "mistral",
            ["^[TOOL_CALLS]", "[", "^[TOOL_CALLS]", "search", "^[ARGS]"],
            [*said("[TOOL_CALLS]["), *cut("", "search")],
        ),
        ("mistral", ["^[TOOL_CALLS]", "search", "^[TOOL_CALLS]", "search{}"], [*called("{}", "search")] * 2),
        ("mistral", ["^[TOOL_CALLS]", "^[TOOL_CALLS]", "search{}"], [*said("[TOOL_CALLS]"), *called("{}", "search")]),
        (
            "mistral",
            ["^[TOOL_CALLS]", "search", "^[ARGS]", '{"a": "', "^[TOOL_CALLS]", "search{}"],
            [*called('{"a": "', "search"), *called("{}", "search")],
        ),
        (
            "mistral",
            ["^[TOOL_CALLS]", "search", "^[ARGS]", '{"a": "', "^[ARGS]", '"}'],
            called('{"a": "[ARGS]"}', "search"),
        ),
        ("mistral", ["a", "^[ARGS]", "b"], said("a[ARGS]b")),
        ("mistral", ["^[TOOL_CALLS]", "search", "^[THINK]", "{}"], said("[TOOL_CALLS]search[THINK]{}")),
        ("mistral", ["^[TOOL_CALLS]", "search", "^[ARGS]", "^[THINK]", " "], called("[THINK]", "search")),
        (
            "deepseek-v3",
            [
                f"^{SECTION}",
                f"^{BEGIN}",
                "function",
                f"^{SEP}",
                f"search\n```json\n{ULM}\n```",
                f"^{END}",
                f"^{SECTION_END}",
            ],
            called(ULM, "search"),
        ),
        (
            "deepseek-v3",
            [f"^{BEGIN}", "function", f"^{SEP}", f"search\n```json\n{ULM}", f"^{END}", "ok"],
            [*called(ULM, "search"), *said("ok")],
        ),
        (
            "deepseek-v3",
            [f"^{BEGIN}", "function", f"^{SEP}", f"search\n```json\n{ULM}\n``", "^<think>", "ok"],
            [*called(ULM, "search"), *said("``"), Reasoning("ok")],
        ),
        (
            "deepseek-v3",
            [f"^{BEGIN}", "function", f"^{SEP}", "search\n``", f"^{END}"],
            said(f"{BEGIN}function{SEP}search\n``{END}"),
        ),
        ("deepseek-v3", [f"^{BEGIN}", "function", f"^{SEP}", "search\n```js", f"^{END}"], called("{}", "search")),
        ("deepseek-v3.1", [f"^{BEGIN}", "search", f"^{SEP}", "{}", f"^{END}"], called("{}", "search")),
        ("deepseek-v3.1", [f"^{BEGIN}", "nope", f"^{SEP}", "{", f"^{END}"], said(f"{BEGIN}nope{SEP}{{{END}")),
        (
            "deepseek-v3.1",
            [f"^{BEGIN}", "search", f"^{SEP}", '{"a": 1', f"^{SECTION_END}", "ok"],
            [*called('{"a": 1', "search"), *said("ok")],
        ),
        (
            "kimi-k2",
            [f"^{KIMI[0]}", f"^{KIMI[1]}", "functions.search:7", f"^{KIMI[2]}", "{}", f"^{KIMI[3]}", f"^{KIMI_END}"],
            called("{}", "search"),
        ),
        ("kimi-k2", [f"^{KIMI[1]}", "functions.search:7", f"^{KIMI[3]}"], called("{}", "search")),
        (
            "kimi-k2",
            [f"^{KIMI[1]}", "functions.search:7", f"^{KIMI[2]}", '"{}"', f"^{KIMI[3]}"],
            called("{}", "search"),
        ),
    ],
)
def test_markers_that_are_control_tokens(dialect: str, pieces: list[str], fragments: list[Fragment]) -> None:
    control = [piece[1:] for piece in pieces if piece.startswith("^")]
    assert tokens(parser(dialect, control=control), *pieces) == fragments


@pytest.mark.parametrize("fits", [True, False])
def test_head_that_is_too_long_is_text(fits: bool) -> None:
    """The limit falls on one and the same character however the output is cut."""
    output = f"[TOOL_CALLS]{' ' * (HEAD_LIMIT - 6 + (not fits))}search[ARGS]{{}}"
    expected = called("{}", "search") if fits else said(output)
    near = HEAD_LIMIT - 20
    for pieces in ([output], list(output), [output[:near], *output[near:]]):
        assert parse(parser("mistral"), pieces) == expected


def test_endless_head_is_not_kept() -> None:
    subject = parser("mistral")
    subject.feed("[TOOL_CALLS]")
    piece = "n" * 4096
    tracemalloc.start()
    try:
        assert sum(len(subject.feed(piece)) for _ in range(100)) == 101
        assert tracemalloc.get_traced_memory()[1] < 100_000  # of 400 kB
    finally:
        tracemalloc.stop()
