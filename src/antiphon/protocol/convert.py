"""From decoded JSON to typed structs, with refusals that name the place (`tools[0].name`) in the request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from antiphon.protocol.errors import RequestRefused

MAX_DEPTH = 64
"""Nesting of free-form JSON (schemas, template arguments). Real tool schemas stay below 20; the recursive readers
behind us (templates, grammars) get into trouble some hundreds deep."""

_T = TypeVar("_T")
# The last one counts, and it has no backtick: the words before it may quote the client.
_AT = re.compile(r" - at `\$([^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def decode_json(body: bytes) -> dict[str, Any]:
    """The JSON object of a request body. Raises `RequestRefused` for anything else."""
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _has_half_characters(body):
            message = "A string of the body holds half of a surrogate pair, which is no character."
            raise RequestRefused(message, code="invalid_json") from None
        raise RequestRefused(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    except RecursionError:
        raise RequestRefused("The body is nested too deeply.", code="invalid_json") from None
    if not isinstance(data, dict):
        raise RequestRefused("The body must be a JSON object.", code="invalid_type")
    return data


def _has_half_characters(body: bytes) -> bool:
    """Whether a body that our reader refused is JSON but for lone surrogates, which Python's own reader lets pass."""
    if b"\\u" not in body:
        return False
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def convert(data: Any, kind: type[_T], path: str = "") -> _T:
    """`data` as `kind`; `path` is where it stands in the request. Strict: 1 is no boolean, "1" no number."""
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), path) from None


def convert_tagged(data: Any, kinds: Mapping[str, type[_T]], path: str, what: str) -> _T:
    """An object whose `type` chooses one of `kinds`."""
    if not isinstance(data, dict):
        raise RequestRefused(f"Expected {what}, an object.", param=path, code="invalid_type")
    name = data.get("type")
    if name is None:
        raise RequestRefused(f"Missing `type` of {what}.", param=f"{path}.type", code="missing_required_parameter")
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(sorted(kinds))
        raise RequestRefused(f"Unknown type of {what}: expected one of {known}.", param=f"{path}.type")
    return convert(data, kind, path)


def check_depth(data: dict[str, Any] | None, path: str) -> None:
    """Refuses free-form JSON that is nested deeper than `MAX_DEPTH`."""
    level: list[Any] = [data or {}]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise RequestRefused(f"Nested deeper than {MAX_DEPTH} levels.", param=path)


def _children(node: dict[str, Any] | list[Any]) -> list[Any]:
    """The objects and arrays inside `node`; what cannot nest is no level."""
    values = node.values() if isinstance(node, dict) else node
    return [value for value in values if isinstance(value, dict | list)]


def _refusal(message: str, path: str) -> RequestRefused:
    at = _AT.search(message)
    text = message[: at.start()] if at else message
    # msgspec writes `[...]` for "a value of this object": the object is the nearest place with a name.
    param = (path + at.group(1) if at else path).replace("[...]", "").lstrip(".") or None
    missing = _MISSING.search(text)
    if missing:
        param = f"{param}.{missing.group(1)}" if param else missing.group(1)
    # `null` means absent; inside an array or a map it is a value of the wrong type.
    if missing or (at and text.endswith("got `null`") and not at.group(1).endswith("]")):
        return RequestRefused(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
    code = "invalid_type" if text.startswith("Expected") and "`, got `" in text else "invalid_value"
    return RequestRefused(f"Invalid '{param}': {text}." if param else f"{text}.", param=param, code=code)
