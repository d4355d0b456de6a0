"""How long the machine code works."""

from __future__ import annotations

import time


class Stopwatch:
    """Adds up what passes inside of its `with` blocks, in seconds. They do not nest."""

    __slots__ = ("_start", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start
