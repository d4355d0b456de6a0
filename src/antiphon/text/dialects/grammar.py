"""What a model may write, as a grammar: the request's format and tools in the dialect's own markers.

Rules
* Thinking stays free: whatever stands between the tags of a thinking block is let through.
* With calls that are only allowed, text is free up to a marker of calls. From there on nothing but a call of a declared
  tool is let through, with arguments that are JSON, and all of its schema if it is strict.
* What a grammar lets through as a call, the dialect's parser reads as that call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from antiphon.text.dialects.dialect import Calling, Dialect
from antiphon.text.dialects.states import Tags
from antiphon.text.lark import Lark
from antiphon.text.messages import ToolDefinition

# "open": the prompt has opened a block. "forbidden": no block may be written; "closed": and the one that the prompt has
# opened is closed at once.
Thinking = Literal["none", "possible", "open", "forbidden", "closed"]

# Around markers, where templates show line feeds and some indent. Not `\s`, Unicode's, which no parser passes over.
SPACE = r"[ \t\r\n]{0,16}"


class Wanted(Struct, frozen=True, kw_only=True):
    """What a request wants of an output."""

    tools: Sequence[ToolDefinition] = ()  # those that may be called
    calls: Literal["none", "allowed", "required"] = "none"
    several: bool = True  # more than one call
    schema: Mapping[str, Any] | None = None  # of the visible text, which is JSON then; None: it is free
    thinking: Thinking = "none"

    @property
    def free(self) -> bool:
        """Whether nothing is asked for."""
        return self.schema is None and self.calls == "none" and not self.no_thinking

    @property
    def may_think(self) -> bool:
        return self.thinking in ("possible", "open")

    @property
    def no_thinking(self) -> bool:
        """Whether it is asked for that there be no thinking."""
        return self.thinking in ("forbidden", "closed")


def output_grammar(
    dialect: Dialect, wanted: Wanted, control: Mapping[int, str], check: Callable[[], None] = lambda: None
) -> str:
    """The grammar of an output. `wanted` is not free; calls are wanted of a dialect that has them only.

    Raises `ValueError` naming what cannot be said, and what `check`, which is called now and then, raises.
    """
    lark = Lark(control, check)
    form = dialect.own.grammar if dialect.own is not None else partial(_start, dialect)
    return lark.grammar(form(lark, wanted))


def _start(dialect: Dialect, lark: Lark, wanted: Wanted) -> str:
    return _Writer(dialect, wanted, lark).start()


class _Writer:
    def __init__(self, dialect: Dialect, wanted: Wanted, lark: Lark) -> None:
        self._wanted = wanted
        self._lark = lark
        self._thinking = dialect.thinking if wanted.may_think else None
        self._closed = dialect.thinking if wanted.no_thinking else None
        self._calling = dialect.calling if wanted.calls != "none" else None
        self._space = lark.matching(SPACE)

    def start(self) -> str:
        wanted = self._wanted
        if wanted.schema is None and wanted.calls == "allowed":
            body = self._between_texts()
        elif wanted.schema is None and wanted.calls == "none":
            body = self._text()
        else:
            body = f"{self._block()} ({' | '.join(self._ends())})"
        if wanted.thinking == "open" and self._thinking is not None:
            body = f"{self._lark.until(self._thinking.closing)} {self._space} {body}"
        elif wanted.thinking == "closed" and self._closed is not None:
            body = f"{self._space} {self._lark.spelled(self._closed.closing)} {self._space} {body}"
        return body

    def _ends(self) -> list[str]:
        """What the output is behind the thinking."""
        ends: list[str] = []
        if self._wanted.schema is not None and self._wanted.calls != "required":
            ends.append(self._lark.json(self._wanted.schema))
        if self._calling is not None:
            ends.append(self._all_calls(self._calling))
        return ends

    def _block(self) -> str:
        """A thinking block that may come first."""
        if self._thinking is None:
            return ""
        opening, closing = self._lark.spelled(self._thinking.opening), self._lark.until(self._thinking.closing)
        return f"({self._space} {opening} {closing} {self._space})?"

    def _between_texts(self) -> str:
        """Text, blocks and calls in any order."""
        assert self._calling is not None, "calls are allowed of a dialect that has none"
        if not _first(self._calling):
            return f"{self._block()} ({self._space} {self._all_calls(self._calling)} | {self._other_text()})"
        calls = f"{self._until(_first(self._calling))} {self._behind_first(self._calling)}"
        choices = [calls]
        if self._thinking is not None:
            opening, closing = self._lark.until(self._thinking.opening), self._lark.until(self._thinking.closing)
            choices.append(f"{opening} {closing}")
        if self._wanted.several:
            return f"({' | '.join(choices)})* {self._text()}"
        return f"{''.join(f'({block})* ' for block in choices[1:])}({calls} | {self._text()})"

    def _other_text(self) -> str:
        """Text that does not begin as a call would that has no marker."""
        assert self._calling is not None and self._calling.bare, "calls without a marker begin with a character"
        pattern = rf"[ \t\r\n]*([^ \t\r\n\{self._calling.bare}](?s:.*))?"
        return self._lark.matching(pattern, without=self._kept_out)

    def _text(self) -> str:
        """Visible text."""
        return self._lark.text(without=self._kept_out)

    def _until(self, marker: str) -> str:
        """Visible text up to a marker."""
        return self._lark.until(marker, without=self._kept_out)

    @property
    def _kept_out(self) -> str:
        """What visible text must not hold."""
        return self._closed.opening if self._closed is not None else ""

    def _all_calls(self, calling: Calling) -> str:
        first = _first(calling)
        return f"{self._lark.spelled(first) if first else ''} {self._behind_first(calling)}"

    def _behind_first(self, calling: Calling) -> str:
        """The calls of a turn behind the first marker."""
        spelled, space = self._lark.spelled, self._space
        again = f"{space} {self._opening(calling.tags)} {self._call(calling)}"
        more = f"({again})*" if self._wanted.several and not calling.listed else ""
        if calling.section is None:
            return f"{self._call(calling)} {more}"
        opening = f"{space} {self._opening(calling.tags)}"
        closing = spelled(calling.section.closing)
        return f"{opening} {self._call(calling)} {more} {space} {closing}"

    def _opening(self, tags: Tags) -> str:
        return self._lark.spelled(tags.opening) if tags.opening else ""

    def _call(self, calling: Calling) -> str:
        """A call behind its opening tag, or a list of them, with the closing tag."""
        lark, space = self._lark, self._space
        one = lark.rule(" | ".join(calling.call(lark, tool) for tool in self._wanted.tools))
        if calling.listed:
            more = f'({space} "," {space} {one})*' if self._wanted.several else ""
            one = f'"[" {space} {one} {more} {space} "]"'
        closing = f"{space} {lark.spelled(calling.tags.closing)}" if calling.tags.closing else ""
        return lark.rule(f"{space} {one} {closing}")


def _first(calling: Calling) -> str:
    """The marker that begins the calls of a turn; empty if none does."""
    return calling.section.opening if calling.section is not None else calling.tags.opening
