"""The one item that is open: its id, index and running text exist only here, and closing takes no text.

So an event with a wrong id, a wrong index or a text that is not the sum of its deltas cannot be written. Each class
knows the order of its own events (wire contract, section 3) and nothing of other items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from antiphon.protocol import events as ev
from antiphon.protocol.items import (
    CustomToolCall,
    FunctionCall,
    Item,
    ItemStatus,
    Logprob,
    Message,
    MessagePart,
    OutputText,
    Reasoning,
    ReasoningText,
    RefusalPart,
    SummaryText,
)

Number = Callable[[], int]
"""Gives the next sequence number of the response."""

Seal = Callable[[str], str]
"""Makes the `encrypted_content` of a thinking block out of its text."""


class OpenItem(Protocol):
    """What `ResponseStream` needs of any open item. `kind` is its name in the table of states."""

    kind: ClassVar[str]

    def opening(self) -> list[ev.Event]: ...

    def closing(self, status: ItemStatus) -> tuple[Item, list[ev.Event]]: ...


class _TextPart:
    """The open `output_text` part of a message."""

    def __init__(self, number: Number, item_id: str, output_index: int, content_index: int) -> None:
        self._number = number
        self._at = (item_id, output_index, content_index)
        self._pieces: list[str] = []
        self._logprobs: list[Logprob] = []

    def opening(self) -> ev.Event:
        return ev.ContentPartAdded(self._number(), *self._at, OutputText(""))

    def delta(self, text: str, logprobs: tuple[Logprob, ...]) -> ev.Event:
        self._pieces.append(text)
        if logprobs:
            self._logprobs += logprobs
        return ev.OutputTextDelta(self._number(), *self._at, text, logprobs)

    def closing(self) -> tuple[MessagePart, list[ev.Event]]:
        part = OutputText("".join(self._pieces), (), tuple(self._logprobs))
        done = ev.OutputTextDone(self._number(), *self._at, part.text, part.logprobs)
        return part, [done, ev.ContentPartDone(self._number(), *self._at, part)]


class _RefusalPart:
    """The open `refusal` part of a message."""

    def __init__(self, number: Number, item_id: str, output_index: int, content_index: int) -> None:
        self._number = number
        self._at = (item_id, output_index, content_index)
        self._pieces: list[str] = []

    def opening(self) -> ev.Event:
        return ev.ContentPartAdded(self._number(), *self._at, RefusalPart(""))

    def delta(self, text: str) -> ev.Event:
        self._pieces.append(text)
        return ev.RefusalDelta(self._number(), *self._at, text)

    def closing(self) -> tuple[MessagePart, list[ev.Event]]:
        part = RefusalPart("".join(self._pieces))
        done = ev.RefusalDone(self._number(), *self._at, part.refusal)
        return part, [done, ev.ContentPartDone(self._number(), *self._at, part)]


_P = TypeVar("_P", _TextPart, _RefusalPart)


class OpenMessage:
    """A message; its parts open one after another."""

    kind: ClassVar[str] = "message"

    def __init__(self, number: Number, item_id: str, output_index: int) -> None:
        self._number = number
        self._id = item_id
        self._index = output_index
        self._parts: list[MessagePart] = []
        self._part: _TextPart | _RefusalPart | None = None

    def opening(self) -> list[ev.Event]:
        item = Message(id=self._id, status="in_progress")
        return [ev.OutputItemAdded(self._number(), self._index, item)]

    def text(self, text: str, logprobs: tuple[Logprob, ...] = ()) -> list[ev.Event]:
        """A delta, with the change of part before it where one is needed."""
        if type(self._part) is _TextPart:
            return [self._part.delta(text, logprobs)]
        part, events = self._switch(_TextPart)
        return [*events, part.delta(text, logprobs)]

    def refusal(self, text: str) -> list[ev.Event]:
        if type(self._part) is _RefusalPart:
            return [self._part.delta(text)]
        part, events = self._switch(_RefusalPart)
        return [*events, part.delta(text)]

    def empty(self) -> list[ev.Event]:
        """Opens an `output_text` part to which nothing is added."""
        return self._switch(_TextPart)[1]

    def closing(self, status: ItemStatus) -> tuple[Item, list[ev.Event]]:
        events = self._close_part()
        item = Message(id=self._id, status=status, content=tuple(self._parts))
        return item, [*events, ev.OutputItemDone(self._number(), self._index, item)]

    def _switch(self, kind: type[_P]) -> tuple[_P, list[ev.Event]]:
        events: list[ev.Event] = self._close_part()
        self._part = part = kind(self._number, self._id, self._index, len(self._parts))
        return part, [*events, part.opening()]

    def _close_part(self) -> list[ev.Event]:
        if self._part is None:
            return []
        part, events = self._part.closing()
        self._parts.append(part)
        self._part = None
        return events


class ReasoningNames:
    """The classes of the reasoning events: OpenAI's names, or those of Open Responses (wire contract, section 7)."""

    def __init__(self, delta: type[ev.ReasoningTextDelta], done: type[ev.ReasoningTextDone]) -> None:
        self.delta = delta
        self.done = done


