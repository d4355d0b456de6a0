"""What must be made of a request before the engine can take it, and takes long enough for a thread."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from antiphon.engine.base import Constraint
from antiphon.protocol.input_items import AdditionalTools
from antiphon.protocol.request import CreateResponse, TextFormat
from antiphon.serving.constraint import constraint_of
from antiphon.serving.model import ServedModel
from antiphon.serving.prompt import prompt_of
from antiphon.serving.toolbox import Toolbox
from antiphon.text.prompt import Prompt

INLINE_PROMPT = 16 * 1024
"""Bytes of a body whose prompt is made on the event loop (10 to 20 ms); a larger one goes to a thread."""


class Prepared(Struct, frozen=True):
    """The prompt, and what its answer must be."""

    prompt: Prompt
    constraint: Constraint | None


def is_quick(request: CreateResponse) -> bool:
    """Whether preparing takes no longer than the event loop can wait: a grammar may take a second."""
    declares = request.tools or any(isinstance(item, AdditionalTools) for item in request.items)
    demands = declares or not isinstance(request.format, TextFormat) or request.effort == "none"
    return request.size <= INLINE_PROMPT and not demands


def prepare(
    model: ServedModel, request: CreateResponse, toolbox: Toolbox, check: Callable[[], None] = lambda: None
) -> Prepared:
    """Raises as `prompt_of` and `constraint_of` do."""
    prompt = prompt_of(model, request, toolbox, check)
    check()
    return Prepared(prompt, constraint_of(model, request, toolbox, prompt, check))
