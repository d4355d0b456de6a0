"""Ids of responses and items: a prefix that tells the kind, then 32 unguessable hexadecimal digits."""

from __future__ import annotations

import secrets
from collections.abc import Callable

RESPONSE, MESSAGE, REASONING = "resp_", "msg_", "rs_"
FUNCTION_CALL, CUSTOM_TOOL_CALL, CALL, COMPACTION = "fc_", "ctc_", "call_", "cmp_"

IdSource = Callable[[str], str]
"""Makes a new id from a prefix. An argument wherever ids are minted, so that tests can count instead."""


def random_id(prefix: str) -> str:
    """128 random bits: who does not know an id cannot guess it."""
    return prefix + secrets.token_hex(16)
