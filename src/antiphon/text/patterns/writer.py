"""Patterns as rules of llguidance's Lark, over texts in one spelling or another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from antiphon.text.patterns.edges import Edges, check_lexer, edges_of
from antiphon.text.patterns.tree import (
    ANY_TEXT,
    EMPTY,
    Both,
    Chain,
    Chars,
    Choice,
    Grammar,
    Literal,
    Name,
    Not,
    Pattern,
    Repeat,
    chain,
    children,
    names_in,
    spelled,
)

_SHORT = {'"': '"', "\\": r"\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


class Spelling(NamedTuple):
    """How texts stand in the output. `text` spells a text, `char` gives a regular expression for a character."""

    text: Callable[[str], str]
    char: Callable[[Chars], str]


class Writer:
    """Writes the rules of one grammar, whose names begin with `prefix`, a name of a rule.

    `regular`: the definitions that reach no recursion, each behind those that it needs. Every expression can be
    followed by a quantifier.
    """

    def __init__(self, grammar: Grammar, regular: Iterable[str], spelling: Spelling, prefix: str) -> None:
        self._definitions = grammar.definitions
        self._ignored = grammar.ignored
        self._spelling = spelling
        self._prefix = prefix
        self._numbers = {name: n for n, name in enumerate(grammar.definitions)}
        self._edges: dict[str, Edges] = {}  # of the regular names
        for name in regular:
            self._edges[name] = edges_of(grammar.definitions[name], self._edges)
        self._terminals: dict[str, str] = {}  # names of those made for the parts of rules, by their expressions
        self._beside: list[Edges] = []  # of terminals that the lexer must tell apart

    def write(self) -> tuple[str, list[str]]:
        """The expression of the whole text, and the rules. Raises `ValueError` where the lexer could go wrong."""
        lines = [f"{self._named(name)}: {self._body(name)}" for name in self._definitions]
        start = self._start()
        return start, [*lines, *(f"{name}: {body}" for body, name in self._terminals.items())]

    def _start(self) -> str:
        if "start" in self._edges:
            return self._lifted(chain([Name("start"), self._ignored]))
        end = "" if self._ignored == EMPTY else self._lifted(self._ignored, last=True)
        check_lexer(self._beside)
        return f"{self._named('start')} {end}"

    def _named(self, name: str) -> str:
        named = f"{self._prefix}_{self._numbers[name]}"
        return named.upper() if name in self._edges else named

    def _body(self, name: str) -> str:
        pattern = self._definitions[name]
        return self._terminal(pattern) if name in self._edges else self._rule(pattern)

    def _rule(self, pattern: Pattern) -> str:
        """An expression for a rule, in which what is regular is a terminal."""
        if pattern == EMPTY:
            return '""'
        if self._is_regular(pattern):
            return self._lifted(pattern)
        match pattern:
            case Chain(parts):
                return _joined(" ", map(self._rule, self._runs(parts)))
            case Choice(options):
                return _joined(" | ", map(self._rule, options))
            case Repeat(part, low, high):
                return _repeated(self._rule(part), low, high)
            case _:
                assert isinstance(pattern, Name), "what is joined by `&` and `~` is regular"
                return self._named(pattern.name)

    def _is_regular(self, pattern: Pattern) -> bool:
        return all(name in self._edges for name in names_in(pattern))

    def _runs(self, parts: Iterable[Pattern]) -> Iterator[Pattern]:
        """The parts, those that can be one terminal as one."""
        for regular, run in groupby(parts, self._is_regular):
            if regular:
                yield chain(run)
            else:
                yield from run

    def _lifted(self, pattern: Pattern, *, last: bool = False) -> str:
        """A part of a rule that is a terminal; nothing follows the `last` one."""
        edges = edges_of(pattern, self._edges)
        self._beside.append(Edges(edges.empty, edges.begins) if last else edges)
        if isinstance(pattern, Name):
            return self._named(pattern.name)
        return self._terminals.setdefault(self._terminal(pattern), f"{self._prefix}_T{len(self._terminals)}".upper())

    def _terminal(self, pattern: Pattern) -> str:
        """An expression for a terminal. What has no names in it is one regular expression, as deep as it may be."""
        match pattern:
            case Literal(text):
                return json.dumps(self._spelling.text(text))
            case Name(name):
                return self._named(name)
            case Both(parts):
                return _joined(" & ", map(self._terminal, parts))
            case Not(part):
                return f"(~{self._terminal(part)} & {self._terminal(ANY_TEXT)})"
        if _is_plain(pattern):
            return f"/{self._regex(pattern)}/" if pattern != EMPTY else '""'
        match pattern:
            case Chain(parts):
                return _joined(" ", map(self._terminal, parts))
            case Choice(options):
                return _joined(" | ", map(self._terminal, options))
            case _:
                assert isinstance(pattern, Repeat), "no other kind has parts"
                return _repeated(self._terminal(pattern.part), pattern.low, pattern.high)

    def _regex(self, pattern: Pattern) -> str:
        """A plain pattern in Rust's syntax, without slashes."""
        match pattern:
            case Literal(text):
                return literal_regex(self._spelling.text(text))
            case Chars():
                return self._spelling.char(pattern)
            case Chain(parts):
                return "".join(map(self._regex, parts))
            case Choice(options):
                return f"(?:{'|'.join(map(self._regex, options))})"
            case _:
                assert isinstance(pattern, Repeat), "no other kind is plain"
                return f"(?:{self._regex(pattern.part)}){_quantifier(pattern.low, pattern.high)}"


def _joined(sign: str, expressions: Iterable[str]) -> str:
    return f"({sign.join(expressions)})"


def _repeated(expression: str, low: int, high: int | None) -> str:
    if high == 0:  # llguidance has no such count.
        return '""'
    return f"({expression}{_quantifier(low, high)})"


def _quantifier(low: int, high: int | None) -> str:
    sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    return sign or f"{{{low},{'' if high is None else high}}}"


def _is_plain(pattern: Pattern) -> bool:
    """Whether a regular expression can say it."""
    return not isinstance(pattern, Name | Both | Not) and all(map(_is_plain, children(pattern)))


def literal_regex(text: str) -> str:
    """A regular expression for exactly this text."""
    return "".join(char if char.isalnum() else spelled(char) for char in text)


def _escaped_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escaped_char(chars: Chars) -> str:
    """A character of the class: itself, or its escape."""
    ways: list[str] = []
    if chars.others:
        ways.append(_folded(rf'[{chars.source}&&[^"\\\x00-\x1F]]' if chars.special else chars.source, chars.fold))
    if chars.special:
        ways.append(_escapes(chars.special))
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _escapes(special: Iterable[str]) -> str:
    """The escapes of these characters."""
    short = [_SHORT[char] for char in sorted(special) if char in _SHORT]
    ways = [f"[{''.join(short)}]"] if short else []
    for row in (0, 1):
        digits = [f"{ord(char) % 16:x}" for char in sorted(special) if char not in _SHORT and ord(char) // 16 == row]
        if digits:
            ways.append(f"u00{row}[{''.join(digits)}]")
    return rf"\\(?:{'|'.join(ways)})"


def _folded(source: str, fold: bool) -> str:
    return f"(?i:{source})" if fold else source


# As a text stands between the quotes of a JSON string. What it cannot hold is spelled in one way: with the short escape
# if there is one, else as in `\u001b`. Every other character stands for itself.
ESCAPED = Spelling(_escaped_text, _escaped_char)

PLAIN = Spelling(str, lambda chars: _folded(chars.source, chars.fold))
