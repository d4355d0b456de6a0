"""`antiphon inspect`: how a model would be prompted and read, found out without its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec import Struct

from antiphon.cli.errors import CommandError
from antiphon.cli.models import megabytes
from antiphon.cli.progress import ProgressDisplay
from antiphon.engine.base import EngineFailure
from antiphon.engine.llama import Description, describe
from antiphon.hub import parse_model_name, resolve
from antiphon.hub.base import few, one_line
from antiphon.text.capabilities import CallForm, Capabilities, TextWithCalls
from antiphon.text.detect import Origin, fit
from antiphon.text.messages import Message, ToolDefinition
from antiphon.text.prompt import Prompt, build_prompt
from antiphon.text.template import TemplateError

SAMPLE = [Message("system", "You are a helpful assistant."), Message("user", "What is the weather in Paris?")]
SAMPLE_TOOL = ToolDefinition(
    "get_weather",
    "The weather of a place.",
    {
        "type": "object",
        "properties": {"place": {"type": "string", "description": "A city."}},
        "required": ["place"],
    },
)

ORIGINS: dict[Origin, str] = {
    "asked": "asked for",
    "told": "told by the chat template",
    "taught": "taught by Antiphon: the chat template has no form of calls that it knows",
}
TEXT_WITH_CALLS = {
    TextWithCalls.TOGETHER: "Text and calls of one turn share a message.",
    TextWithCalls.APART: "Text beside calls gets a message of its own.",
    TextWithCalls.TWO_TURNS: "Text beside calls gets a message of its own, and a placeholder of the user's follows it.",
}
CALLS = {
    CallForm.OBJECT: "Earlier calls are shown by the template, which writes their arguments anew.",
    CallForm.TEXT: "Earlier calls are shown by the template, with the arguments as the model wrote them.",
    CallForm.NONE: "Earlier calls are written out in the assistant's text.",
}


class Report(Struct, frozen=True, kw_only=True):
    """What is printed; with `--json`, these fields."""

    name: str
    path: str
    size: int  # bytes, all parts together
    trained_context: int  # tokens; 0: the file does not say
    served_context: int  # tokens, unless --context-length says otherwise
    dialect: str
    dialect_origin: Origin
    bos_token: str
    eos_token: str
    end_tokens: list[str]  # each ends an answer
    control_tokens: list[str]
    has_template: bool  # False: ChatML is used
    capabilities: Capabilities
    sample_prompt: str | None  # None: the template refuses it
    sample_tokens: int
    refusal: str | None


def inspect_model(name: str, cache: Path, out: TextIO, err: TextIO, *, offline: bool, as_json: bool) -> None:
    """Fetches the model if need be, and prints a report. Raises `CommandError` and `HubError`."""
    with ProgressDisplay(err) as display:
        file = resolve(parse_model_name(name), cache=cache, progress=display, offline=offline)
    try:
        report = report_on(describe(file.path), datetime.now)
    except EngineFailure as failure:
        raise CommandError(str(failure)) from failure
    except TemplateError as error:
        raise CommandError(f"the model's chat template cannot be used: {error}") from error
    if as_json:
        out.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
    else:
        out.writelines(f"{line}\n" for line in lines_of(report))


def report_on(described: Description, now: Callable[[], datetime]) -> Report:
    """Raises `TemplateError` if the template cannot be compiled."""
    info, tokenizer = described.info, described.tokenizer
    control = list(tokenizer.control.values())
    found = fit(info.chat_template, control, bos_token=info.bos_token, eos_token=info.eos_token, now=now)
    prompt: Prompt | None = None
    refusal: str | None = None
    try:
        prompt = build_prompt(found.template, tokenizer, SAMPLE, [SAMPLE_TOOL], {})
    except TemplateError as error:
        refusal = str(error)
    return Report(
        name=info.name,
        path=str(described.file.path),
        size=described.file.weights,
        trained_context=described.file.trained_context,
        served_context=info.context_length,
        dialect=found.dialect,
        dialect_origin=found.origin,
        bos_token=info.bos_token,
        eos_token=info.eos_token,
        end_tokens=[tokenizer.control[token] for token in sorted(tokenizer.end)],
        control_tokens=control,
        has_template=info.chat_template is not None,
        capabilities=found.template.capabilities,
        sample_prompt=prompt.text if prompt else None,
        sample_tokens=len(prompt.tokens) if prompt else 0,
        refusal=refusal,
    )


def lines_of(report: Report) -> Iterator[str]:
    """The report for a person. Names, tokens and prompt are a stranger's: nothing of them reaches the terminal as a
    command."""
    yield one_line(report.name)
    yield f"  file            {one_line(report.path)}, {megabytes(report.size)}"
    trained = f"{report.trained_context:,} as trained" if report.trained_context else "not told by the file"
    yield f"  context         {report.served_context:,} tokens by default; {trained}"
    yield f"  dialect         {report.dialect}, {ORIGINS[report.dialect_origin]}"
    yield f"  bos, eos        {_tokens([report.bos_token, report.eos_token])}"
    yield f"  ends an answer  {_tokens(report.end_tokens)}"
    yield f"  control tokens  {len(report.control_tokens)}: {_tokens(report.control_tokens)}"
    yield f"  chat template   {'its own' if report.has_template else 'none: ChatML is used'}"
    yield "\nWhat the template can take"
    for sentence in sentences(report.capabilities):
        yield f"  * {sentence}"
    if report.sample_prompt is None:
        yield f"\nThe template refuses a conversation with a tool: {one_line(report.refusal or '')}"
    else:
        yield f"\nA system message, a user message and a tool, {report.sample_tokens} tokens"
        yield from (f"  | {_printable(line)}" for line in report.sample_prompt.split("\n"))


def sentences(able: Capabilities) -> Iterator[str]:
    """What a template can take, in words."""
    yield _of_systems(able)
    if able.alternates:
        yield "User and assistant must take turns: neighbours are joined."
    if able.user_first:
        yield "The user must begin: where the assistant does, a placeholder stands before."
    if able.content_parts:
        yield "Content is a list of parts."
    yield "Tools are shown by the template." if able.tools else "Tools are described in the system text."
    yield CALLS[able.calls]
    yield "Results have a role of their own." if able.results else "Results are written into a user message."
    if not able.several_calls:
        yield "Each of several calls gets a message of its own, followed by its result."
    yield TEXT_WITH_CALLS[able.text_with_calls]
    if able.reasoning_key is None:
        yield "Thinking in a running tool loop is written out in the assistant's text."
    else:
        yield f"Earlier thinking is given to the template ({able.reasoning_key}), which decides what of it is shown."
    if able.thinking_switch is not None:
        yield f"Thinking can be switched on and off ({able.thinking_switch})."
    if able.effort_switch is not None:
        yield f"Effort of thinking: {', '.join(able.efforts)} ({able.effort_switch})."


def _of_systems(able: Capabilities) -> str:
    if not able.system:
        return "There is no system role: system text opens the first user message."
    if not able.later_systems:
        return "System text stands in one message at the beginning: later ones join it."
    if not able.several_leading_systems:
        return "System messages may stand anywhere; those at the beginning are joined."
    return "System messages may stand anywhere."


def _tokens(spellings: list[str]) -> str:
    return few([one_line(spelling) or "none" for spelling in spellings]) or "none"


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line)
