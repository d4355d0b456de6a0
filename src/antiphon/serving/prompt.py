"""From a request to the prompt's tokens, with what the chat template can and cannot take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.protocol.errors import RequestRefused, unsupported
from antiphon.protocol.request import CreateResponse
from antiphon.serving.conversation import conversation, tool_definitions, turns_of, without_oldest
from antiphon.serving.model import ServedModel
from antiphon.text.messages import Message
from antiphon.text.prompt import Prompt, build_prompt
from antiphon.text.template import TemplateError


def prompt_of(model: ServedModel, request: CreateResponse) -> Prompt:
    """The prompt of a request. Raises `RequestRefused` if the template refuses it or it does not fit the context."""
    messages = conversation(request.fields.instructions, request.items)
    tools = [] if request.tool_choice == "none" else tool_definitions(request.tools)
    kwargs = _template_kwargs(model, request)

    def build(turns: Sequence[Message]) -> Prompt:
        try:
            return build_prompt(model.template, model.engine.tokenizer, turns, tools, kwargs)
        except TemplateError as error:
            message = f"The model's chat template refuses this conversation: {error}"
            raise RequestRefused(message, param="input") from None

    prompt = build(messages)
    if _fits(model, prompt):
        return prompt
    if request.fields.truncation == "auto":
        return _truncated(model, messages, build)
    raise _too_long(model, prompt)


def _fits(model: ServedModel, prompt: Prompt) -> bool:
    """One token at least must be left for the answer."""
    return len(prompt.tokens) < model.context_length


def _too_long(model: ServedModel, prompt: Prompt) -> RequestRefused:
    return RequestRefused(
        f"The input has {len(prompt.tokens)} tokens; the context of this model holds {model.context_length}, "
        "with at least one for the answer.",
        param="input",
        code="context_length_exceeded",
    )


def _truncated(model: ServedModel, messages: Sequence[Message], build: Any) -> Prompt:
    """Drops as few of the oldest turns as needed, found by halving: fewer turns never make a longer prompt."""
    low, high = 1, len(turns_of(messages)) - 1
    best: Prompt | None = None
    shortest: Prompt = build(without_oldest(messages, max(high, 0)))
    if not _fits(model, shortest):
        raise _too_long(model, shortest)
    while low <= high:
        middle = (low + high) // 2
        prompt = build(without_oldest(messages, middle))
        if _fits(model, prompt):
            best, high = prompt, middle - 1
        else:
            low = middle + 1
    return best or shortest


def _template_kwargs(model: ServedModel, request: CreateResponse) -> Mapping[str, Any]:
    return {**_thinking(model, request), **(request.fields.chat_template_kwargs or {})}


def applied_effort(model: ServedModel, request: CreateResponse) -> str | None:
    """The effort as the template takes it: the nearest word that it knows. Raises as `prompt_of`."""
    reasoning = request.fields.reasoning
    effort = reasoning.effort if reasoning else None
    switch = model.template.capabilities.effort_switch
    word = _thinking(model, request).get(switch) if switch else None
    return effort if word is None else str(word)


def _thinking(model: ServedModel, request: CreateResponse) -> Mapping[str, Any]:
    reasoning = request.fields.reasoning
    thinking = model.template.thinking_kwargs(reasoning.effort if reasoning else None)
    if thinking is None:
        raise unsupported("reasoning.effort", "Choosing the effort, for which this model has no switch,")
    return thinking
