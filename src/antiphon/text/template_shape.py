"""A conversation in the shape that a given template can take: Hugging Face's message dictionaries.

Rules
* Nothing is lost. What a template cannot take in its own place goes where it can: system text into the leading system
  message or the first user message, tool definitions into system text, calls into the assistant's text, results into
  a user message.
* Results stand right behind the calls, in their order: many templates write no id or name to tell them by.
* Reasoning is handed to the template, which decides how much of it is rendered. A template that knows none gets it as
  text between the family's markers, only in the turns after the last user message (the running tool loop), as Qwen's
  templates do: earlier thinking is by convention not shown to a model again.
* Text that the model wrote is not written anew: a turn's prompt is a prefix of the next one's as far as the template
  lets it.
* `guard` is applied once to every string of the request, before anything of ours is put round it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from antiphon.text.capabilities import CallForm, Capabilities, TextWithCalls
from antiphon.text.messages import Message, Role, ToolCall, ToolDefinition
from antiphon.text.template_spelling import HERMES_CALLS, CallSpelling, Spelling

Guard = Callable[[str], str]
Conversation = list[Message]

_TOOLS_TEXT = """\
You can call functions. Each line inside <tools> describes one function in JSON:
<tools>
{definitions}
</tools>
To call a function, write its name and its arguments {manner}, in exactly this form:
{example}
{several} If no function is needed, answer in plain text."""
_EXAMPLE = ("the function's name", '{"an argument\'s name": "its value"}')

# Words in the place of somebody who has said nothing, where a template insists on turns.
_STARTED = "(the conversation starts)"
_CONTINUE = "(continue)"
_INTERRUPTED = "(interrupted)"


def guarded(value: Any, guard: Guard) -> Any:
    """A JSON value with every string in it guarded, the keys too."""
    if isinstance(value, str):
        return guard(value)
    if isinstance(value, dict):
        return {guard(key): guarded(item, guard) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [guarded(item, guard) for item in value]
    return value


def tool_entries(tools: Sequence[ToolDefinition], capabilities: Capabilities, guard: Guard) -> list[dict[str, Any]]:
    """The definitions as templates read them."""
    entries = []
    for tool in tools:
        parameters = _parameters(guarded(tool.parameters, guard), capabilities)
        function = {"name": guard(tool.name), "description": guard(tool.description), "parameters": parameters}
        entries.append({"type": "function", "function": function})
    return entries


def _parameters(schema: dict[str, Any], capabilities: Capabilities) -> dict[str, Any]:
    """Many templates walk `properties`, so it is there even if empty."""
    schema = {"type": "object", "properties": {}, **schema}
    properties = schema["properties"]
    if not capabilities.full_schemas or not isinstance(properties, dict):
        return schema
    return {"required": [], **schema, "properties": {name: _full(value) for name, value in properties.items()}}


def _full(schema: Any) -> dict[str, Any]:
    """The schema of a property with what templates ask of it that print types: one word for it, and a description."""
    known: dict[str, Any] = schema if isinstance(schema, dict) else {}
    kind = known.get("type", "string")
    if isinstance(kind, list):
        kind = next((word for word in kind if word != "null"), "string")
    inner = {"additionalProperties": True} if kind == "object" else {}
    return {"description": "", **inner, **known, "type": kind}


def tools_variable(tools: list[dict[str, Any]], capabilities: Capabilities) -> list[dict[str, Any]] | None:
    """What the template gets as `tools`."""
    rendered = tools if capabilities.tools and not capabilities.system_tools else []
    return rendered or ([] if capabilities.empty_tools else None)


def shape(
    messages: Sequence[Message],
    tools: list[dict[str, Any]],
    capabilities: Capabilities,
    guard: Guard,
    spelling: Spelling,
) -> list[dict[str, Any]]:
    """The messages for the template. `tools` (guarded) are written into them if the template does not render tools.

    `spelling`: how thinking and calls are written if the template cannot; where it has none for calls, Hermes's.
    """
    calls = spelling.calls or HERMES_CALLS
    in_system = bool(tools) and capabilities.tools and capabilities.system_tools
    turns = [_guarded_message(message, capabilities, guard) for message in messages]
    turns = _with_results(_with_names(turns), together=capabilities.several_calls)
    turns = _place_systems(turns, capabilities)
    if tools and not capabilities.tools:
        turns = _with_tools_text(turns, tools, calls)
    if in_system and (not turns or turns[0].role != "system"):
        turns = [Message("system"), *turns]
    if not capabilities.system:
        turns = _without_system(turns)
    if capabilities.user_first:
        turns = _user_first(turns)
    if capabilities.reasoning_key is None:
        turns = _spell_reasoning(turns, spelling)
    if capabilities.alternates:
        turns = _merged(turns, "assistant")
    turns = _place_calls(turns, capabilities, calls, guard)
    if not capabilities.results:
        turns = _results_as_text(turns)
    if capabilities.alternates:
        turns = _answering_results(_merged(turns, "user"))
    entries = [_entry(turn, capabilities, guard) for turn in turns]
    if in_system:
        entries[0]["tools"] = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
    return entries


def _guarded_message(message: Message, capabilities: Capabilities, guard: Guard) -> Message:
    """The arguments are left: whether they are guarded as text or as an object is decided when they are written."""
    return replace(
        message,
        content=guard(message.content),
        reasoning=guard(message.reasoning),
        calls=tuple(
            replace(call, id=guard(_call_id(call.id, capabilities)), name=guard(call.name)) for call in message.calls
        ),
        call_id=guard(_call_id(message.call_id, capabilities)),
        name=guard(message.name),
    )


def _call_id(call_id: str, capabilities: Capabilities) -> str:
    return hashlib.sha256(call_id.encode()).hexdigest()[:9] if capabilities.short_call_ids else call_id


def _with_names(turns: Conversation) -> Conversation:
    """Results that do not say whose they are get the name of the call: some templates show or demand it."""
    names = {call.id: call.name for turn in turns for call in turn.calls}
    return [
        replace(turn, name=names.get(turn.call_id, "")) if turn.role == "tool" and not turn.name else turn
        for turn in turns
    ]


def _with_results(turns: Conversation, *, together: bool) -> Conversation:
    """Each result behind its call. Not `together`: each call in a message of its own, followed by its results.

    A result whose call is not to be found stays where it is.
    """
    callers: dict[str, int] = {}  # places of the messages that called last under these ids
    results: dict[tuple[int, str], Conversation] = {}
    others: list[tuple[int, Message]] = []
    for place, turn in enumerate(turns):
        if turn.role == "tool" and turn.call_id in callers:
            results.setdefault((callers[turn.call_id], turn.call_id), []).append(turn)
        else:
            others.append((place, turn))
            callers.update((call.id, place) for call in turn.calls)
    placed: Conversation = []
    for place, turn in others:
        for message in [turn] if together else _single_calls(turn):
            placed.append(message)
            for call in message.calls:
                placed += results.pop((place, call.id), [])
    return placed


def _single_calls(turn: Message) -> Iterator[Message]:
    yield replace(turn, calls=turn.calls[:1])
    for call in turn.calls[1:]:
        yield Message("assistant", calls=(call,))


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


# System text


def _place_systems(turns: Conversation, capabilities: Capabilities) -> Conversation:
    if capabilities.later_systems:
        lead = next((at for at, turn in enumerate(turns) if turn.role != "system"), len(turns))
        if capabilities.several_leading_systems or lead < 2:
            return turns
        return _lead_with(turns[:lead], turns[lead:])
    return _lead_with(
        [turn for turn in turns if turn.role == "system"], [turn for turn in turns if turn.role != "system"]
    )


def _lead_with(systems: Conversation, rest: Conversation) -> Conversation:
    text = _paragraphs(*(system.content for system in systems))
    return [Message("system", text), *rest] if systems else rest


def _with_tools_text(turns: Conversation, tools: list[dict[str, Any]], calls: CallSpelling) -> Conversation:
    definitions = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    text = _TOOLS_TEXT.format(
        definitions=definitions, manner=calls.manner, example=calls.written([_EXAMPLE]), several=calls.several
    )
    if turns and turns[0].role == "system":
        return [replace(turns[0], content=_paragraphs(turns[0].content, text)), *turns[1:]]
    return [Message("system", text), *turns]


def _without_system(turns: Conversation) -> Conversation:
    if not turns or turns[0].role != "system":
        return turns
    system, rest = turns[0], turns[1:]
    if rest and rest[0].role == "user":
        return [replace(rest[0], content=_paragraphs(system.content, rest[0].content)), *rest[1:]]
    return [Message("user", system.content), *rest]


# Reasoning


def _spell_reasoning(turns: Conversation, spelling: Spelling) -> Conversation:
    last_user = max((at for at, turn in enumerate(turns) if turn.role == "user"), default=-1)
    return [
        _with_thinking_text(turn, spelling, keep=at > last_user) if turn.reasoning else turn
        for at, turn in enumerate(turns)
    ]


def _with_thinking_text(turn: Message, spelling: Spelling, *, keep: bool) -> Message:
    content = turn.content
    if keep and spelling.thinking is not None:
        opening, closing = spelling.thinking
        reasoning = turn.reasoning.strip("\n")
        content = f"{opening}{reasoning}{closing}{content}"
    return replace(turn, content=content, reasoning="")


# Turns


def _user_first(turns: Conversation) -> Conversation:
    """A placeholder where the user should have begun, behind the leading system text."""
    lead = next((at for at, turn in enumerate(turns) if turn.role != "system"), len(turns))
    if lead < len(turns) and turns[lead].role == "user":
        return turns
    return [*turns[:lead], Message("user", _STARTED), *turns[lead:]]


def _merged(turns: Conversation, role: Role) -> Conversation:
    """Neighbours of one role made one message, for templates that insist on turns. Calls end a message."""
    merged: Conversation = []
    for turn in turns:
        if merged and turn.role == role == merged[-1].role and not merged[-1].calls:
            turn = replace(
                turn,
                content=_paragraphs(merged[-1].content, turn.content),
                reasoning=_paragraphs(merged[-1].reasoning, turn.reasoning),
            )
            merged[-1] = turn
        else:
            merged.append(turn)
    return merged


def _answering_results(turns: Conversation) -> Conversation:
    """A placeholder answer where the user speaks right after a result.

    Templates that count turns leave calls and results out of the count, and some refuse an answer without text.
    """
    filled: Conversation = []
    for turn in turns:
        if turn.role == "user" and filled and filled[-1].role == "tool":
            filled.append(Message("assistant", _INTERRUPTED))
        filled.append(turn)
    return filled


# Calls and results


def _place_calls(turns: Conversation, capabilities: Capabilities, calls: CallSpelling, guard: Guard) -> Conversation:
    placed: Conversation = []
    for turn in turns:
        if turn.calls and capabilities.calls is CallForm.NONE:
            placed.append(_with_calls_text(turn, calls, guard))
        elif turn.calls and turn.content and capabilities.text_with_calls is not TextWithCalls.TOGETHER:
            placed.append(Message("assistant", turn.content))
            if capabilities.text_with_calls is TextWithCalls.TWO_TURNS:
                placed.append(Message("user", _CONTINUE))
            placed.append(replace(turn, content=""))
        else:
            placed.append(turn)
    return placed


def _with_calls_text(turn: Message, calls: CallSpelling, guard: Guard) -> Message:
    spelled = calls.written((call.name, guard(call.arguments)) for call in turn.calls)
    text = turn.content if turn.content.endswith("\n") or not turn.content else turn.content + "\n"
    return replace(turn, content=text + spelled, calls=())


def _results_as_text(turns: Conversation) -> Conversation:
    """Neighbouring results as one user message."""
    placed: Conversation = []
    for are_results, group in groupby(turns, lambda turn: turn.role == "tool"):
        same = list(group)
        placed += [_results_text(same)] if are_results else same
    return placed


def _results_text(results: Iterable[Message]) -> Message:
    blocks = (f"<tool_response>\n{result.content}\n</tool_response>" for result in results)
    return Message("user", "\n".join(blocks))


# Dictionaries


def _entry(turn: Message, capabilities: Capabilities, guard: Guard) -> dict[str, Any]:
    content = [{"type": "text", "text": turn.content}] if capabilities.content_parts else turn.content
    entry: dict[str, Any] = {"role": turn.role, "content": content}
    always = capabilities.reasoning_always and turn.role == "assistant"
    if capabilities.reasoning_key is not None and (turn.reasoning or always):
        entry[capabilities.reasoning_key] = turn.reasoning
    if turn.calls:
        entry["tool_calls"] = [_call_entry(call, capabilities, guard) for call in turn.calls]
    if turn.role == "tool":
        entry["tool_call_id"] = turn.call_id
    if turn.name:
        entry["name"] = turn.name
    return entry


def _call_entry(call: ToolCall, capabilities: Capabilities, guard: Guard) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments(call, capabilities, guard)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(call: ToolCall, capabilities: Capabilities, guard: Guard) -> dict[str, Any] | str:
    if capabilities.calls is CallForm.OBJECT:
        parsed = call.parsed()
        if parsed is not None:
            return dict(guarded(parsed, guard))
        if not capabilities.unparsed_arguments:
            return {"arguments": guard(call.arguments)}
    return guard(call.arguments)
