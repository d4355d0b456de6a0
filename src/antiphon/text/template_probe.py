"""Finds out what a chat template can take, by rendering small conversations full of needles.

Reading the source cannot tell: templates rename, drop, hoist and raise in every way that a program can. So each
question is asked by trying: under which of the possible answers does everything that was said stand in the prompt? The
questions build on each other; each is rendered in the shape that the answers before it give.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from antiphon.text.capabilities import CallForm, Capabilities, TextWithCalls
from antiphon.text.messages import Message, ToolCall, ToolDefinition
from antiphon.text.template_environment import TemplateError
from antiphon.text.template_shape import shape, tool_entries, tools_variable

# Renders message and tool dictionaries with further variables; raises `TemplateError`.
Render = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None, Mapping[str, Any]], str]
Answer = Mapping[str, Any]  # fields of `Capabilities`

# Words that no template has of its own.
SYSTEM, SYSTEM2, SYSTEM3, USER, USER2, USER3 = "zqSys1", "zqSys2", "zqSys3", "zqUsr1", "zqUsr2", "zqUsr3"
TEXT, TEXT2, REASONING, RESULT, RESULT2 = "zqTxt1", "zqTxt2", "zqRsn1", "zqRes1", "zqRes2"
TOOL, TOOL2, DESCRIPTION, PARAMETER = "zqFn1", "zqFn2", "zqDsc1", "zqPar1"
KEY, VALUE, VALUE2 = "zqKey1", "zqVal1", "zqVal2"
NONSENSE = "zqWord1"

CALL = ToolCall("call_zq0000000000000000000001", TOOL, f'{{"{KEY}":  "{VALUE}"}}')  # two blanks: no serialiser's form
CALL2 = ToolCall("call_zq0000000000000000000002", TOOL2, f'{{"{KEY}": "{VALUE2}"}}')
UNPARSED = ToolCall(CALL.id, TOOL, f'{{"{KEY}": {VALUE}')
# As little as a client may send: no `required`, a property without a description.
DEFINITION = ToolDefinition(TOOL, DESCRIPTION, {"type": "object", "properties": {PARAMETER: {"type": "integer"}}})
# A dictionary printed by Python, or JSON inside a JSON string: the needles stand there, but no model reads it so.
GARBLED = (f"'{KEY}': '{VALUE}'", f'\\"{KEY}\\"')

ASKED = Message("user", USER)
CALLED = Message("assistant", calls=(CALL,))
ANSWERED = Message("tool", RESULT, call_id=CALL.id, name=TOOL)
ENDED = [Message("assistant", TEXT2), Message("user", USER2)]

# The words of `reasoning.effort` in the Responses API, weakest first.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# What templates that print any word they are given were trained on.
COMMON_EFFORTS = ("low", "medium", "high")
LEAST_EFFORTS = ("none", "minimal")
THINKING_SWITCHES = ("enable_thinking", "thinking")
EFFORT_SWITCHES = ("reasoning_effort", "thinking_effort")


class Question(Struct, frozen=True, kw_only=True):
    """The first answer under which every needle is rendered is true; the last one if there is no such answer.

    An empty answer leaves everything as it is.
    """

    answers: tuple[Answer, ...]
    messages: list[Message]
    needles: tuple[str, ...]
    garbled: tuple[str, ...] = ()
    tool_lists: tuple[tuple[ToolDefinition, ...], ...] = ((),)  # asked with each of them


def _choices(field: str, *values: Any) -> tuple[Answer, ...]:
    return tuple({field: value} for value in values)


def _combinations(**fields: tuple[Any, ...]) -> tuple[Answer, ...]:
    return tuple(dict(zip(fields, values, strict=True)) for values in itertools.product(*fields.values()))


QUESTIONS = (
    Question(
        answers=(*_combinations(content_parts=(False, True), empty_tools=(False, True)), {}),
        messages=[ASKED],
        needles=(USER,),
    ),
    Question(
        answers=(*_combinations(alternates=(False, True), reasoning_always=(False, True)), {}),
        messages=[
            Message("user", USER),
            Message("user", USER2),
            Message("assistant", TEXT),
            Message("assistant", TEXT2),
            Message("user", USER3),
        ],
        needles=(USER, USER2, TEXT, TEXT2, USER3),
    ),
    Question(
        answers=_choices("system", True, False), messages=[Message("system", SYSTEM), ASKED], needles=(SYSTEM, USER)
    ),
    Question(
        answers=_choices("several_leading_systems", True, False),
        messages=[Message("system", SYSTEM), Message("system", SYSTEM2), ASKED],
        needles=(SYSTEM, SYSTEM2, USER),
    ),
    Question(
        answers=({}, {"full_schemas": True}, {"tools": False}),
        messages=[Message("system", SYSTEM), ASKED],
        needles=(TOOL, DESCRIPTION, PARAMETER, SYSTEM, USER),
        tool_lists=((DEFINITION,),),
    ),
    Question(
        answers=(
            *_combinations(calls=tuple(CallForm), results=(True, False), short_call_ids=(False, True)),
            {"calls": CallForm.NONE, "results": False},
        ),
        messages=[ASKED, CALLED, ANSWERED, *ENDED],
        needles=(USER, TOOL, KEY, VALUE, RESULT, TEXT2, USER2),
        garbled=GARBLED,
        tool_lists=((), (DEFINITION,)),
    ),
    Question(
        answers=_choices("unparsed_arguments", True, False),
        messages=[ASKED, Message("assistant", calls=(UNPARSED,)), ANSWERED, *ENDED],
        needles=(VALUE,),
    ),
    Question(
        answers=_choices("reasoning_key", "reasoning_content", "reasoning", "thinking", None),
        messages=[ASKED, replace(CALLED, reasoning=REASONING), ANSWERED],
        needles=(REASONING, RESULT),
    ),
    Question(
        answers=_choices("text_with_calls", *TextWithCalls),
        messages=[ASKED, replace(CALLED, content=TEXT, reasoning=REASONING), ANSWERED, *ENDED],
        needles=(TEXT, VALUE, RESULT, TEXT2),
    ),
    Question(
        answers=_choices("several_calls", True, False),
        messages=[
            ASKED,
            Message("assistant", calls=(CALL, CALL2)),
            ANSWERED,
            Message("tool", RESULT2, call_id=CALL2.id, name=TOOL2),
            *ENDED,
        ],
        needles=(VALUE, VALUE2, RESULT, RESULT2),
    ),
    # Twice again: some show tools and system text only with a user message at the end.
    Question(
        answers=({}, {"tools": False}),
        messages=[ASKED, CALLED, ANSWERED],
        needles=(DESCRIPTION, PARAMETER, RESULT),
        tool_lists=((DEFINITION,),),
    ),
    Question(
        answers=_choices("system", True, False),
        messages=[Message("system", SYSTEM), ASKED, CALLED, ANSWERED],
        needles=(SYSTEM, USER, VALUE, RESULT),
    ),
    Question(
        answers=_choices("later_systems", True, False),
        messages=[
            Message("system", SYSTEM),
            ASKED,
            Message("assistant", TEXT),
            Message("system", SYSTEM2),
            Message("user", USER2),
            CALLED,
            ANSWERED,
            Message("system", SYSTEM3),
        ],
        needles=(SYSTEM, SYSTEM2, SYSTEM3, USER2, RESULT),
    ),
)


def probe(render: Render, source: str) -> Capabilities:
    """What the template can take. Renders it a few dozen times; never raises `TemplateError`."""
    prober = _Prober(render)
    found = Capabilities()
    for question in QUESTIONS:
        found = prober.answer(question, found)
    found = prober.prefer_text_calls(found)
    return prober.find_switches(found, source)


class _Prober:
    def __init__(self, render: Render) -> None:
        self._render = render

    def answer(self, question: Question, found: Capabilities) -> Capabilities:
        candidates = [replace(found, **answer) for answer in question.answers]
        return next((candidate for candidate in candidates if self._holds(question, candidate)), candidates[-1])

    def _holds(self, question: Question, candidate: Capabilities) -> bool:
        prompts = [self._try(question.messages, candidate, tools=tools) for tools in question.tool_lists]
        return all(prompt is not None and _says_all(prompt, question) for prompt in prompts)

    def _try(
        self,
        messages: list[Message],
        candidate: Capabilities,
        tools: Sequence[ToolDefinition] = (),
        variables: Answer | None = None,
    ) -> str | None:
        entries = tool_entries(tools, candidate, str)
        try:
            shaped = shape(messages, entries, candidate, str)
            return self._render(shaped, tools_variable(entries, candidate), variables or {})
        except TemplateError:
            return None

    def prefer_text_calls(self, found: Capabilities) -> Capabilities:
        """Takes the text form where it is rendered verbatim and says the same as the object, blanks aside."""
        if found.calls is not CallForm.OBJECT:
            return found
        conversation = [ASKED, CALLED, ANSWERED, *ENDED]
        as_object = self._try(conversation, found) or ""
        as_text = self._try(conversation, replace(found, calls=CallForm.TEXT)) or ""
        same = "".join(as_object.split()) == "".join(as_text.split())
        return replace(found, calls=CallForm.TEXT) if same and CALL.arguments in as_text else found

    def find_switches(self, found: Capabilities, source: str) -> Capabilities:
        def prompt_with(**variables: Any) -> str | None:
            return self._try([ASKED], found, variables=variables)

        thinking = next((s for s in THINKING_SWITCHES if prompt_with(**{s: True}) != prompt_with(**{s: False})), None)
        for switch in EFFORT_SWITCHES:
            words = _taken_words(lambda word, name=switch: prompt_with(**{name: word}), source)  # type: ignore[misc]
            if words:
                return replace(found, thinking_switch=thinking, effort_switch=switch, efforts=words)
        return replace(found, thinking_switch=thinking)


def _says_all(prompt: str, question: Question) -> bool:
    return all(text in prompt for text in question.needles) and not any(text in prompt for text in question.garbled)


def _taken_words(prompt_with: Callable[[str], str | None], source: str) -> tuple[str, ...]:
    """The effort words that the template takes; none if it treats all alike.

    A word is known if it renders otherwise than a word that means nothing. A template that knows some words treats
    the others as its default level: that is right for "low" and up, but no way to think less than that. A template that
    prints whatever it is given is believed to know the usual words, and those that its source quotes.
    """
    nonsense = prompt_with(NONSENSE)
    prompts = {word: prompt for word in EFFORTS if (prompt := prompt_with(word)) is not None}
    known = [word for word, prompt in prompts.items() if prompt != nonsense]
    if nonsense is not None and NONSENSE in nonsense:
        return tuple(w for w in known if w in COMMON_EFFORTS or f"'{w}'" in source or f'"{w}"' in source)
    return tuple(w for w in prompts if w in known or w not in LEAST_EFFORTS) if known else ()
