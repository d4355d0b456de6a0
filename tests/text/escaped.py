"""Whether llguidance lets a text through, byte by byte, where it stands escaped between the quotes of a JSON string."""

from __future__ import annotations

import json
from typing import Any, Literal

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from antiphon.text.lark import Lark
from antiphon.text.messages import InputGrammar


class Bytes:
    """A vocabulary of the bytes and an end."""

    bos_token_id = None
    eos_token_id = 256
    special_token_ids = (256,)
    tokens = (*(bytes([n]) for n in range(256)), b"<end>")

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


VOCABULARY = LLTokenizer(TokenizerWrapper(Bytes()))


def matcher(grammar: str) -> LLMatcher:
    """At the start of a grammar in llguidance's Lark."""
    made = LLMatcher(VOCABULARY, LLMatcher.grammar_from_lark(grammar), log_level=0)
    assert not made.is_error(), f"{grammar}\n{made.get_error()}"
    return made


def passes(start: LLMatcher, text: str) -> bool:
    """Whether the text is one of the grammar that `start` is at the start of."""
    at, tokens = start.deep_copy(), list(text.encode())
    return at.try_consume_tokens(tokens) == len(tokens) and at.is_accepting()


def escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def input_matcher(definition: str, syntax: Literal["lark", "regex"] = "lark") -> LLMatcher:
    """At the start of the escaped text of an input."""
    lark = Lark({})
    return matcher(lark.grammar(lark.input_text(InputGrammar(syntax, definition))))


def takes(definition: str, text: str, syntax: Any = "lark") -> bool:
    return passes(input_matcher(definition, syntax), escaped(text))
