"""The exact events of every kind of response (wire contract, sections 2 to 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

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
from antiphon.protocol.items import Logprob, TopLogprob
from antiphon.protocol.response import usage
from tests.protocol import expected as ex
from tests.protocol.support import (
    CREATED_AT,
    FAILURE,
    USAGE,
    Json,
    Step,
    cancel,
    fail,
    finish,
    new_stream,
    nth,
    on_the_wire,
    outline,
    play,
)

INCOMPLETE = ("incomplete", "incomplete")
CANCELLED = ("incomplete", "cancelled")
FAILED = ("failed", "failed")


def test_a_message() -> None:
    assert outline(play(Text("Hello"), Text(" there"))) == ex.stream(ex.message(0, 1, "Hello", " there"))


def test_reasoning_then_a_message() -> None:
    events = play(Reasoning("Well"), Reasoning("."), ReasoningDone(), Text("Yes."))
    assert outline(events) == ex.stream(ex.reasoning(0, 1, "Well", "."), ex.message(1, 2, "Yes."))


def test_text_ends_a_thinking_block_by_itself() -> None:
    events = play(Reasoning("Well."), Text("Yes."))
    assert outline(events) == ex.stream(ex.reasoning(0, 1, "Well."), ex.message(1, 2, "Yes."))


def test_two_thinking_blocks_are_two_items() -> None:
    events = play(Reasoning("One."), ReasoningDone(), Reasoning("Two."))
    assert outline(events) == ex.stream(ex.reasoning(0, 1, "One."), ex.reasoning(1, 2, "Two."))


def test_several_calls() -> None:
    events = play(
        Call(name="look"), Arguments('{"a"'), Arguments(":1}"), CallDone(), Call(name="go"), Arguments("{}"), CallDone()
    )
    assert outline(events) == ex.stream(ex.call(0, 1, "look", '{"a"', ":1}"), ex.call(1, 3, "go", "{}"))


def test_a_call_ends_the_call_before_it() -> None:
    events = play(Call(name="look"), Arguments("{}"), Call(name="go"))
    assert outline(events) == ex.stream(ex.call(0, 1, "look", "{}"), ex.call(1, 3, "go"))


def test_text_before_between_and_after_calls() -> None:
    events = play(
        Text("First."),
        Call(name="look"),
        Arguments("{}"),
        CallDone(),
        Text("Then"),
        Text("."),
        Call(name="go"),
        Arguments("[1]"),
        Text("Last."),
    )
    assert outline(events) == ex.stream(
        ex.message(0, 1, "First."),
        ex.call(1, 2, "look", "{}"),
        ex.message(2, 4, "Then", "."),
        ex.call(3, 5, "go", "[1]"),
        ex.message(4, 7, "Last."),
    )


def test_summary_instead_of_reasoning_text() -> None:
    events = play(
        Reasoning("So"),
        Reasoning("."),
        ReasoningDone(),
        Reasoning("And."),
        Text("Yes."),
        stream=new_stream(summary=True),
    )
    assert outline(events) == ex.stream(ex.summary(0, 1, "So", "."), ex.summary(1, 2, "And."), ex.message(2, 3, "Yes."))


Thought = Callable[..., list[Json]]

# How thinking goes out, and whether the request asked for a summary.
THOUGHTS: list[tuple[Thought, bool]] = [(ex.reasoning, False), (ex.summary, True)]


@pytest.mark.parametrize(("thought", "summary"), THOUGHTS, ids=["text", "summary"])
def test_a_thinking_block_is_sealed_when_it_is_done(thought: Thought, summary: bool) -> None:
    said = (Reasoning("So"), Reasoning("."), ReasoningDone(), Reasoning("And."), Text("Yes."))
    events = play(*said, stream=new_stream(summary=summary, sealed=True))
    assert outline(events) == ex.stream(
        thought(0, 1, "So", ".", encrypted_content="sealed .oS"),
        thought(1, 2, "And.", encrypted_content="sealed .dnA"),
        ex.message(2, 3, "Yes."),
    )


def test_reasoning_names_of_open_responses() -> None:
    events = play(Reasoning("So"), Text("Yes."), stream=new_stream(reasoning_events="open-responses"))
    assert outline(events) == ex.stream(ex.reasoning(0, 1, "So", name="response.reasoning"), ex.message(1, 2, "Yes."))


def test_a_refusal() -> None:
    item_id = nth("msg_", 1)
    at = {"item_id": item_id, "output_index": 0, "content_index": 0}
    item = ex.item_events(
        0,
        ex.message_item(item_id, [], "in_progress"),
        ex.refusal_events(at, ["I will", " not."]),
        ex.message_item(item_id, [ex.refusal_part("I will not.")]),
    )
    assert outline(play(Refusal("I will"), Refusal(" not."))) == ex.stream(item)


def test_parts_of_a_message_follow_each_other_with_their_own_index() -> None:
    item_id = nth("msg_", 1)
    at = [{"item_id": item_id, "output_index": 0, "content_index": n} for n in range(3)]
    item = ex.item_events(
        0,
        ex.message_item(item_id, [], "in_progress"),
        [*ex.text_events(at[0], ["Hm."]), *ex.refusal_events(at[1], ["No."]), *ex.text_events(at[2], ["But."])],
        ex.message_item(item_id, [ex.text_part("Hm."), ex.refusal_part("No."), ex.text_part("But.")]),
    )
    assert outline(play(Text("Hm."), Refusal("No."), Text("But."))) == ex.stream(item)


def test_a_custom_call() -> None:
    events = play(Call(name="patch", custom=True), Arguments("*** Begin"), Arguments(" Patch"), CallDone())
    assert outline(events) == ex.stream(ex.custom_call(0, 1, "patch", "*** Begin", " Patch"))


def test_calls_inside_a_namespace() -> None:
    events = play(
        Call(name="read", namespace="files"),
        Arguments("{}"),
        CallDone(),
        Call(name="patch", namespace="files", custom=True),
        Arguments("x"),
    )
    assert outline(events) == ex.stream(
        ex.call(0, 1, "read", "{}", namespace="files"), ex.custom_call(1, 3, "patch", "x", namespace="files")
    )


def test_a_queued_response() -> None:
    stream = new_stream(background=True)
    events = stream.queue()
    assert stream.state == "queued"
    events += stream.start() + stream.feed(Text("Hello")) + finish()(stream)
    begun = [ex.lifecycle("created", "queued"), ex.lifecycle("queued", "queued"), ex.BEGUN[1]]
    assert outline(events) == begun + ex.stream(ex.message(0, 1, "Hello"))[2:]


def test_an_empty_generation_is_a_message_with_an_empty_text() -> None:
    assert outline(play()) == ex.stream(ex.message(0, 1))


def test_an_empty_generation_cut_by_the_limit() -> None:
    found = outline(play(end=finish("max_output_tokens")))
    assert found == ex.stream(ex.message(0, 1, status="incomplete"), end=INCOMPLETE)


def test_no_empty_message_is_added_after_other_items() -> None:
    assert outline(play(Reasoning("Hm"), ReasoningDone())) == ex.stream(ex.reasoning(0, 1, "Hm"))
    assert outline(play(Call(name="go"), CallDone())) == ex.stream(ex.call(0, 1, "go"))


def test_log_probabilities_stand_in_delta_done_and_part() -> None:
    top = TopLogprob("Hi", -0.25, [72, 105])
    first, second = Logprob("Hi", -0.25, [72, 105], [top]), Logprob("!", -1.5, [33])
    found = on_the_wire(play(Text("Hi", (first,)), Text("!", (second,))))
    one = {
        "token": "Hi",
        "logprob": -0.25,
        "bytes": [72, 105],
        "top_logprobs": [{"token": "Hi", "logprob": -0.25, "bytes": [72, 105]}],
    }
    two = {"token": "!", "logprob": -1.5, "bytes": [33], "top_logprobs": []}
    by_type = {event["type"]: event for event in found}
    deltas = [event["logprobs"] for event in found if event["type"] == "response.output_text.delta"]
    assert deltas == [[one], [two]]
    assert by_type["response.output_text.done"]["logprobs"] == [one, two]
    part = ex.text_part("Hi!", [one, two])
    assert by_type["response.content_part.done"]["part"] == part
    assert by_type["response.output_item.done"]["item"]["content"] == [part]
    assert by_type["response.completed"]["response"]["output"][0]["content"] == [part]


Open = tuple[Sequence[Fragment], Sequence[Sequence[Json]], Sequence[Sequence[Json]]]

# What was said, the items if nothing was open, and the same with the open one cut off.
OPEN: dict[str, Open] = {
    "idle": ([Call(name="go"), CallDone()], [ex.call(0, 1, "go")], [ex.call(0, 1, "go")]),
    "message": (
        [Text("Hel")],
        [ex.message(0, 1, "Hel")],
        [ex.message(0, 1, "Hel", status="incomplete")],
    ),
    "reasoning": (
        [Reasoning("Hm")],
        [ex.reasoning(0, 1, "Hm")],
        [ex.reasoning(0, 1, "Hm", status="incomplete")],
    ),
    "call": (
        [Text("Now."), Call(name="go"), Arguments('{"a": "b')],
        [ex.message(0, 1, "Now."), ex.call(1, 2, "go", '{"a": "b')],
        [ex.message(0, 1, "Now."), ex.call(1, 2, "go", '{"a": "b', status="incomplete")],
    ),
    "custom call": (
        [Call(name="patch", custom=True), Arguments("***")],
        [ex.custom_call(0, 1, "patch", "***")],
        [ex.custom_call(0, 1, "patch", "***", status="incomplete")],
    ),
}

CUTS: dict[str, tuple[Step, tuple[str, str]]] = {
    "max_output_tokens": (finish("max_output_tokens"), INCOMPLETE),
    "content_filter": (finish("content_filter"), INCOMPLETE),
    "fail": (fail, FAILED),
    "cancel": (cancel, CANCELLED),
}


@pytest.mark.parametrize("state", OPEN)
def test_a_stop_completes_the_open_item(state: str) -> None:
    fragments, whole, _ = OPEN[state]
    assert outline(play(*fragments)) == ex.stream(*whole)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("state", OPEN)
def test_a_cut_leaves_the_open_item_incomplete(state: str, cut: str) -> None:
    fragments, _, broken = OPEN[state]
    step, end = CUTS[cut]
    assert outline(play(*fragments, end=step)) == ex.stream(*broken, end=end)


@pytest.mark.parametrize(("thought", "summary"), THOUGHTS, ids=["text", "summary"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_thinking_block_that_is_cut_off_is_sealed_as_far_as_it_came(
    cut: str, thought: Thought, summary: bool
) -> None:
    step, end = CUTS[cut]
    events = play(Reasoning("Hm"), end=step, stream=new_stream(summary=summary, sealed=True))
    block = thought(0, 1, "Hm", status="incomplete", encrypted_content="sealed mH")
    assert outline(events) == ex.stream(block, end=end)


@pytest.mark.parametrize(("step", "end"), [(fail, FAILED), (cancel, CANCELLED)])
def test_a_response_that_never_said_anything_ends_without_items(step: Step, end: tuple[str, str]) -> None:
    assert outline(play(end=step)) == ex.stream(end=end)


ENDS: dict[str, tuple[Step, Json]] = {
    "stop": (finish(), {"status": "completed", "completed_at": CREATED_AT + 7}),
    "max_output_tokens": (
        finish("max_output_tokens"),
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    ),
    "content_filter": (
        finish("content_filter"),
        {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
    ),
    "fail": (
        fail,
        {
            "status": "failed",
            "error": {"code": "server_error", "message": "The engine stopped.", "type": "server_error"},
        },
    ),
    "cancel": (cancel, {"status": "cancelled"}),
}

RESPONSE: Json = {
    "id": nth("resp_", 0),
    "object": "response",
    "created_at": CREATED_AT,
    "completed_at": None,
    "status": "in_progress",
    "background": False,
    "error": None,
    "incomplete_details": None,
    "output": [],
    "usage": None,
    "model": "m",
    "instructions": "Be kind.",
    "max_output_tokens": 16,
    "max_tool_calls": None,
    "metadata": {"a": "b"},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": "low", "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 0.5,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "truncation": "disabled",
    "user": None,
}


@pytest.mark.parametrize("end", ENDS)
def test_every_lifecycle_event_carries_the_whole_response(end: str) -> None:
    step, changes = ENDS[end]
    stream = new_stream(
        instructions="Be kind.",
        max_output_tokens=16,
        metadata={"a": "b"},
        reasoning={"effort": "low", "summary": None},
        temperature=0.5,
    )
    found = on_the_wire(play(end=step, stream=stream))
    assert found[0]["response"] == found[1]["response"] == RESPONSE
    counted = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens": 11,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 20,
    }
    output = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert found[-1]["response"] == {**RESPONSE, "usage": counted, "output": output, **changes}


def test_usage_adds_up() -> None:
    counted = usage(5, 7)
    assert (counted.total_tokens, counted.input_tokens_details.cached_tokens) == (12, 0)


def test_a_failure_tells_its_code() -> None:
    failure = replace(FAILURE, code="context_length_exceeded")
    found = on_the_wire(play(Text("a"), end=lambda stream: stream.fail(failure, USAGE)))
    assert found[-1]["type"] == "response.failed"
    assert found[-1]["response"]["error"]["code"] == "context_length_exceeded"


def test_a_conversation_is_named_only_where_there_is_one() -> None:
    stream = new_stream(conversation={"id": "conv_1"})
    assert on_the_wire(play(stream=stream))[-1]["response"]["conversation"] == {"id": "conv_1"}
    assert "conversation" not in on_the_wire(play())[-1]["response"]
