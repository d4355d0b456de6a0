"""What the grammar lets through as a call in an XML-like form. `xml_calls` reads every text of it as that call.

Rules
* Of a strict tool the parameters come in the order of its schema, the required ones always, each with a value that the
  schema describes. Of others any of the declared parameters come in any order; without any, whatever has a name.
* A value that may be a string is plain text, any other one JSON. The input of a tool that has a grammar for it is plain
  text that obeys this and does not hold the end of a value.
* Text goes on until the end of a value that is one (`xml_calls`). Where the end of the call is the tag's, the grammar
  of the tags is to follow, so the first end of a value ends the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from antiphon.text.dialects.flow import WHITESPACE
from antiphon.text.dialects.xml_strings import ANNOTATIONS, Unsayable, texts
from antiphon.text.dialects.xml_syntax import GAP_LIMIT, Shape, Syntax
from antiphon.text.dialects.xml_types import QUOTED, STRING, parameter_schema, parameter_types
from antiphon.text.dialects.xml_values import ValueWriter
from antiphon.text.lark import Lark
from antiphon.text.messages import InputGrammar, ToolDefinition

# Where templates write one newline or nothing.
SPACE = r"[ \t\r\n]{0,4}"

# Of a tool that declares no parameters.
ANY_KEY = "[A-Za-z0-9_.-]{1,64}"

# What `strict` may ask of all arguments together.
_OF_OBJECTS = ANNOTATIONS | {"type", "properties", "required", "additionalProperties", "unevaluatedProperties"}

_KEY = re.compile(rf'[^{WHITESPACE}<>"](?:[^\r\n<>"]*[^{WHITESPACE}<>"])?')


class _Parameter(Struct, frozen=True):
    key: str  # an expression for its name
    types: frozenset[str]
    schema: object
    required: bool = False


def call_rule(syntax: Syntax, lark: Lark, tool: ToolDefinition) -> str:
    """`Calling.call` of a form. Raises `ValueError` if the tool's schema cannot be enforced in it, with the reason."""
    return _Call(syntax, lark, tool).rule()


