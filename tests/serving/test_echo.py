"""The response object says what was asked, as it is applied."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.protocol.request import parse_request
from antiphon.serving.echo import first_response

SCHEMA = {"type": "json_schema", "name": "s", "schema": {"type": "integer"}, "description": "One.", "strict": True}


@pytest.mark.parametrize(
    ("text", "echoed"),
    [
        (None, {"format": {"type": "text"}}),
        ({"verbosity": "low"}, {"format": {"type": "text"}, "verbosity": "low"}),
        ({"format": {"type": "json_object"}}, {"format": {"type": "json_object"}}),
        ({"format": SCHEMA}, {"format": SCHEMA}),
    ],
)
def test_the_format_is_echoed(text: Any, echoed: dict[str, Any]) -> None:
    request = parse_request(json.dumps({"input": "hi", "text": text}).encode())
    assert first_response(request, response_id="resp_1", model="m", created_at=0).text == echoed
