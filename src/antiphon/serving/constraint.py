"""What a request demands of the output, as a constraint on its tokens.

Rules
* A format, a tool choice, `strict` and an effort of none are enforced, or refused by name before anything is generated.
* With tools that may be called, the model writes freely up to the dialect's marker of calls; from there on only a
  call of an allowed tool can come. An engine whose tokens are given is checked against what was demanded alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from antiphon.engine.base import Constraint
from antiphon.protocol.errors import RequestRefused, unsupported
from antiphon.protocol.request import CreateResponse, JsonObjectFormat, JsonSchemaFormat
from antiphon.protocol.tools import AllowedTools, NamedChoice
from antiphon.serving.model import ServedModel
from antiphon.serving.toolbox import Toolbox
from antiphon.text.constraint import GrammarRefused, GrammarsBusy, fault
from antiphon.text.dialects.grammar import Wanted, output_grammar
from antiphon.text.lark import ANY_OBJECT, Lark
from antiphon.text.messages import ToolDefinition
from antiphon.text.prompt import Prompt

Calls = Literal["none", "allowed", "required"]


def constraint_of(
    model: ServedModel, request: CreateResponse, toolbox: Toolbox, prompt: Prompt, check: Callable[[], None]
) -> Constraint | None:
    """The constraint on the answer to a prompt; None if every output is one that the request allows.

    Takes up to seconds where the grammar is new. `check` is called now and then, and raises to stop the work. Raises
    `RequestRefused` for what cannot be enforced.
    """
    wanted = _wanted(model, request, toolbox, prompt)
    if wanted is None:
        return None
    try:
        _check_inputs(model, wanted, toolbox, check)
        return model.grammars.constraint(output_grammar(model.form, wanted, model.control, check))
    except GrammarsBusy:
        message = "Too many requests with large schemas or grammars are running."
        raise RequestRefused(
            message, code="rate_limit_exceeded", status=429, kind="rate_limit_error", retry_after=1
        ) from None
    except (GrammarRefused, ValueError, RecursionError) as refused:
        param = "tools" if wanted.schema is None else "text.format.schema"
        raise _named(model, wanted, toolbox, check) or _not_enforceable(param, str(refused)) from None


def _check_inputs(model: ServedModel, wanted: Wanted, toolbox: Toolbox, check: Callable[[], None]) -> None:
    """Raises `RequestRefused` for a grammar that no input obeys: within a call it would show only when it is due."""
    for tool in wanted.tools:
        if tool.input is None:
            continue
        lark = Lark({}, check)
        try:
            model.grammars.constraint(lark.grammar(lark.input_text(tool.input)))
        except ValueError:
            continue  # What cannot be said is named where the call is written.
        except GrammarRefused as refused:
            raise _not_enforceable(toolbox.param(tool.name), str(refused)) from None


def _wanted(model: ServedModel, request: CreateResponse, toolbox: Toolbox, prompt: Prompt) -> Wanted | None:
    calls, tools = _calls(request, toolbox)
    schema = _schema(request)
    if calls != "none" and not model.can_call:
        if calls == "required":
            raise unsupported("tool_choice", "Enforcing a tool choice for a model without a form for calls")
        calls = "none"
    if calls == "allowed" and schema is None and not model.engine.info.chooses:
        calls = "none"
    unthinking = request.effort == "none" and model.can_forbid_thinking
    wanted = Wanted(
        tools=tools,
        calls=calls,
        several=request.fields.parallel_tool_calls is not False,
        schema=schema,
        thinking=model.thinking(prompt, marked=calls == "allowed" and schema is None, forbidden=unthinking),
    )
    return None if wanted.free else wanted


def _calls(request: CreateResponse, toolbox: Toolbox) -> tuple[Calls, Sequence[ToolDefinition]]:
    """What the choice says, and the tools that may be called."""
    choice, tools = request.tool_choice, toolbox.definitions
    if choice == "none" or not tools:
        return "none", ()
    if isinstance(choice, NamedChoice | AllowedTools):
        names = toolbox.named(choice)
        tools = [tool for tool in tools if tool.name in names]
        mode = "required" if isinstance(choice, NamedChoice) else choice.mode
        if not tools:
            return "none", ()
    else:
        mode = choice
    return ("required" if mode == "required" else "allowed"), tools


def _schema(request: CreateResponse) -> Mapping[str, Any] | None:
    """Of the visible text; None if it is free."""
    if isinstance(request.format, JsonSchemaFormat):
        return request.format.schema
    return ANY_OBJECT if isinstance(request.format, JsonObjectFormat) else None


def _named(model: ServedModel, wanted: Wanted, toolbox: Toolbox, check: Callable[[], None]) -> RequestRefused | None:
    """The first schema or grammar of the request that cannot be enforced by itself."""
    if wanted.schema is not None:
        reason = _fault(model, Wanted(schema=wanted.schema), check)
        if reason is not None:
            return _not_enforceable("text.format.schema", reason)
    for tool in wanted.tools:
        reason = _fault(model, Wanted(tools=[tool], calls="required"), check)
        if reason is not None:
            return _not_enforceable(toolbox.param(tool.name), reason)
    return None


def _fault(model: ServedModel, wanted: Wanted, check: Callable[[], None]) -> str | None:
    try:
        return fault(output_grammar(model.form, wanted, {}, check))
    except (ValueError, RecursionError) as error:
        return str(error)


def _not_enforceable(param: str, reason: str) -> RequestRefused:
    return RequestRefused(f"This cannot be enforced: {reason}", param=param, code="unsupported_value")
