"""Steps to fragments: merging, stop strings, the one allowed call, counts, log-probabilities, however steps are cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.engine.base import Step, TokenLogprob
from antiphon.engine.byte_tokenizer import ByteTokenizer
from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning, ReasoningDone, Text
from antiphon.serving.output import OutputReader, merged
from antiphon.text.detokenizer import Vocabulary
from antiphon.text.dialects import DIALECTS
from tests.three_cuts import three_cuts

TOKENIZER = ByteTokenizer(["<|im_end|>"])
VOCABULARY = Vocabulary(TOKENIZER)
F = Call(name="f")
F_CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
F_FRAGMENTS = [F, Arguments('{"a": 1}'), CallDone()]


def reader(**kwargs: Any) -> OutputReader:
    parser = DIALECTS["hermes"].parser(tools={"f": {}, "g": {}}, calls=True, control=frozenset(), reasoning_open=False)
    return OutputReader(VOCABULARY, parser, **kwargs)


def step(text: str | bytes) -> Step:
    return Step(tuple(text.encode() if isinstance(text, str) else text))


def scored(text: str | bytes) -> Step:
    """A step with log-probabilities: the token -1 is the first, -2 the second, and so on."""
    tokens = step(text).tokens
    return Step(tokens, None, tuple(TokenLogprob(token, -1.0 - n, ((token, -0.5),)) for n, token in enumerate(tokens)))


def read_all(pieces: Sequence[str | bytes], **kwargs: Any) -> tuple[list[Fragment], int, int, bool]:
    """Fragments, output tokens, reasoning tokens, and whether it ended early."""
    output = reader(**kwargs)
    fragments = [fragment for piece in pieces for fragment in output.read([step(piece)])]
    fragments += output.finish()
    return merged(fragments), output.output_tokens, output.reasoning_tokens, output.ended


def whole(text: str, **kwargs: Any) -> list[Fragment]:
    """The fragments of an output, the same however it is cut, with the same counts."""
    return three_cuts(lambda pieces: read_all(pieces, **kwargs), text)[0]


def test_steps_read_together_are_one_fragment_and_apart_they_are_several() -> None:
    output = reader()
    assert output.read([step("He"), step("llo")]) == [Text("Hello")]
    assert output.read([step("!")]) == [Text("!")]


def test_only_neighbours_of_one_kind_are_merged() -> None:
    output = reader()
    fragments = output.read([step("a<think>b"), step("c</think>d"), step("e" + F_CALL), step("f")])
    assert fragments == [Text("a"), Reasoning("bc"), ReasoningDone(), Text("de"), *F_FRAGMENTS, Text("f")]


def test_nothing_is_read_after_the_end() -> None:
    output = reader(stops=["END"])
    assert output.read([step("a END b"), step("c")]) == [Text("a ")]
    assert output.ended
    assert output.output_tokens == len("a END")
    assert output.read([step("d")]) == []
    assert output.finish() == []
    assert output.output_tokens == len("a END")


@pytest.mark.parametrize(
    ("text", "stops", "shown", "counted"),
    [
        ("one STOP two", ["STOP"], "one ", 8),
        ("one STOP two", ["P t", "STOP"], "one ", 8),
        ("one STOP two", ["nothing"], "one STOP two", 12),
        ("one STO", ["STOP"], "one STO", 7),
        ("aaab", ["aab"], "a", 4),
        ("\n\n", ["\n"], "", 2),  # whitespace alone is no text, so no stop string is in it
        ("x\n\ny", ["\n\n"], "x", 4),  # known to be text with what follows
        ("héllo wörld", ["ö"], "héllo w", 10),
    ],
)
def test_stop_strings(text: str, stops: list[str], shown: str, counted: int) -> None:
    fragments, tokens, _, _ = three_cuts(lambda pieces: read_all(pieces, stops=stops), text)
    assert "".join(fragment.text for fragment in fragments if isinstance(fragment, Text)) == shown
    assert tokens == counted


def test_a_stop_string_acts_neither_in_thinking_nor_in_a_call() -> None:
    text = "<think>a END b</think>" + F_CALL.replace("1", '"END"') + "c END d"
    assert whole(text, stops=["END"]) == [
        Reasoning("a END b"),
        ReasoningDone(),
        F,
        Arguments('{"a": "END"}'),
        CallDone(),
        Text("c "),
    ]


def test_half_a_stop_string_is_held_back_and_no_more() -> None:
    output = reader(stops=["STOP"])
    assert output.read([step("a ST")]) == [Text("a ")]
    assert output.read([step("ART")]) == [Text("START")]
    assert output.read([step("STO")]) == []
    assert output.finish() == [Text("STO")]


def test_one_call_ends_the_answer() -> None:
    assert whole("a" + F_CALL + F_CALL + "b", one_call=True) == [Text("a"), *F_FRAGMENTS]
    assert whole("a" + F_CALL + F_CALL + "b") == [Text("a"), *F_FRAGMENTS, *F_FRAGMENTS, Text("b")]


def test_one_call_of_a_list_ends_the_answer() -> None:
    text = '<tool_call>[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]</tool_call>'
    assert whole(text, one_call=True) == [F, Arguments("{}"), CallDone()]


def test_without_a_call_one_call_changes_nothing() -> None:
    assert whole("<think>a</think>b", one_call=True) == [Reasoning("a"), ReasoningDone(), Text("b")]


@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        ("abc", 0),
        ("<think>abc</think>de", 3),
        ("<think>a b</think>", 3),
        ("<think>a</b></think>", 5),
        ("<think>ab</thi", 7),
        ("<think>ab", 2),
        ("<think></think>ab", 0),
        ("<think>é</think>", 2),
        ("<think>a</think><think>bc</think>", 3),
        (F_CALL, 0),
    ],
)
def test_thinking_is_counted_without_its_markers(text: str, thinking: int) -> None:
    _, tokens, counted, _ = three_cuts(read_all, text)
    assert tokens == len(text.encode())
    assert counted == thinking


def test_a_torn_character_is_dropped_and_its_tokens_count() -> None:
    euro = "€".encode()
    assert read_all([b"a", euro[:1], euro[1:]]) == ([Text("a€")], 4, 0, False)
    assert read_all([b"a", euro[:2]]) == ([Text("a")], 3, 0, False)


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("Hello", []),
        ("He said <thing> and < that", []),
        ("<think>abc</think>Hello", []),
        ("<think>abc</think>\n\nHello\n\nthere", []),
        ("a" + F_CALL + "\n\nHello", []),
        (F_CALL + F_CALL + "c", []),
        ("caf\u00e9 \u20ac", []),
        ("one STOP two", ["STOP"]),
        ("one STARS two", ["STAY", "STOP"]),
        ("half a marker </thi", []),
        ("spaces at the end  ", []),
    ],
)
def test_each_text_has_the_log_probabilities_of_its_own_tokens(text: str, stops: list[str]) -> None:
    for size in (1, 2, 3, len(text)):
        data = text.encode()
        output = reader(stops=stops)
        fragments: list[Fragment] = []
        for start in range(0, len(data), size):
            fragments += output.read([scored(data[start : start + size])])
        fragments += output.finish()
        for fragment in fragments:
            if isinstance(fragment, Text):
                spelled = b"".join(bytes(entry.bytes) for entry in fragment.logprobs)
                assert spelled == fragment.text.encode(), (size, fragments)


def test_an_entry_tells_the_token_and_the_most_likely_ones() -> None:
    (fragment,) = reader().read([scored("a")])
    assert isinstance(fragment, Text)
    (entry,) = fragment.logprobs
    assert (entry.token, entry.logprob, entry.bytes) == ("a", -1.0, [97])
    assert [(top.token, top.logprob, top.bytes) for top in entry.top_logprobs] == [("a", -0.5, [97])]


def test_a_control_token_that_shows_nothing_has_no_log_probability() -> None:
    """Its spelling looks like the half marker behind it, whose entry must not be taken for it."""
    vocabulary = Vocabulary(ByteTokenizer(["<|x|>"]))
    parser = DIALECTS["hermes"].parser(tools={}, calls=False, control={"<|x|>"}, reasoning_open=False)
    output = OutputReader(vocabulary, parser)
    tokens = [256, *b"<b"]
    made = [output.read([Step((t,), None, (TokenLogprob(t, -1.0),))]) for t in tokens]
    fragments = merged([fragment for step in made for fragment in step] + output.finish())
    (text,) = fragments
    assert isinstance(text, Text)
    assert (text.text, [entry.token for entry in text.logprobs]) == ("<b", ["<", "b"])
