"""The fold of a response's events: the non-streamed answer, the stored response and a replay are all made here.

It reads nothing but the events, so what it gives is what a client would put together from the stream.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from antiphon.protocol import events as ev
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response


class Fold:
    """The response so far. Finished items only: an item that is open shows up with its `output_item.done`."""

    def __init__(self) -> None:
        self._response: Response | None = None
        self._items: list[Item] = []
        self.last_number = -1

    def apply(self, events: Iterable[ev.Event]) -> None:
        """Goes on with the next events of the response, in order."""
        for event in events:
            self.last_number = event.sequence_number
            if isinstance(event, ev.OutputItemDone):
                self._items.append(event.item)
            elif isinstance(event, ev.LifecycleEvent):
                self._response = event.response

    @property
    def response(self) -> Response:
        """The object as of the last event. Raises `ValueError` before `response.created`."""
        if self._response is None:
            raise ValueError("no event has been applied")
        return replace(self._response, output=tuple(self._items))

    @property
    def ended(self) -> bool:
        """Whether the terminal event has been applied."""
        return self._response is not None and self._response.status not in ("queued", "in_progress")
