"""What a strict schema asks of a string, as far as it can be said of text that stands without quotes.

Such a text ends at a marker, so a regular expression for it must not run over one: those here match no `<`, which
begins every marker. What cannot be said is refused by the name of its keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct

from antiphon.text.dialects.xml_types import DEPTH_LIMIT, referred

# Keywords that ask for nothing.
ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"$comment", "$defs", "definitions", "$schema", "$id"}
)

_COMPOSED = ("$ref", "anyOf", "oneOf", "allOf")
_NEVER_SAID = ("not", "if", "format")
_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")

# The parts of a simple pattern: an escape, a class that is not negated, a character that stands for itself; a group,
# its end, an alternative; a repetition. Two characters that Rust reads as an operation between classes are left out.
_ESCAPE = r"\\[dws.*+?()\[\]{}|^$/\\-]"
_PATTERN_PART = re.compile(
    rf"(?P<one>{_ESCAPE}|\[(?!\^)(?:{_ESCAPE}|(?!--|&&|~~|\|\|)[^\]\[\\\x00-\x1f])+\]|[^\\\[\](){{}}|*+?.^$\x00-\x1f])"
    r"|(?P<open>\((?:\?:|(?!\?)))|(?P<close>\))|(?P<or>\|)|[*+?]|\{\d+(?:,\d*)?\}"
)
_ESCAPED = re.compile(r"\\(.)|/")
# JSON Schema's patterns are those of ECMA-262, where these are ASCII.
_ASCII = {"d": "0-9", "w": "0-9A-Za-z_"}


class Unsayable(ValueError):
    """A keyword that cannot be enforced where values are plain text. The text says which."""

    def __init__(self, keyword: str) -> None:
        super().__init__(f"`{keyword}` cannot be enforced in this model's calls, whose arguments are plain text")


class Texts(Struct, frozen=True, kw_only=True):
    """What the text of a value may be: any of these."""

    free: bool = False  # any text
    filled: bool = False  # any text but none
    patterns: tuple[str, ...] = ()  # regular expressions, as the grammar spells them
    values: tuple[Any, ...] = ()  # these values alone
    numbers: tuple[str, ...] = ()  # any number of these types


# Alternatives of a value. Those that refer to alternatives multiply: a few lines of schema can spell more than memory.
MAX_ALTERNATIVES = 1024


def texts(schema: object, root: Mapping[str, Any]) -> Texts:
    """What the text of a value may be that the schema describes, within the document `root`. Raises `Unsayable`."""
    leaves = list(islice(_leaves(schema, root, 0), MAX_ALTERNATIVES + 1))
    if len(leaves) > MAX_ALTERNATIVES:
        raise Unsayable("anyOf")
    return _any_of(map(_texts, leaves))


def _any_of(each: Iterable[Texts]) -> Texts:
    every = list(each)
    return Texts(
        free=any(one.free for one in every),
        filled=any(one.filled for one in every),
        patterns=tuple(pattern for one in every for pattern in one.patterns),
        values=tuple(value for one in every for value in one.values),
        numbers=tuple(number for one in every for number in one.numbers),
    )


def _leaves(schema: object, root: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """The alternatives of a schema, none of which refers to another or has alternatives itself."""
    if not isinstance(schema, Mapping):
        yield {}
        return
    keyword = next((keyword for keyword in _COMPOSED if keyword in schema), None)
    if keyword is None:
        yield schema
        return
    rest = {name: asked for name, asked in schema.items() if name != keyword}
    members = [referred(root, schema[keyword])] if keyword == "$ref" else schema[keyword]
    if not isinstance(members, list) or not all(isinstance(member, Mapping) for member in members):
        raise Unsayable(keyword)
    together = len(members) == 1 if keyword in ("$ref", "allOf") else rest.keys() <= ANNOTATIONS
    if not together or depth > DEPTH_LIMIT:
        raise Unsayable(keyword)
    for member in members:
        yield from _leaves({**rest, **member}, root, depth + 1)


def _texts(leaf: Mapping[str, Any]) -> Texts:
    if "const" in leaf:
        return Texts(values=(leaf["const"],))
    if "enum" in leaf:
        return Texts(values=tuple(_of_kind(leaf, "enum", list, [])))
    named = leaf.get("type", "string")
    types = named if isinstance(named, list) else [named]
    numbers = tuple(name for name in types if name in ("integer", "number"))
    asked = [*_NEVER_SAID, *(_NUMERIC if numbers else ())]
    unsayable = [keyword for keyword in asked if keyword in leaf]
    if unsayable or "object" in types or "array" in types:
        raise Unsayable([*unsayable, "type"][0])
    words = ((None,) if "null" in types else ()) + ((True, False) if "boolean" in types else ())
    return _any_of([Texts(values=words, numbers=numbers), *([_string(leaf)] if "string" in types else [])])


def _string(leaf: Mapping[str, Any]) -> Texts:
    least, most = _of_kind(leaf, "minLength", int, 0), _of_kind(leaf, "maxLength", int, None)
    if "pattern" in leaf:
        if least or most is not None:
            raise Unsayable("pattern")
        return Texts(patterns=(_anchored(_of_kind(leaf, "pattern", str, "")),))
    if most is None and least <= 1:
        return Texts(free=least < 1, filled=least == 1)
    return Texts(patterns=(f"[^<]{{{max(least, 0)},{'' if most is None else most}}}",))


def _of_kind(leaf: Mapping[str, Any], keyword: str, kind: type, default: Any) -> Any:
    """What a schema that may be none says. Raises `Unsayable`."""
    asked = leaf.get(keyword, default)
    if keyword in leaf and not isinstance(asked, kind):
        raise Unsayable(keyword)
    return asked


def _anchored(pattern: str) -> str:
    """The part between `^` and `$`, as the grammar spells it. Raises `Unsayable` if it is not simple."""
    body = pattern[1:-1]
    if f"^{body}$" != pattern:
        raise Unsayable("pattern")
    spelled: list[str] = []
    at = depth = 0
    while at < len(body):
        part = _PATTERN_PART.match(body, at)
        if part is None or (part["one"] and _may_be_angle(part["one"])) or (part["or"] and not depth):
            raise Unsayable("pattern")
        depth += bool(part["open"]) - bool(part["close"])
        if depth < 0:
            raise Unsayable("pattern")
        spelled.append(_spelled(part[0]))
        at = part.end()
    if depth:
        raise Unsayable("pattern")
    return "".join(spelled)


def _may_be_angle(part: str) -> bool:
    try:
        return re.fullmatch(part, "<") is not None
    except re.error:  # Such as a range that is none: whatever it is, it is not simple.
        return True


def _spelled(part: str) -> str:
    """A part of a pattern as Rust's `regex` reads it between slashes."""

    def escaped(match: re.Match[str]) -> str:
        if match[0] == "/":
            return r"\/"
        characters = _ASCII.get(match[1])
        if characters is None:
            return match[0]
        return characters if part.startswith("[") else f"[{characters}]"

    return _ESCAPED.sub(escaped, part)
