"""Grammars as constraints on the tokens of one vocabulary, by llguidance.

Rules
* A grammar is compiled once and copied for each request that has the same; compiling takes up to a second, so it is
  for a thread of its own. The tables of the vocabulary are made when the first grammar comes.
* What llguidance cannot take is refused with its reason before anything is generated. What it cannot follow later (a
  grammar too ambiguous) ends that one sequence.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from antiphon.engine.base import EngineFailure, Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

# Compiled grammars that are kept: agents send the same tools again and again. One is some megabytes at most.
KEPT = 64

# Characters of a grammar: the tools of an agent have 100,000 and more.
GRAMMAR_LIMIT = 4 * 2**20

# Bytes of stack for reading a grammar. llguidance follows references by recursion, and ends the process where the usual
# 8 MiB do not suffice: some thousand definitions in a row. Its own bounds hold before this much is used.
STACK = 256 * 2**20

# Characters of a reason that are shown; llguidance may quote the whole grammar in it.
REASON_LIMIT = 400


class GrammarRefused(Exception):
    """The grammar engine cannot take it. The text is a reason for whoever wrote the grammar."""


class Grammars:
    """Compiles grammars for one vocabulary. Any thread may call."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._vocabulary: LLTokenizer | None = None
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()

    def constraint(self, grammar: str) -> GrammarConstraint:
        """A new constraint, at the start of a grammar. Raises `GrammarRefused`."""
        with self._lock:
            matcher = self._compiled.get(grammar)
            if matcher is None:
                matcher = self._compile(grammar)
                self._compiled[grammar] = matcher
                if len(self._compiled) > KEPT:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(grammar)
            return GrammarConstraint(matcher.deep_copy())

    def _compile(self, grammar: str) -> LLMatcher:
        from llguidance import LLMatcher

        if len(grammar) > GRAMMAR_LIMIT:
            raise GrammarRefused(f"it makes a grammar of {len(grammar)} characters; at most {GRAMMAR_LIMIT} are taken")
        if self._vocabulary is None:
            self._vocabulary = _vocabulary(self._tokenizer)
        vocabulary = self._vocabulary
        matcher = _with_deep_stack(lambda: LLMatcher(vocabulary, LLMatcher.grammar_from_lark(grammar), log_level=0))
        if matcher.is_error():
            raise GrammarRefused(_reason(matcher.get_error()))
        return matcher


class GrammarConstraint:
    """`engine.base.Constraint`: one output on its way through a grammar."""

    __slots__ = ("_matcher",)

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def allowed(self) -> bytes:
        mask = self._matcher.compute_logit_bias()
        if self._matcher.is_error():
            raise EngineFailure(f"the grammar cannot be followed: {_reason(self._matcher.get_error())}")
        return mask

    def accept(self, token: int) -> bool:
        return self._matcher.consume_token(token)

    @property
    def may_end(self) -> bool:
        return self._matcher.is_accepting()


class _Pieces:
    """What llguidance wants to know of a vocabulary."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        special = {*tokenizer.control, *tokenizer.end}
        self.tokens = [tokenizer.piece(token) for token in range(tokenizer.size)]
        if not tokenizer.end:
            special.add(len(self.tokens))
            self.tokens.append(b"<end>")  # It wants a token for the end; this one never comes.
        self.special_token_ids = sorted(special)
        self.eos_token_ids = sorted(tokenizer.end) or [len(self.tokens) - 1]
        self.eos_token_id = self.eos_token_ids[0]

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text.decode("utf-8", "replace"), control=False)


def _vocabulary(tokenizer: Tokenizer) -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    pieces = _Pieces(tokenizer)
    return LLTokenizer(TokenizerWrapper(pieces), eos_token=pieces.eos_token_ids)


T = TypeVar("T")


def _with_deep_stack(work: Callable[[], T]) -> T:
    """What `work` returns, from a thread with a stack of `STACK` bytes. Must not raise."""
    found: list[T] = []
    # The size is that of all threads that start now; one of somebody else's gets more than it needs.
    usual = threading.stack_size(STACK)
    try:
        thread = threading.Thread(target=lambda: found.append(work()), name="antiphon-grammar")
        thread.start()
    finally:
        threading.stack_size(usual)
    thread.join()
    return found[0]


def _reason(error: str) -> str:
    """The first line of what llguidance says; the others repeat the grammar."""
    line = error.strip().splitlines()[0] if error.strip() else "for no reason that it gives"
    return line if len(line) <= REASON_LIMIT else f"{line[:REASON_LIMIT]}..."


def fault(grammar: str) -> str | None:
    """Why a grammar without control tokens cannot be enforced; None if it can. Any thread; takes up to a second."""
    from llguidance import LLMatcher

    error = _with_deep_stack(lambda: LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(grammar)))
    return _reason(error) if error else None
