"""Lone surrogates: what JavaScript makes when it cuts a string inside a character. Refused, in words that say so."""

from __future__ import annotations

import pytest

from antiphon.protocol.convert import decode_json
from antiphon.protocol.errors import RequestRefused


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (rb'{"input": "a\ud83d"}', True),
        (rb'{"input": "\ude00 b"}', True),
        (rb'{"input": "\ud83d", "x": NaN}', True),
        (rb'{"input": "\u00e9', False),
        (rb'{"input": "\u00e9", "x": NaN}', False),
        (rb'{"input": "a', False),
    ],
)
def test_half_a_character_is_named(body: bytes, told: bool) -> None:
    with pytest.raises(RequestRefused) as refused:
        decode_json(body)
    assert refused.value.code == "invalid_json"
    assert ("surrogate" in refused.value.message) is told


def test_both_halves_are_a_character() -> None:
    assert decode_json(rb'{"input": "\ud83d\ude00"}') == {"input": "\U0001f600"}
