"""A loaded model with all that its requests share: template, vocabulary, dialect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime

from antiphon.engine.base import Engine, EngineFailure
from antiphon.text.constraint import Grammars
from antiphon.text.detect import fit
from antiphon.text.detokenizer import Vocabulary
from antiphon.text.dialects import DIALECTS, Parser, Tools
from antiphon.text.dialects.grammar import Thinking
from antiphon.text.prompt import Prompt
from antiphon.text.template import opens_reasoning

_OF_THINKING = re.compile("think|reason", re.IGNORECASE)


class ServedModel:
    """Made once, when the engine has loaded."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str | None = None,
        dialect: str | None = None,
        now: Callable[[], datetime],
        created_at: int,
    ) -> None:
        info = engine.info
        self.engine = engine
        self.name = name or info.name
        self.created_at = created_at
        self.context_length = info.context_length
        asked = dialect or info.dialect
        if asked is not None and asked not in DIALECTS:
            raise EngineFailure(f"unknown dialect {asked!r}; there are {', '.join(sorted(DIALECTS))}")
        self._spellings = frozenset(engine.tokenizer.control.values())
        found = fit(
            info.chat_template,
            self._spellings,
            asked=asked,
            bos_token=info.bos_token,
            eos_token=info.eos_token,
            now=now,
        )
        self.template = found.template
        self.form = DIALECTS[found.dialect]
        self.vocabulary = Vocabulary(engine.tokenizer)
        self.grammars = Grammars(engine.tokenizer)
        thinking, template = self.form.thinking, info.chat_template or ""
        # A model that never saw the marker would be tempted to write it only because a grammar lets it.
        self._thinks = thinking is not None and (thinking.opening in template or not info.chooses)
        # Thinking can be kept out of an answer whose tokens are chosen, where the dialect knows its marker: a template
        # that speaks of it without that marker has one of its own.
        marked = thinking is not None and (thinking.opening in template or not _OF_THINKING.search(template))
        self.can_forbid_thinking = marked and info.chooses
        self.never_thinks = thinking is None and not _OF_THINKING.search(template)

    @property
    def control(self) -> Mapping[int, str]:
        """The vocabulary's control tokens."""
        return self.engine.tokenizer.control

    @property
    def can_call(self) -> bool:
        """Whether its dialect has a form for calls."""
        return self.form.calling is not None or self.form.own is not None

    def parser(self, prompt: Prompt, tools: Tools, *, calls: bool, one_value: bool = False) -> Parser:
        """A parser for the answer to a prompt; `one_value`: its visible text is one JSON value."""
        return self.form.parser(
            tools=tools,
            calls=calls,
            control=self._spellings,
            reasoning_open=self._opens_thinking(prompt),
            one_value=one_value,
        )

    def thinking(self, prompt: Prompt, *, marked: bool, forbidden: bool) -> Thinking:
        """How the answer to a prompt may think. `marked`: what stands between the markers counts as thinking, whether
        the model was taught them or not. `forbidden`: it must not."""
        if self._opens_thinking(prompt):
            return "closed" if forbidden else "open"
        if forbidden:
            return "forbidden"
        return "possible" if self._thinks or (marked and self.form.thinking is not None) else "none"

    def _opens_thinking(self, prompt: Prompt) -> bool:
        """Whether the output begins inside a thinking block, because the prompt has already opened it."""
        return self.form.thinking is not None and opens_reasoning(prompt.text, self.form.thinking.opening)
