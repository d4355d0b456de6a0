"""Kinds of JSON values, and what keeps a value from being of a kind. The tables are written in these."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard


class Kind(Protocol):
    def faults(self, value: Any, path: str) -> Iterator[str]:
        """A sentence for each place where `value`, which stands at `path`, is not of this kind."""
        ...


@dataclass(frozen=True)
class Is:
    """A value for which `test` holds; `name` says what it should be."""

    name: str
    test: Callable[[Any], bool]

    def faults(self, value: Any, path: str) -> Iterator[str]:
        if not self.test(value):
            yield f"{path} is not {self.name}"


@dataclass(frozen=True)
class Nullable:
    kind: Kind

    def faults(self, value: Any, path: str) -> Iterator[str]:
        if value is not None:
            yield from self.kind.faults(value, path)


@dataclass(frozen=True)
class ListOf:
    kind: Kind

    def faults(self, value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{path} is not an array"
            return
        for index, entry in enumerate(value):
            yield from self.kind.faults(entry, f"{path}[{index}]")


@dataclass(frozen=True)
class Record:
    """An object that has every key of `required`, and perhaps those of `optional`; other keys are nobody's business."""

    required: Mapping[str, Kind]
    optional: Mapping[str, Kind] = field(default_factory=dict)

    def faults(self, value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{path} is not an object"
            return
        for key, kind in self.required.items():
            if key in value:
                yield from kind.faults(value[key], f"{path}.{key}")
            else:
                yield f"{path}.{key} is missing"
        for key, kind in self.optional.items():
            if key in value:
                yield from kind.faults(value[key], f"{path}.{key}")


@dataclass(frozen=True)
class Tagged:
    """An object of one of several kinds, told apart by its `type`."""

    kinds: Mapping[str, Kind]

    def faults(self, value: Any, path: str) -> Iterator[str]:
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in self.kinds:
            yield f"{path} is not an object whose type is one of {', '.join(self.kinds)}"
        else:
            yield from self.kinds[kind].faults(value, path)


def is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


STRING = Is("a string", lambda value: isinstance(value, str))
NAME = Is("a string with characters", lambda value: isinstance(value, str) and value != "")
BOOLEAN = Is("a boolean", lambda value: isinstance(value, bool))
INTEGER = Is("an integer", is_integer)
COUNT = Is("an integer from 0 up", lambda value: is_integer(value) and value >= 0)
POSITIVE = Is("an integer from 1 up", lambda value: is_integer(value) and value >= 1)
NUMBER = Is("a number", lambda value: is_integer(value) or isinstance(value, float))
OBJECT = Is("an object", lambda value: isinstance(value, dict))
STRING_OR_OBJECT = Is("a string or an object", lambda value: isinstance(value, str | dict))


def one_of(*values: str) -> Is:
    return Is(f"one of {', '.join(values)}", lambda value: isinstance(value, str) and value in values)


def same(one: Any, other: Any) -> bool:
    """Equal value for value as JSON, where 1, 1.0 and true are three different values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
