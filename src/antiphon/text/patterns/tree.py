"""What a grammar of texts says, in whatever notation it was written: a tree of patterns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

# The characters that a JSON string can hold only as escapes (RFC 8259, section 7). Of a class of characters, it is
# these of which we must know whether it holds them.
CONTROLS = frozenset(map(chr, range(0x20)))
SPECIAL = CONTROLS | {'"', "\\"}


class Literal(Struct, frozen=True):
    """Exactly this text."""

    text: str


class Chars(Struct, frozen=True):
    """One character of a class, which is given as Rust's `regex` writes it, with its brackets.

    `special`: which of `SPECIAL` it holds. `others`: whether it may hold any other. `fold`: upper and lower case are
    the same.
    """

    source: str
    special: frozenset[str]
    others: bool = True
    fold: bool = False


class Chain(Struct, frozen=True):
    """One part behind the other; none is the empty text."""

    parts: tuple[Pattern, ...] = ()


class Choice(Struct, frozen=True):
    """Any of the options."""

    options: tuple[Pattern, ...]


class Repeat(Struct, frozen=True):
    """The part so many times; `high` is None if there is no end to it."""

    part: Pattern
    low: int
    high: int | None


class Both(Struct, frozen=True):
    """What all the parts say of the same text."""

    parts: tuple[Pattern, ...]


class Not(Struct, frozen=True):
    """Every text but those of the part."""

    part: Pattern


class Name(Struct, frozen=True):
    """What the definition of this name says."""

    name: str


class Anchor(Struct, frozen=True):
    """The start of the text, or its end; no character."""

    start: bool


Pattern = Literal | Chars | Chain | Choice | Repeat | Both | Not | Name | Anchor

EMPTY = Chain()
ANY_TEXT = Repeat(Chars(r"[\s\S]", SPECIAL), 0, None)


class Grammar(NamedTuple):
    """Definitions by name, one of which is `start`; names that begin with a small letter are rules, others terminals.

    `ignored` may stand at the end; where else it may, the rules say.
    """

    definitions: dict[str, Pattern]
    ignored: Pattern = EMPTY


def chain(parts: Iterable[Pattern]) -> Pattern:
    """The parts as one pattern, literals that stand side by side as one."""
    joined: list[Pattern] = []
    for part in parts:
        for one in part.parts if isinstance(part, Chain) else (part,):
            if isinstance(one, Literal) and joined and isinstance(joined[-1], Literal):
                joined[-1] = Literal(joined[-1].text + one.text)
            else:
                joined.append(one)
    return joined[0] if len(joined) == 1 else Chain(tuple(joined))


def choice(options: list[Pattern]) -> Pattern:
    return options[0] if len(options) == 1 else Choice(tuple(options))


def folded(text: str) -> Pattern:
    """This text in upper and lower case."""
    return chain(_folded(char) for char in text)


def _folded(char: str) -> Pattern:
    if char.lower() == char.upper():
        return Literal(char)
    return Chars(f"[{spelled(char)}]", frozenset(), fold=True)


def spelled(char: str) -> str:
    """A character in a class or regular expression of Rust, whatever it is."""
    return f"\\x{{{ord(char):X}}}"


def children(pattern: Pattern) -> tuple[Pattern, ...]:
    """The patterns that it is made of."""
    match pattern:
        case Chain(parts) | Both(parts):
            return parts
        case Choice(options):
            return options
        case Repeat(part) | Not(part):
            return (part,)
        case _:
            return ()


def names_in(pattern: Pattern) -> Iterator[str]:
    """The names that it refers to."""
    if isinstance(pattern, Name):
        yield pattern.name
    for child in children(pattern):
        yield from names_in(child)


def is_rule(name: str) -> bool:
    return name.lstrip("_")[:1].islower()
