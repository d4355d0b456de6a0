"""What an engine tells of each of its steps, for metrics and benchmarks."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class StepReport(Struct, frozen=True, kw_only=True, gc=False):
    """One step, and the state behind it. What is "so far" counts from the engine's start.

    A step of nothing (no sequence, no prompt token, no seconds) says that the engine has nothing left to do.
    """

    seconds: float  # planning, computing, sampling, handing over
    native_seconds: float  # of these, in machine code
    decoding: int  # sequences that were given their next token
    prefilled: int  # prompt tokens computed
    threads: int  # that computed it
    running: int
    waiting: int
    cells_used: int
    cells_total: int
    prompt_tokens: int  # so far, of all sequences that were admitted; each counts once
    cached_tokens: int  # so far, of these not computed anew
    preempted: int  # so far
    restored: int  # tokens so far that came back from memory or disk
    ram_bytes: int  # prefixes held in memory outside of the cache
    disk_bytes: int  # prefixes held in files


Observe = Callable[[StepReport], None]
"""Called on the engine's thread, after each step: must be quick and must not raise."""
