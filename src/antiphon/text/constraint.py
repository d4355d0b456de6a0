"""Grammars as constraints on the tokens of one vocabulary, by llguidance.

Rules
* A grammar is compiled once and copied for each request that has the same; compiling takes up to a second, so it is
  for a thread of its own. The tables of the vocabulary are made when the first grammar comes.
* What llguidance cannot take is refused with its reason before anything is generated. What it cannot follow later (a
  grammar too ambiguous) ends that one sequence.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from antiphon.engine.base import EngineFailure, Tokenizer
from antiphon.text.lark import GRAMMAR_LIMIT

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

# Characters of the compiled grammars that are kept: agents send the same tools again and again.
KEPT = 2**20

# Characters of all grammars that are in use or kept: 2 GB if every one is made to be large, and 1 % of that usually.
ALIVE = 8 * 2**20

# Bytes of stack for reading a grammar. llguidance follows references by recursion, and ends the process where the usual
# 8 MiB do not suffice: some thousand definitions in a row. Its own bounds hold before this much is used.
STACK = 256 * 2**20

# Symbols of a grammar; llguidance counts them with 16 bits, and panics above.
SYMBOLS = 50_000

# Characters of a reason that are shown; llguidance may quote the whole grammar in it.
REASON_LIMIT = 400


class GrammarRefused(Exception):
    """The grammar engine cannot take it. The text is a reason for whoever wrote the grammar."""


class GrammarsBusy(Exception):
    """Too many large grammars are in use; another time there may be room."""


class _Compiled:
    """A grammar at its start. Alive as long as anybody follows it."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        self.matcher = matcher
        self.size = size  # characters


class Grammars:
    """Compiles grammars for one vocabulary. Any thread may call."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._vocabulary: LLTokenizer | None = None
        self._vocabulary_lock = threading.Lock()
        self._lock = threading.Lock()  # over the two below
        self._kept: OrderedDict[str, _Compiled] = OrderedDict()
        self._alive: WeakSet[_Compiled] = WeakSet()

    def constraint(self, grammar: str) -> GrammarConstraint:
        """A new constraint, at the start of a grammar. Raises `GrammarRefused` and `GrammarsBusy`."""
        with self._lock:
            compiled = self._kept.get(grammar)
            if compiled is not None:
                self._kept.move_to_end(grammar)
                return GrammarConstraint(compiled)
            if len(grammar) <= GRAMMAR_LIMIT:
                self._make_room(len(grammar))
        compiled = self._compile(grammar)
        with self._lock:
            self._alive.add(compiled)
            self._kept[grammar] = compiled
            while sum(one.size for one in self._kept.values()) > KEPT:
                self._kept.popitem(last=False)
        return GrammarConstraint(compiled)

    def _make_room(self, size: int) -> None:
        if self._size() + size > ALIVE:
            self._kept.clear()
            if self._size() + size > ALIVE:
                raise GrammarsBusy

    def _size(self) -> int:
        return sum(compiled.size for compiled in self._alive)

    def _compile(self, grammar: str) -> _Compiled:
        from llguidance import LLMatcher, LLParserLimits

        if len(grammar) > GRAMMAR_LIMIT:
            raise GrammarRefused(_too_long(grammar))
        with self._vocabulary_lock:
            if self._vocabulary is None:
                self._vocabulary = _vocabulary(self._tokenizer)
            vocabulary = self._vocabulary
        text, limits = LLMatcher.grammar_from_lark(grammar), LLParserLimits(max_grammar_size=SYMBOLS)
        matcher = _with_deep_stack(lambda: LLMatcher(vocabulary, text, log_level=0, limits=limits))
        if matcher.is_error():
            raise GrammarRefused(_reason(matcher.get_error()))
        trial = matcher.deep_copy()
        if not any(trial.compute_logit_bias()) or trial.is_error():
            raise GrammarRefused("nothing obeys it, or it is too complex to follow")
        return _Compiled(matcher, len(grammar))


class GrammarConstraint:
    """`engine.base.Constraint`: one output on its way through a grammar."""

    __slots__ = ("_compiled", "_matcher")

    def __init__(self, compiled: _Compiled) -> None:
        self._compiled = compiled  # counts as in use
        self._matcher = compiled.matcher.deep_copy()

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


def _too_long(grammar: str) -> str:
    return f"it makes a grammar of {len(grammar)} characters; at most {GRAMMAR_LIMIT} are taken"


_PLACE = re.compile(r"^at \d+\(\d+\): ")

T = TypeVar("T")

_STARTING = threading.Lock()  # the size of stacks is the process's


def _with_deep_stack(work: Callable[[], T]) -> T:
    """What `work` returns, from a thread with a stack of `STACK` bytes. Must not raise."""
    found: list[T] = []
    # The size is that of all threads that start now; one of somebody else's gets more than it needs.
    thread = threading.Thread(target=lambda: found.append(work()), name="antiphon-grammar")
    with _STARTING:
        usual = threading.stack_size(STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    thread.join()
    return found[0]


def _reason(error: str) -> str:
    """What llguidance says, in one line, without the place in our grammar."""
    line = " ".join(_PLACE.sub("", error).split()) or "for no reason that it gives"
    return line if len(line) <= REASON_LIMIT else f"{line[:REASON_LIMIT]}..."


def fault(grammar: str) -> str | None:
    """Why a grammar without control tokens cannot be enforced; None if it can. Any thread; takes up to a second."""
    from llguidance import LLMatcher, LLParserLimits

    if len(grammar) > GRAMMAR_LIMIT:
        return _too_long(grammar)
    text, limits = LLMatcher.grammar_from_lark(grammar), LLParserLimits(max_grammar_size=SYMBOLS)
    error = _with_deep_stack(lambda: LLMatcher.validate_grammar(text, limits=limits))
    return _reason(error) if error else None