REASONING_NAMES = {
    "openai": ReasoningNames(ev.ReasoningTextDelta, ev.ReasoningTextDone),
    "open-responses": ReasoningNames(ev.ReasoningDelta, ev.ReasoningDone),
}


def _sealed(seal: Seal | None, text: str) -> str | UnsetType:
    """The `encrypted_content` of a block, also of one that was cut off: what it has come to is carried on as well."""
    return UNSET if seal is None else seal(text)


class OpenReasoning:
    """A thinking block whose text goes out as `reasoning_text`; sealed as well if there is a `seal`."""

    kind: ClassVar[str] = "reasoning"

    def __init__(
        self, number: Number, item_id: str, output_index: int, seal: Seal | None, names: ReasoningNames
    ) -> None:
        self._number = number
        self._id = item_id
        self._at = (item_id, output_index, 0)
        self._seal = seal
        self._names = names
        self._pieces: list[str] = []

    def opening(self) -> list[ev.Event]:
        item = Reasoning(id=self._id, status="in_progress")
        return [
            ev.OutputItemAdded(self._number(), self._at[1], item),
            ev.ContentPartAdded(self._number(), *self._at, ReasoningText("")),
        ]

    def reasoning(self, text: str) -> list[ev.Event]:
        self._pieces.append(text)
        return [self._names.delta(self._number(), *self._at, text)]

    def closing(self, status: ItemStatus) -> tuple[Item, list[ev.Event]]:
        part = ReasoningText("".join(self._pieces))
        item = Reasoning(id=self._id, status=status, content=(part,), encrypted_content=_sealed(self._seal, part.text))
        return item, [
            self._names.done(self._number(), *self._at, part.text),
            ev.ContentPartDone(self._number(), *self._at, part),
            ev.OutputItemDone(self._number(), self._at[1], item),
        ]


class OpenSummary:
    """A thinking block whose text goes out as its summary, because the request asks for one; `content` stays empty."""

    kind: ClassVar[str] = "reasoning"

    def __init__(self, number: Number, item_id: str, output_index: int, seal: Seal | None) -> None:
        self._number = number
        self._id = item_id
        self._at = (item_id, output_index, 0)
        self._seal = seal
        self._pieces: list[str] = []

    def opening(self) -> list[ev.Event]:
        item = Reasoning(id=self._id, status="in_progress")
        return [
            ev.OutputItemAdded(self._number(), self._at[1], item),
            ev.SummaryPartAdded(self._number(), *self._at, SummaryText("")),
        ]

    def reasoning(self, text: str) -> list[ev.Event]:
        self._pieces.append(text)
        return [ev.SummaryTextDelta(self._number(), *self._at, text)]

    def closing(self, status: ItemStatus) -> tuple[Item, list[ev.Event]]:
        part = SummaryText("".join(self._pieces))
        item = Reasoning(id=self._id, status=status, summary=(part,), encrypted_content=_sealed(self._seal, part.text))
        return item, [
            ev.SummaryTextDone(self._number(), *self._at, part.text),
            ev.SummaryPartDone(self._number(), *self._at, part),
            ev.OutputItemDone(self._number(), self._at[1], item),
        ]


class OpenCall:
    """A call of a tool; its arguments (a custom tool's input) are the model's own text."""

    kind: ClassVar[str] = "call"

    def __init__(self, number: Number, output_index: int, item: FunctionCall | CustomToolCall) -> None:
        self._number = number
        self._at = (item.id, output_index)
        self._item = item
        self._delta = ev.FunctionCallArgumentsDelta if isinstance(item, FunctionCall) else ev.CustomToolCallInputDelta
        self._pieces: list[str] = []

    def opening(self) -> list[ev.Event]:
        return [ev.OutputItemAdded(self._number(), self._at[1], self._item)]

    def arguments(self, text: str) -> list[ev.Event]:
        self._pieces.append(text)
        return [self._delta(self._number(), *self._at, text)]

    def closing(self, status: ItemStatus) -> tuple[Item, list[ev.Event]]:
        text = "".join(self._pieces)
        item: Item
        done: ev.Event
        if isinstance(self._item, FunctionCall):
            item = replace(self._item, arguments=text, status=status)
            done = ev.FunctionCallArgumentsDone(self._number(), *self._at, text, item.name)
        else:
            item = replace(self._item, input=text, status=status)
            done = ev.CustomToolCallInputDone(self._number(), *self._at, text)
        return item, [done, ev.OutputItemDone(self._number(), self._at[1], item)]
