"""Steps of tokens in, fragments out: detokenizer, dialect and stop strings in a row, and the counting of tokens.

Rules
* Tokens are counted here, from ids: all that were read, and those that made the text of thinking blocks (not the
  markers round it, however many tokens spell them).
* What a step says is read at once where that cannot matter, and token by token where it can: for log-probabilities, for
  stop strings and for counting reasoning.
* Neighbouring fragments of one kind that come from one reading are one fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from antiphon.engine.base import Step, TokenLogprob
from antiphon.protocol.fragments import Arguments, CallDone, Fragment, Reasoning, Text
from antiphon.protocol.items import Logprob, TopLogprob
from antiphon.text.detokenizer import ControlToken, Detokenizer, Vocabulary
from antiphon.text.dialects.machine import Parser
from antiphon.text.stop import StopMatcher


class OutputReader:
    """Reads one sequence. `ended` says that a stop string or the one allowed call has ended the answer early."""

    __slots__ = (
        "_detokenizer",
        "_entries",
        "_one_call",
        "_parser",
        "_stop",
        "_undecided",
        "_vocabulary",
        "ended",
        "output_tokens",
        "reasoning_tokens",
    )

    def __init__(
        self, vocabulary: Vocabulary, parser: Parser, *, stops: Sequence[str] = (), one_call: bool = False
    ) -> None:
        self._vocabulary = vocabulary
        self._detokenizer = Detokenizer(vocabulary)
        self._parser = parser
        self._stop = StopMatcher(stops) if stops else None
        self._one_call = one_call
        self._entries: list[Logprob] = []
        self._undecided = 0
        self.ended = False
        self.output_tokens = 0
        self.reasoning_tokens = 0

    @property
    def misread(self) -> int:
        """How often something began as a call does and was text."""
        return self._parser.misread

    def read(self, steps: Iterable[Step]) -> list[Fragment]:
        """The fragments of some steps, neighbours merged. Reads nothing after `ended`."""
        fragments: list[Fragment] = []
        for step in steps:
            for n, token in enumerate(step.tokens):
                if self.ended:
                    return merged(fragments)
                logprob = step.logprobs[n] if step.logprobs else None
                fragments += self._token(token, logprob)
        return merged(fragments) if len(fragments) > 1 else fragments

    def finish(self) -> list[Fragment]:
        """The end of the output: what was held back."""
        if self.ended:
            return []
        self._detokenizer.finish()
        fragments = self._parser.finish()
        self._count_reasoning(fragments, inside=False)
        fragments = self._through_stop(self._with_entries(fragments))
        if self._stop is not None and not self.ended:
            fragments += self._stop.finish()
        return merged(fragments)

    def _token(self, token: int, logprob: TokenLogprob | None) -> list[Fragment]:
        parser = self._parser
        before = parser.in_reasoning
        fragments: list[Fragment] = []
        for piece in self._detokenizer.feed((token,)):
            fragments += parser.control(piece.text) if type(piece) is ControlToken else parser.feed(piece)  # type: ignore[arg-type]
        self.output_tokens += 1
        if before or parser.in_reasoning:
            self._count_reasoning(fragments, inside=before)
        # A control token that shows nothing is no part of any text, and must not be taken for the start of one.
        if logprob is not None and (fragments or token not in self._vocabulary.control):
            self._entries.append(self._entry(logprob))
            fragments = self._with_entries(fragments)
        if self._one_call:
            fragments = self._cut_after_call(fragments)
        return fragments if self._stop is None else self._through_stop(fragments)

    def _count_reasoning(self, fragments: Sequence[Fragment], *, inside: bool) -> None:
        """Tokens that come `inside` a block wait until it is known whether they are text or half of the closing marker.

        One that opens the block counts only if it holds text as well.
        """
        self._undecided += inside
        if any(type(fragment) is Reasoning for fragment in fragments):
            self.reasoning_tokens += self._undecided
            self._undecided = 0
        if not self._parser.in_reasoning:
            self._undecided = 0

    def _cut_after_call(self, fragments: list[Fragment]) -> list[Fragment]:
        for n, fragment in enumerate(fragments):
            if type(fragment) is CallDone:
                self.ended = True
                return fragments[: n + 1]
        return fragments

    def _through_stop(self, fragments: list[Fragment]) -> list[Fragment]:
        if self._stop is None:
            return fragments
        passed = [out for fragment in fragments for out in self._stop.feed(fragment)]
        self.ended = self.ended or self._stop.matched is not None
        return passed

    def _with_entries(self, fragments: list[Fragment]) -> list[Fragment]:
        """Gives the waiting log-probabilities to the text they made; those of markers and thinking are nobody's."""
        if not self._entries:
            return fragments
        scored: list[Fragment] = []
        for fragment in fragments:
            if type(fragment) is Text:
                scored += self._scored(fragment.text)
            else:
                self._entries.clear()
                scored.append(fragment)
        return scored

    def _scored(self, text: str) -> list[Text]:
        """The text cut at its tokens. Entries before it were separators; those behind it are held back, and wait."""
        data = text.encode()
        spelled = b"".join(bytes(entry.bytes) for entry in self._entries)
        start = 0 if spelled.startswith(data) else spelled.rfind(data)
        entries, self._entries = self._entries, []
        if start < 0:  # the bytes were not UTF-8: the text does not show them
            return [Text(text, tuple(entries))]
        pieces: list[Text] = []
        group: list[Logprob] = []
        at, begin = -start, 0  # where the entry stands in the text, where the group does
        for n, entry in enumerate(entries):
            if at >= len(data):
                self._entries = entries[n:]
                break
            at += len(entry.bytes)
            if at > 0:
                group.append(entry)
                if at >= len(data) or data[at] & 0xC0 != 0x80:  # between two characters
                    pieces.append(Text(data[begin:at].decode(), tuple(group)))
                    group, begin = [], at
        return pieces

    def _entry(self, logprob: TokenLogprob) -> Logprob:
        top = [self._top(token, value) for token, value in logprob.top]
        text, piece = self._spell(logprob.token)
        return Logprob(text, logprob.logprob, piece, top)

    def _top(self, token: int, value: float) -> TopLogprob:
        text, piece = self._spell(token)
        return TopLogprob(text, value, piece)

    def _spell(self, token: int) -> tuple[str, list[int]]:
        known = self._vocabulary.look_up(token)
        if isinstance(known, bytes):
            return known.decode("utf-8", "replace"), list(known)
        text = known.text if isinstance(known, ControlToken) else known
        return text, list(text.encode())


def merged(fragments: Iterable[Fragment]) -> list[Fragment]:
    """The same output in as few fragments as possible."""
    out: list[Fragment] = []
    for kind, group in groupby(fragments, type):
        run = list(group)
        out += [_joined(run)] if kind in (Text, Reasoning, Arguments) and len(run) > 1 else run
    return out


def _joined(run: Sequence[Any]) -> Fragment:
    text = "".join(fragment.text for fragment in run)
    if isinstance(run[0], Text):
        return Text(text, tuple(entry for fragment in run for entry in fragment.logprobs))
    return Reasoning(text) if isinstance(run[0], Reasoning) else Arguments(text)
