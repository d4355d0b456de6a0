"""The sandbox in which chat templates run: Jinja as Hugging Face sets it up, with bounds.

A template comes with a model file, so it is somebody else's program. It reaches nothing outside the sandbox, and a
render is bounded three ways: source, output and steps (loop rounds and calls). What is not bounded is the memory of one
single operation, such as a filter that pads to a width.

Rules
* Whatever a template does wrong is a `TemplateError` whose message is fit for a client: the template's own words where
  it raised on purpose, a general sentence otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer
from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """How much a template may be and do."""

    # Characters. The longest template among 70 real ones has 51,000.
    source: int = 1 << 20
    # Characters, of a render and of any text or list built on the way. A body has at most 32 MiB; twice that leaves
    # room for the template's own words.
    output: int = 1 << 26
    # Loop rounds of one render; a call counts as twenty, for it takes as long. Real templates need a few dozen a
    # message, and some look back over all earlier messages from each: two thousand messages that way are four million.
    # A few seconds at worst.
    steps: int = 5_000_000


_LIMITS = Limits()


_CALL_STEPS = 20
_MAX_EXPONENT = 64  # nobody's template needs powers; this only keeps integers small
_BUDGET = " budget"  # no identifier has a space: a template cannot name it
_BROKEN = "The model's chat template cannot render this conversation."


class TemplateError(Exception):
    """A chat template is unusable or refuses a conversation. The text is fit for a client."""


class Budget:
    """The steps that one render has left."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TemplateError("The model's chat template takes too many steps for this conversation.")


@jinja2.pass_context
def _counted(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    budget: Budget = context[_BUDGET]
    for item in items:
        budget.spend(1)
        yield item


class _Bounds(NodeTransformer):
    """Puts a count on every loop, and a bound on every `~`, which the sandbox cannot intercept."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "counted loop")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered(node, "bounded text")


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno, environment=node.environment)


# Templates made for llama.cpp keep queues of call ids. Every list they can reach is a copy made for this render.
_LIST_METHODS = frozenset({"append", "pop"})


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self, limits: Limits) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation])
        self._limits = limits
        self.filters |= {"tojson": _to_json, "counted loop": _counted, "bounded text": self._bounded}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return (isinstance(obj, list) and attr in _LIST_METHODS) or super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = context[_BUDGET]
        budget.spend(_CALL_STEPS)
        return self._bounded(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and abs(right) > _MAX_EXPONENT:
            raise TemplateError(_BROKEN)
        if operator == "*":
            self._check_repetition(left, right)
            self._check_repetition(right, left)
        return self._bounded(super().call_binop(context, operator, left, right))

    def _bounded(self, value: Any) -> Any:
        if isinstance(value, str | list | tuple):
            self.check_length(len(value))
        return value

    def _check_repetition(self, items: Any, times: Any) -> None:
        if isinstance(items, str | list | tuple) and isinstance(times, int):
            self.check_length(len(items) * times)

    def check_length(self, length: int) -> None:
        if length > self._limits.output:
            raise TemplateError(f"The model's chat template rendered more than {self._limits.output} characters.")


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here it is only a scope."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=lineno)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Hugging Face's `tojson`: plain JSON, where Jinja's own escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: object) -> NoReturn:
    raise TemplateError(str(message))


class CompiledTemplate:
    """A template's source, ready to render. Safe to use on any thread."""

    def __init__(self, source: str, now: Callable[[], datetime], limits: Limits = _LIMITS) -> None:
        """Raises `TemplateError` if the source is too long or is not Jinja."""
        if len(source) > limits.source:
            raise TemplateError(f"The chat template has {len(source)} characters; at most {limits.source} are read.")
        self._limits = limits
        self._environment = _Sandbox(limits)
        self._environment.globals |= {"raise_exception": _raise, "strftime_now": lambda form: now().strftime(str(form))}
        try:
            tree = _Bounds().visit(self._environment.parse(source))
            self._template = self._environment.from_string(tree)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"The chat template is not valid Jinja (line {error.lineno}): {error.message}"
            ) from error
        except RecursionError as error:
            raise TemplateError("The chat template is nested too deeply.") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text, or a `TemplateError`."""
        try:
            return self._collect({**variables, _BUDGET: Budget(self._limits.steps)})
        except TemplateError:
            raise
        except Exception as error:  # an expression of the template can raise anything
            raise TemplateError(_BROKEN) from error

    def _collect(self, variables: Mapping[str, Any]) -> str:
        pieces = []
        length = 0
        for piece in self._template.generate(variables):
            length += len(piece)
            self._environment.check_length(length)
            pieces.append(piece)
        return "".join(pieces)
