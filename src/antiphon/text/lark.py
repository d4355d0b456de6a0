"""Grammars for llguidance, put together: its variant of Lark, with control tokens and JSON Schemas as symbols.

A grammar is over tokens: a control token is a symbol of its own and never part of a text, so what may be a text here
cannot hold one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from antiphon.text.escaped_grammar import escaped_grammar, plain_grammar
from antiphon.text.messages import InputGrammar, ToolDefinition

ANY_TEXT = "/(?s:.*)/"

# Between the parts of a JSON value. Deep values are indented far; without a bound, a weak model that has begun to write
# whitespace goes on to its limit.
JSON_SPACE = r"[\x20\x0A\x0D\x09]{0,64}"

# Characters of a grammar: 128 tools with a dozen typed parameters each have 170,000. Compiled, up to 280 bytes each.
GRAMMAR_LIMIT = 2**20

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


class Lark:
    """Collects the rules of one grammar. What its methods give are expressions, to be joined with blanks, `|`, `*` and
    parentheses; equal rules are one rule."""

    def __init__(self, control: Mapping[int, str], check: Callable[[], None] = lambda: None) -> None:
        """`control`: the vocabulary's control tokens with their spellings. `check` is called for each new rule, and may
        raise to end the work. Every method raises `ValueError` when the rules have more than `GRAMMAR_LIMIT`
        characters together.
        """
        self._tokens = {spelling: token for token, spelling in control.items() if spelling}
        longest_first = sorted(self._tokens, key=len, reverse=True)
        self._spelled = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._check = check
        self._size = 0
        self._names: dict[str, str] = {}  # of rules, by what defines them
        self._inputs: dict[tuple[InputGrammar, str, str], str] = {}
        self._input_rules: list[str] = []

    def spelled(self, text: str) -> str:
        """Exactly this text, which is not empty; the control tokens spelled in it are those tokens."""
        parts: list[str] = []
        at = 0
        for match in self._spelled.finditer(text):
            parts += [_quoted(text[at : match.start()]), f"<[{self._tokens[match[0]]}]>"]
            at = match.end()
        parts.append(_quoted(text[at:]))
        return " ".join(filter(None, parts))

    def literal(self, text: str) -> str:
        """Exactly this text, which is not empty, without control tokens."""
        return _quoted(text)

    def text(self, *, without: str = "") -> str:
        """Any text without control tokens and without that, perhaps empty. A terminal: as long as possible."""
        return self._named("TEXT", ANY_TEXT + self._but(without))

    def matching(self, regex: str, *, without: str = "") -> str:
        """A terminal that matches a regular expression of Rust's `regex`, without a slash that is not escaped.

        Its `\\s`, `\\d` and `\\w` are Unicode's.
        """
        return self._named("MATCH", f"/{regex}/{self._but(without)}")

    def until(self, marker: str, *, without: str = "") -> str:
        """Any text `without` that up to the first `marker`, and the marker.

        Of a marker that is not all text, the text before its first control token is not asked for.
        """
        token = self._spelled.search(marker)
        if token is not None:  # The any text takes what stands before it, and cannot give it back.
            return f"{self.text(without=without)} {self.spelled(marker[token.start() :])}"
        return self._named("until", f"{self.text(without=without)} {self.spelled(marker)}", options="[lazy]")

    def json(self, schema: Mapping[str, Any] | bool) -> str:
        """A JSON value that the schema describes. Its properties come in the order in which the schema has them."""
        if isinstance(schema, bool):
            schema = {} if schema else {"not": {}}
        bounded = {**schema, "x-guidance": {"whitespace_pattern": JSON_SPACE}}
        return self._named("json", f"%json {json.dumps(bounded)}")

    def arguments(self, tool: ToolDefinition) -> str:
        """The arguments of a call as a JSON object: the tool's schema if it is strict, else any object.

        Raises as `input_text` if the tool's input has a grammar.
        """
        if tool.input is not None:
            space = JSON_SPACE
            opening = self.matching(rf'\{{{space}"input"{space}:{space}"')
            closing = self.matching(rf'"{space}\}}')
            return f"{opening} {self.input_text(tool.input)} {closing}"
        return self.json(tool.parameters if tool.strict else ANY_OBJECT)

    def input_text(self, grammar: InputGrammar) -> str:
        """A text that obeys the grammar, as it stands between the quotes of a JSON string.

        Raises `ValueError` naming what of the grammar cannot be taken.
        """
        return self._input((grammar, "", ""), escaped_grammar)

    def input_before(self, grammar: InputGrammar, *, without: str, end: str) -> str:
        """A text that obeys the grammar, as it is, and does not hold `without`; and the `end`. One terminal.

        Raises `ValueError` naming what of the grammar cannot be taken.
        """
        return self._input((grammar, without, end), partial(plain_grammar, without=without, end=end))

    def _input(
        self, key: tuple[InputGrammar, str, str], write: Callable[[InputGrammar, str], tuple[str, list[str]]]
    ) -> str:
        if key not in self._inputs:
            self._inputs[key], rules = write(key[0], f"input_{len(self._inputs)}")
            self._grow(sum(map(len, rules)))
            self._input_rules += rules
        return self._inputs[key]

    def rule(self, expression: str) -> str:
        """A rule of its own for an expression."""
        return self._named("rule", expression)

    def grammar(self, start: str) -> str:
        """The whole grammar of outputs that are `start`."""
        rules = [f"{name}: {body}" for body, name in self._names.items()]
        return "\n".join(["%llguidance {}", f"start: {start}", *rules, *self._input_rules, ""])

    def _grow(self, size: int) -> None:
        self._check()
        self._size += size
        if self._size > GRAMMAR_LIMIT:
            raise ValueError(f"it makes a grammar of more than {GRAMMAR_LIMIT} characters")

    def _but(self, without: str) -> str:
        """Takes a text out of a terminal that may hold it. None can hold one in which there is a control token."""
        if not without or self._spelled.search(without):
            return ""
        return f" & ~({ANY_TEXT} {_quoted(without)} {ANY_TEXT})"

    def _named(self, kind: str, body: str, options: str = "") -> str:
        name = self._names.get(body)
        if name is None:
            self._grow(len(body))
            name = f"{kind}_{len(self._names)}"
            self._names[body] = name + options
            return name
        return name.removesuffix(options)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
