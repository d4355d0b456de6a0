"""Where escapes stand at the edges of a pattern's texts: what llguidance's lexer must tell apart.

The lexer looks one byte ahead. Where a terminal may be over and may also go on with an escape, a backslash lets it go
on, and there is no way back if the rest of the escape was the beginning of the next terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from antiphon.text.patterns.tree import SPECIAL, Both, Chain, Chars, Choice, Literal, Name, Not, Pattern, Repeat

_NONE = frozenset[str]()


class Edges(NamedTuple):
    """`empty`: the pattern matches the empty text. `begins`: the escaped characters that a text may begin with.
    `goes_on`: those that may follow where a text could already be over.

    Too many may be told, not too few, but for options that share a beginning. What is overlooked makes a grammar
    stricter than it was written, never looser.
    """

    empty: bool
    begins: frozenset[str] = _NONE
    goes_on: frozenset[str] = _NONE


def edges_of(pattern: Pattern, known: Mapping[str, Edges]) -> Edges:
    """Those of a pattern whose names are all `known`."""
    match pattern:
        case Literal(text):
            return Edges(not text, SPECIAL.intersection(text[:1]))
        case Chars(_, special):
            return Edges(False, special)
        case Chain(parts):
            return _chained(edges_of(part, known) for part in parts)
        case Choice(parts) | Both(parts):
            return _any_of([edges_of(part, known) for part in parts])
        case Repeat(part, low, high):
            edges = edges_of(part, known)
            again = edges.begins if high is None or high > max(low, 1) else _NONE
            return Edges(edges.empty or low == 0, edges.begins, edges.goes_on | again)
        case Not():
            return Edges(True, SPECIAL, SPECIAL)
        case _:
            assert isinstance(pattern, Name), "anchors are gone"
            return known[pattern.name]


def _chained(parts: Iterable[Edges]) -> Edges:
    whole = Edges(True)
    for part in parts:
        begins = whole.begins | part.begins if whole.empty else whole.begins
        goes_on = part.goes_on | whole.goes_on | part.begins if part.empty else part.goes_on
        whole = Edges(whole.empty and part.empty, begins, goes_on)
    return whole


def _any_of(options: Sequence[Edges]) -> Edges:
    return Edges(
        any(option.empty for option in options),
        _NONE.union(*(option.begins for option in options)),
        _NONE.union(*(option.goes_on for option in options)),
    )


def check_lexer(terminals: Iterable[Edges]) -> None:
    """Raises `ValueError` if a backslash does not tell whether one of the terminals goes on or another one begins."""
    terminals = list(dict.fromkeys(terminals))
    begins = _NONE.union(*(terminal.begins for terminal in terminals))
    for terminal in terminals:
        others = begins - terminal.goes_on
        if terminal.goes_on and others:
            raise ValueError(
                f"where rules are recursive, a terminal that may go on with {min(terminal.goes_on)!r} is not supported "
                f"beside one that begins with {min(others)!r}; an `%ignore` may do instead"
            )
