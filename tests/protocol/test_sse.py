"""Server-sent events: the exact bytes out, and every cut of them in (wire contract, section 1)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from inspect import signature
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol import sse
from antiphon.protocol.events import ErrorEvent, Event, KeepAlive, OutputTextDelta
from antiphon.protocol.fragments import Call, Reasoning, Text
from tests.protocol.support import play, sent

DELTA = OutputTextDelta(4, "msg_1", 0, 0, 'é "\n\r\u2028')
DELTA_BYTES = (
    b"event: response.output_text.delta\n"
    b'data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,'
    b'"content_index":0,"delta":"\xc3\xa9 \\"\\n\\r\xe2\x80\xa8","logprobs":[]}\n\n'
)
KEEP_ALIVE_BYTES = b'event: keepalive\ndata: {"type":"keepalive","sequence_number":4}\n\n'


def test_the_bytes_of_an_event() -> None:
    assert sse.encode([DELTA]) == DELTA_BYTES
    assert sse.encode([KeepAlive(4)]) == KEEP_ALIVE_BYTES


def test_several_events_are_one_piece_of_bytes() -> None:
    assert sse.encode([DELTA, KeepAlive(4), DELTA]) == DELTA_BYTES + KEEP_ALIVE_BYTES + DELTA_BYTES
    assert sse.encode([]) == b""


def test_the_bytes_that_are_no_event() -> None:
    assert sse.DONE == b"data: [DONE]\n\n"
    assert sse.KEEP_ALIVE_COMMENT == b": keep-alive\n\n"


def test_a_stream_is_nothing_but_pairs_of_lines() -> None:
    data = sent(play(Reasoning("a\r\nb"), Text("c\n\nd"), Call(name="e")))
    assert b"\r" not in data
    *events, done, end = data.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    for event in events:
        name, body = re.fullmatch(rb"event: (\S+)\ndata: (\{[^\n]*\})", event).groups()  # type: ignore[union-attr]
        assert json.loads(body)["type"].encode() == name


def test_every_event_has_its_own_type() -> None:
    kinds = (*get_args(Event), KeepAlive, ErrorEvent)
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(tags)
    assert all(tag.startswith("response.") for tag in tags[:-2])


# Streams, and the events that they hold: the rules of the HTML standard's "Interpreting an event stream".
STREAMS: dict[str, tuple[bytes, list[tuple[str, bytes]]]] = {
    "named": (b"event: a\ndata: 1\n\nevent: b\ndata: 2\n\n", [("a", b"1"), ("b", b"2")]),
    "no name": (b"data: 1\n\n", [("message", b"1")]),
    "empty name": (b"event:\ndata: 1\n\n", [("message", b"1")]),
    "last name counts": (b"event: a\nevent: b\ndata: 1\n\n", [("b", b"1")]),
    "name after data": (b"data: 1\nevent: a\n\n", [("a", b"1")]),
    "name belongs to one event": (b"event: a\ndata: 1\n\ndata: 2\n\n", [("a", b"1"), ("message", b"2")]),
    "several data lines": (b"data: 1\ndata:2\ndata:  3\n\n", [("message", b"1\n2\n 3")]),
    "one blank is taken off": (b"event:  a\ndata:  1 \n\n", [(" a", b" 1 ")]),
    "empty data": (b"data\n\ndata:\n\ndata\ndata\n\n", [("message", b""), ("message", b""), ("message", b"\n")]),
    "name without data": (b"event: a\n\ndata: 1\n\n", [("message", b"1")]),
    "comments": (b": keep-alive\n\n:\ndata: 1\n:x\ndata: 2\n\n", [("message", b"1\n2")]),
    "other fields": (b"id: 7\nretry: 9\nx\ndatax: 3\n data: 4\ndata: 1\n\n", [("message", b"1")]),
    "colons": (b"data: a: b:c\n\n", [("message", b"a: b:c")]),
    "not UTF-8 in a name": (b"event: \xff\ndata: \xff\n\n", [("\ufffd", b"\xff")]),
    "blank lines": (b"\n\n\ndata: 1\n\n\n\n", [("message", b"1")]),
    "never ended": (b"data: 1\n\ndata: 2\n", [("message", b"1")]),
    "nothing": (b"", []),
}
ENDS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}


def _read(pieces: Iterable[bytes]) -> list[tuple[str, bytes]]:
    decoder = sse.SSEDecoder()
    return [pair for piece in pieces for pair in decoder.feed(piece)]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_anywhere(name: str, end: str) -> None:
    stream, pairs = STREAMS[name]
    data = stream.replace(b"\n", ENDS[end])
    assert _read([data]) == pairs
    assert _read(data[n : n + 1] for n in range(len(data))) == pairs
    for cut in range(len(data) + 1):
        assert _read([data[:cut], b"", data[cut:]]) == pairs


@settings(deadline=None, max_examples=200)
@given(st.text("\r\n", min_size=1, max_size=6), st.lists(st.integers(0, 40), max_size=5))
def test_mixed_ends_of_lines(ends: str, cuts: list[int]) -> None:
    data = b"data: 1" + ends.encode() + b"data: 2\n\n"
    lines = len(re.findall(r"\r\n|\r|\n", ends))
    bounds = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    whole = [("message", b"1\n2")] if lines == 1 else [("message", b"1"), ("message", b"2")]
    assert _read(pieces) == whole


def test_an_event_is_given_with_the_byte_that_ends_it() -> None:
    for end in ENDS.values():
        decoder = sse.SSEDecoder()
        assert decoder.feed(b"data: 1" + end) == []
        assert decoder.feed(end[:1]) == [("message", b"1")]


def test_our_own_stream_byte_by_byte() -> None:
    data = sent(play(Text("é"), Call(name="f")))
    whole = _read([data])
    assert whole[-1] == ("message", b"[DONE]")
    assert _read(data[n : n + 1] for n in range(len(data))) == whole


BOUND = 40
TOO_LONG = {
    "a line without end": [b"data: " + b"x" * BOUND],
    "a line with its end": [b"data: " + b"x" * BOUND + b"\n\n"],
    "a line in pieces": [b"data: ", *[b"x"] * BOUND],
    "many data lines": [b"data: x\n"] * 6,
    "many empty data lines": [b"data\n"] * 9,
    "a comment": [b":", *[b"x"] * BOUND],
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_an_event_above_the_bound_is_refused(name: str) -> None:
    decoder = sse.SSEDecoder(max_event=BOUND)
    with pytest.raises(ValueError, match="longer than 40 bytes"):
        for piece in TOO_LONG[name]:
            decoder.feed(piece)


def test_the_bound_is_for_one_event() -> None:
    decoder = sse.SSEDecoder(max_event=BOUND)
    event = b"data: " + b"x" * (BOUND - 7) + b"\n\n"
    assert len(decoder.feed(event * 3)) == 3
    assert decoder.feed(b": keep-alive\n" * 100) == []
    assert len(decoder.feed(event)) == 1
    assert signature(sse.SSEDecoder).parameters["max_event"].default == sse.MAX_EVENT
