"""Tools and the choice among them (wire contract, section 6).

Hosted tools (`web_search`, `mcp`, ...) and tools of unknown types are run by no model server: they are kept apart, so
that the caller can leave them out with a warning or refuse them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from antiphon.protocol.convert import check_depth, convert, convert_tagged
from antiphon.protocol.errors import RequestRefused

# `\Z`, since `$` would let a line feed at the end pass.
ToolName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
MAX_TOOLS = 1024
"""Codex sends about 30, Claude Code 24; the bound keeps one request from filling the memory with schemas."""


class FunctionTool(Struct, tag="function"):
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Grammar(Struct):
    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None


class CustomTool(Struct, tag="custom"):
    name: ToolName
    description: str | None = None
    format: Grammar | None = None


class Namespace(Struct, tag="namespace"):
    name: ToolName
    tools: list[Any]
    description: str | None = None


class HostedTool(Struct):
    """A tool that this server does not run, with its place in the request."""

    type: str
    path: str


Tool = FunctionTool | CustomTool | Namespace | HostedTool
_TOOLS: dict[str, type[FunctionTool | CustomTool | Namespace]] = {
    "function": FunctionTool,
    "custom": CustomTool,
    "namespace": Namespace,
}


class NamedChoice(Struct):
    type: Literal["function", "custom"]
    name: str


class AllowedTools(Struct):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


ToolChoice = Literal["none", "auto", "required"] | NamedChoice | AllowedTools
_CHOICES: dict[str, type[NamedChoice | AllowedTools]] = {
    "function": NamedChoice,
    "custom": NamedChoice,
    "allowed_tools": AllowedTools,
}


def parse_tools(value: Any, path: str = "tools", *, inside: bool = False) -> list[Tool]:
    """The declared tools, in order; `inside` a namespace, where no other one may stand.

    Raises `RequestRefused` naming the tool and field.
    """
    if not isinstance(value, list):
        raise RequestRefused("Expected a list of tools.", param=path, code="invalid_type")
    if len(value) + sum(_members(tool) for tool in value) > MAX_TOOLS:
        raise RequestRefused(f"More than {MAX_TOOLS} tools.", param=path)
    return [_parse_tool(tool, f"{path}[{n}]", inside) for n, tool in enumerate(value)]


def _members(tool: Any) -> int:
    """How many tools a namespace brings, before anything of it is parsed."""
    members = tool.get("tools") if isinstance(tool, dict) else None
    return len(members) if isinstance(members, list) else 0


def _parse_tool(data: Any, path: str, inside: bool) -> Tool:
    name = data.get("type") if isinstance(data, dict) else None
    if isinstance(name, str) and name not in _TOOLS:
        return HostedTool(name, path)
    tool = convert_tagged(data, _TOOLS, path, "a tool")
    if isinstance(tool, FunctionTool):
        check_depth(tool.parameters, f"{path}.parameters")
    elif isinstance(tool, CustomTool):
        _check_format(tool.format, f"{path}.format")
    elif inside:
        raise RequestRefused("A namespace cannot hold another one.", param=f"{path}.type")
    else:
        tool.tools = parse_tools(tool.tools, f"{path}.tools", inside=True)
    return tool


def _check_format(format: Grammar | None, path: str) -> None:
    if format is None or format.type == "text":
        return
    for field in ("syntax", "definition"):
        if getattr(format, field) is None:
            param = f"{path}.{field}"
            raise RequestRefused(f"A grammar needs its {field}.", param=param, code="missing_required_parameter")


def check_names(tools: Sequence[Tool], path: str) -> None:
    """No two tools may have the same name for the model, where a namespaced one is `namespace__name`."""
    seen: set[str] = set()
    for name, at in _names(tools, path):
        if name in seen:
            raise RequestRefused(f"Two tools are named {name!r}.", param=at)
        seen.add(name)


def model_name(name: str, namespace: str | None) -> str:
    """What a tool is called where there are no namespaces: in a prompt, and by the model."""
    return f"{namespace}__{name}" if namespace else name


def _names(tools: Sequence[Tool], path: str, namespace: str | None = None) -> Iterator[tuple[str, str]]:
    """Every name that the model gets, with its place in the request."""
    for n, tool in enumerate(tools):
        if isinstance(tool, Namespace):
            yield from _names(tool.tools, f"{path}[{n}].tools", tool.name)
        elif not isinstance(tool, HostedTool):
            yield model_name(tool.name, namespace), f"{path}[{n}].name"


def parse_tool_choice(value: Any, tools: Sequence[Tool]) -> ToolChoice:
    """The choice, checked against the tools. Raises `RequestRefused`, also for a tool that was not declared."""
    if isinstance(value, str):
        return _word(value, tools)
    if not isinstance(value, dict):
        raise RequestRefused("Expected a word or an object.", param="tool_choice", code="invalid_type")
    name = value.get("type")
    if isinstance(name, str) and name not in _CHOICES:
        raise RequestRefused(f"This server does not run the tool {name!r}.", param="tool_choice.type")
    choice = convert_tagged(value, _CHOICES, "tool_choice", "a tool choice")
    declared = {(_kind(tool), tool.name) for tool in _callable(tools)}
    if isinstance(choice, NamedChoice):
        _check_declared(choice, declared, "tool_choice.name")
        return choice
    if len(choice.tools) > MAX_TOOLS:
        raise RequestRefused(f"More than {MAX_TOOLS} tools.", param="tool_choice.tools")
    if choice.mode == "required" and not choice.tools:
        raise RequestRefused("A call is required, but no tool is allowed.", param="tool_choice.tools")
    for n, tool in enumerate(choice.tools):
        named = convert(tool, NamedChoice, f"tool_choice.tools[{n}]")
        _check_declared(named, declared, f"tool_choice.tools[{n}].name")
    return choice


def _word(value: str, tools: Sequence[Tool]) -> ToolChoice:
    choice: ToolChoice = convert(value, Literal["none", "auto", "required"], "tool_choice")  # type: ignore[arg-type]
    if choice == "required" and next(_callable(tools), None) is None:
        raise RequestRefused("`tool_choice` is `required`, but there is no tool.", param="tool_choice")
    return choice


def check_count(tools: Sequence[Tool]) -> None:
    """Bounds the tools of a request, wherever they are declared. Raises `RequestRefused`."""
    if sum(1 for _ in _callable(tools)) > MAX_TOOLS:
        raise RequestRefused(f"More than {MAX_TOOLS} tools.", param="tools")


def _kind(tool: FunctionTool | CustomTool) -> str:
    return "function" if isinstance(tool, FunctionTool) else "custom"


def _check_declared(named: NamedChoice, declared: Collection[tuple[str, str]], path: str) -> None:
    if (named.type, named.name) not in declared:
        raise RequestRefused(f"There is no {named.type} tool named {named.name!r} in `tools`.", param=path)


def _callable(tools: Sequence[Tool]) -> Iterator[FunctionTool | CustomTool]:
    """The tools that the model can call, those of namespaces too."""
    for tool in tools:
        if isinstance(tool, Namespace):
            yield from _callable(tool.tools)
        elif not isinstance(tool, HostedTool):
            yield tool
