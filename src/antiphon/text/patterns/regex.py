"""Regular expressions in the syntax of Rust's `regex`, which llguidance reads, as patterns.

Rules
* Classes of characters are handed on as they are written; of each is told which characters it holds that JSON escapes.
* What llguidance cannot match (lookarounds, word boundaries) and what would need tables of ours (properties other than
  general categories) is refused with a `ValueError` that names it.
* A whole text is matched. Where an expression is all of a grammar, an anchor at its edge says nothing new, nor does a
  lazy quantifier; elsewhere both are refused, as llguidance does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from antiphon.text.patterns.tree import (
    CONTROLS,
    EMPTY,
    SPECIAL,
    Anchor,
    Chain,
    Chars,
    Choice,
    Literal,
    Pattern,
    Repeat,
    chain,
    choice,
    folded,
    spelled,
)

_SPACES = frozenset("\t\n\v\f\r")
_QUOTES = frozenset('"\\')

_PERL = {"d": frozenset[str](), "w": frozenset[str](), "s": _SPACES}
_PERL |= {name.upper(): SPECIAL - held for name, held in _PERL.items()}

# What they hold of the characters that JSON escapes; the others hold none.
_POSIX = {
    **dict.fromkeys(("alnum", "alpha", "digit", "lower", "upper", "word", "xdigit"), frozenset[str]()),
    **{"ascii": SPECIAL, "blank": frozenset("\t"), "cntrl": CONTROLS, "space": _SPACES},
    **dict.fromkeys(("graph", "print", "punct"), _QUOTES),
}
_CATEGORIES = {
    **dict.fromkeys("L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No S Sm Sc Sk So Z Zs Zl Zp".split(), frozenset[str]()),
    **dict.fromkeys("Pc Pd Ps Pe Pi Pf Cf Co Cn".split(), frozenset[str]()),
    **{"P": _QUOTES, "Po": _QUOTES, "C": CONTROLS, "Cc": CONTROLS},
}

_NAMED_CHARS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX = re.compile(r"\\[xuU]\{([0-9a-fA-F]{1,8})\}|\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})")
_PROPERTY = re.compile(r"\\([pP])(?:\{(\w+)\}|(\w))")
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_COUNT = re.compile(r"\{(\d{1,9})(?:(,)(\d{1,9})?)?\}")
_GROUP_NAME = re.compile(r"P?<[A-Za-z_][\w.\[\]]*>")
_GROUP_FLAGS = re.compile(r"([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_SET_OPERATORS = ("&&", "--", "~~")

# Groups within groups. What people write stays below ten; each level costs us some frames of the stack.
MAX_NESTING = 32

# Case, whether a dot matches a line feed, where anchors match; and Unicode, which is always on.
_FLAGS = frozenset("ismu")


def read_regex(text: str, flags: str = "", *, whole: bool = False) -> Pattern:
    """The pattern of an expression; `flags` are set from its start. `whole`: it is all of a grammar.

    Raises `ValueError` naming what cannot be taken.
    """
    for flag in flags:
        _check_flag(flag)
    return _without_anchors(_Reader(text, frozenset(flags), whole).read(), whole, whole)


def _check_flag(flag: str) -> None:
    if flag not in _FLAGS:
        raise ValueError(f"the flag {flag!r} of a regular expression is not supported")


def _without_anchors(pattern: Pattern, at_start: bool, at_end: bool) -> Pattern:
    """The pattern without anchors, which are allowed where they say nothing new."""
    match pattern:
        case Anchor(start):
            if not (at_start if start else at_end):
                raise ValueError("an anchor inside a regular expression is not supported")
            return EMPTY
        case Choice(options):
            return Choice(tuple(_without_anchors(option, at_start, at_end) for option in options))
        case Chain(parts):
            last = len(parts) - 1
            return chain(
                _without_anchors(part, at_start and n == 0, at_end and n == last) for n, part in enumerate(parts)
            )
        case Repeat(part, low, high):
            return Repeat(_without_anchors(part, False, False), low, high)
        case _:
            return pattern


class _Set(NamedTuple):
    """What stands in the brackets of a class, or a class in one."""

    source: str
    special: frozenset[str]
    others: bool

    def negated(self) -> _Set:
        return _Set(f"^{self.source}", SPECIAL - self.special, True)

    def bracketed(self) -> _Set:
        return self._replace(source=f"[{self.source}]")


class _Reader:
    def __init__(self, text: str, flags: frozenset[str], whole: bool) -> None:
        self._text = text
        self._at = 0
        self._flags = flags
        self._whole = whole
        self._depth = 0

    def read(self) -> Pattern:
        pattern = self._choice()
        if self._at < len(self._text):
            raise self._fault("a group is closed that was not opened")
        return pattern

    def _fault(self, what: str) -> ValueError:
        return ValueError(f"{what} (at character {self._at} of a regular expression)")

    def _peek(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def _take(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _choice(self) -> Pattern:
        options = [self._row()]
        while self._take("|"):
            options.append(self._row())
        return choice(options)

    def _row(self) -> Pattern:
        parts: list[Pattern] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return chain(parts)

    def _repeated(self, part: Pattern) -> Pattern:
        bounds = self._bounds()
        if bounds is None:
            return part
        if self._take("?") and not self._whole:
            raise self._fault("a lazy quantifier is not supported")
        return Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Those of a quantifier, if one stands here."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if self._peek() != "{":
            return None
        count = self._match(_COUNT)
        if count is None:
            raise self._fault("a quantifier needs its numbers")
        low = int(count[1])
        high = low if not count[2] else int(count[3]) if count[3] else None
        if high is not None and high < low:
            raise self._fault("a quantifier's numbers are in the wrong order")
        return low, high

    def _atom(self) -> Pattern:
        match char := self._peek():
            case "(":
                return self._group()
            case "[":
                return self._chars(self._nested_class())
            case "\\":
                return self._escape()
            case "*" | "+" | "?" | "{":
                raise self._fault("there is nothing to repeat")
        self._at += 1
        match char:
            case ".":
                return Chars(r"[\s\S]", SPECIAL) if "s" in self._flags else Chars(r"[^\n]", SPECIAL - {"\n"})
            case "^" | "$":
                return Anchor(char == "^")
            case _:
                return self._literal(char)

    def _literal(self, char: str) -> Pattern:
        return folded(char) if "i" in self._flags else Literal(char)

    def _chars(self, found: _Set) -> Chars:
        return Chars(found.source, found.special, found.others, "i" in self._flags)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._fault(f"nested deeper than {MAX_NESTING} levels")
        yield
        self._depth -= 1

    def _group(self) -> Pattern:
        self._at += 1
        outside = self._flags
        if self._take("?") and self._match(_GROUP_NAME) is None and not self._set_flags():
            return EMPTY  # The flags hold for the rest of the group that they stand in.
        with self._deeper():
            pattern = self._choice()
        if not self._take(")"):
            raise self._fault("a group is not closed")
        self._flags = outside
        return pattern

    def _set_flags(self) -> bool:
        """Reads `flags:` or `flags)`, and says whether a group follows."""
        found = self._match(_GROUP_FLAGS)
        if found is None:
            raise self._fault(f"`(?{self._peek()}` is not supported")
        on, off, end = found[1], found[2] or "", found[3]
        for flag in on + off:
            _check_flag(flag)
        if "u" in off:
            raise self._fault("matching bytes is not supported")
        self._flags = (self._flags | set(on)) - set(off)
        return end == ":"

    def _escape(self) -> Pattern:
        """An escape outside of classes."""
        if self._take("\\A"):
            return Anchor(True)
        if self._take("\\z"):
            return Anchor(False)
        found = self._escaped()
        return self._literal(found) if isinstance(found, str) else self._chars(found.bracketed())

    def _escaped(self) -> str | _Set:
        """What an escape stands for: a character or a class."""
        found = self._match(_HEX)
        if found is not None:
            return self._code(int(found[found.lastindex or 0], 16))
        category = self._match(_PROPERTY)
        if category is not None:
            return self._category(category[2] or category[3], category[1] == "P")
        escape, char = self._peek(2), self._peek(2)[1:]
        if char in _PERL:
            self._at += 2
            return _Set(escape, _PERL[char], True)
        if char in _NAMED_CHARS or (char.isascii() and char.isprintable() and not char.isalnum() and char not in "<>"):
            self._at += 2
            return _NAMED_CHARS.get(char, char)
        raise self._fault(f"`{escape}` is not supported")

    def _code(self, code: int) -> str:
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise self._fault(f"there is no character {code:X}")
        return chr(code)

    def _category(self, name: str, negated: bool) -> _Set:
        special = _CATEGORIES.get(name)
        if special is None:
            raise self._fault(f"the property {name!r} is not supported; general categories such as `\\p{{Lu}}` are")
        source = rf"\{'P' if negated else 'p'}{{{name}}}"
        return _Set(source, SPECIAL - special if negated else special, True)

    def _nested_class(self) -> _Set:
        self._at += 1
        with self._deeper():
            return self._class()

    def _class(self) -> _Set:
        """A class behind its opening bracket."""
        negated = self._take("^")
        found = self._union(first=True)
        while (operator := self._peek(2)) in _SET_OPERATORS:
            self._at += 2
            found = _combined(operator, found, self._union(first=False))
        if not self._take("]"):
            raise self._fault("a class is not closed")
        return (found.negated() if negated else found).bracketed()

    def _union(self, *, first: bool) -> _Set:
        """Characters, ranges and classes up to an operator or the closing bracket."""
        sets: list[_Set] = []
        if first and self._take("]"):  # The one place where it stands for itself.
            sets.append(_between("]", "]"))
        while first and self._take("-"):
            sets.append(_between("-", "-"))
        while self._peek() not in ("", "]") and self._peek(2) not in _SET_OPERATORS:
            sets.append(self._item())
        if not sets:
            raise self._fault("a class is empty or not closed")
        return _united(sets)

    def _item(self) -> _Set:
        if self._peek() == "[":
            return self._inner_class()
        low = self._class_char()
        if isinstance(low, _Set):
            return low
        if self._peek() != "-" or self._peek(2) in ("-]", "--"):
            return _between(low, low)
        self._at += 1
        high = self._class_char()
        if isinstance(high, _Set) or high < low:
            raise self._fault("a range of a class is not one")
        return _between(low, high)

    def _inner_class(self) -> _Set:
        posix = self._match(_POSIX_CLASS)
        if posix is None:
            return self._nested_class()
        special = _POSIX.get(posix[2])
        if special is None:
            raise self._fault(f"there is no class {posix[2]!r}")
        return _Set(posix[0], SPECIAL - special if posix[1] else special, True)

    def _class_char(self) -> str | _Set:
        if self._peek() == "\\":
            return self._escaped()
        char = self._peek()
        self._at += 1
        return char


def _between(low: str, high: str) -> _Set:
    """The characters from `low` to `high`."""
    special = SPECIAL.intersection(low) if low == high else frozenset(c for c in SPECIAL if low <= c <= high)
    source = spelled(low) if low == high else f"{spelled(low)}-{spelled(high)}"
    return _Set(source, special, len(special) <= ord(high) - ord(low))


def _united(sets: Iterable[_Set]) -> _Set:
    sets = list(sets)
    special = frozenset[str]().union(*(found.special for found in sets))
    return _Set("".join(found.source for found in sets), special, any(found.others for found in sets))


def _combined(operator: str, left: _Set, right: _Set) -> _Set:
    source = f"{left.bracketed().source}{operator}{right.bracketed().source}"
    match operator:
        case "&&":
            return _Set(source, left.special & right.special, left.others and right.others)
        case "--":
            return _Set(source, left.special - right.special, left.others)
        case _:
            return _Set(source, left.special ^ right.special, left.others or right.others)
