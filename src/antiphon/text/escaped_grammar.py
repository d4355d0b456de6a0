"""A grammar over a text, made into one over that text as it stands in the output: inside a JSON string, or as it is.

Rules
* Without recursion all of the grammar is one terminal, so that llguidance matches it exactly. Its lexer looks one byte
  ahead, and an escape is longer: it could not see whether the backslash behind a terminal goes on with it or ends it.
* With recursion, rules that reach themselves stay rules, and what is between them are terminals. Where the lexer could
  go wrong, the grammar is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

from antiphon.text.messages import InputGrammar
from antiphon.text.patterns.lark import read_lark
from antiphon.text.patterns.regex import read_regex
from antiphon.text.patterns.tree import Grammar, Name, Pattern, children, is_rule, names_in
from antiphon.text.patterns.writer import ESCAPED, PLAIN, Writer, literal_regex

# Characters of a definition. Codex's grammar of patches has 700; reading this many takes half a second.
MAX_DEFINITION = 64 * 1024

# Levels of definitions and groups, one within the other. llguidance goes down them on its stack, which some 3,000 of
# them overflow: that would end the process.
MAX_LEVELS = 500


def escaped_grammar(grammar: InputGrammar, prefix: str) -> tuple[str, list[str]]:
    """An expression for the text between the quotes of a JSON string, and the rules that it needs, as lines of
    llguidance's Lark.

    Their names begin with `prefix`, which is a name of a rule. Raises `ValueError` naming what cannot be taken.
    """
    read, regular = _read(grammar)
    return Writer(read, regular, ESCAPED, prefix).write()


def plain_grammar(grammar: InputGrammar, prefix: str, *, without: str, end: str) -> tuple[str, list[str]]:
    """As `escaped_grammar`, for the text as it is, which does not hold `without`, up to and with `end`."""
    read, regular = _read(grammar)
    if "start" not in regular:
        raise ValueError("recursive rules are not supported in this model's form of calls")
    start, rules = Writer(read, regular, PLAIN, prefix).write()
    name = f"{prefix}_WHOLE".upper()
    other = f"/(?s:.*){literal_regex(without)}(?s:.*)/"
    return name, [*rules, f"{name}: ({start} & ~{other}) /{literal_regex(end)}/"]


def _read(grammar: InputGrammar) -> tuple[Grammar, Collection[str]]:
    """The grammar, and the names in it that reach no recursion, each behind those that it needs."""
    if len(grammar.definition) > MAX_DEFINITION:
        raise ValueError(f"a grammar of more than {MAX_DEFINITION} characters is not supported")
    if grammar.syntax == "regex":
        read = Grammar({"start": read_regex(grammar.definition, whole=True)})
    else:
        read = read_lark(grammar.definition)
    regular = _regular(read.definitions)
    _check_terminals(read.definitions, regular)
    _check_levels(read.definitions, regular)
    return read, regular


def _regular(definitions: Mapping[str, Pattern]) -> list[str]:
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
