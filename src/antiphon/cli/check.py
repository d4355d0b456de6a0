"""`antiphon check`: judges the bytes of a stream, whoever's server they come from."""

from __future__ import annotations

from typing import BinaryIO, Literal, TextIO

from antiphon.check import EventChecker
from antiphon.cli.errors import CommandError

PIECE = 1 << 16  # bytes read at once: a stream may be endless, so it is judged as it comes


def check_stream(
    stream: BinaryIO, out: TextIO, *, reasoning_events: Literal["openai", "open-responses"] = "openai"
) -> None:
    """Prints each violation on a line. Raises `CommandError` if there is any."""
    checker = EventChecker(reasoning_events=reasoning_events)
    while piece := stream.read(PIECE):
        checker.feed(piece)
    violations = checker.close()
    for violation in violations:
        out.write(f"{violation}\n")
    if violations:
        raise CommandError(f"{len(violations)} violation{'s' if len(violations) > 1 else ''} of the contract")
    out.write("valid\n")
