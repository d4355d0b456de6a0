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
from antiphon.text.template_spelling import Spelling

# Renders message and tool dictionaries with further variables; raises `TemplateError`.
Render = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None, Mapping[str, Any]], str]
Answer = Mapping[str, Any]  # fields of `Capabilities`

# Words that no template has of its own.
SYSTEM, SYSTEM2, SYSTEM3, USER, USER2, USER3 = "zqSys1", "zqSys2", "zqSys3", "zqUsr1", "zqUsr2", "zqUsr3"
TEXT, TEXT2, REASONING, RESULT, RESULT2 = "zqTxt1", "zqTxt2", "zqRsn1", "zqRes1", "zqRes2"
TOOL, TOOL2, DESCRIPTION = "zqFn1", "zqFn2", "zqDsc1"
PARAMETER, PARAMETER2, PARAMETER3 = "zqPar1", "zqPar2", "zqPar3"
KEY, VALUE, VALUE2 = "zqKey1", "zqVal1", "zqVal2"
NONSENSE = "zqWord1"

CALL = ToolCall("call_zq0000000000000000000001", TOOL, f'{{"{KEY}":  "{VALUE}"}}')  # two blanks: no serialiser's form
CALL2 = ToolCall("call_zq0000000000000000000002", TOOL2, f'{{"{KEY}": "{VALUE2}"}}')
UNPARSED = ToolCall(CALL.id, TOOL, f'{{"{KEY}": {VALUE}')
# As clients send them: no `required`, properties without a description, several types, an object that tells no more.
DEFINITION = ToolDefinition(
    TOOL,
    DESCRIPTION,
    {
        "type": "object",
        "properties": {PARAMETER: {"type": ["integer", "null"]}, PARAMETER2: {"type": "object"}, PARAMETER3: {}},
    },
)
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
    thinking: bool = False  # asked while the template's thinking is switched on, if it has a switch


def _choices(field: str, *values: Any) -> tuple[Answer, ...]:
    return tuple({field: value} for value in values)


def _combinations(**fields: tuple[Any, ...]) -> tuple[Answer, ...]:
    return tuple(dict(zip(fields, values, strict=True)) for values in itertools.product(*fields.values()))


# Asked before its switches are looked for.
FIRST_QUESTION = Question(
    answers=(*_combinations(content_parts=(False, True), empty_tools=(False, True)), {}),
    messages=[ASKED],
    needles=(USER,),
)
QUESTIONS = (
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
        answers=_choices("user_first", False, True), messages=[Message("assistant", TEXT), ASKED], needles=(TEXT, USER)
    ),
    Question(answers=({}, {"user_first": True}), messages=[Message("system", SYSTEM)], needles=(SYSTEM,)),
    Question(
        answers=({}, {"full_schemas": True}, {"system_tools": True}, {"tools": False}),
        messages=[Message("system", SYSTEM), ASKED],
        needles=(TOOL, DESCRIPTION, PARAMETER, PARAMETER2, PARAMETER3, SYSTEM, USER),
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
        thinking=True,
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


def probe(render: Render, source: str, spelling: Spelling, *, own_calls: bool) -> Capabilities:
    """What the template can take. Renders it a few dozen times; never raises `TemplateError`.

    Not `own_calls`: it is left neither tools nor calls, whatever it could do with them.
    """
    prober = _Prober(render, spelling, own_calls=own_calls)
    found = prober.answer(FIRST_QUESTION, Capabilities())
    found = prober.find_thinking_switch(found)
    for question in QUESTIONS:
        found = prober.answer(question, found)
    found = prober.prefer_text_calls(found)
    return prober.find_effort_switch(found, source)


class _Prober:
    def __init__(self, render: Render, spelling: Spelling, *, own_calls: bool) -> None:
        self._render = render
        self._spelling = spelling
        self._fixed: Answer = {} if own_calls else {"tools": False, "calls": CallForm.NONE}

    def answer(self, question: Question, found: Capabilities) -> Capabilities:
        candidates = [replace(found, **{**answer, **self._fixed}) for answer in question.answers]
        return next((candidate for candidate in candidates if self._holds(question, candidate)), candidates[-1])

    def _holds(self, question: Question, candidate: Capabilities) -> bool:
        variables = _thinking_on(candidate) if question.thinking else {}
        prompts = [self._try(question.messages, candidate, variables, tools) for tools in question.tool_lists]
        return all(prompt is not None and _says_all(prompt, question) for prompt in prompts)

    def _try(
        self,
        messages: list[Message],
        candidate: Capabilities,
        variables: Answer,
        tools: Sequence[ToolDefinition] = (),
    ) -> str | None:
        entries = tool_entries(tools, candidate, str)
        try:
            shaped = shape(messages, entries, candidate, str, self._spelling)
            return self._render(shaped, tools_variable(entries, candidate), variables)
        except TemplateError:
            return None

    def prefer_text_calls(self, found: Capabilities) -> Capabilities:
        """Takes the text form where it is rendered verbatim and says the same as the object, blanks aside."""
        if found.calls is not CallForm.OBJECT:
            return found
        conversation = [ASKED, CALLED, ANSWERED, *ENDED]
        as_object = self._try(conversation, found, {}) or ""
        as_text = self._try(conversation, replace(found, calls=CallForm.TEXT), {}) or ""
        same = "".join(as_object.split()) == "".join(as_text.split())
        return replace(found, calls=CallForm.TEXT) if same and CALL.arguments in as_text else found

    def find_thinking_switch(self, found: Capabilities) -> Capabilities:
        def prompt_with(name: str, value: bool) -> str | None:
            return self._try([ASKED], found, {name: value})

        working = (name for name in THINKING_SWITCHES if prompt_with(name, True) != prompt_with(name, False))
        return replace(found, thinking_switch=next(working, None))

    def find_effort_switch(self, found: Capabilities, source: str) -> Capabilities:
        """Tried while the template thinks: some have efforts only then."""
        for name in EFFORT_SWITCHES:
            prompts = {
                word: self._try([ASKED], found, {**_thinking_on(found), name: word}) for word in (*EFFORTS, NONSENSE)
            }
            words = _taken_words(prompts, source)
            if words:
                return replace(found, effort_switch=name, efforts=words)
        return found


def _thinking_on(found: Capabilities) -> Answer:
    return {} if found.thinking_switch is None else {found.thinking_switch: True}


def _says_all(prompt: str, question: Question) -> bool:
    return all(text in prompt for text in question.needles) and not any(text in prompt for text in question.garbled)


def _taken_words(prompts: Mapping[str, str | None], source: str) -> tuple[str, ...]:
    """The effort words that the template takes; none if it treats all alike. `prompts`: what it makes of each.

    A word is known if it renders otherwise than a word that means nothing. A template that knows some words treats
    the others as its default level: that is right for "low" and up, but no way to think less than that. A template that
    prints whatever it is given is believed to know the usual words, and those that its source quotes.
    """
    nonsense = prompts[NONSENSE]
    taken = [word for word in EFFORTS if prompts[word] is not None]
    known = [word for word in taken if prompts[word] != nonsense]
    if nonsense is not None and NONSENSE in nonsense:
        return tuple(w for w in known if w in COMMON_EFFORTS or f"'{w}'" in source or f'"{w}"' in source)
    return tuple(w for w in taken if w in known or w not in LEAST_EFFORTS) if known else ()
