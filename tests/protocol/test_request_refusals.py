"""Every refusal of a request: what was wrong, where, and the word for it (wire contract, sections 5, 6 and 9)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.protocol.errors import MAX_MESSAGE, ProtocolViolation, RequestRefused, unsupported
from antiphon.protocol.request import MAX_STOPS, Fields, parse_request
from antiphon.protocol.tools import MAX_TOOLS
from tests.protocol.refusals import BODIES, REFUSALS, TYPE, VALUE
from tests.protocol.requests import READ


def refused(body: bytes) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        parse_request(body)
    return caught.value


def check(body: bytes, param: str | None, code: str) -> None:
    refusal = refused(body)
    assert (refusal.status, refusal.param, refusal.code, refusal.retry_after) == (400, param, code, None)
    error = refusal.body()["error"]
    assert error == {"message": str(refusal), "type": "invalid_request_error", "param": param, "code": code}
    assert 0 < len(error["message"]) <= MAX_MESSAGE + 3
    assert "msgspec" not in error["message"] and "Traceback" not in error["message"]


# Fields whose JSON type is checked as the request is read, with values of a wrong type: 1 and "yes" are no booleans,
# true and "1" no numbers, 1.5 and 1.0 no integers.
INTEGER = [1.5, 1.0, "1", True, [1], {}]
NUMBER = ["1", True, [1], {}]
BOOLEAN = [1, 0, "yes", "true", [], {}]
STRING = [1, True, [], {}]
OBJECT = [1, "a", True, []]
WRONG_TYPES: dict[str, list[Any]] = {
    "input": [1, True, {}],
    "model": STRING,
    "instructions": STRING,
    "max_output_tokens": INTEGER,
    "max_tool_calls": INTEGER,
    "temperature": NUMBER,
    "top_p": NUMBER,
    "top_logprobs": INTEGER,
    "tools": [1, "a", {}],
    "tool_choice": [1, True, []],
    "parallel_tool_calls": BOOLEAN,
    "text": OBJECT,
    "reasoning": OBJECT,
    "truncation": STRING,
    "metadata": OBJECT,
    "include": [1, "a", {}],
    "store": BOOLEAN,
    "stream": BOOLEAN,
    "stream_options": OBJECT,
    "background": BOOLEAN,
    "previous_response_id": STRING,
    "service_tier": STRING,
    "user": STRING,
    "safety_identifier": STRING,
    "prompt_cache_key": STRING,
    "seed": INTEGER,
    "stop": [1, True, {}],
    "top_k": INTEGER,
    "min_p": NUMBER,
    "repetition_penalty": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "logit_bias": OBJECT,
    "chat_template_kwargs": OBJECT,
}
# Refused by name for as long as nobody serves them, whatever they hold.
UNREAD = {"conversation", "context_management", "prompt"}


def test_the_table_has_every_field() -> None:
    assert set(WRONG_TYPES) | UNREAD == set(Fields.__struct_fields__)
    assert not set(WRONG_TYPES) & UNREAD


@pytest.mark.parametrize("field", WRONG_TYPES)
def test_a_field_of_a_wrong_type(field: str) -> None:
    for value in WRONG_TYPES[field]:
        check(json.dumps({"input": "Hi", field: value}).encode(), field, TYPE)


# Bounds, each with values just outside; the valid requests have those just inside.
OUT_OF_RANGE: dict[str, list[Any]] = {
    "max_output_tokens": [0, -1, 2**31 + 1, 10**30],
    "max_tool_calls": [0, -1, 10**30],
    "temperature": [-0.01, 2.01, -1, 10**30, 1e308],
    "top_p": [-0.01, 1.01, 10**30],
    "top_logprobs": [-1, 21, 10**30],
    "seed": [2**63, -(2**63) - 1, 10**30],
    "top_k": [-1, 2**31, 10**30],
    "min_p": [-0.01, 1.01],
    "repetition_penalty": [0, -1, 10.1],
    "presence_penalty": [-2.1, 2.1],
    "frequency_penalty": [-2.1, 2.1],
    "logit_bias": [{"5": 100.1}, {"5": -101}],
    "truncation": ["", "Auto"],
    "tool_choice": ["", "any"],
    "metadata": [{str(n): "" for n in range(17)}, {"k" * 65: ""}],
    "stop": ["", "x" * 257, ["x"] * (MAX_STOPS + 1)],
    "tools": [[READ] * (MAX_TOOLS + 1)],
}


@pytest.mark.parametrize("field", OUT_OF_RANGE)
def test_a_value_out_of_range(field: str) -> None:
    for value in OUT_OF_RANGE[field]:
        check(json.dumps({"input": "Hi", field: value}).encode(), field, VALUE)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_the_place(name: str) -> None:
    body, param, code = REFUSALS[name]
    check(json.dumps(body).encode(), param, code)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_cannot_be_read(name: str) -> None:
    body, param, code = BODIES[name]
    check(body, param, code)


def test_a_refusal_leaves_nothing_behind() -> None:
    good = b'{"input": "Hi"}'
    before = parse_request(good)
    refused(b'{"input": "Hi", "tools": [{"type": "function"}]}')
    assert parse_request(good) == before


# The two kinds of error themselves.


def test_an_unsupported_field_is_refused_by_name() -> None:
    refusal = unsupported("background", "Background mode")
    assert (refusal.status, refusal.param, refusal.code) == (400, "background", "unsupported_value")
    assert str(refusal) == "Background mode is not supported by this server."


def test_the_error_object_has_all_four_keys() -> None:
    refusal = RequestRefused("Busy.", code=None, status=429, kind="rate_limit_error", retry_after=3)
    assert refusal.body() == {"error": {"message": "Busy.", "type": "rate_limit_error", "param": None, "code": None}}
    assert (refusal.status, refusal.retry_after) == (429, 3)


def test_a_long_message_is_cut() -> None:
    assert RequestRefused("x" * MAX_MESSAGE).message == "x" * MAX_MESSAGE
    assert RequestRefused("x" * (MAX_MESSAGE + 1)).message == "x" * MAX_MESSAGE + "..."


def test_a_violation_tells_the_state() -> None:
    violation = ProtocolViolation("idle", "an argument piece")
    assert (violation.state, violation.what) == ("idle", "an argument piece")
    assert str(violation) == "an argument piece is not allowed in state idle"
