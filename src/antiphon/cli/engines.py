"""From the options of `serve` to an engine: the one place that knows which engines there are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from antiphon.cli.options import ServeOptions
from antiphon.engine.base import Engine
from antiphon.engine.observe import Observe
from antiphon.hub import ModelFile, Progress
from antiphon.serving.service import Loader, LoadProgress, Report

Fetch = Callable[[Callable[[Progress], None]], ModelFile]
"""Fetches the model's file; blocks."""

_T = TypeVar("_T")


class _Stopped(Exception):
    """Raised out of a progress report, to end a download or a loading that nobody waits for any more."""


def engine_loader(options: ServeOptions, fetch: Fetch, observe: Observe) -> Loader:
    """How the server gets its engine. `observe` is told of each step, by an engine that computes."""
    return _scripted(options) if options.engine == "scripted" else _llama(options, fetch, observe)


def _scripted(options: ServeOptions) -> Loader:
    async def load(report: Report) -> Engine:
        from antiphon.engine.script_file import load_script
        from antiphon.engine.scripted import ScriptedEngine

        if options.script is None:
            raise ValueError("the scripted engine needs a script")
        return ScriptedEngine(load_script(options.script))

    return load


def _llama(options: ServeOptions, fetch: Fetch, observe: Observe) -> Loader:
    async def load(report: Report) -> Engine:
        from antiphon.engine.llama import load as load_backend
        from antiphon.engine.worker import WorkerEngine

        stopped = threading.Event()

        def tell(stage: str, fraction: float) -> None:
            if stopped.is_set():
                raise _Stopped
            report(LoadProgress(stage, fraction))

        file = await _in_thread(lambda: fetch(lambda progress: tell(progress.stage, _fraction(progress))), stopped)
        backend = await _in_thread(
            lambda: load_backend(
                file.path,
                context_length=options.context_length,
                lanes=options.max_concurrency,
                cells=options.cache_tokens,
                threads=options.threads,
                gpu_layers=options.gpu_layers,
                library=options.library,
                batch_tokens=options.batch_tokens,
                progress=lambda fraction: tell("loading", fraction),
            ),
            stopped,
        )
        return WorkerEngine(backend, max_queue=options.max_queue)

    return load


async def _in_thread(work: Callable[[], _T], stopped: threading.Event) -> _T:
    """Runs blocking work; if this is cancelled, its next progress report ends it."""
    try:
        return await asyncio.to_thread(work)
    except asyncio.CancelledError:
        stopped.set()
        raise


def _fraction(progress: Progress) -> float:
    return progress.done / progress.total if progress.total else 0.0
