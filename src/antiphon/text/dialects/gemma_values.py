"""The grammar of values as Gemma writes them in calls, from a JSON Schema.

Rule: the family's own form is asked for where it can hold a value to its schema. Where it cannot (a pattern, a bound),
the value is asked for as JSON, which the reader takes as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.text.dialects.keyed_grammar import DEFINITIONS, Schema, alone, any_members, are_keys, are_schemas, members
from antiphon.text.lark import Lark

COMMA = '","'

# How deep a value may be nested that no schema describes. No tool needs more, and a model that goes on opening brackets
# must come to an end.
DEPTH = 6

# Keys that may stand without quotes.
_BARE_KEY = re.compile(r"[A-Za-z0-9_$@.-]{1,128}")
_ANY_KEY = "[A-Za-z_][A-Za-z0-9_-]{0,63}:"

_INTEGER = "-?(0|[1-9][0-9]{0,17})"
_SCALARS = {
    "integer": _INTEGER,
    "number": rf"{_INTEGER}(\.[0-9]{{1,17}})?([eE][+-]?[0-9]{{1,3}})?",
    "boolean": "true|false",
    "null": "null",
}

# Keywords that say nothing of a value.
_REMARKS = {
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id",
    *DEFINITIONS,
}  # fmt: skip


class GemmaValues:
    """Gives expressions. An expression of the own form is empty where that form cannot hold a value to its schema."""

    def __init__(self, lark: Lark, delimiter: str, whole: Mapping[str, Any]) -> None:
        """`delimiter`: of strings. `whole`: the schema with the definitions that its parts refer to."""
        self._lark = lark
        self._delimiter = delimiter
        self._whole = whole
        self._referred: dict[str, str] = {}  # values in the own form, by reference

    def pair(self, key: str, schema: Schema) -> str:
        written = key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
        return f"{self._lark.literal(f'{written}:')} {self.value(schema)}"

    def any_pairs(self, schema: Schema) -> str:
        """Pairs of any keys and of values that the schema describes."""
        return any_members(self._lark, f"{self._any_key()} {self.value(schema)}", COMMA)

    def value(self, schema: Schema) -> str:
        """A value that the schema describes, as JSON if need be."""
        return self._own(schema) or self._lark.json(alone(schema, self._whole))

    def _own(self, schema: object) -> str:
        if schema is True:
            return self._any()
        if not isinstance(schema, dict):
            return ""
        said = {keyword: value for keyword, value in schema.items() if keyword not in _REMARKS}
        if not said:
            return self._any()
        if "enum" in said or "const" in said:
            return self._constants(said) if len(said.keys() - {"type"}) == 1 else ""
        return self._by_one_keyword(said) if len(said) == 1 else self._by_type(said)

    def _by_one_keyword(self, said: Mapping[str, Any]) -> str:
        match said:
            case {"$ref": str(reference)}:
                return self._reference(reference)
            case {"anyOf": [*schemas]}:
                return _one_of(map(self._own, schemas))
            case {"allOf": [schema]}:
                return self._own(schema)
            case {"type": [*kinds]}:
                return _one_of(self._own({"type": kind}) for kind in kinds)
        return self._by_type(said)

    def _by_type(self, said: Mapping[str, Any]) -> str:
        kind, others = said.get("type"), said.keys() - {"type"}
        if kind == "array" and others <= {"items"}:
            return self._array(said.get("items", True))
        if kind == "object" and others <= {"properties", "required", "additionalProperties"}:
            return self._object(said)
        if kind == "string" and not others:
            return self._string()
        return self._scalar(kind) if isinstance(kind, str) and not others else ""

    def _scalar(self, kind: str) -> str:
        return self._lark.matching(_SCALARS[kind]) if kind in _SCALARS else ""

    def _string(self) -> str:
        return f"{self._lark.spelled(self._delimiter)} {self._lark.until(self._delimiter)}"

    def _array(self, items: object) -> str:
        if not isinstance(items, dict | bool):
            return ""
        return self._lark.rule(f'"[" {any_members(self._lark, self.value(items), COMMA)} "]"')

    def _object(self, said: Mapping[str, Any]) -> str:
        properties, required = said.get("properties", {}), said.get("required", [])
        others = said.get("additionalProperties", True)
        if not are_schemas(properties) or not are_keys(required, properties) or not isinstance(others, dict | bool):
            return ""
        written = {key: self.pair(key, schema) for key, schema in properties.items()}
        pairs = members(self._lark, written, required, COMMA)
        if not written and others is not False:
            pairs = self.any_pairs(others)
        return self._lark.rule(f'"{{" {pairs} "}}"')

    def _any_key(self) -> str:
        return self._lark.rule(f'{self._lark.matching(_ANY_KEY)} | {self._string()} ":"')

    def _any(self) -> str:
        lark = self._lark
        value = flat = lark.rule(" | ".join([self._string(), *map(self._scalar, ("number", "boolean", "null"))]))
        for _ in range(DEPTH):
            items, pairs = any_members(lark, value, COMMA), any_members(lark, f"{self._any_key()} {value}", COMMA)
            value = lark.rule(f'{flat} | "[" {items} "]" | "{{" {pairs} "}}"')
        return value

    def _constants(self, said: Mapping[str, Any]) -> str:
        """The values of `enum` or `const` that are of the type, if one is given."""
        values, kinds = said.get("enum", [said.get("const")]), said.get("type", [])
        allowed = [kinds] if isinstance(kinds, str) else kinds
        if not isinstance(values, list) or not isinstance(allowed, list):
            return ""
        kept = [value for value in values if not allowed or any(kind in allowed for kind in _kinds(value))]
        return _one_of(map(self._constant, kept))

    def _constant(self, value: object) -> str:
        lark, delimiter = self._lark, self._delimiter
        if not isinstance(value, str):
            return lark.literal(json.dumps(value)) if not isinstance(value, dict | list) else ""
        if delimiter in value:
            return ""
        return " ".join(filter(None, [lark.spelled(delimiter), lark.literal(value), lark.spelled(delimiter)]))

    def _reference(self, reference: str) -> str:
        """What it refers to; again within itself it is JSON, whose grammar can hold itself."""
        if reference not in self._referred:
            self._referred[reference] = ""
            own = self._own(self._target(reference))
            # A rule of its own: what is written out at each place doubles with each level.
            self._referred[reference] = self._lark.rule(own) if own else ""
        return self._referred[reference]

    def _target(self, reference: str) -> object:
        """Of a reference into the definitions. None if it leads nowhere."""
        where, _, name = reference.removeprefix("#/").partition("/")
        definitions = self._whole.get(where)
        return definitions.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(definitions, dict) else None


def _kinds(value: object) -> set[str]:
    """The types of JSON Schema that a scalar has."""
    match value:
        case str():
            return {"string"}
        case bool():
            return {"boolean"}
        case None:
            return {"null"}
        case int():
            return {"integer", "number"}
    return {"number"}


def _one_of(expressions: Iterable[str]) -> str:
    each = list(expressions)
    return f"({' | '.join(each)})" if each and all(each) else ""
