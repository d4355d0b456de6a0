"""How many items, parts and tools a request may hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.input_items import MAX_ITEMS, MAX_PARTS
from antiphon.protocol.request import parse_request
from antiphon.protocol.tools import MAX_TOOLS

USER = {"role": "user", "content": "a"}
PART = {"type": "input_text", "text": "a"}


def function(n: int) -> dict[str, Any]:
    return {"type": "function", "name": f"f{n}"}


def parse(**body: Any) -> None:
    parse_request(msgspec.json.encode({"input": "Hi", **body}))


def test_up_to_the_bounds_everything_is_taken() -> None:
    parse(input=[USER] * MAX_ITEMS)
    parse(input=[{"role": "user", "content": [PART] * MAX_PARTS}])
    half = [function(n) for n in range(MAX_TOOLS // 2)]
    parse(tools=[*half[1:], {"type": "namespace", "name": "n", "tools": half}])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": [USER] * (MAX_ITEMS + 1)}, "input"),
        ({"input": [{"role": "user", "content": [PART] * (MAX_PARTS + 1)}]}, "input[0].content"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [function(n) for n in range(MAX_TOOLS)]}]}, "tools"),
    ],
)
def test_more_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse(**body)
    assert (refused.value.status, refused.value.param) == (400, param)
