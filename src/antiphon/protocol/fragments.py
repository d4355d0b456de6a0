"""What a model said, piece by piece, in the order it said it: the language between `text` and the protocols.

A dialect's parser writes fragments; `ResponseStream` (and the writers of other protocols) read them. Items open by
themselves: `Text` and `Reasoning` go on with the open item of their kind or open a new one. `Arguments` and `CallDone`
belong to the open call. No fragment's text is empty.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Text(Struct, frozen=True, gc=False):
    """A piece of the visible answer; `logprobs` are the protocol's entries for its tokens."""

    text: str
    logprobs: tuple[Any, ...] = ()


class Reasoning(Struct, frozen=True, gc=False):
    """A piece of a thinking block."""

    text: str


class ReasoningDone(Struct, frozen=True):
    """The open thinking block ended; a later `Reasoning` is another block."""


class Call(Struct, frozen=True, kw_only=True):
    """A call opens; its name is known. A custom tool's call carries plain text instead of JSON arguments."""

    name: str
    namespace: str | None = None
    custom: bool = False


class Arguments(Struct, frozen=True, gc=False):
    """A piece of the open call's arguments (a custom tool's input), as the model wrote it."""

    text: str


class CallDone(Struct, frozen=True):
    """The open call ended."""


class Refusal(Struct, frozen=True, gc=False):
    """A piece of a refusal."""

    text: str


Fragment = Text | Reasoning | ReasoningDone | Call | Arguments | CallDone | Refusal
