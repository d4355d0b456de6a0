"""The items of a request as the conversation that the chat template renders.

Rules
* Nothing is lost: every item and every text part has its place, in order.
* What the assistant said between two inputs is one turn: its reasoning, its text, its calls.
* A result that stands before its call waits for it: templates can render it only behind.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antiphon.protocol.input_items import (
    AdditionalTools,
    CallItem,
    CallOutput,
    Content,
    InputCustomToolCall,
    InputItem,
    InputMessage,
    InputReasoning,
)
from antiphon.protocol.tools import model_name
from antiphon.text.messages import Message, ToolCall


def conversation(instructions: str | None, items: Sequence[InputItem]) -> list[Message]:
    """The turns in order. `instructions` come first, as system text."""
    turns = _Turns({item.call_id: _tool_name(item) for item in items if isinstance(item, CallItem)})
    if instructions:
        turns.add(Message("system", instructions))
    for item in items:
        turns.take(item)
    messages = turns.finish()
    # A client's probe may send no input at all; templates need at least one turn.
    return messages or [Message("user", "")]


def turns_of(messages: Sequence[Message]) -> list[list[Message]]:
    """The conversation cut before user messages, system messages left out: what truncation may drop whole.

    Never between a call and its result, even if the user spoke between them.
    """
    answered = {message.call_id for message in messages if message.role == "tool"}
    waiting: set[str] = set()
    turns: list[list[Message]] = []
    for message in messages:
        if message.role == "system":
            continue
        if not turns or (message.role == "user" and not waiting):
            turns.append([])
        turns[-1].append(message)
        waiting |= {call.id for call in message.calls} & answered
        waiting.discard(message.call_id)
    return turns


def without_oldest(messages: Sequence[Message], count: int) -> list[Message]:
    """The conversation without its oldest `count` turns; system messages stay."""
    dropped = {id(message) for turn in turns_of(messages)[:count] for message in turn}
    return [message for message in messages if id(message) not in dropped]


class _Turns:
    """Collects messages; the assistant's run of items is open until something else comes."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._messages: list[Message] = []
        self._reasoning: list[str] = []
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._called: set[str] = set()
        self._early: dict[str, Message] = {}

    def take(self, item: InputItem) -> None:
        if isinstance(item, InputReasoning):
            self._reasoning.append("".join(part.text for part in item.content or item.summary))
        elif isinstance(item, CallItem):
            self._calls.append(_call(item))
        elif isinstance(item, CallOutput):
            self._result(item)
        elif isinstance(item, InputMessage):
            self._message(item)
        elif not isinstance(item, AdditionalTools):  # Tools are no turn, wherever they stand.
            raise TypeError(f"{type(item).__name__} is refused before a conversation is made")

    def add(self, message: Message) -> None:
        self._close()
        self._messages.append(message)

    def finish(self) -> list[Message]:
        self._close()
        return self._messages

    def _message(self, item: InputMessage) -> None:
        content = _text(item.content)
        if item.role == "assistant":
            self._texts.append(content)
        else:
            self.add(Message("user" if item.role == "user" else "system", content))

    def _result(self, item: CallOutput) -> None:
        name = self._names.get(item.call_id, "")
        message = Message("tool", _text(item.output), call_id=item.call_id, name=name)
        open_calls = {call.id for call in self._calls}
        if item.call_id in self._called or item.call_id in open_calls:
            self.add(message)
        else:
            self._early[item.call_id] = message

    def _close(self) -> None:
        """Ends the assistant's turn, if there is one; results that came before its calls follow it."""
        if not (self._reasoning or self._texts or self._calls):
            return
        calls = tuple(self._calls)
        text = "\n\n".join(text for text in self._texts if text)
        reasoning = "\n\n".join(text for text in self._reasoning if text)
        self._messages.append(Message("assistant", text, reasoning=reasoning, calls=calls))
        self._called.update(call.id for call in calls)
        self._messages += [self._early.pop(call.id) for call in calls if call.id in self._early]
        self._reasoning, self._texts, self._calls = [], [], []


def _tool_name(item: CallItem) -> str:
    return model_name(item.name, item.namespace)


def _call(item: CallItem) -> ToolCall:
    if isinstance(item, InputCustomToolCall):
        arguments = msgspec.json.encode({"input": item.input}).decode()
        return ToolCall(item.call_id, _tool_name(item), arguments)
    return ToolCall(item.call_id, _tool_name(item), item.arguments)


def _text(content: Content) -> str:
    """All text parts count; each was a paragraph of its own."""
    if isinstance(content, str):
        return content
    return "\n".join(getattr(part, "text", "") for part in content)
