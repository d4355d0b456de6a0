"""From a request to the prompt's tokens, with what the chat template can and cannot take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from antiphon.protocol.errors import RequestRefused, unsupported
from antiphon.protocol.request import CreateResponse
from antiphon.serving.conversation import conversation, turns_of, without_oldest
from antiphon.serving.model import ServedModel
from antiphon.serving.toolbox import Toolbox
from antiphon.text.messages import Message
from antiphon.text.prompt import Bounds, Prompt, PromptTooLong, build_prompt
from antiphon.text.template import TemplateError

Build = Callable[[Sequence[Message]], Prompt]


def prompt_of(
    model: ServedModel, request: CreateResponse, toolbox: Toolbox, check: Callable[[], None] = lambda: None
) -> Prompt:
    """The prompt of a request. `check` is called now and then, and raises to stop the work.

    Raises `RequestRefused` if the template refuses it or it does not fit the context, and what `check` raises.
    """
    messages = conversation(request.fields.instructions, request.items)
    tools = [] if request.tool_choice == "none" else toolbox.definitions
    kwargs = _template_kwargs(model, request)
    bounds = Bounds(model.context_length - 1, check)  # One token at least must be left for the answer.

    def build(turns: Sequence[Message]) -> Prompt:
        try:
            return build_prompt(model.template, model.engine.tokenizer, turns, tools, kwargs, bounds)
        except TemplateError as error:
            message = f"The model's chat template refuses this conversation: {error}"
            raise RequestRefused(message, param="input") from None

    try:
        return _truncated(messages, build) if request.fields.truncation == "auto" else build(messages)
    except PromptTooLong as long:
        raise _too_long(model, long) from None


def _too_long(model: ServedModel, long: PromptTooLong) -> RequestRefused:
    """Counted to the last token only where that is not much work."""
    return RequestRefused(
        f"The input has {'at least ' if long.more else ''}{long.tokens} tokens; the context of this model holds "
        f"{model.context_length}, with at least one for the answer.",
        param="input",
        code="context_length_exceeded",
    )


def _truncated(messages: Sequence[Message], build: Build) -> Prompt:
    """Drops as few of the oldest turns as needed, found by halving: fewer turns never make a longer prompt.

    Raises `PromptTooLong` if the last turn alone does not fit.
    """
    low, high = 1, len(turns_of(messages)) - 1
    best = _fitting(messages, build)
    if best is not None:
        return best
    shortest = build(without_oldest(messages, max(high, 0)))
    while low <= high:
        middle = (low + high) // 2
        prompt = _fitting(without_oldest(messages, middle), build)
        if prompt is not None:
            best, high = prompt, middle - 1
        else:
            low = middle + 1
    return best or shortest


def _fitting(messages: Sequence[Message], build: Build) -> Prompt | None:
    try:
        return build(messages)
    except PromptTooLong:
        return None


def _template_kwargs(model: ServedModel, request: CreateResponse) -> Mapping[str, Any]:
    thinking, given = _thinking(model, request), request.fields.chat_template_kwargs or {}
    for name in thinking.keys() & given.keys():
        if given[name] != thinking[name]:
            message = f"`{name}` says otherwise than `reasoning.effort`."
            raise RequestRefused(message, param=f"chat_template_kwargs.{name}")
    return {**thinking, **given}


def applied_effort(model: ServedModel, request: CreateResponse) -> str | None:
    """The effort as the template takes it: the nearest word that it knows. Raises as `prompt_of`."""
    switch = model.template.capabilities.effort_switch
    word = _thinking(model, request).get(switch) if switch else None
    return request.effort if word is None else str(word)


def _thinking(model: ServedModel, request: CreateResponse) -> Mapping[str, Any]:
    """The template's variables for the effort.

    Where it has none, thinking can still be kept out of the answer, or the model does not think.
    """
    thinking = model.template.thinking_kwargs(request.effort)
    unthinking = request.effort == "none" and (model.can_forbid_thinking or model.never_thinks)
    if thinking is None and not unthinking:
        raise unsupported("reasoning.effort", "Choosing the effort, for which this model has no switch,")
    return thinking or {}
