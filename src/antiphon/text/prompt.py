"""From a conversation to prompt tokens. Control tokens come from the template alone.

Whoever writes `<|im_end|>` in a message, a tool's output or a tool's description has written ten characters, not a
control token. So every string of a request is broken by a sentinel character wherever a control token is spelled in
it, and where its end or beginning could be half of one that the template completes. After rendering, the text is
tokenized in pieces between those sentinels that really keep a control token apart; the others are just taken out.

Not covered: a template that writes both ends of a control token itself, round a client's word, or that changes letters
of a client's text until it spells one.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any

from msgspec import Struct

from antiphon.engine.base import Tokenizer
from antiphon.text.messages import Message, ToolDefinition
from antiphon.text.template import ChatTemplate, TemplateError

# Private-use characters from the end of the last plane, where no font or text puts any. The first one that does not
# occur in a request is its sentinel; a request with all of them is refused.
SENTINELS = tuple(map(chr, range(0x10FFF0, 0x10FFFE)))


# Characters that are searched at once: a search holds the interpreter, up to some 10 ms for so many.
WINDOW = 2**18


class Prompt(Struct, frozen=True):
    """`text` is what the tokens spell, without the beginning-of-sequence token if the template left it out."""

    text: str
    tokens: list[int]


class SentinelTaken(Exception):
    """The request has the sentinel as a character of its own."""


class PromptTooLong(Exception):
    """A prompt has more tokens than it may have: `tokens`, or if they were not all made (`more`), at least so many."""

    def __init__(self, tokens: int, *, more: bool) -> None:
        super().__init__(f"{tokens} tokens{' or more' if more else ''}")
        self.tokens = tokens
        self.more = more


def _go_on() -> None:
    """Nobody wants to stop."""


class Bounds(Struct, frozen=True):
    """How far a prompt is made: to `tokens` at most, and until `check`, called now and then, raises."""

    tokens: int = sys.maxsize
    check: Callable[[], None] = _go_on


UNBOUNDED = Bounds()


class Spellings:
    """How the control tokens of one vocabulary are spelled.

    A control token of a single character cannot be broken and is not guarded; no known vocabulary has one.
    """

    def __init__(self, spellings: Sequence[str]) -> None:
        words = sorted({word for word in spellings if len(word) > 1}, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, words)) or "(?!)")
        self._heads = frozenset(word[:length] for word in words for length in range(1, len(word)))
        self._tails = frozenset(word[-length:] for word in words for length in range(1, len(word)))
        self._first = _one_of({word[0] for word in words})
        self._last = _one_of({word[-1] for word in words})
        self._longest = len(words[0]) if words else 0

    def broken(self, text: str, sentinel: str) -> str:
        """`text` with the sentinel in every spelled control token, and at its ends where half of one stands."""
        if sentinel in text:
            raise SentinelTaken
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        if start < end and self._ends_in_head(text, end):
            text = text[:end] + sentinel + text[end:]
        if start < end and self._begins_with_tail(text, start):
            text = text[:start] + sentinel + text[start:]
        cuts = [match.start() + 1 for match in self._occurrences(text)]
        return sentinel.join(_cut(text, cuts)) if cuts else text

    def _ends_in_head(self, text: str, end: int) -> bool:
        starts = self._first.finditer(text, max(0, end - self._longest), end)
        return any(text[match.start() : end] in self._heads for match in starts)

    def _begins_with_tail(self, text: str, start: int) -> bool:
        ends = self._last.finditer(text, start, start + self._longest)
        return any(text[start : match.end()] in self._tails for match in ends)

    def keeping_apart(self, text: str, cuts: Sequence[int]) -> list[int]:
        """Those of the (ascending) cuts without which a control token would be read in `text`."""
        kept: set[int] = set()
        for match in self._occurrences(text):
            kept.update(cuts[bisect_right(cuts, match.start()) : bisect_left(cuts, match.end())])
        return sorted(kept)

    def _occurrences(self, text: str) -> Iterator[re.Match[str]]:
        """Every control token spelled in `text`, overlapping ones too, the longest at each place."""
        for start in range(0, len(text), WINDOW):
            end = start + WINDOW
            match = self._any.search(text, start, end + self._longest)
            while match is not None and match.start() < end:
                yield match
                match = self._any.search(text, match.start() + 1, end + self._longest)


def _cut(text: str, cuts: Sequence[int]) -> Iterator[str]:
    return (text[start:end] for start, end in pairwise([0, *cuts, len(text)]))


def _one_of(characters: set[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(characters))) or "(?!)")


@lru_cache(maxsize=8)  # one a loaded model
def _spellings(control: tuple[str, ...]) -> Spellings:
    return Spellings(control)


def spellings_of(tokenizer: Tokenizer) -> Spellings:
    """Compiled once a vocabulary."""
    return _spellings(tuple(tokenizer.control.values()))


def encode(rendered: str, sentinel: str, tokenizer: Tokenizer, bounds: Bounds = UNBOUNDED) -> list[int]:
    """The tokens of a rendered text with sentinels; control tokens are read only where no sentinel broke them.

    Raises `PromptTooLong` as soon as it is sure.
    """
    pieces = rendered.split(sentinel)
    text = "".join(pieces)
    _check_length(tokenizer.fewest(text, bounds.tokens + 1), bounds, more=True)
    cuts = list(accumulate(map(len, pieces[:-1])))
    kept = spellings_of(tokenizer).keeping_apart(text, cuts) if cuts else []
    tokens: list[int] = []
    for piece in _cut(text, kept):
        for part in tokenizer.parts(piece):
            bounds.check()
            _check_length(len(tokens), bounds, more=True)
            tokens += tokenizer.encode(part, control=True)
    return tokens


def _check_length(tokens: int, bounds: Bounds, *, more: bool) -> None:
    if tokens > bounds.tokens:
        raise PromptTooLong(tokens, more=more)


def build_prompt(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    tools: Sequence[ToolDefinition],
    kwargs: Mapping[str, Any],
    bounds: Bounds = UNBOUNDED,
) -> Prompt:
    """The prompt of a conversation, at least one token.

    Raises `TemplateError` if the template refuses it, `PromptTooLong`, and what `bounds.check` raises.
    """
    rendered, sentinel = _render(template, spellings_of(tokenizer), messages, tools, kwargs)
    bounds.check()
    tokens = encode(rendered, sentinel, tokenizer, bounds)
    if tokenizer.bos is not None and tokens[:1] != [tokenizer.bos]:
        tokens.insert(0, tokenizer.bos)
    if not tokens:
        raise TemplateError("The model's chat template renders nothing for this conversation.")
    _check_length(len(tokens), bounds, more=False)
    return Prompt(rendered.replace(sentinel, ""), tokens)


def _render(
    template: ChatTemplate,
    spellings: Spellings,
    messages: Sequence[Message],
    tools: Sequence[ToolDefinition],
    kwargs: Mapping[str, Any],
) -> tuple[str, str]:
    """The rendered text with sentinels, and the sentinel."""
    for sentinel in SENTINELS:
        try:
            guard = cache(partial(spellings.broken, sentinel=sentinel))  # schemas repeat the same few words
            return template.render(messages, tools, kwargs=kwargs, guard=guard), sentinel
        except SentinelTaken:
            continue
    raise TemplateError("The request uses every one of the private-use characters U+10FFF0 to U+10FFFD.")
