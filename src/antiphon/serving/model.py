"""A loaded model with all that its requests share: template, vocabulary, dialect."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from antiphon.engine.base import Engine, EngineFailure
from antiphon.text.detokenizer import Vocabulary
from antiphon.text.dialects import DEFAULT_DIALECT, DIALECTS, Parser, Tools
from antiphon.text.prompt import Prompt
from antiphon.text.template import ChatTemplate, opens_reasoning


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
        self.template = ChatTemplate(info.chat_template, bos_token=info.bos_token, eos_token=info.eos_token, now=now)
        self.dialect = dialect or info.dialect or DEFAULT_DIALECT
        if self.dialect not in DIALECTS:
            raise EngineFailure(f"unknown dialect {self.dialect!r}; there are {', '.join(sorted(DIALECTS))}")
        self.vocabulary = Vocabulary(engine.tokenizer)
        self._control = frozenset(engine.tokenizer.control.values())

    def parser(self, prompt: Prompt, tools: Tools, *, calls: bool) -> Parser:
        """A parser for the answer to a prompt."""
        return DIALECTS[self.dialect].parser(
            tools=tools,
            calls=calls,
            control=self._control,
            reasoning_open=opens_reasoning(prompt.text),
        )
