"""What the grammar of a call needs whose arguments are written key by key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from antiphon.text.lark import Lark
from antiphon.text.messages import InputGrammar, ToolDefinition

Schema = Mapping[str, Any] | bool

# Where definitions stand that a property's schema may refer to.
DEFINITIONS = ("$defs", "definitions")
REFERENCES = tuple(f"#/{where}/" for where in DEFINITIONS)

# At the top of a tool's schema these say more of the arguments than which keys there are and what each one's value is.
INEXPRESSIBLE = (
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "const", "enum", "minProperties", "maxProperties",
    "patternProperties", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies",
)  # fmt: skip


def property_schemas(tool: ToolDefinition) -> dict[str, Schema]:
    """The schemas of the arguments; that of any JSON value if the tool is not strict. Raises `ValueError` if they are
    no schemas."""
    properties: dict[str, Schema] = tool.parameters.get("properties", {})
    if not are_schemas(properties):
        raise ValueError(f"`properties` of {tool.name!r} must hold a schema for each key")
    return properties if tool.strict else dict.fromkeys(properties, True)


def alone(schema: Schema, whole: Mapping[str, Any]) -> Schema:
    """A part of a whole schema, with the definitions that it may refer to."""
    shared = {where: whole[where] for where in DEFINITIONS if where in whole}
    return schema if isinstance(schema, bool) else {**schema, **shared}


def strict_keys(tool: ToolDefinition) -> list[str]:
    """The keys that a strict tool's call must have.

    Raises `ValueError` if its schema asks for more than keys, or its parts refer to more than definitions.
    """
    for keyword in INEXPRESSIBLE:
        if keyword in tool.parameters:
            raise ValueError(f"`{keyword}` at the top of the parameters of {tool.name!r}: calls are written key by key")
    _check_references(tool.parameters)
    required: list[str] = tool.parameters.get("required", [])
    if not are_keys(required, tool.parameters.get("properties", {})):
        raise ValueError(f"`required` of {tool.name!r} must be a list of keys of its `properties`")
    return required


def _check_references(schema: object) -> None:
    """The schemas of arguments are taken out of the whole, and its definitions with them: nothing else comes along."""
    if isinstance(schema, list):
        for part in schema:
            _check_references(part)
    elif isinstance(schema, dict):
        reference = schema.get("$ref", "")
        if isinstance(reference, str) and reference and not reference.startswith(REFERENCES):
            raise ValueError(f"`$ref` to {reference!r}: calls are written key by key, with references to definitions")
        for part in schema.values():
            _check_references(part)


def are_schemas(properties: object) -> bool:
    """Whether it holds a schema for each key."""
    return isinstance(properties, dict) and all(isinstance(schema, dict | bool) for schema in properties.values())


def are_keys(required: object, properties: Mapping[str, Any]) -> bool:
    """Whether it is a list of some of these keys."""
    return isinstance(required, list) and all(isinstance(key, str) and key in properties for key in required)


def takes_any_key(tool: ToolDefinition) -> bool:
    """Whether the schema does not say which keys there are."""
    return bool(tool.parameters) and "properties" not in tool.parameters


def members(lark: Lark, written: dict[str, str], required: Collection[str], comma: str) -> str:
    """Members in their order: the `required` ones, and any of the others. Empty if there are none.

    `written`: expressions for the members, by their keys; `comma`: one for what stands between two.
    """
    behind = ""  # what may follow a member
    firsts: list[str] = []  # what the members may begin with
    for key, member in reversed(written.items()):
        rest = lark.rule(behind) if behind else ""
        if key in required:
            firsts.clear()
        firsts.insert(0, f"{member} {rest}")
        behind = f"{comma} {member} {rest}" if key in required else f"({comma} {member})? {rest}"
    if not firsts:
        return ""
    return f"({' | '.join(firsts)})" + ("" if any(key in required for key in written) else "?")


def any_members(lark: Lark, member: str, comma: str) -> str:
    """Any number of members. Empty if there are none."""
    one = lark.rule(member) if member else ""
    return f"({one} ({comma} {one})*)?" if one else ""


def input_member(lark: Lark, opening: str, grammar: InputGrammar) -> str:
    """The one member of a tool whose input is a text. `opening` ends with a double quote: the text is a JSON string.

    Raises `ValueError` naming what of the grammar cannot be taken.
    """
    return f'{lark.literal(opening)} {lark.input_text(grammar)} "\\""'
