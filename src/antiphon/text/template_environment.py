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

# Characters. The longest template among 70 real ones has 51,000.
MAX_SOURCE = 1 << 20
# Characters, of a render and of any text built on the way. A body has at most 32 MiB; twice that leaves room for the
# template's own words.
MAX_OUTPUT = 1 << 26
# Loop rounds and calls of one render. Real templates need a few dozen a message, and some look back over all earlier
# messages from each: two thousand messages that way are four million. Takes a few seconds at worst.
MAX_STEPS = 5_000_000
# Nobody's template needs powers; this only keeps integers small.
MAX_EXPONENT = 64

_BUDGET = " budget"  # no identifier has a space: a template cannot name it
_BROKEN = "The model's chat template cannot render this conversation."


class TemplateError(Exception):
    """A chat template is unusable or refuses a conversation. The text is fit for a client."""


class Budget:
    """The steps that one render has left."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_STEPS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise TemplateError(f"The model's chat template took more than {MAX_STEPS} steps.")


def bounded(value: Any) -> Any:
    """`value`, or a `TemplateError` if it is a text or list that outgrew every possible prompt."""
    if isinstance(value, str | list | tuple) and len(value) > MAX_OUTPUT:
        raise TemplateError(f"The model's chat template rendered more than {MAX_OUTPUT} characters.")
    return value


@jinja2.pass_context
def _counted(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    budget: Budget = context[_BUDGET]
    for item in items:
        budget.spend()
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

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return (isinstance(obj, list) and attr in _LIST_METHODS) or super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = context[_BUDGET]
        budget.spend()
        return bounded(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and abs(right) > MAX_EXPONENT:
            raise TemplateError(_BROKEN)
        if operator == "*":
            _check_repetition(left, right)
            _check_repetition(right, left)
        return bounded(super().call_binop(context, operator, left, right))


def _check_repetition(items: Any, times: Any) -> None:
    if isinstance(items, str | list | tuple) and isinstance(times, int) and len(items) * times > MAX_OUTPUT:
        raise TemplateError(f"The model's chat template rendered more than {MAX_OUTPUT} characters.")


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

    def __init__(self, source: str, now: Callable[[], datetime]) -> None:
        """Raises `TemplateError` if the source is too long or is not Jinja."""
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"The chat template has {len(source)} characters; at most {MAX_SOURCE} are read.")
        environment = _Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
        )
        environment.filters |= {"tojson": _to_json, "counted loop": _counted, "bounded text": bounded}
        environment.globals |= {"raise_exception": _raise, "strftime_now": lambda form: now().strftime(str(form))}
        try:
            tree = _Bounds().visit(environment.parse(source))
            self._template = environment.from_string(tree)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"The chat template is not valid Jinja (line {error.lineno}): {error.message}"
            ) from error
        except RecursionError as error:
            raise TemplateError("The chat template is nested too deeply.") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text, or a `TemplateError`."""
        try:
            return self._collect({**variables, _BUDGET: Budget()})
        except TemplateError:
            raise
        except Exception as error:  # an expression of the template can raise anything
            raise TemplateError(_BROKEN) from error

    def _collect(self, variables: Mapping[str, Any]) -> str:
        pieces = []
        room = MAX_OUTPUT
        for piece in self._template.generate(variables):
            room -= len(piece)
            if room < 0:
                raise TemplateError(f"The model's chat template rendered more than {MAX_OUTPUT} characters.")
            pieces.append(piece)
        return "".join(pieces)
