"""Reasoning that a client carries: sealed, so that nobody but a server with the same key can read it or make it.

A client that has no responses stored sends a model's reasoning back as `encrypted_content`, unseen.

Rules
* A blob is a version, a nonce, and the text under AES-256-GCM (NIST SP 800-38D), in URL-safe base64. There is one way
  to write it: another spelling of the same bytes is refused like any other change.
* Whatever is wrong with a blob, there is one error, so that trying blobs teaches nothing.
* The text is not compressed: how far a text shrinks tells something of it, and a length is what everybody can see.
* A blob is bound to what it is, and to nothing else. Clients make ids of their own, and keys of the API are changed
  while conversations go on.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.input_items import InputItem, InputReasoning, InputReasoningText
from antiphon.protocol.request import CreateResponse

KEY_BYTES = 32

# What GCM is made for. A random one may be drawn 2**32 times under one key (SP 800-38D, section 8.3).
NONCE_BYTES = 12

VERSION = b"\x01"
# Authenticated with each blob and not part of it: under the same key, a blob of another kind does not open here.
PURPOSE = b"antiphon: reasoning"

# Characters. No longer one can stand in a body of the usual limit, and thinking that fills a context of a million
# tokens is a quarter of it.
MAX_BLOB = 32 * 2**20


class NotSealedHere(Exception):
    """A blob that was not made with this key, or is no longer as it was made."""


class Sealer:
    """Seals and opens with one key. `random` gives so many random bytes; any thread may call."""

    def __init__(self, key: bytes, random: Callable[[int], bytes] = os.urandom) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self._cipher = AESGCM(key)
        self._random = random

    def seal(self, text: str) -> str:
        """A blob of the text; another one each time."""
        nonce = self._random(NONCE_BYTES)
        return _spelled(VERSION + nonce + self._cipher.encrypt(nonce, text.encode(), VERSION + PURPOSE))

    def open(self, blob: str) -> str:
        """The text of a blob. Raises `NotSealedHere`."""
        try:
            data = urlsafe_b64decode(blob) if len(blob) <= MAX_BLOB else b""
            if not data.startswith(VERSION) or _spelled(data) != blob:
                raise NotSealedHere
            behind = len(VERSION) + NONCE_BYTES
            return self._cipher.decrypt(data[len(VERSION) : behind], data[behind:], VERSION + PURPOSE).decode()
        except (ValueError, InvalidTag):  # not base64, or too short for a nonce; not ours
            raise NotSealedHere from None


def opened(request: CreateResponse, sealer: Sealer) -> CreateResponse:
    """The request with the text of its sealed reasoning, which counts for more than what an item shows of it in clear.

    Raises `RequestRefused` for a blob that does not open, naming the item.
    """
    return replace(request, items=[_opened(item, f"input[{n}]", sealer) for n, item in enumerate(request.items)])


def _spelled(data: bytes) -> str:
    return urlsafe_b64encode(data).decode()


def _opened(item: InputItem, path: str, sealer: Sealer) -> InputItem:
    if not isinstance(item, InputReasoning) or item.encrypted_content is None:
        return item
    try:
        text = sealer.open(item.encrypted_content)
    except NotSealedHere:
        raise RequestRefused(
            "This content was not made here with the present key, or it has changed since.",
            param=f"{path}.encrypted_content",
            code="invalid_encrypted_content",
        ) from None
    return replace(item, content=[InputReasoningText(text)], summary=[], encrypted_content=None)
