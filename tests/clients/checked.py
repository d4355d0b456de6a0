"""Scripts that are checked as strictly as a model is held to what was asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from antiphon.engine.base import Engine
from antiphon.engine.script_file import load_script
from antiphon.engine.scripted import ScriptedEngine
from antiphon.serving.service import Report
from tests.server import RunningServer, running_server, script


@asynccontextmanager
async def checked_server(
    folder: Path, turns: list[dict[str, Any]], *, top: dict[str, Any] | None = None, **kwargs: Any
) -> AsyncIterator[RunningServer]:
    """A server that plays these turns as a model that chooses its tokens: a turn that no such model could write fails.

    So the tools and formats of a client are compiled, and every call obeys them, also where none is demanded. The
    dialect is the one that the chat template tells of.
    """

    async def load(report: Report) -> Engine:
        read = load_script(script(folder, turns, **(top or {})))
        return ScriptedEngine(replace(read, info=replace(read.info, chooses=True, dialect=None)))

    async with running_server(load, **kwargs) as server:
        yield server
