"""Ids are minted from a prefix and at least 24 characters that nobody can guess (wire contract, section 3)."""

from __future__ import annotations

import re

from antiphon.protocol import ids

PREFIXES = (
    ids.RESPONSE,
    ids.MESSAGE,
    ids.REASONING,
    ids.FUNCTION_CALL,
    ids.CUSTOM_TOOL_CALL,
    ids.CALL,
    ids.COMPACTION,
)


def test_the_prefixes_are_those_of_the_contract() -> None:
    assert PREFIXES[:6] == ("resp_", "msg_", "rs_", "fc_", "ctc_", "call_")
    assert len(set(PREFIXES)) == len(PREFIXES)


def test_ids_differ_and_carry_128_bits() -> None:
    made = [ids.random_id(prefix) for prefix in PREFIXES for _ in range(100)]
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"[a-z]+_[0-9a-f]{32}", made_id) for made_id in made)
