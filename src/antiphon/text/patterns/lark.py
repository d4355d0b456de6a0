"""Grammars in Lark's notation, in llguidance's variant, as patterns.

What is not text (special tokens, JSON schemas, other grammars) and what changes how a text is cut into tokens rather
than which texts there are (`lazy`, `stop`, priorities) is refused with a `ValueError` that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from antiphon.text.patterns.regex import read_regex
from antiphon.text.patterns.tree import (
    EMPTY,
    Both,
    Grammar,
    Literal,
    Name,
    Not,
    Pattern,
    Repeat,
    chain,
    choice,
    folded,
    is_rule,
    names_in,
    spelled,
)

_TOKEN = re.compile(
    r"""
      (?P<blank>   [ \t]+ | (?:\#|//)[^\n]* )
    | (?P<newline> (?:\r?\n)+ )
    | (?P<string>  "(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[^"\\\x00-\x1F\x7F])*"i? )
    | (?P<regex>   /(?:\\[^\n]|[^/\\\n])+/[a-z]* )
    | (?P<name>    _?[a-zA-Z]\w*(?:-\w+)* )
    | (?P<number>  [0-9]{1,9} )
    | (?P<sign>    -> | \.\. | [:|()\[\]{},.~&+*?!=] )
    | (?P<keyword> %[a-z]+ )
    | (?P<other>   <[^<>\s]+> | @[\w-]+ | . )
    """,
    re.VERBOSE | re.ASCII,
)
# Groups within groups. llguidance takes 28 levels, and each of these may become three.
MAX_NESTING = 8

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")

_DIGITS = "[0-9]+"
_DECIMAL = r"([0-9]+\.[0-9]*|\.[0-9]+)"
_FLOAT = rf"({_DECIMAL}([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
_NUMBER = f"({_FLOAT}|{_DIGITS})"

# Lark's module `common`, as far as llguidance has it.
_COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": _DIGITS,
    "SIGNED_INT": f"[+-]?{_DIGITS}",
    "DECIMAL": _DECIMAL,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": f"[+-]?{_FLOAT}",
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": f"[+-]?{_NUMBER}",
    "ESCAPED_STRING": r'"([^"\\]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*([^*]|\*+[^*/])*\*+/",
    "SQL_COMMENT": r"--[^\n]*",
}


class _Lexeme(NamedTuple):
    """A token of the notation; `kind` is empty at the end of the grammar."""

    kind: str
    text: str
    line: int


def read_lark(text: str) -> Grammar:
    """The definitions of a grammar. Raises `ValueError` naming what cannot be taken."""
    grammar = _Reader(_lexemes(text)).read()
    if "start" not in grammar.definitions:
        raise ValueError("there is no rule `start`")
    for pattern in (*grammar.definitions.values(), grammar.ignored):
        for name in names_in(pattern):
            if name not in grammar.definitions:
                raise ValueError(f"`{name}` is not defined")
    return grammar


def _lexemes(text: str) -> list[_Lexeme]:
    """The tokens, with the line feeds that end a definition alone: those in brackets and before a `|` do not."""
    found: list[_Lexeme] = []
    line, depth = 1, 0
    for match in _TOKEN.finditer(text):
        lexeme = _Lexeme(match.lastgroup or "", match[0], line)
        line += lexeme.text.count("\n")
        if lexeme.kind == "other" or (lexeme.kind == "keyword" and lexeme.text not in _STATEMENTS):
            raise ValueError(f"line {lexeme.line}: `{lexeme.text}` is not supported")
        if lexeme.text == "|" and found and found[-1].kind == "newline":
            found.pop()
        if lexeme.kind == "sign":
            depth += (lexeme.text in _OPENING) - (lexeme.text in _CLOSING)
        if lexeme.kind != "blank" and not (lexeme.kind == "newline" and depth > 0):
            found.append(lexeme)
    return [*found, _Lexeme("", "end of the grammar", line)]


# No name that a grammar can give.
IGNORED = "%IGNORE"


class _Reader:
    def __init__(self, lexemes: list[_Lexeme]) -> None:
        self._lexemes = lexemes
        self._at = 0
        self._depth = 0
        self._in_rule = False
        self._bodies: dict[str, int] = {}  # where they begin
        self._definitions: dict[str, Pattern] = {}
        self._ignores: list[Pattern] = []
        self._ignored: Pattern = EMPTY  # what may stand before a token of a rule

    def read(self) -> Grammar:
        while self._next.kind:
            if self._next.kind == "newline":
                self._advance()
            else:
                self._item()
        if self._ignores:
            self._ignored = Name(IGNORED)  # since it stands before every token
        for name, at in self._bodies.items():
            self._at, self._in_rule = at, is_rule(name)
            self._definitions[name] = self._options()
            self._expect_end()
        if self._ignores:
            self._definitions[IGNORED] = Repeat(choice(self._ignores), 0, None)
        return Grammar(self._definitions, self._ignored)

    @property
    def _next(self) -> _Lexeme:
        return self._lexemes[self._at]

    def _advance(self, kind: str | None = None) -> _Lexeme:
        """The next token, which must be of that kind."""
        lexeme = self._next
        if not lexeme.kind or kind not in (None, lexeme.kind):
            raise self._unexpected(lexeme)
        self._at += 1
        return lexeme

    def _take(self, text: str) -> bool:
        taken = self._next.text == text
        self._at += taken
        return taken

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(self._next)

    def _unexpected(self, lexeme: _Lexeme) -> ValueError:
        return ValueError(f"line {lexeme.line}: `{lexeme.text.strip()}` is not expected here")

    def _item(self) -> None:
        """A definition or a statement, to the end of its line."""
        while self._next.text in ("?", "!"):  # They shape a tree that nobody builds.
            self._advance()
        if self._next.kind == "keyword":
            _STATEMENTS[self._advance().text](self)
            self._expect_end()
        else:
            self._begin_definition(self._advance("name"))

    def _expect_end(self) -> None:
        if self._next.kind:
            self._advance("newline")

    def _begin_definition(self, name: _Lexeme) -> None:
        """Its body is read when it is known what may stand between its tokens."""
        what = _REFUSED_BEHIND_NAMES.get(self._next.text)
        if what is not None:
            raise ValueError(f"line {name.line}: {what} are not supported")
        self._expect(":")
        self._check_new(name)
        self._bodies[name.text] = self._at
        while self._next.kind not in ("", "newline"):
            self._advance()

    def _check_new(self, name: _Lexeme) -> None:
        if name.text in self._definitions or name.text in self._bodies:
            raise ValueError(f"line {name.line}: `{name.text}` is defined twice")

    def _ignore(self) -> None:
        self._ignores.append(self._options())

    def _import(self) -> None:
        module = self._advance("name")
        if module.text != "common":
            raise ValueError(f"line {module.line}: nothing but `common` can be imported")
        if self._take("("):
            while not self._take(")"):
                self._define_common(self._advance("name"))
                self._take(",")
            return
        self._expect(".")
        name = self._advance("name")
        self._define_common(name, self._advance("name") if self._take("->") else name)

    def _define_common(self, name: _Lexeme, alias: _Lexeme | None = None) -> None:
        expression = _COMMON.get(name.text)
        if expression is None:
            raise ValueError(f"line {name.line}: there is no `common.{name.text}`")
        alias = alias or name
        self._check_new(alias)
        self._definitions[alias.text] = read_regex(expression)

    def _options_of_the_engine(self) -> None:
        line = self._next.line
        if not (self._take("{") and self._take("}")):
            raise ValueError(f"line {line}: options of `%llguidance` are not supported")

    def _options(self) -> Pattern:
        options = [self._every_one()]
        while self._take("|"):
            options.append(self._every_one())
        return choice(options)

    def _every_one(self) -> Pattern:
        """Patterns joined by `&`, perhaps with a name for the tree that nobody builds."""
        parts = [self._row()]
        while self._take("&"):
            self._only_in_terminals("&")
            parts.append(self._row())
        if self._take("->"):
            self._advance("name")
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _only_in_terminals(self, sign: str) -> None:
        if self._in_rule:
            raise ValueError(f"line {self._next.line}: `{sign}` is only for terminals")

    def _row(self) -> Pattern:
        parts: list[Pattern] = []
        while self._next.kind not in ("", "newline") and self._next.text not in _ENDS:
            parts.append(self._repeated(self._atom()))
        return chain(parts)

    def _repeated(self, part: Pattern) -> Pattern:
        bounds = _QUANTIFIERS.get(self._next.text)
        if bounds is not None:
            self._advance()
            return Repeat(part, *bounds)
        if self._next.text == "~" and self._lexemes[self._at + 1].kind == "number":
            self._advance()
            low = self._number()
            return Repeat(part, low, self._number() if self._take("..") else low)
        if self._take("{"):
            return self._counted(part)
        return part

    def _counted(self, part: Pattern) -> Pattern:
        """A part before `{low,high}`, of which one may be left out."""
        low = self._number() if self._next.text != "," else 0
        high: int | None = low
        if self._take(","):
            high = self._number() if self._next.text != "}" else None
        self._expect("}")
        return Repeat(part, low, high)

    def _number(self) -> int:
        return int(self._advance("number").text)

    def _atom(self) -> Pattern:
        if not self._take("~"):
            return self._plain_atom()
        self._only_in_terminals("~")
        return Not(self._plain_atom())

    def _plain_atom(self) -> Pattern:
        if self._take("("):
            return self._bracketed(")")
        if self._take("["):
            return Repeat(self._bracketed("]"), 0, 1)
        return self._value()

    def _bracketed(self, closing: str) -> Pattern:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ValueError(f"line {self._next.line}: nested deeper than {MAX_NESTING} levels")
        pattern = self._options()
        self._expect(closing)
        self._depth -= 1
        return pattern

    def _value(self) -> Pattern:
        lexeme = self._advance()
        match lexeme.kind:
            case "string":
                value = self._string(lexeme)
            case "regex":
                value = _regex(lexeme)
            case "name":
                value = Name(lexeme.text)
            case _:
                raise self._unexpected(lexeme)
        is_token = self._in_rule and not (isinstance(value, Name) and is_rule(value.name))
        return chain([self._ignored, value]) if is_token else value

    def _string(self, lexeme: _Lexeme) -> Pattern:
        """A string, or a range of characters between two."""
        text = _said(lexeme)
        if not self._take(".."):
            return folded(text) if lexeme.text.endswith("i") else Literal(text)
        end = _said(self._advance("string"))
        if not len(text) == len(end) == 1:
            raise ValueError(f"line {lexeme.line}: a range is between two characters")
        return read_regex(f"[{spelled(text)}-{spelled(end)}]")


def _said(lexeme: _Lexeme) -> str:
    text: str = json.loads(lexeme.text.removesuffix("i"))
    return text


def _regex(lexeme: _Lexeme) -> Pattern:
    expression, _, flags = lexeme.text[1:].rpartition("/")
    try:
        return read_regex(expression, flags)
    except ValueError as fault:
        raise ValueError(f"line {lexeme.line}: {fault}") from None


_QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ENDS = frozenset({"|", "&", "->", *_CLOSING})
_REFUSED_BEHIND_NAMES = {"[": "options of rules (such as `lazy`)", ".": "priorities", "{": "templates"}
_STATEMENTS: dict[str, Callable[[_Reader], None]] = {
    "%ignore": _Reader._ignore,
    "%import": _Reader._import,
    "%llguidance": _Reader._options_of_the_engine,
}
