"""What a request means for the engine and for the reading of its output."""

from __future__ import annotations

from antiphon.engine.base import Sampling
from antiphon.protocol.errors import RequestRefused
from antiphon.protocol.request import LOGPROBS, CreateResponse, TextFormat
from antiphon.protocol.tools import AllowedTools
from antiphon.serving.model import ServedModel
from antiphon.serving.output import OutputReader
from antiphon.serving.toolbox import Toolbox
from antiphon.text.prompt import Prompt
from antiphon.text.tool_input import ToolInputs


def output_reader(model: ServedModel, prompt: Prompt, request: CreateResponse, toolbox: Toolbox) -> OutputReader:
    """What reads the answer to a prompt."""
    tools = toolbox.schemas()
    choice = request.tool_choice
    nothing = choice == "none" or (isinstance(choice, AllowedTools) and not choice.tools)
    calls = bool(tools) and not nothing
    parser = model.parser(prompt, tools, calls=calls, one_value=not isinstance(request.format, TextFormat))
    if toolbox.renames:
        parser = ToolInputs(parser, toolbox.restored)
    one_call = request.fields.parallel_tool_calls is False
    return OutputReader(model.vocabulary, parser, stops=request.stops, one_call=one_call)


def sampling_of(request: CreateResponse, model: ServedModel) -> Sampling:
    """How the request wants tokens chosen. Raises `RequestRefused` for a `logit_bias` of no token."""
    fields = request.fields
    defaults = Sampling()
    return Sampling(
        temperature=_or(fields.temperature, defaults.temperature),
        top_p=_or(fields.top_p, defaults.top_p),
        top_k=fields.top_k or defaults.top_k,
        min_p=_or(fields.min_p, defaults.min_p),
        repetition_penalty=_or(fields.repetition_penalty, defaults.repetition_penalty),
        presence_penalty=_or(fields.presence_penalty, defaults.presence_penalty),
        frequency_penalty=_or(fields.frequency_penalty, defaults.frequency_penalty),
        seed=fields.seed,
        logit_bias=_logit_bias(fields.logit_bias or {}, model.engine.tokenizer.size),
        top_logprobs=(fields.top_logprobs or 0) if LOGPROBS in request.include else None,
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _logit_bias(bias: dict[str, float], size: int) -> dict[int, float]:
    for key in bias:
        if not (key.isascii() and key.isdecimal() and len(key) < 10 and key == str(int(key)) and int(key) < size):
            message = f"{key!r} is no token id of this model (0 to {size - 1})."
            raise RequestRefused(message, param=f"logit_bias.{key}")
    return {int(key): value for key, value in bias.items()}
