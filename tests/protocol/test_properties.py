"""What holds for every sequence of fragments, drawn at random."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol import sse
from antiphon.protocol.errors import ProtocolViolation
from antiphon.protocol.events import Event
from antiphon.protocol.fold import Fold
from antiphon.protocol.fragments import (
    Arguments,
    Call,
    CallDone,
    Fragment,
    Reasoning,
    ReasoningDone,
    Refusal,
    Text,
)
from antiphon.protocol.items import Logprob, Message
from antiphon.protocol.open_items import REASONING_NAMES
from antiphon.protocol.stream import FinishReason
from tests.protocol.support import Json, Step, cancel, decoded, fail, finish, new_stream, on_the_wire, play, sent

# Small alphabets: the interesting thing is the order of the kinds, and text that JSON or SSE could trip over.
texts = st.sampled_from(["", "a", "b c", "\n", "\r\n", 'data: "x"', "\u2028", "é\U0001f600", "\x00"])
logprobs = st.lists(st.builds(Logprob, st.just("a"), st.floats(-20, 0), st.just([97])), max_size=2).map(tuple)
fragments: st.SearchStrategy[Fragment] = st.one_of(
    st.builds(Text, texts, logprobs),
    st.builds(Reasoning, texts),
    st.just(ReasoningDone()),
    st.builds(Call, name=st.sampled_from(["", "f", "g-1"]), namespace=st.none() | st.just("n"), custom=st.booleans()),
    st.builds(Arguments, texts),
    st.just(CallDone()),
    st.builds(Refusal, texts),
)
endings: st.SearchStrategy[Step] = st.sampled_from(
    [fail, cancel, *(finish(reason) for reason in get_args(FinishReason))]
)
options = st.fixed_dictionaries(
    {"summary": st.booleans(), "reasoning_events": st.sampled_from(sorted(REASONING_NAMES)), "sealed": st.booleans()}
)


def _said(drawn: Sequence[Fragment], end: Step, chosen: Json) -> tuple[list[Event], list[Fragment]]:
    """The events of a stream that was fed everything drawn, and the fragments that it did not refuse."""
    stream, taken = new_stream(**chosen), []
    events = stream.start()
    for fragment in drawn:
        try:
            events += stream.feed(fragment)
        except ProtocolViolation:
            continue
        taken.append(fragment)
    return events + end(stream), taken


@settings(deadline=None, max_examples=100)
@given(st.lists(fragments, max_size=20), endings, options)
def test_any_sequence_makes_one_valid_stream(drawn: list[Fragment], end: Step, chosen: Json) -> None:
    events, taken = _said(drawn, end, chosen)
    assert on_the_wire(events) == json.loads(msgspec.json.encode(events))
    assert events == play(*taken, end=end, stream=new_stream(**chosen)), "a refused fragment changed something"
    fold = Fold()
    fold.apply(events)
    assert fold.ended
    assert fold.last_number == len(events) - 1
    assert fold.response == events[-1].response  # type: ignore[union-attr]


@settings(deadline=None, max_examples=30)
@given(st.lists(fragments, max_size=12), endings, options)
def test_events_read_back_are_the_events_that_were_sent(drawn: list[Fragment], end: Step, chosen: Json) -> None:
    events, _ = _said(drawn, end, chosen)
    data = sent(events)
    again = [msgspec.json.decode(json.dumps(event), type=Event) for event in decoded(data)]
    assert [type(event) for event in again] == [type(event) for event in events]
    assert sse.encode(again) + sse.DONE == data


@settings(deadline=None, max_examples=30)
@given(st.lists(fragments, max_size=12), endings, options, st.data())
def test_a_fold_may_go_on_at_any_event(drawn: list[Fragment], end: Step, chosen: Json, data: st.DataObject) -> None:
    events, _ = _said(drawn, end, chosen)
    cut = data.draw(st.integers(0, len(events)))
    fold = Fold()
    fold.apply(events[:cut])
    assert fold.last_number == cut - 1
    assert fold.ended == (cut == len(events))
    fold.apply(events[cut:])
    assert fold.response == events[-1].response  # type: ignore[union-attr]


def test_a_fold_without_events_has_no_response() -> None:
    fold = Fold()
    assert (fold.ended, fold.last_number) == (False, -1)
    with pytest.raises(ValueError, match="no event"):
        _ = fold.response


def test_a_fold_shows_an_item_when_it_is_done() -> None:
    fold = Fold()
    events = play(Text("a"), Call(name="f"), Arguments("{}"))
    fold.apply(events[:-3])
    assert fold.response.status == "in_progress"
    assert [type(item) for item in fold.response.output] == [Message]
