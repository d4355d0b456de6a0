"""The tools of a request as the model knows them, and the way back to the client's own names.

Rules
* A tool of a namespace is `namespace__name` for the model.
* A custom tool is a function of one string, `input`; what grammar its text must obey, the model is told in words.
* What this server does not run is left out.
* Tools may also be declared among the input items, wherever: all are declared from the start. A tool that is declared
  again, as when a search finds it twice, is the same tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.fragments import Call
from antiphon.protocol.input_items import AdditionalTools
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tools import (
    AllowedTools,
    CustomTool,
    FunctionTool,
    HostedTool,
    NamedChoice,
    Namespace,
    Tool,
    model_name,
)
from antiphon.text.messages import InputGrammar, ToolDefinition

_INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
_NOTATIONS = {"lark": "grammar in Lark's notation", "regex": "regular expression"}


class Declared(Struct, frozen=True):
    """A tool that the model may call. `path` is its place in the request."""

    tool: FunctionTool | CustomTool
    path: str
    namespace: Namespace | None = None

    @property
    def name(self) -> str:
        """Its name for the model."""
        return model_name(self.tool.name, self.namespace.name if self.namespace is not None else None)


class Toolbox:
    """The tools of one request."""

    def __init__(self, request: CreateResponse) -> None:
        """Raises `RequestRefused` for two tools of the same name."""
        self._declared: dict[str, Declared] = {}
        self.hosted: list[HostedTool] = []  # left out
        self._add(request.tools, "tools")
        for n, item in enumerate(request.items):
            if isinstance(item, AdditionalTools):
                self._add(item.tools, f"input[{n}].tools")
        self.definitions = [_definition(declared) for declared in self._declared.values()]
        """What the model is told of them, in order."""

    def _add(self, tools: Sequence[Tool], path: str) -> None:
        for tool in _callable(tools, path, self.hosted):
            known = self._declared.get(tool.name)
            if known is not None and known.tool != tool.tool:
                raise RequestRefused(f"Two tools are named {tool.name!r}.", param=f"{tool.path}.name")
            self._declared.setdefault(tool.name, tool)

    def schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """The JSON Schemas of their arguments, by the model's names."""
        return {definition.name: definition.parameters for definition in self.definitions}

    def named(self, choice: NamedChoice | AllowedTools) -> frozenset[str]:
        """The model's names of the tools that a choice allows: those of every namespace that has one."""
        if isinstance(choice, NamedChoice):
            wanted = {(choice.type, choice.name)}
        else:
            wanted = {(tool["type"], tool["name"]) for tool in choice.tools}
        return frozenset(name for name, declared in self._declared.items() if _kind(declared) in wanted)

    def param(self, name: str) -> str:
        """Where in the request it stands what the arguments of a tool, by the model's name, must be."""
        declared = self._declared[name]
        field = "format.definition" if isinstance(declared.tool, CustomTool) else "parameters"
        return f"{declared.path}.{field}"

    @property
    def renames(self) -> bool:
        """Whether a call of the model may be another one for the client."""
        return any(declared.namespace or isinstance(declared.tool, CustomTool) for declared in self._declared.values())

    def restored(self, call: Call) -> Call:
        """The model's call as one of the client's tool."""
        declared = self._declared[call.name]
        namespace = declared.namespace.name if declared.namespace is not None else None
        custom = isinstance(declared.tool, CustomTool)
        return replace(call, name=declared.tool.name, namespace=namespace, custom=custom)


def _callable(tools: Sequence[Tool], path: str, hosted: list[HostedTool]) -> Iterator[Declared]:
    """The tools that can be called, in order; those that are left out are added to `hosted`."""
    for n, tool in enumerate(tools):
        place = f"{path}[{n}]"
        if isinstance(tool, Namespace):
            for inner in _callable(tool.tools, f"{place}.tools", hosted):
                yield replace(inner, namespace=tool)
        elif isinstance(tool, HostedTool):
            hosted.append(tool)
        else:
            yield Declared(tool, place)


def _kind(declared: Declared) -> tuple[str, str]:
    """Type and name, as choices have them."""
    return "custom" if isinstance(declared.tool, CustomTool) else "function", declared.tool.name


def _definition(declared: Declared) -> ToolDefinition:
    tool = declared.tool
    texts = [tool.description, declared.namespace.description if declared.namespace is not None else None]
    if isinstance(tool, FunctionTool):
        return ToolDefinition(declared.name, _paragraphs(texts), tool.parameters or {}, strict=bool(tool.strict))
    grammar = _grammar(tool)
    if grammar is not None:
        texts.append(f"The input is a text that obeys this {_NOTATIONS[grammar.syntax]}:\n{grammar.definition.strip()}")
    return ToolDefinition(declared.name, _paragraphs(texts), _INPUT, strict=True, input=grammar)


def _grammar(tool: CustomTool) -> InputGrammar | None:
    format = tool.format
    if format is None or format.syntax is None or format.definition is None or format.type == "text":
        return None
    return InputGrammar(format.syntax, format.definition)


def _paragraphs(texts: Sequence[str | None]) -> str:
    return "\n\n".join(text for text in texts if text)
