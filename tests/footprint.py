"""What a long run leaves behind in this process, as Linux and the garbage collector tell it."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TypeVar

import pytest

_T = TypeVar("_T")

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="memory and threads are read from /proc")

GROWTH = 4 * 1024 * 1024
"""Bytes of resident memory that may come in the second half of a run. 0.1 and 0.3 MB were seen; 8 with a sampler, or
the state of a response, left behind for each of 5,000 requests."""


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def threads() -> int:
    """Of the system's, not only Python's."""
    return len(list(Path("/proc/self/task").iterdir()))


def held(kind: type[_T]) -> list[_T]:
    """What there is of a kind because somebody still holds it."""
    gc.collect()
    return [thing for thing in gc.get_objects() if isinstance(thing, kind)]


def left_behind(*kinds: type) -> int:
    return sum(len(held(kind)) for kind in kinds)
