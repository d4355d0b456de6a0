"""From the options of `serve` to an engine: the one place that knows which engines there are."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from antiphon.cli.errors import CommandError
from antiphon.cli.options import DIR_SIZE, ServeOptions
from antiphon.engine.base import Engine
from antiphon.engine.observe import Observe
from antiphon.hub import ModelFile, Progress
from antiphon.serving.service import Loader, LoadProgress, Report

if TYPE_CHECKING:
    from antiphon.engine.backend import Backend
    from antiphon.engine.prefix_store import PrefixStore
    from antiphon.engine.stepper import Options as EngineOptions

UNKNOWN_MEMORY = 4 << 30
"""Bytes that are taken to be free where the system does not say."""

Fetch = Callable[[Callable[[Progress], None]], ModelFile]
"""Fetches the model's file; blocks."""

_T = TypeVar("_T")

log = logging.getLogger(__name__)


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
        if not backend.can_trim:
            _tell_unused(options)
        return WorkerEngine(
            backend,
            max_queue=options.max_queue,
            options=_engine_options(options),
            store=await _in_thread(lambda: _store(options, backend), stopped),
            observe=observe,
        )

    return load


def _engine_options(options: ServeOptions) -> EngineOptions:
    from antiphon.engine.llama.machine import available_memory
    from antiphon.engine.stepper import Options

    ram, free = options.prefix_ram, available_memory()
    if ram is not None and free is not None and ram > free:
        where = "--prefix-ram (ANTIPHON_PREFIX_RAM)"
        raise CommandError(f"{where}: {ram / 1e9:,.1f} GB, of memory {free / 1e9:,.1f} GB are available")
    return Options(
        prefix_ram=(free or UNKNOWN_MEMORY) // 4 if ram is None else ram,
        prefix_disk=options.prefix_dir_size or DIR_SIZE,
        step_target=options.step_target,
    )


def _tell_unused(options: ServeOptions) -> None:
    """A warning, no refusal: the answers are the same, and one set of variables may be for several models."""
    asked = {"--prefix-dir": options.prefix_dir, "--prefix-ram": options.prefix_ram}
    unused = " and ".join(flag for flag, value in asked.items() if value)
    if unused:
        log.warning(
            "%s not used: what this model computed of a prompt cannot be kept (recurrent, hybrid or sliding window)",
            unused,
        )


def _store(options: ServeOptions, backend: Backend) -> PrefixStore | None:
    """Blocks, since the fingerprint is of the whole model."""
    from antiphon.engine.prefix_store import PrefixStore, PrefixStoreError

    if options.prefix_dir is None or not backend.can_trim:
        return None
    try:
        return PrefixStore(options.prefix_dir, backend.fingerprint)
    except PrefixStoreError as error:
        raise CommandError(f"--prefix-dir (ANTIPHON_PREFIX_DIR): {error}") from error


async def _in_thread(work: Callable[[], _T], stopped: threading.Event) -> _T:
    """Runs blocking work; if this is cancelled, its next progress report ends it."""
    try:
        return await asyncio.to_thread(work)
    except asyncio.CancelledError:
        stopped.set()
        raise


def _fraction(progress: Progress) -> float:
    return progress.done / progress.total if progress.total else 0.0
