"""A model's chat template: messages and tool definitions in, the prompt's text out.

The template decides how the prompt looks; `template_shape` sees to it that nothing the client said is lost on the
way, whatever the template can take (`template_probe`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from antiphon.text.capabilities import Capabilities
from antiphon.text.messages import Message, ToolDefinition
from antiphon.text.template_environment import CompiledTemplate, TemplateError
from antiphon.text.template_probe import EFFORTS, probe
from antiphon.text.template_shape import Guard, guarded, shape, tool_entries, tools_variable
from antiphon.text.template_spelling import HERMES, Spelling

__all__ = ["CHATML", "ChatTemplate", "TemplateError", "opens_reasoning"]

CHATML = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{{ '<|im_start|>assistant\\n' }}"""


def opens_reasoning(prompt: str, opening: str = "<think>") -> bool:
    """Whether the model's output begins inside a thinking block, because the prompt has already opened it."""
    return prompt.rstrip().endswith(opening)


class ChatTemplate:
    """A compiled and probed template. Safe to use on any thread."""

    def __init__(
        self,
        source: str | None,
        *,
        bos_token: str,
        eos_token: str,
        now: Callable[[], datetime],
        spelling: Spelling = HERMES,
        own_calls: bool = True,
    ) -> None:
        """`source` None is the built-in ChatML template. Raises `TemplateError` if the source cannot be compiled.

        `spelling`: how thinking and calls are written that the template cannot show. Not `own_calls`: it is not asked
        to show tools and calls at all.
        """
        source = CHATML if source is None else source
        self._template = CompiledTemplate(source, now)
        self._fixed = {"bos_token": bos_token, "eos_token": eos_token, "add_generation_prompt": True}
        self._spelling = spelling
        self.capabilities: Capabilities = probe(self._render_shaped, source, spelling, own_calls=own_calls)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
        *,
        kwargs: Mapping[str, Any],
        guard: Guard = str,
    ) -> str:
        """The prompt's text, ending where the assistant's answer begins.

        `kwargs` are further variables of the template. `guard` is applied to every string of the arguments. Raises
        `TemplateError` if the template refuses the conversation.
        """
        try:
            entries = tool_entries(tools, self.capabilities, guard)
            shaped = shape(messages, entries, self.capabilities, guard, self._spelling)
            variables = {name: guarded(value, guard) for name, value in kwargs.items()}
        except RecursionError as error:
            raise TemplateError("The conversation's values are nested too deeply.") from error
        return self._render_shaped(shaped, tools_variable(entries, self.capabilities), variables)

    def _render_shaped(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, variables: Mapping[str, Any]
    ) -> str:
        fixed = {**self._fixed, "messages": messages, "tools": tools}
        taken = next((name for name in variables if name in fixed), None)
        if taken is not None:
            raise TemplateError(f"The template variable '{taken}' cannot be set by a request.")
        return self._template.render({**variables, **fixed})

    def thinking_kwargs(self, effort: str | None) -> Mapping[str, Any] | None:
        """The template's own variables for a reasoning effort.

        Empty for None. None if the template has no way to honour it. A word that the template does not know becomes the
        strongest it knows below, or else the one just above.
        """
        if effort is None:
            return {}
        able = self.capabilities
        kwargs: dict[str, Any] = {}
        if able.thinking_switch is not None:
            kwargs[able.thinking_switch] = effort != "none"
        word = _nearest(effort, able.efforts)
        if able.effort_switch is not None and word is not None:
            kwargs[able.effort_switch] = word
        return kwargs or None


def _nearest(effort: str, known: Sequence[str]) -> str | None:
    if effort not in EFFORTS:
        return None
    wanted = EFFORTS.index(effort)
    places = [EFFORTS.index(word) for word in known]
    below = [place for place in places if place <= wanted and (place > 0 or wanted == 0)]
    if below:
        return EFFORTS[max(below)]
    return EFFORTS[wanted + 1] if 0 < wanted and wanted + 1 in places else None