class _Call:
    """The grammar of one tool's calls."""

    def __init__(self, syntax: Syntax, lark: Lark, tool: ToolDefinition) -> None:
        self._syntax = syntax
        self._lark = lark
        self._tool = tool
        self._end = "" if syntax.closing == syntax.tags.closing else syntax.closing  # as far as it is ours
        self._line = "\n" if syntax.lines else ""  # before and behind a text
        self._space = lark.matching(SPACE)

    def rule(self) -> str:
        name = self._syntax.name
        opening = "" if name.opening == self._syntax.tags.opening else name.opening
        if self._tool.input is not None:
            parameters = self._input(self._tool.input)
        else:
            parameters = self._in_order() if self._tool.strict else self._in_any_order()
        named = f"{self._spelled(opening)} {self._lark.literal(self._tool.name)} {self._spelled(name.closing)}"
        return f"{named} {self._space} {parameters}"

    def _input(self, grammar: InputGrammar) -> str:
        """The one parameter of a tool whose input obeys a grammar. Raises as `Lark.input_before`."""
        key, value_end = self._syntax.key, self._syntax.value_end
        opening = next(opening for opening, shape in self._syntax.values.items() if shape is not Shape.JSON)
        text, token = self._halves()
        stopped = self._lark.input_before(grammar, without=value_end, end=self._line + text)
        head = f"{self._spelled(key.opening)} {self._lark.literal('input')} {self._spelled(key.closing)}"
        value = f"{self._space} {self._spelled(opening)} {self._lark.literal(self._line)} {stopped}"
        return f"{head} {value} {self._spelled(token)} {self._gap(self._end)}"

    def _in_any_order(self) -> str:
        key, end = self._syntax.key.opening, self._end
        parameters = self._declared() or [_Parameter(self._lark.matching(ANY_KEY), STRING | {QUOTED}, {})]
        another = self._lark.rule(_one_of(self._parameter(each, key) for each in parameters))
        last = self._lark.rule(_one_of(self._parameter(each, end) for each in parameters))
        return _one_of([f"{self._spelled(key)} {another}* {last}", self._spelled(end)])

    def _in_order(self) -> str:
        asked = self._tool.parameters.keys() - _OF_OBJECTS
        if asked:
            raise Unsayable(min(asked))
        rest = ""  # what may come behind the marker of a next parameter
        may_end = True
        for parameter in reversed(self._declared()):
            ways = [f"{self._parameter(parameter, self._syntax.key.opening)} {rest}"] if rest else []
            if may_end:
                ways.append(self._parameter(parameter, self._end))
            if rest and not parameter.required:
                ways.append(rest)
            rest = self._lark.rule(_one_of(ways))
            may_end = may_end and not parameter.required
        begun = [f"{self._spelled(self._syntax.key.opening)} {rest}"] if rest else []
        return _one_of([*begun, *([self._spelled(self._end)] if may_end else [])])

    def _declared(self) -> list[_Parameter]:
        schema = self._tool.parameters
        required = _names(schema.get("required"))
        keys = dict.fromkeys([*_names(schema.get("properties")), *(required if self._tool.strict else ())])
        return [
            _Parameter(
                self._key(key), parameter_types(schema, key), parameter_schema(schema, key), required=key in required
            )
            for key in keys
        ]

    def _key(self, key: str) -> str:
        if not _KEY.fullmatch(key):
            raise ValueError(f"a parameter named {key!r} cannot be written in this model's form")
        return self._lark.literal(key)

    def _parameter(self, parameter: _Parameter, then: str) -> str:
        """A parameter behind its opening marker, up to and with what follows it."""
        ways: list[str] = []
        for opening, shape in self._syntax.values.items():
            head = f"{self._space} {self._lark.spelled(opening)}" if opening else ""
            if shape is not Shape.JSON and "string" in parameter.types:
                ways.append(f"{head} {self._texts(parameter, shape, then)}")
            elif shape is Shape.SCHEMA or (shape is Shape.JSON and parameter.types != STRING):
                ways.append(f"{head} {self._closed(f'{self._space} {self._json(parameter)} {self._space}', then)}")
        return f"{parameter.key} {self._spelled(self._syntax.key.closing)} {_one_of(ways)}"

    def _json(self, parameter: _Parameter) -> str:
        schema = parameter.schema
        if not self._tool.strict:
            types = sorted(parameter.types - {QUOTED})
            return self._lark.json(True if QUOTED in parameter.types else {"type": types})
        assert isinstance(schema, Mapping), "what says nothing is a string"
        spelled = json.dumps(schema)
        if '"$ref": "#"' in spelled:
            raise Unsayable("$ref")
        root = self._tool.parameters
        with_defs = dict(schema)
        if '"$ref"' in spelled:
            with_defs |= {name: root[name] for name in ("$defs", "definitions") if name in root}
        return self._lark.json(with_defs)

    def _texts(self, parameter: _Parameter, shape: Shape, then: str) -> str:
        """Plain text behind what opens the value."""
        line = self._lark.literal(self._line)
        said = texts(parameter.schema, self._tool.parameters) if self._tool.strict else None
        if said is None or said.free or said.filled:
            return f"{line} {self._free(then, filled=said is not None and not said.free)}"
        types = STRING if shape is Shape.STRING else parameter.types
        values = [value for value in said.values if isinstance(value, str) or shape is Shape.SCHEMA]
        numbers = said.numbers if shape is Shape.SCHEMA else ()
        ways = [self._value(value, types) for value in values]
        ways += [self._lark.json({"type": name}) for name in numbers]
        closed = [self._closed(f"{way} {line}", then) for way in ways]
        closed += [self._matching(pattern, then) for pattern in said.patterns]
        if not closed:
            raise Unsayable("enum")
        return f"{line} {_one_of(closed)}"

    def _value(self, value: Any, types: frozenset[str]) -> str:
        """The text of one value. Raises `Unsayable` if it would be read as another one."""
        text = value if isinstance(value, str) else _compact(value)
        writer = ValueWriter(types)
        read = writer.opening + writer.add(text) + writer.close()
        if read != _compact(value) or self._syntax.value_end in text:
            raise Unsayable("enum")
        return self._lark.literal(text)

    def _free(self, then: str, *, filled: bool) -> str:
        text, token = self._halves()
        if token or not self._end:
            stopped = self._lark.matching(_until(self._syntax.value_end, text, filled=filled))
            return f"{stopped} {self._spelled(token)} {self._gap(then)}"
        return self._lark.matching(_until_followed(text, then, self._syntax.following, filled=filled))

    def _matching(self, regex: str, then: str) -> str:
        """Text that a regular expression matches which stops at the end of a value by itself."""
        text, token = self._halves()
        stopped = self._lark.matching(f"(?:{regex}){_escaped(self._line + text)}")
        return f"{stopped} {self._spelled(token)} {self._gap(then)}"

    def _closed(self, value: str, then: str) -> str:
        return f"{value} {self._spelled(self._syntax.value_end)} {self._gap(then)}"

    def _gap(self, then: str) -> str:
        return f"{self._space} {self._lark.spelled(then)}" if then else ""

    def _halves(self) -> tuple[str, str]:
        """The end of a value up to its first control token, and from there on."""
        end = self._syntax.value_end
        tokens = [part for part in self._syntax.parts if self._lark.spelled(part) != self._lark.literal(part)]
        at = min((end.index(token) for token in tokens if token in end), default=len(end))
        return end[:at], end[at:]

    def _spelled(self, text: str) -> str:
        return self._lark.spelled(text) if text else ""


