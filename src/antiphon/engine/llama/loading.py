"""From a GGUF file to a backend: how large the context and its cache are, and whether memory holds them.

Or to what can be told of a model without loading it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from antiphon.engine.base import EngineFailure, ModelInfo
from antiphon.engine.llama.backend import LlamaBackend, model_info
from antiphon.engine.llama.binding import open_library
from antiphon.engine.llama.context import MAX_SLOTS, Context, Shape
from antiphon.engine.llama.errors import ModelLoadError
from antiphon.engine.llama.gguf import ModelFile, inspect
from antiphon.engine.llama.machine import available_memory, usable_cores
from antiphon.engine.llama.model import Model, Progress
from antiphon.engine.llama.tokenizer import LlamaTokenizer

# The context when none is asked for, if the model was trained for more: today's models promise 128k tokens and more,
# whose cache would not fit beside the weights on most machines; agents' prompts fit into this.
DEFAULT_CONTEXT = 8_192

# Slots when fewer than half as many lanes are asked for. A free one costs nothing, but the planner looks at each.
DEFAULT_SLOTS = 128

# The part of the memory beside the weights that a cache may take which nobody has asked for.
CACHE_SHARE = 4

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


def load(
    path: Path,
    *,
    context_length: int | None = None,
    lanes: int = 8,
    cells: int | None = None,
    threads: int | None = None,
    gpu_layers: int = 0,
    library: Path | None = None,
    batch_tokens: int = 512,
    progress: Progress | None = None,
) -> LlamaBackend:
    """Loads a GGUF model; blocks for seconds to minutes. Raises `ModelLoadError` with a line for the user.

    `context_length` is what one sequence may hold; None: what the model was trained for, `DEFAULT_CONTEXT` at most.
    `lanes` is how many run at once, `cells` what the cache holds of all sequences and prefixes together, in tokens;
    None: as `choose_cells` says. `threads` None: the physical cores. `gpu_layers` -1: all. `progress` gets fractions
    from 0 to 1; an exception it raises ends the loading and is passed on.
    """
    if not 1 <= lanes <= MAX_SLOTS:
        raise ModelLoadError(f"{lanes} sequences at once; llama.cpp can have 1 to {MAX_SLOTS}")
    if batch_tokens < lanes:
        raise ModelLoadError(f"a batch of {batch_tokens} tokens cannot serve {lanes} sequences")
    opened = open_library(library)
    file = inspect(opened, path)
    # What a GPU takes does not count here.
    memory = available_memory() if gpu_layers == 0 else None
    length = choose_context(file, context_length)
    cells = choose_cells(file, length, cells, memory)
    check_memory(file, cells, memory)
    model = Model(opened, file, gpu_layers, progress)
    slots = choose_slots(lanes) if model.can_trim else lanes
    shape = Shape(cells=cells, lanes=lanes, slots=slots, batch_tokens=batch_tokens)
    try:
        return _on_passing_thread(
            lambda: LlamaBackend(model, Context(model, shape, threads or usable_cores()), shape, length)
        )
    except ModelLoadError:
        raise
    except EngineFailure as error:
        raise ModelLoadError(f"{path.name} cannot compute: {error}") from error


class Description(Struct, frozen=True):
    """What can be told of a model without its weights. `info.context_length` is what one sequence holds by default."""

    info: ModelInfo
    tokenizer: LlamaTokenizer
    file: ModelFile


def describe(path: Path) -> Description:
    """Loads a GGUF model's metadata and vocabulary alone. Raises `ModelLoadError` with a line for the user."""
    opened = open_library()
    file = inspect(opened, path)
    model = Model(opened, file, gpu_layers=0, progress=None, vocabulary_only=True)
    tokenizer = LlamaTokenizer(model)
    return Description(model_info(model, tokenizer, choose_context(file, None)), tokenizer, file)


def _on_passing_thread(work: Callable[[], _T]) -> _T:
    """The result of work that computes, on a thread that ends with it.

    OpenMP keeps a team of threads for each thread that has computed, as long as that one lives. When there are more of
    them than cores, GNU's lets none of them spin any more: every step of the one that is left took half as long again.
    """
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()


def choose_context(file: ModelFile, wanted: int | None) -> int:
    if wanted is None:
        return min(file.trained_context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    if wanted < 1:
        raise ModelLoadError(f"a context of {wanted} tokens")
    if wanted > file.trained_context > 0:
        logger.warning("the model was trained for %d tokens of context, not %d", file.trained_context, wanted)
    return wanted


def choose_cells(file: ModelFile, length: int, wanted: int | None, available: int | None) -> int:
    """Tokens of the cache, for a context of `length`. `available` bytes are free; None: unknown.

    None wanted: two contexts, so that prefixes stay beside what runs, if a quarter of what the weights leave holds
    them; else one. Raises `ModelLoadError` if the wanted ones do not hold the context.
    """
    if wanted is not None:
        if wanted < length:
            raise ModelLoadError(f"a cache of {wanted} tokens cannot hold a context of {length}")
        return wanted
    spare = 0 if available is None else available - file.weights
    return 2 * length if 2 * length * file.cell * CACHE_SHARE <= spare else length


def choose_slots(lanes: int) -> int:
    """With at least as many for prefixes as lanes, while there are that many."""
    return min(MAX_SLOTS, max(DEFAULT_SLOTS, 2 * lanes))


def check_memory(file: ModelFile, cells: int, available: int | None) -> None:
    """Raises `ModelLoadError` if weights and cache together do not fit into `available` bytes (None: unknown)."""
    cache = cells * file.cell
    if available is not None and file.weights + cache > available:
        raise ModelLoadError(
            f"{file.path.name} needs {_mb(file.weights)} for weights and {_mb(cache)} for a cache of {cells} tokens; "
            f"{_mb(available)} of memory are available"
        )


def _mb(size: int) -> str:
    return f"{size / 1_000_000:,.0f} MB"
