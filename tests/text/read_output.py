"""What a dialect reads of a whole output: its calls, thinking and text, each as one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from antiphon.protocol.fragments import Arguments, Call, Reasoning, Text
from antiphon.text.dialects import Dialect


class Output(Struct, frozen=True):
    calls: list[tuple[str, Any]]  # names and arguments
    thinking: str
    text: str


def read_output(
    dialect: Dialect, output: str, tools: Mapping[str, Mapping[str, Any]], *, reasoning_open: bool = False
) -> Output:
    parser = dialect.parser(tools=tools, calls=True, control=(), reasoning_open=reasoning_open)
    calls: list[tuple[str, list[str]]] = []
    thinking, text = "", ""
    for fragment in parser.feed(output) + parser.finish():
        match fragment:
            case Call(name=name):
                calls.append((name, []))
            case Arguments(text=piece):
                calls[-1][1].append(piece)
            case Reasoning(text=piece):
                thinking += piece
            case Text(text=piece):
                text += piece
    return Output([(name, json.loads("".join(pieces))) for name, pieces in calls], thinking, text)
