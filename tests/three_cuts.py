"""One stream, cut in every way that matters: whole, one at a time, at every two-way split, at random places."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, Self, TypeVar

import msgspec

from antiphon.protocol.fragments import Fragment, Text

RANDOM_CUTS = 20

R = TypeVar("R")


class Sliceable(Protocol):
    """A string, bytes, or a list of steps."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: slice, /) -> Self: ...


S = TypeVar("S", bound=Sliceable)


def cuts(stream: S) -> Iterator[list[S]]:
    """The ways to cut `stream`; every piece is non-empty, and together they are the stream."""
    size = len(stream)
    yield [stream] if size else []
    yield _cut(stream, range(1, size))
    for split in range(1, size):
        yield _cut(stream, [split])
    chance = random.Random(size)
    for _ in range(RANDOM_CUTS if size > 2 else 0):
        yield _cut(stream, sorted(chance.sample(range(1, size), chance.randrange(1, size - 1))))


def three_cuts(run: Callable[[Sequence[S]], R], stream: S) -> R:
    """What `run` makes of the whole stream, after checking that it makes the same of it however it is cut.

    `run` takes the pieces to a fresh parser; it must merge neighbours in what it returns.
    """
    variants = cuts(stream)
    expected = run(next(variants))
    for pieces in variants:
        found = run(pieces)
        assert found == expected, f"cut as {pieces!r}"
    return expected


def merged(fragments: Iterable[Fragment]) -> list[Fragment]:
    """The fragments with neighbours of one kind joined."""
    joined: list[Fragment] = []
    for fragment in fragments:
        text = getattr(fragment, "text", None)
        if text is None or not joined or type(joined[-1]) is not type(fragment):
            joined.append(fragment)
        elif isinstance(fragment, Text) and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].text + text, joined[-1].logprobs + fragment.logprobs)
        else:
            joined[-1] = msgspec.structs.replace(joined[-1], text=getattr(joined[-1], "text", "") + text)
    return joined


def _cut(stream: S, places: Iterable[int]) -> list[S]:
    edges = [0, *places, len(stream)]
    return [stream[start:end] for start, end in zip(edges, edges[1:], strict=False) if start < end]