def _names(names: object) -> list[str]:
    """Of a schema that may be none."""
    return [name for name in names if isinstance(name, str)] if isinstance(names, list | Mapping) else []


def _one_of(ways: Iterable[str]) -> str:
    """Any of these expressions; an empty one makes all of them optional."""
    distinct = dict.fromkeys(ways)
    filled = [way for way in distinct if way]
    return f"({' | '.join(filled)}){'?' if '' in distinct else ''}" if filled else ""


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _until(end: str, stop: str, *, filled: bool) -> str:
    """A regular expression: text without `end`, and a `stop`, which begins it."""
    return _text(f"<{_others([end[1:]])}", _escaped(stop), filled=filled)


def _until_followed(end: str, then: str, following: Collection[str], *, filled: bool) -> str:
    """A regular expression: text up to the first `end` behind which, with little whitespace between, one of `following`
    stands; and that, which must be `then`."""
    space = r"[ \t\r\n]"
    ending = f"{_escaped(end)}{space}{{0,{GAP_LIMIT}}}"
    harmless = rf"{_escaped(end)}(?:{space}{{0,{GAP_LIMIT}}}[^< \t\r\n]|{space}{{{GAP_LIMIT + 1}}})[^<]*"
    other = f"<{_others([end[1:]])}"
    unfollowing = f"<{_others([end[1:], *(marker[1:] for marker in following)])}"
    block = f"(?:{other}|{harmless}|(?:{ending})+(?:{unfollowing}|{harmless}))"
    last = f"{ending}{_escaped(then)}"
    text = _text(block, f"(?:{ending})*{last}", filled=False)
    if not filled:
        return text
    return f"{_text(block, f'(?:{ending})*{last}', filled=True)}|\\n?(?:{ending})+{last}"


def _text(block: str, end: str, *, filled: bool) -> str:
    """A regular expression: text made of what has no `<` and of `block`s, which begin with one each, and an end.

    Filled, it is not empty, and not a newline alone, which may be that behind the value.
    """
    if filled:
        return rf"(?:[^<\n][^<]*(?:{block})*|\n[^<]+(?:{block})*|\n?(?:{block})+){end}"
    return f"[^<]*(?:{block})*{end}"


def _others(words: Collection[str]) -> str:
    """A regular expression: text without `<`, perhaps empty, that begins with none of the words."""
    rests: dict[str, list[str]] = {}
    for word in words:
        rests.setdefault(word[0], []).append(word[1:])
    ways = [f"[^<{''.join(map(_escaped, sorted(rests)))}][^<]*"]
    ways += [f"{_escaped(first)}{_others(rest)}" for first, rest in sorted(rests.items()) if "" not in rest]
    return f"(?:{'|'.join(ways)})?"


def _escaped(text: str) -> str:
    """The text in a regular expression of Rust between slashes."""
    return re.sub(r"[\\.+*?()|\[\]{}^$/-]", r"\\\g<0>", text).replace("\n", r"\n")
