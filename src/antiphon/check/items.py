"""The item that is open, gathered from its events and compared with what the stream says it became."""

from __future__ import annotations

import re
from typing import Any

from antiphon.check.kinds import same
from antiphon.check.tables import (
    CALL_PREFIX,
    INDEX_KEY,
    INSIDE,
    ITEM_LATE,
    ITEM_PARTS,
    ITEM_PREFIX,
    ITEM_TEXT,
    PART_TEXT,
    Inside,
)
from antiphon.check.violation import Report

_UNGUESSABLE = re.compile(r"[A-Za-z0-9_-]{24,}")


def check_id(value: str, prefix: str, report: Report) -> None:
    if not value.startswith(prefix) or not _UNGUESSABLE.fullmatch(value, len(prefix)):
        report("id.format", f"{value!r} is not {prefix!r} and at least 24 letters, digits, - or _")


class Ids:
    """The ids of the items of one response, and of their calls."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._seen: set[str] = set()

    def add(self, item: dict[str, Any]) -> None:
        self._add(item["id"], ITEM_PREFIX[item["type"]])
        if "call_id" in item:
            self._add(item["call_id"], CALL_PREFIX)

    def _add(self, value: str, prefix: str) -> None:
        check_id(value, prefix, self._report)
        if value in self._seen:
            self._report("id.unique", f"{value!r} is used twice")
        self._seen.add(value)


class OpenPart:
    """A part that is open, or the text of a call, which is open as long as its item."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.text = ""
        self.logprobs: list[Any] = []
        self.annotations: list[Any] = []
        self.finished = False

    def value(self) -> dict[str, Any]:
        """The part as its events make it."""
        part: dict[str, Any] = {PART_TEXT[self.kind]: self.text, "type": self.kind}
        if self.kind == "output_text":
            part |= {"annotations": self.annotations, "logprobs": self.logprobs}
        return part


class OpenItem:
    """From `output_item.added` to `output_item.done`. Its fields were checked before; here is what they must say."""

    def __init__(self, item: dict[str, Any], output_index: int, report: Report) -> None:
        self._report = report
        self._item = item
        self._index = output_index
        self._arrays: dict[str, list[Any]] = {array: [] for array in ITEM_PARTS.get(item["type"], {})}
        self._part = OpenPart(item["type"]) if item["type"] in ITEM_TEXT else None
        if item.get("status", "in_progress") != "in_progress":
            report("item.status", f"an item opens {item['status']}")
        for key in (*self._arrays, ITEM_TEXT.get(item["type"], ""), *ITEM_LATE.get(item["type"], ())):
            if item.get(key):
                report("item", f"the {item['type']} opens with {key}")

    def inside(self, kind: str, event: dict[str, Any]) -> None:
        """An event of type `kind` between the two."""
        self._expect_index(event)
        if event["item_id"] != self._item["id"]:
            self._report("id.constant", f"item_id {event['item_id']!r}, but {self._item['id']!r} is open")
        what = INSIDE[kind]
        if what.action == "open":
            self._open(what, event)
            return
        part = self._current(what, event)
        if part is None:
            self._report("order", f"{kind} without such a part open in the {self._item['type']}")
        elif what.action == "delta":
            self._delta(part, event)
        elif what.action == "annotate":
            self._annotate(part, event)
        elif what.action == "finish":
            self._finish(part, event)
        else:
            self._close(what.array, part, event)

    def done(self, event: dict[str, Any]) -> None:
        """`output_item.done`."""
        self._expect_index(event)
        item = event["item"]
        if self._part is not None and (self._arrays or not self._part.finished):
            self._report("order", f"the {self._item['type']} is done, its {self._part.kind} is not")
        if self._arrays and not any(self._arrays.values()):
            self._report("order", f"the {self._item['type']} is done without a part")
        for key in ("id", "call_id"):
            if item.get(key) != self._item.get(key):
                self._report("id.constant", f"{key} {item.get(key)!r} was {self._item.get(key)!r}")
        if item.get("status") == "in_progress":
            self._report("item.status", "a done item is in_progress")
        expected = {key: value for key, value in self._item.items() if key not in ("id", "call_id", "status")}
        expected |= self._arrays
        if self._item["type"] in ITEM_TEXT and self._part is not None:
            expected[ITEM_TEXT[self._item["type"]]] = self._part.text
        for key, value in expected.items():
            if not same(item.get(key), value):
                self._report("item", f"{key} of the done item is not what its events made")

    def _expect_index(self, event: dict[str, Any]) -> None:
        if event["output_index"] != self._index:
            self._report("output_index", f"{event['output_index']}, but item {self._index} is open")

    def _expect_place(self, array: str, event: dict[str, Any]) -> None:
        key = INDEX_KEY[array]
        if event[key] != len(self._arrays[array]):
            self._report("content_index", f"{key} {event[key]}, but part {len(self._arrays[array])} is due")

    def _open(self, what: Inside, event: dict[str, Any]) -> None:
        kind = event["part"]["type"]
        if kind not in ITEM_PARTS.get(self._item["type"], {}).get(what.array, ()):
            self._report("part", f"a {kind} in the {what.array} of a {self._item['type']}")
            return
        if self._part is not None:
            self._report("order", f"a {kind} opens while a {self._part.kind} is open")
        self._expect_place(what.array, event)
        self._part = OpenPart(kind)
        self._expect_value(self._part, event)

    def _current(self, what: Inside, event: dict[str, Any]) -> OpenPart | None:
        """The open part, if the event can speak of it."""
        part = self._part
        if part is None or part.kind != (what.part or event["part"]["type"]):
            return None
        if what.array:
            self._expect_place(what.array, event)
        return part

    def _delta(self, part: OpenPart, event: dict[str, Any]) -> None:
        if part.finished:
            self._report("order", f"a delta after the {part.kind} was done")
        if not event["delta"]:
            self._report("delta.empty", f"an empty delta of the {part.kind}")
        part.text += event["delta"]
        part.logprobs += event.get("logprobs", [])

    def _annotate(self, part: OpenPart, event: dict[str, Any]) -> None:
        if event["annotation_index"] != len(part.annotations):
            self._report("content_index", f"annotation {event['annotation_index']}, not {len(part.annotations)}")
        part.annotations.append(event["annotation"])

    def _finish(self, part: OpenPart, event: dict[str, Any]) -> None:
        if part.finished:
            self._report("order", f"the {part.kind} is done twice")
        part.finished = True
        if event[PART_TEXT.get(part.kind) or ITEM_TEXT[part.kind]] != part.text:
            self._report("text.sum", f"the {part.kind} is not the sum of its deltas")
        if not same(event.get("logprobs", []), part.logprobs):
            self._report("text.sum", "the logprobs are not those of the deltas")
        if event.get("name", self._item.get("name")) != self._item.get("name"):
            self._report("item", f"the call of {self._item['name']!r} is done as {event['name']!r}")

    def _close(self, array: str, part: OpenPart, event: dict[str, Any]) -> None:
        if not part.finished:
            self._report("order", f"the part is done, its {part.kind} is not")
        self._expect_value(part, event)
        self._arrays[array].append(event["part"])
        self._part = None

    def _expect_value(self, part: OpenPart, event: dict[str, Any]) -> None:
        for key, value in part.value().items():
            if not same(event["part"][key], value):
                self._report("part", f"{key} of the {part.kind} is not what its events made")
