"""What JSON a parameter may be, by the schema of a tool's arguments.

Only the kind of value is asked for, since only that decides how its text is read. A keyword that says nothing about the
kind counts for nothing; a schema that says nothing at all is taken for a string, the one kind that loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

STRING = frozenset({"string"})

# A spelled JSON string. Apart from `string`, whose text stands without quotes in these forms.
QUOTED = "quoted"
ANY_JSON = frozenset({"object", "array", "integer", "number", "boolean", "null", QUOTED})
_NAMES = ANY_JSON - {QUOTED} | STRING

# Schemas in schemas that are looked into. Real ones have three or four; clients send them, so there must be an end.
DEPTH_LIMIT = 32


def parameter_types(arguments: Mapping[str, Any], key: str) -> frozenset[str]:
    """The types that a parameter may have, as JSON Schema names them; `arguments` is the schema of all of them."""
    return _Types(arguments).of(parameter_schema(arguments, key), 0) or STRING


def parameter_schema(arguments: Mapping[str, Any], key: str) -> object:
    """The schema of one parameter, None if there is none: of those without a property, `additionalProperties`."""
    properties = arguments.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    return arguments.get("additionalProperties")


def referred(root: Mapping[str, Any], reference: object) -> object:
    """What a `$ref` into the same document stands for; None if it leads nowhere."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    node: object = root
    for step in reference.split("/")[1:]:
        node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
    return node


def types_of(value: object) -> frozenset[str]:
    """The types that a value of JSON has."""
    match value:
        case bool():
            return frozenset({"boolean"})
        case int():
            return frozenset({"integer", "number"})
        case float():
            return frozenset({"integer", "number"} if value.is_integer() else {"number"})
        case str():
            return frozenset({QUOTED})
        case list():
            return frozenset({"array"})
        case dict():
            return frozenset({"object"})
    return frozenset({"null"})


class _Types:
    """Types by schema, within one document."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._referred: dict[str, frozenset[str] | None] = {}

    def of(self, schema: object, depth: int) -> frozenset[str] | None:
        """None: it says nothing of them. A reference to what is just being read adds no type."""
        if not isinstance(schema, Mapping) or depth > DEPTH_LIMIT:
            return None
        said = [
            _named(schema.get("type")),
            _of_values(schema),
            self._any_of(schema.get("anyOf"), depth),
            self._any_of(schema.get("oneOf"), depth),
            self._of_reference(schema.get("$ref"), depth),
            *(self.of(member, depth + 1) for member in _members(schema.get("allOf"))),
        ]
        types = [each for each in said if each is not None]
        return frozenset.intersection(*types) if types else None

    def _any_of(self, members: object, depth: int) -> frozenset[str] | None:
        if not _members(members):
            return None
        each = (self.of(member, depth + 1) for member in _members(members))
        return frozenset[str]().union(*(STRING if types is None else types for types in each))

    def _of_reference(self, reference: object, depth: int) -> frozenset[str] | None:
        if not isinstance(reference, str):
            return None
        if reference not in self._referred:
            self._referred[reference] = frozenset()
            self._referred[reference] = self.of(referred(self._root, reference), depth + 1)
        return self._referred[reference]


def _members(members: object) -> list[object]:
    return members if isinstance(members, list) else []


def _named(types: object) -> frozenset[str] | None:
    """Of `type`. Every integer is a number, too."""
    each = types if isinstance(types, list) else [types]
    names = _NAMES.intersection(name for name in each if isinstance(name, str))
    return names | {"integer"} if "number" in names else names or None


def _of_values(schema: Mapping[str, Any]) -> frozenset[str] | None:
    if "const" in schema:
        return _of_all([schema["const"]])
    values = schema.get("enum")
    return _of_all(values) if isinstance(values, list) and values else None


def _of_all(values: Iterable[object]) -> frozenset[str]:
    types = frozenset[str]().union(*map(types_of, values))
    return types - {QUOTED} | STRING if QUOTED in types else types
