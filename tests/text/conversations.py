"""Conversations whose every word can be found again in a prompt."""

from __future__ import annotations

import re

from antiphon.text.messages import Message, ToolCall, ToolDefinition

PARAMETERS = {"type": "object", "properties": {"PARAM": {"type": "string"}}}
TOOLS = [ToolDefinition("FN", "DESCRIPTION", PARAMETERS), ToolDefinition("BARE")]
TOOL_WORDS = ["FN", "DESCRIPTION", "PARAM", "BARE"]


def call(number: int, arguments: str | None = None) -> ToolCall:
    text = f'{{"KEY{number}": "VAL{number}"}}' if arguments is None else arguments
    return ToolCall(f"call_{number:024}", "FN", text)


def result(number: int) -> Message:
    return Message("tool", f"RES{number}", call_id=call(number).id)


SYSTEM, SYSTEM2 = Message("system", "SYS1"), Message("system", "SYS2")
USER, USER2 = Message("user", "USR1"), Message("user", "USR2")
TEXT, TEXT2 = Message("assistant", "TXT1"), Message("assistant", "TXT2")
CALL = Message("assistant", calls=(call(1),))

CONVERSATIONS = {
    "one message": [USER],
    "several leading system messages": [SYSTEM, SYSTEM2, USER],
    "system message in the middle": [SYSTEM, USER, TEXT, SYSTEM2, USER2],
    "system message in the middle only": [USER, TEXT, SYSTEM, USER2],
    "system message at the end": [SYSTEM, USER, SYSTEM2],
    "system messages alone": [SYSTEM, SYSTEM2],
    "several lines": [
        Message("system", "SYS1\n\nSYS2"),
        Message("user", "USR1\nUSR2"),
        Message("assistant", "TXT1\nTXT2"),
        Message("user", "USR3"),
    ],
    "same role twice": [USER, USER2, TEXT, TEXT2, Message("user", "USR3")],
    "the assistant begins": [SYSTEM, TEXT, USER],
    "the assistant ends": [SYSTEM, USER, TEXT],
    "tool loop running": [SYSTEM, USER, CALL, result(1)],
    "tool loop done": [SYSTEM, USER, CALL, result(1), TEXT2, USER2],
    "text and call": [USER, Message("assistant", "TXT1", calls=(call(1),)), result(1), TEXT2, USER2],
    "text, then call": [USER, TEXT, CALL, result(1)],
    "several calls": [USER, Message("assistant", calls=(call(1), call(2))), result(1), result(2), TEXT2, USER2],
    "results out of order": [USER, Message("assistant", calls=(call(1), call(2))), result(2), result(1)],
    "result apart from its call": [USER, CALL, USER2, SYSTEM, result(1)],
    "loop of loops": [
        USER,
        Message("assistant", "TXT1", calls=(call(1), call(2))),
        result(1),
        result(2),
        SYSTEM,
        Message("assistant", "TXT2", calls=(call(3),)),
        result(3),
    ],
    "interrupted loop": [USER, CALL, result(1), USER2],
    "no arguments": [USER, Message("assistant", calls=(call(1, "{}"),)), result(1)],
    "nested arguments": [USER, Message("assistant", calls=(call(1, '{"KEY1": {"KEY2": ["VAL1", 4711]}}'),)), result(1)],
    "broken arguments": [USER, Message("assistant", calls=(call(1, '{"KEY1": VAL1'),)), result(1)],
    "arguments that are no object": [USER, Message("assistant", calls=(call(1, "VAL1"),)), result(1)],
}

# Results that a client did not send right behind their calls, in order.
MOVED = ("results out of order", "result apart from its call")
# Where calls stand alone, each is followed by its own result.
SPLIT = ("several calls", "loop of loops")


def needles(messages: list[Message]) -> list[str]:
    """The words of a conversation in order; of reasoning none, since it is shown or not as the template decides."""
    found: list[str] = []
    for message in messages:
        found += message.content.split()
        found += [word for c in message.calls for word in [c.name, *re.findall(r"KEY\d|VAL\d|4711", c.arguments)]]
    return found
