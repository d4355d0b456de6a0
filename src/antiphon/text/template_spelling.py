"""How families of models write thinking and calls: for what their chat templates do not write themselves.

Rule: a prompt shows one form of calls. What the model is told to write, what it sees of its earlier calls and what its
dialect reads are the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec
from msgspec import Struct


class CallSpelling(Struct, frozen=True, kw_only=True):
    """How the calls of a turn are written.

    `call` is a format string of one call: `{name}`, `{quoted}` (the name as a JSON string), `{arguments}` (JSON) and
    `{keywords}` (the arguments as `key=value`, values in JSON).
    """

    call: str
    between: str = "\n"
    opening: str = ""
    closing: str = ""
    # For the model, in words: how it writes one, and a sentence on more than one.
    manner: str = "as one JSON object"
    several: str

    def written(self, calls: Iterable[tuple[str, str]]) -> str:
        """The text of calls, given by names and arguments."""
        texts = (
            self.call.format(
                name=name,
                quoted=json.dumps(name, ensure_ascii=False),
                arguments=arguments,
                keywords=_keywords(arguments),
            )
            for name, arguments in calls
        )
        return self.opening + self.between.join(texts) + self.closing


class Spelling(Struct, frozen=True, kw_only=True):
    """What stands round thinking, and how calls are written; None: only the family's templates can write them."""

    thinking: tuple[str, str] | None = ("<think>\n", "\n</think>\n\n")
    calls: CallSpelling | None = None


def _keywords(arguments: str) -> str:
    """The text itself, if it is no JSON object."""
    try:
        values = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return arguments
    return ", ".join(f"{key}={bytes(value).decode()}" for key, value in values.items())


def _objects(opening: str, closing: str, *, name: str = "name", arguments: str = "arguments") -> CallSpelling:
    """A JSON list; `name` and `arguments` are the keys of its objects."""
    call = f'{{{{"{name}": {{quoted}}, "{arguments}": {{arguments}}}}}}'
    several = "Write several calls as one list."
    return CallSpelling(opening=opening, call=call, between=", ", closing=closing, several=several)


def _deepseek(call: str, between: str) -> CallSpelling:
    return CallSpelling(
        opening="<｜tool▁calls▁begin｜>",
        call=f"<｜tool▁call▁begin｜>{call}<｜tool▁call▁end｜>",
        between=between,
        closing="<｜tool▁calls▁end｜>",
        several="Write several calls in one section, one behind the other.",
    )


HERMES_CALLS = CallSpelling(
    call='<tool_call>\n{{"name": {quoted}, "arguments": {arguments}}}\n</tool_call>',
    several="Write one such block for each call.",
)
HERMES = Spelling(calls=HERMES_CALLS)

_MISTRAL_THINKING = ("[THINK]", "[/THINK]")

# By dialect. Families whose templates all write calls and thinking are not here.
SPELLINGS = {
    "hermes": HERMES,
    # Thinking is a message of its own, on a channel of its own.
    "gpt-oss": Spelling(thinking=None),
    "mistral": Spelling(
        thinking=_MISTRAL_THINKING,
        calls=CallSpelling(
            call="[TOOL_CALLS]{name}[ARGS]{arguments}", between="", several="Write several calls one behind the other."
        ),
    ),
    "mistral-list": Spelling(thinking=_MISTRAL_THINKING, calls=_objects("[TOOL_CALLS][", "]")),
    "granite": Spelling(calls=_objects("<|tool_call|>[", "]")),
    "command-r-plus": Spelling(
        calls=_objects("Action: ```json\n[", "]\n```", name="tool_name", arguments="parameters")
    ),
    "phi-4": Spelling(calls=_objects("<|tool_call|>[", "]<|/tool_call|>")),
    "lfm2": Spelling(
        calls=CallSpelling(
            opening="<|tool_call_start|>[",
            call="{name}({keywords})",
            between=", ",
            closing="]<|tool_call_end|>",
            manner="as a list of calls in Python",
            several="Write several calls as one list.",
        )
    ),
    "deepseek-v3": Spelling(calls=_deepseek("function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```", between="\n")),
    "deepseek-v3.1": Spelling(calls=_deepseek("{name}<｜tool▁sep｜>{arguments}", between="")),
}
