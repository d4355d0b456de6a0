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

from antiphon.text.messages import InputGrammar
from antiphon.text.patterns.edges import Edges, check_lexer, edges_of
from antiphon.text.patterns.lark import read_lark
from antiphon.text.patterns.regex import read_regex
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
    is_rule,
    names_in,
    spelled,
)

# Characters of a definition. Codex's grammar of patches has 700; reading this many takes half a second.
MAX_DEFINITION = 64 * 1024

# Levels of definitions and groups, one within the other. llguidance goes down them on its stack, which some 3,000 of
# them overflow: that would end the process.
MAX_LEVELS = 500

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
    regular = _regular(read.definitions)
    _check_terminals(read.definitions, regular)
    _check_levels(read.definitions, regular)
    return _Writer(read, regular, prefix).write()


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


def _check_terminals(definitions: Iterable[str], regular: Iterable[str]) -> None:
    for name in sorted(set(definitions).difference(regular)):
        if not is_rule(name):
            raise ValueError(f"the terminal `{name}` refers to itself")


def _check_levels(definitions: Mapping[str, Pattern], regular: Iterable[str]) -> None:
    """How deep the stack gets at most: through recursive rules, once through each."""
    levels: dict[str, int] = {}
    for name in regular:
        levels[name] = _levels(definitions[name], levels)
    recursive = sum(_levels(pattern, levels) for name, pattern in definitions.items() if name not in levels)
    if max(levels.values(), default=0) + recursive > MAX_LEVELS:
        raise ValueError(f"definitions within definitions, more than {MAX_LEVELS} levels deep, are not supported")


def _levels(pattern: Pattern, known: Mapping[str, int]) -> int:
    if isinstance(pattern, Name):
        return 1 + known.get(pattern.name, 0)
    return 1 + max((_levels(child, known) for child in children(pattern)), default=0)


class _Writer:
    """Every expression that it writes can be followed by a quantifier."""

    def __init__(self, grammar: Grammar, regular: Iterable[str], prefix: str) -> None:
        self._definitions = grammar.definitions
        self._ignored = grammar.ignored
        self._prefix = prefix
        self._numbers = {name: n for n, name in enumerate(grammar.definitions)}
        self._edges: dict[str, Edges] = {}  # of the regular names
        for name in regular:
            self._edges[name] = edges_of(grammar.definitions[name], self._edges)
        self._terminals: dict[str, str] = {}  # names of those made for the parts of rules, by their expressions
        self._beside: list[Edges] = []  # of terminals that the lexer must tell apart

    def write(self) -> tuple[str, list[str]]:
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
                return json.dumps(_escaped(text))
            case Name(name):
                return self._named(name)
            case Both(parts):
                return _joined(" & ", map(self._terminal, parts))
            case Not(part):
                return f"(~{self._terminal(part)} & {self._terminal(ANY_TEXT)})"
        if _is_plain(pattern):
            return f"/{_regex(pattern)}/" if pattern != EMPTY else '""'
        match pattern:
            case Chain(parts):
                return _joined(" ", map(self._terminal, parts))
            case Choice(options):
                return _joined(" | ", map(self._terminal, options))
            case _:
                assert isinstance(pattern, Repeat), "no other kind has parts"
                return _repeated(self._terminal(pattern.part), pattern.low, pattern.high)


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


def _regex(pattern: Pattern) -> str:
    """A plain pattern of escaped text in Rust's syntax, without slashes."""
    match pattern:
        case Literal(text):
            return "".join(char if char.isalnum() else spelled(char) for char in _escaped(text))
        case Chars():
            return _class(pattern)
        case Chain(parts):
            return "".join(map(_regex, parts))
        case Choice(options):
            return f"(?:{'|'.join(map(_regex, options))})"
        case _:
            assert isinstance(pattern, Repeat), "no other kind is plain"
            return f"(?:{_regex(pattern.part)}){_quantifier(pattern.low, pattern.high)}"


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
