from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning, ReasoningDone, Text
from antiphon.text.stop import StopMatcher
from tests.three_cuts import merged, three_cuts


def answer(stops: Sequence[str], text: str) -> tuple[str, str | None]:
    """What is seen of `text`, and the stop string that ended it, for every way to cut it."""

    def run(pieces: Sequence[str]) -> tuple[str, str | None]:
        matcher = StopMatcher(stops)
        out = [fragment for piece in pieces for fragment in matcher.feed(Text(piece))] + matcher.finish()
        assert all(isinstance(fragment, Text) and fragment.text for fragment in out)
        return "".join(fragment.text for fragment in out if isinstance(fragment, Text)), matcher.matched

    return three_cuts(run, text)


@pytest.mark.parametrize(
    ("stops", "text", "seen", "matched"),
    [
        ([], "anything", "anything", None),
        (["END"], "no such thing", "no such thing", None),
        (["END"], "the END of it", "the ", "END"),
        (["END"], "END", "", "END"),
        (["END"], "half EN", "half EN", None),
        (["END"], "EENENDEND", "EEN", "END"),
        (["aab"], "aaaab", "aa", "aab"),
        (["\n\n", "User:"], "hi\n\nUser: x", "hi", "\n\n"),
        (["User:", "\n\nUser:"], "hi\n\nUser: x", "hi", "\n\nUser:"),  # both end there: the longest
        (["ab", "abc"], "xabc", "x", "ab"),  # complete first
        (["abcd", "bc"], "abcd", "a", "bc"),  # complete first, though the other began before
        (["abcd", "bc"], "abd", "abd", None),
        (["abab", "baba"], "xbabab", "x", "baba"),
        (["😀"], "a😀b", "a", "😀"),
        (["."], "1.5", "1", "."),
        (["[.*]"], "x.[.*]", "x.", "[.*]"),
        (["END", "END"], "END", "", "END"),
    ],
)
def test_answer_ends_before_the_stop_string(stops: list[str], text: str, seen: str, matched: str | None) -> None:
    assert answer(stops, text) == (seen, matched)


def first_complete(stops: Sequence[str], text: str) -> tuple[str, str | None]:
    """The rule, read character by character."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            longest = max(ended, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(st.lists(st.text("abc", min_size=1, max_size=4), max_size=4), st.text("abc", max_size=14))
def test_the_stop_string_that_is_complete_first_counts(stops: list[str], text: str) -> None:
    assert answer(stops, text) == first_complete(stops, text)


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.feed(Text("go on")) == [Text("go on")]
    assert matcher.feed(Text("a S")) == [Text("a ")]
    assert matcher.feed(Text("T")) == []
    assert matcher.feed(Text("STO")) == [Text("ST")]
    assert matcher.feed(Text("x")) == [Text("STOx")]
    assert matcher.finish() == []


def test_nothing_follows_a_match() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.feed(Text("aSTOPb")) == [Text("a")]
    assert matcher.feed(Text("c")) == []
    assert matcher.feed(Reasoning("c")) == []
    assert matcher.finish() == []
    assert matcher.matched == "STOP"


@pytest.mark.parametrize("between", [Reasoning("r"), Call(name="f")])
def test_stop_string_never_spans_two_texts(between: Fragment) -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.feed(Text("ST")) == []
    assert matcher.feed(between) == [Text("ST"), between]
    assert matcher.feed(Text("OP")) == [Text("OP")]
    assert matcher.matched is None


@pytest.mark.parametrize(
    "fragments",
    [[Reasoning("a STOP b"), ReasoningDone()], [Call(name="f"), Arguments('{"a": "STOP"}'), CallDone()]],
)
def test_stop_strings_act_on_visible_text_alone(fragments: list[Fragment]) -> None:
    matcher = StopMatcher(["STOP"])
    assert [out for fragment in fragments for out in matcher.feed(fragment)] == fragments
    assert matcher.matched is None


def test_logprobs_go_out_with_the_text_they_came_with() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.feed(Text("a", ("a",))) == [Text("a", ("a",))]
    assert matcher.feed(Text("b S", ("b S",))) == [Text("b ", ("b S",))]
    assert matcher.feed(Text("T", ("T",))) == []
    assert matcher.feed(Text("OS", ("OS",))) == [Text("STO", ("T", "OS"))]
    assert matcher.feed(Text("TO", ("TO",))) == []
    assert matcher.finish() == [Text("STO", ("TO",))]


def test_logprobs_keep_their_places_in_what_is_held() -> None:
    matcher = StopMatcher(["SSx"])
    fed = [matcher.feed(Text("S", (number,))) for number in range(4)]
    assert fed == [[], [], [Text("S", (0,))], [Text("S", (1,))]]
    assert matcher.finish() == [Text("SS", (2, 3))]


def test_logprobs_of_what_is_cut_away_go_with_it() -> None:
    matcher = StopMatcher(["STOP"])
    fed = [Text("x", (1,)), Text("S", (2,)), Text("S", (3,)), Text("TO", (4,)), Text("Py", (5, 6))]
    out = [fragment for piece in fed for fragment in matcher.feed(piece)] + matcher.finish()
    assert merged(out) == [Text("xS", (1, 2))]
    assert matcher.matched == "STOP"


def test_empty_stop_string_is_an_error() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])
