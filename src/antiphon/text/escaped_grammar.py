"""A grammar over a text, made into one over that text as it stands inside a JSON string.

Rules
* A character that a JSON string cannot hold is spelled in one way: with the short escape if there is one, else as in
  `\\u001b`. Every other character stands for itself.
* Without recursion all of the grammar is one terminal, so that llguidance matches it exactly. Its lexer looks one byte
  ahead, and an escape is longer: it could not see whether the backslash behind a terminal goes on with it or ends it.
* With recursion, rules that reach themselves stay rules, and what is between them are terminals. Where the lexer could
  go wrong, the grammar is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from typing import NamedTuple

from antiphon.text.lark_reader import read_lark
from antiphon.text.messages import InputGrammar
from antiphon.text.pattern import (
    ANY_TEXT,
    EMPTY,
    SPECIAL,
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
    Token,
    chain,
    is_rule,
    names_in,
)
from antiphon.text.regex_reader import read_regex

# Characters of a definition. Codex's grammar of patches has 700, one of a whole SQL dialect 20,000; reading this many
# takes a quarter of a second.
MAX_DEFINITION = 64 * 1024

_SHORT = {'"': '"', "\\": r"\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


def escaped_grammar(grammar: InputGrammar, prefix: str) -> tuple[str, list[str]]:
    """An expression for the escaped text, and the rules that it needs, as lines of llguidance's Lark.

    Their names begin with `prefix`, which is a name of a rule. Raises `ValueError` naming what cannot be taken.
    """
    if len(grammar.definition) > MAX_DEFINITION:
        raise ValueError(f"a grammar of more than {MAX_DEFINITION} characters is not supported")
    if grammar.syntax == "regex":
        read = Grammar({"start": read_regex(grammar.definition, whole=True)})
    else:
        read = read_lark(grammar.definition)
    return _Writer(read, prefix).write()


class _Writer:
    def __init__(self, grammar: Grammar, prefix: str) -> None:
        self._definitions = grammar.definitions
        self._ignored = grammar.ignored
        self._prefix = prefix
        self._numbers = {name: n for n, name in enumerate(grammar.definitions)}
        self._regular = _regular(grammar.definitions)
        self._edges: dict[str, _Edges] = {}
        self._terminals: dict[str, str] = {}  # names of those made for the parts of rules, by their expressions
        self._beside: list[_Edges] = []  # of terminals that the lexer must tell apart

    def write(self) -> tuple[str, list[str]]:
        self._check_terminals()
        for name in self._regular:
            self._edges[name] = self._edges_of(self._definitions[name])
        lines = [f"{self._named(name)}: {self._body(name)}" for name in self._definitions]
        start = self._start()
        return start, [*lines, *(f"{name}: {body}" for body, name in self._terminals.items())]

    def _check_terminals(self) -> None:
        for name in self._definitions:
            if name not in self._regular and not is_rule(name):
                raise ValueError(f"the terminal `{name}` refers to itself")

    def _start(self) -> str:
        if "start" in self._regular:
            return self._lifted(chain([Name("start"), self._ignored]))
        end = "" if self._ignored == EMPTY else self._lifted(self._ignored, last=True)
        _check_lexer(self._beside)
        return f"{self._named('start')} {end}"

    def _named(self, name: str) -> str:
        named = f"{self._prefix}_{self._numbers[name]}"
        return named.upper() if name in self._regular else named

    def _body(self, name: str) -> str:
        pattern = self._definitions[name]
        return self._terminal(pattern) if name in self._regular else self._rule(pattern)

    def _rule(self, pattern: Pattern) -> str:
        """An expression for a rule, in which what is regular is a terminal."""
        if pattern == EMPTY:
            return '""'
        if self._is_regular(pattern):
            return self._lifted(pattern)
        match pattern:
            case Chain(parts):
                return f"({' '.join(self._rule(part) for part in self._runs(parts))})"
            case Choice(options):
                return f"({' | '.join(map(self._rule, options))})"
            case Repeat(part, low, high):
                return _repeated(self._rule(part), low, high)
            case _:
                assert isinstance(pattern, Name), "what is joined by `&` and `~` is regular"
                return self._named(pattern.name)

    def _is_regular(self, pattern: Pattern) -> bool:
        return all(name in self._regular for name in names_in(pattern))

    def _runs(self, parts: Iterable[Pattern]) -> Iterator[Pattern]:
        """The parts, those that can be one terminal as one."""
        for regular, run in groupby(parts, self._is_regular):
            if regular:
                yield chain(run)
            else:
                yield from run

    def _lifted(self, pattern: Pattern, *, last: bool = False) -> str:
        edges = self._edges_of(pattern)
        self._beside.append(edges._replace(goes_on=frozenset()) if last else edges)  # nothing follows the last one
        if isinstance(pattern, Name):
            return self._named(pattern.name)
        return self._terminals.setdefault(self._terminal(pattern), f"{self._prefix}_T{len(self._terminals)}".upper())

    def _terminal(self, pattern: Pattern) -> str:
        """An expression for a terminal."""
        match pattern:
            case Literal(text):
                return json.dumps(_escaped(text))
            case Chars():
                return _class(pattern)
            case Chain(parts):
                return f"({' '.join(map(self._terminal, parts))})" if parts else '""'
            case Choice(options):
                return f"({' | '.join(map(self._terminal, options))})"
            case Repeat(part, low, high):
                return _repeated(self._terminal(part), low, high)
            case Both(parts):
                return f"({' & '.join(map(self._terminal, parts))})"
            case Not(part):
                return f"(~({self._terminal(part)}) & {self._terminal(ANY_TEXT)})"
            case Token(part):
                return self._terminal(chain([self._ignored, part]))
            case _:
                assert isinstance(pattern, Name), "anchors are gone"
                return self._named(pattern.name)

    def _edges_of(self, pattern: Pattern) -> _Edges:
        match pattern:
            case Literal(text):
                return _Edges(not text, SPECIAL.intersection(text[:1]))
            case Chars(_, special):
                return _Edges(False, special)
            case Chain(parts):
                return _chained(map(self._edges_of, parts))
            case Choice(options):
                return _any_of([self._edges_of(option) for option in options])
            case Repeat(part, low, high):
                return _many(self._edges_of(part), low, high)
            case Both(parts):
                return _any_of([self._edges_of(part) for part in parts])
            case Not():
                return _Edges(True, SPECIAL, SPECIAL)
            case Token(part):
                return self._edges_of(chain([self._ignored, part]))
            case _:
                assert isinstance(pattern, Name), "anchors are gone"
                return self._edges[pattern.name]


def _regular(definitions: Mapping[str, Pattern]) -> list[str]:
    """The names that reach no recursion, each behind those that it needs."""
    sorter = TopologicalSorter({name: set(names_in(pattern)) for name, pattern in definitions.items()})
    with suppress(CycleError):  # What does not wait for a cycle is given all the same.
        sorter.prepare()
    found: list[str] = []
    while ready := sorter.get_ready():
        found += ready
        sorter.done(*ready)
    return found


class _Edges(NamedTuple):
    """Where escapes stand at the edges of a pattern's texts. Too many may be told, not too few, with one exception:
    options that share a beginning. What is overlooked makes a grammar stricter, never looser.

    `empty`: it matches the empty text. `begins`: the escaped characters that a text may begin with. `goes_on`: those
    that may follow where a text could already be over.
    """

    empty: bool
    begins: frozenset[str]
    goes_on: frozenset[str] = frozenset()


def _chained(parts: Iterable[_Edges]) -> _Edges:
    whole = _Edges(True, frozenset())
    for part in parts:
        goes_on = part.goes_on | (whole.goes_on | part.begins if part.empty else frozenset())
        whole = _Edges(
            whole.empty and part.empty, whole.begins | (part.begins if whole.empty else frozenset()), goes_on
        )
    return whole


def _any_of(options: list[_Edges]) -> _Edges:
    return _Edges(
        any(option.empty for option in options),
        frozenset[str]().union(*(option.begins for option in options)),
        frozenset[str]().union(*(option.goes_on for option in options)),
    )


def _many(part: _Edges, low: int, high: int | None) -> _Edges:
    """Any count between the bounds may be the last one."""
    more = part.begins if high is None or high > max(low, 1) or (low == 0 and high) else frozenset[str]()
    return _Edges(part.empty or low == 0, part.begins, part.goes_on | more)


def _check_lexer(terminals: list[_Edges]) -> None:
    """Whether a backslash always tells the lexer if a terminal goes on or the next one begins."""
    begins = frozenset[str]().union(*(terminal.begins for terminal in terminals))
    for goes_on in dict.fromkeys(terminal.goes_on for terminal in terminals):
        others = begins - goes_on
        if goes_on and others:
            raise ValueError(
                f"where rules are recursive, a terminal that may go on with {min(goes_on)!r} is not supported beside "
                f"one that begins with {min(others)!r}; an `%ignore` may do instead"
            )


def _repeated(expression: str, low: int, high: int | None) -> str:
    match low, high:
        case 0, None:
            return f"({expression})*"
        case 1, None:
            return f"({expression})+"
        case 0, 1:
            return f"({expression})?"
        case _, 0:
            return '""'
        case _, None:
            return f"({expression}){{{low},}}"
        case _:
            return f"({expression}){{{low},{high}}}"


def _escaped(text: str) -> str:
    """As it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _class(chars: Chars) -> str:
    """One character of a class: itself, or its escape."""
    ways: list[str] = []
    if chars.others:
        plain = rf'[{chars.source}&&[^"\\\x00-\x1F]]' if chars.special else chars.source
        ways.append(f"(?i:{plain})" if chars.fold else plain)
    if chars.special:
        ways.append(_escapes(chars.special))
    return f"/{'|'.join(ways)}/"


def _escapes(special: Iterable[str]) -> str:
    """The escapes of these characters."""
    short = [_SHORT[char] for char in sorted(special) if char in _SHORT]
    ways = [f"[{''.join(short)}]"] if short else []
    for row in (0, 1):
        digits = [f"{ord(char) % 16:x}" for char in sorted(special) if char not in _SHORT and ord(char) // 16 == row]
        if digits:
            ways.append(f"u00{row}[{''.join(digits)}]")
    return rf"\\({'|'.join(ways)})"
