"""What a chat template can take, found out by trying (`template_probe`) and obeyed when shaping (`template_shape`)."""

from __future__ import annotations

import enum

from msgspec import Struct


class CallForm(enum.Enum):
    """How the template wants the arguments of a call.

    `TEXT` keeps the model's own spelling, so that the prompt of the next turn goes on where this one ended; it is used
    wherever the template writes the text as it writes the object.
    """

    OBJECT = "object"
    TEXT = "text"
    NONE = "none"  # the template ignores calls or raises on them, or we write them anyway


class TextWithCalls(enum.Enum):
    """What becomes of an assistant message that has both text and calls."""

    TOGETHER = "together"  # one message
    APART = "apart"  # the template drops one of them; two messages in a row work
    TWO_TURNS = "two turns"  # the template counts turns as well: words of the user stand between the two


class Capabilities(Struct, frozen=True, kw_only=True):
    """The defaults are the most able template: probing lowers them."""

    content_parts: bool = False  # content must be a list of parts, not a string
    alternates: bool = False  # user and assistant must take turns
    user_first: bool = False  # the assistant must not begin
    reasoning_always: bool = False  # every assistant message must have the reasoning key, even if empty
    system: bool = True
    several_leading_systems: bool = True
    later_systems: bool = True
    tools: bool = True
    system_tools: bool = False  # the template reads them, as JSON text, from the first system message
    full_schemas: bool = False  # parameters must have `required`, and each property one type and a description
    empty_tools: bool = False  # where there are no tools, `tools` must be an empty list, not none
    calls: CallForm = CallForm.OBJECT
    unparsed_arguments: bool = True  # arguments that are not a JSON object may stay a string
    short_call_ids: bool = False  # nine letters or digits, as Mistral's templates demand
    results: bool = True
    reasoning_key: str | None = "reasoning_content"
    text_with_calls: TextWithCalls = TextWithCalls.TOGETHER
    several_calls: bool = True
    thinking_switch: str | None = None  # the variable that turns thinking on and off
    effort_switch: str | None = None  # the variable that takes an effort word
    efforts: tuple[str, ...] = ()  # the words it takes

    @property
    def own_calls(self) -> bool:
        """Whether the template itself shows tools, and the calls of earlier turns."""
        return self.tools and self.calls is not CallForm.NONE
