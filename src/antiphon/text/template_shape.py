"""A conversation in the shape that a given template can take: Hugging Face's message dictionaries.

Rules
* Nothing is lost. What a template cannot take in its own place goes where it can: system text into the leading system
  message or the first user message, tool definitions into system text, calls into the assistant's text, results into
  a user message.
* Reasoning is handed to the template, which decides how much of it is rendered. A template that knows none gets it as
  `<think>` text, only in the turns after the last user message (the running tool loop), as Qwen's templates do: earlier
  thinking is by convention not shown to a model again.
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

Guard = Callable[[str], str]
Conversation = list[Message]

_TOOLS_TEXT = """\
You can call functions. Each line inside <tools> describes one function in JSON:
<tools>
{definitions}
</tools>
To call a function, write its name and its arguments as one JSON object, in exactly this form:
<tool_call>
{{"name": "the function's name", "arguments": {{"an argument's name": "its value"}}}}
</tool_call>
Write one such block for each call. If no function is needed, answer in plain text."""
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
    full = {name: _with_defaults(value, type="string", description="") for name, value in properties.items()}
    return {"required": [], **schema, "properties": full}


def _with_defaults(schema: Any, **defaults: Any) -> Any:
    return defaults | schema if isinstance(schema, dict) else schema


def tools_variable(tools: list[dict[str, Any]], capabilities: Capabilities) -> list[dict[str, Any]] | None:
    """What the template gets as `tools`."""
    rendered = tools if capabilities.tools else []
    return rendered or ([] if capabilities.empty_tools else None)


def shape(
    messages: Sequence[Message], tools: list[dict[str, Any]], capabilities: Capabilities, guard: Guard
) -> list[dict[str, Any]]:
    """The messages for the template. `tools` (guarded) are written into them if the template does not render tools."""
    turns = [_guarded_message(message, capabilities, guard) for message in messages]
    turns = _place_systems(_with_names(turns), capabilities)
    if tools and not capabilities.tools:
        turns = _with_tools_text(turns, tools)
    if not capabilities.system:
        turns = _without_system(turns)
    if capabilities.reasoning_key is None:
        turns = _spell_reasoning(turns)
    if capabilities.alternates:
        turns = _merged(turns, "assistant")
    turns = _place_calls(turns, capabilities, guard)
    if not capabilities.several_calls:
        turns = _one_call_a_message(turns)
    if capabilities.alternates:
        turns = _answering_results(_merged(turns, "user"))
    return [_entry(turn, capabilities, guard) for turn in turns]


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


def _with_tools_text(turns: Conversation, tools: list[dict[str, Any]]) -> Conversation:
    definitions = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    text = _TOOLS_TEXT.format(definitions=definitions)
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


def _spell_reasoning(turns: Conversation) -> Conversation:
    last_user = max((at for at, turn in enumerate(turns) if turn.role == "user"), default=-1)
    return [_with_think_text(turn, keep=at > last_user) if turn.reasoning else turn for at, turn in enumerate(turns)]


def _with_think_text(turn: Message, *, keep: bool) -> Message:
    reasoning = turn.reasoning.strip("\n")
    content = f"<think>\n{reasoning}\n</think>\n\n{turn.content}" if keep else turn.content
    return replace(turn, content=content, reasoning="")


# Turns


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


def _place_calls(turns: Conversation, capabilities: Capabilities, guard: Guard) -> Conversation:
    placed: Conversation = []
    spelled: set[str] = set()  # calls whose results must be text as well
    for turn in turns:
        both = bool(turn.calls and turn.content)
        if turn.calls and capabilities.calls is CallForm.NONE:
            placed.append(_with_calls_text(turn, guard))
        elif both and capabilities.text_with_calls is TextWithCalls.SPELLED:
            placed.append(_with_calls_text(turn, guard))
            spelled.update(call.id for call in turn.calls)
        elif both and capabilities.text_with_calls is TextWithCalls.APART:
            placed += [Message("assistant", turn.content), replace(turn, content="")]
        else:
            placed.append(turn)
    return _place_results(placed, lambda result: not capabilities.results or result.call_id in spelled)


def _with_calls_text(turn: Message, guard: Guard) -> Message:
    blocks = (
        f'<tool_call>\n{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {guard(call.arguments)}}}\n'
        "</tool_call>"
        for call in turn.calls
    )
    text = turn.content if turn.content.endswith("\n") or not turn.content else turn.content + "\n"
    return replace(turn, content=text + "\n".join(blocks), calls=())


def _place_results(turns: Conversation, is_text: Callable[[Message], bool]) -> Conversation:
    placed: Conversation = []
    for spelled, group in groupby(turns, lambda turn: turn.role == "tool" and is_text(turn)):
        same = list(group)
        placed += [_results_text(same)] if spelled else same
    return placed


def _results_text(results: Iterable[Message]) -> Message:
    blocks = (f"<tool_response>\n{result.content}\n</tool_response>" for result in results)
    return Message("user", "\n".join(blocks))


def _one_call_a_message(turns: Conversation) -> Conversation:
    """Each of several calls in a message of its own, followed by its results."""
    answers: dict[str, Conversation] = {call.id: [] for turn in turns if len(turn.calls) > 1 for call in turn.calls}
    split: Conversation = []
    for turn in turns:
        if turn.role == "tool" and turn.call_id in answers:
            answers[turn.call_id].append(turn)
    for turn in turns:
        if len(turn.calls) > 1:
            for message in _single_calls(turn):
                split += [message, *answers[message.calls[0].id]]
        elif turn.role != "tool" or turn.call_id not in answers:
            split.append(turn)
    return split


def _single_calls(turn: Message) -> Iterator[Message]:
    yield replace(turn, calls=turn.calls[:1])
    for call in turn.calls[1:]:
        yield Message("assistant", calls=(call,))


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
