"""Every state of a `ResponseStream` x every input: what is refused stands here as data, everything else must work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec
import pytest
from msgspec.structs import replace

from antiphon.protocol.errors import ProtocolViolation
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
from antiphon.protocol.stream import FinishReason, ResponseStream
from tests.protocol.support import Step, cancel, fail, feed, finish, new_stream, on_the_wire, queue, start

# `x` is refused, `.` is taken. `empty` inputs are fragments without their text (a call without its name).
GRID = """
                            new queued idle message reasoning call ended
    Text                     x    x     .      .        .       .    x
    Reasoning                x    x     .      .        .       .    x
    ReasoningDone            x    x     x      x        .       x    x
    Call                     x    x     .      .        .       .    x
    Arguments                x    x     x      x        x       .    x
    CallDone                 x    x     x      x        x       .    x
    Refusal                  x    x     .      .        .       .    x
    empty_Text               x    x     x      x        x       x    x
    empty_Reasoning          x    x     x      x        x       x    x
    empty_Call               x    x     x      x        x       x    x
    empty_Arguments          x    x     x      x        x       x    x
    empty_Refusal            x    x     x      x        x       x    x
    queue                    .    x     x      x        x       x    x
    start                    .    .     x      x        x       x    x
    finish_stop              x    x     .      .        .       .    x
    finish_max_output_tokens x    x     .      .        .       .    x
    finish_content_filter    x    x     .      .        .       .    x
    fail                     x    .     .      .        .       .    x
    cancel                   x    .     .      .        .       .    x
"""

STATES, *ROWS = (line.split() for line in GRID.strip().splitlines())
REFUSED = {(state, row[0]) for row in ROWS for state, mark in zip(STATES, row[1:], strict=True) if mark == "x"}

SAMPLES: tuple[Fragment, ...] = (
    Text("a"),
    Reasoning("b"),
    ReasoningDone(),
    Call(name="c"),
    Arguments("{}"),
    CallDone(),
    Refusal("d"),
)


def _inputs() -> dict[str, Step]:
    inputs: dict[str, Step] = {type(sample).__name__: feed(sample) for sample in SAMPLES}
    for sample in SAMPLES:
        field = {"text", "name"} & set(sample.__struct_fields__)
        if field:
            inputs[f"empty_{type(sample).__name__}"] = feed(replace(sample, **{field.pop(): ""}))
    inputs |= {"queue": queue, "start": start}
    inputs |= {f"finish_{reason}": finish(reason) for reason in get_args(FinishReason)}
    return inputs | {"fail": fail, "cancel": cancel}


INPUTS = _inputs()


def _paths() -> dict[str, list[Step]]:
    """A shortest way to every state that any input leads to, found by trying them all."""
    paths: dict[str, list[Step]] = {new_stream().state: []}
    waiting = list(paths)
    for state in waiting:
        for step in INPUTS.values():
            stream = _at(paths[state])
            try:
                step(stream)
            except ProtocolViolation:
                continue
            if stream.state not in paths:
                paths[stream.state] = [*paths[state], step]
                waiting.append(stream.state)
    return paths


def _new(path: Sequence[Step], summary: bool) -> ResponseStream:
    return new_stream(summary=summary, background=queue in path)


def _at(path: Sequence[Step], *, summary: bool = False) -> ResponseStream:
    stream = _new(path, summary)
    for step in path:
        step(stream)
    return stream


PATHS = _paths()


def _ended(path: Sequence[Step], tried: Step | None, summary: bool) -> bytes:
    """A stream that went `path`, was refused `tried`, and was ended; its events as bytes."""
    stream = _new(path, summary)
    events = [event for step in path for event in step(stream)]
    if tried is not None:
        state = stream.state
        with pytest.raises(ProtocolViolation) as caught:
            tried(stream)
        assert (caught.value.state, stream.state) == (state, state)
        assert state in str(caught.value)
    if stream.state in ("new", "queued"):
        events += stream.start()
    if stream.state != "ended":
        events += finish()(stream)
    on_the_wire(events)
    return msgspec.json.encode(events)


def test_the_grid_has_every_kind_of_fragment() -> None:
    assert {type(sample) for sample in SAMPLES} == set(get_args(Fragment))


def test_the_grid_has_every_input_and_every_state() -> None:
    assert [row[0] for row in ROWS] == list(INPUTS)
    assert set(STATES) == set(PATHS)


@pytest.mark.parametrize("summary", [False, True], ids=["text", "summary"])
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("state", STATES)
def test_every_state_takes_or_refuses_every_input(state: str, name: str, summary: bool) -> None:
    path, step = PATHS[state], INPUTS[name]
    assert _at(path, summary=summary).state == state
    if (state, name) in REFUSED:
        assert _ended(path, step, summary) == _ended(path, None, summary)
    else:
        _ended([*path, step], None, summary)
