"""`engine.backend.Backend` on llama.cpp, and how to load one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from antiphon.engine.backend import Batch, Copy, Entry, Sampled, Sampler, Trim
from antiphon.engine.base import EngineClosed, EngineFailure, ModelInfo, Sampling
from antiphon.engine.llama.binding import open_library
from antiphon.engine.llama.context import Context
from antiphon.engine.llama.errors import ModelLoadError
from antiphon.engine.llama.gguf import ModelFile, inspect
from antiphon.engine.llama.machine import available_memory, usable_cores
from antiphon.engine.llama.model import Model, Progress
from antiphon.engine.llama.sampling import LlamaSampler, check_logits, logprob
from antiphon.engine.llama.tokenizer import LlamaTokenizer

# The context when none is asked for, if the model was trained for more: today's models promise 128k tokens and more,
# whose cache would not fit beside the weights on most machines; agents' prompts fit into this.
DEFAULT_CONTEXT = 8_192

# llama.cpp's own limit (LLAMA_MAX_SEQ).
MAX_SLOTS = 256

logger = logging.getLogger(__name__)


class LlamaBackend:
    """Called from one thread, but for `abort` and the tokenizer."""

    def __init__(self, model: Model, context: Context, *, context_length: int, slots: int, batch_tokens: int) -> None:
        self.slots = slots
        self.batch_tokens = batch_tokens
        self.cells = context.cells
        self.can_trim = model.can_trim
        self.tokenizer = LlamaTokenizer(model)
        self.info = model_info(model, self.tokenizer, context_length)
        self._library = model.library
        self._context = context

    def sampler(self, sampling: Sampling, prompt: Sequence[int]) -> LlamaSampler:
        """Raises `EngineFailure` if `logit_bias` names a token that does not exist."""
        size, length = self.tokenizer.size, self.info.context_length
        return LlamaSampler(self._library, sampling, prompt, size=size, context=length)

    def execute(self, batch: Batch) -> list[Sampled]:
        """See `engine.backend.Backend`. After any error the slots of the entries end where the entries started."""
        if self._context.closed:
            raise EngineClosed("the model is closed")
        self._check(batch)
        for move in batch.moves:
            self._move(move)
        if not batch.entries:
            return []
        outputs = self._context.decode(batch.entries)
        samplers = [entry.sampler for entry in batch.entries if entry.sampler is not None]
        try:
            return [self._sample(sampler, at) for sampler, at in zip(samplers, outputs, strict=True)]
        except EngineFailure:
            self._context.take_back(batch.entries)
            raise

    def abort(self) -> None:
        """Ends a running `execute` with `EngineFailure`, and every later one. Any thread; for shutting down."""
        self._context.abort()

    def close(self) -> None:
        """Frees the cache. The weights go when nobody holds the tokenizer any more. Idempotent."""
        self._context.close()

    def _move(self, move: Trim | Copy) -> None:
        if isinstance(move, Trim):
            self._context.trim(move.slot, move.length)
        else:
            self._context.copy(move.source, move.target, move.length)

    def _sample(self, sampler: Sampler, output: int) -> Sampled:
        assert isinstance(sampler, LlamaSampler)
        logits = self._context.logits(output)
        check_logits(logits)
        if sampler.chain is None:
            raise EngineFailure("the sampler is closed")
        token = self._context.sample(sampler.chain, output)
        top = sampler.top_logprobs
        return Sampled(token, token in self.tokenizer.end, None if top is None else logprob(logits, token, top))

    def _check(self, batch: Batch) -> None:
        """llama.cpp ends the process on some of these, so they must not reach it."""
        tokens = sum(len(entry.tokens) for entry in batch.entries)
        if tokens > self.batch_tokens:
            raise EngineFailure(f"a batch of {tokens} tokens, of {self.batch_tokens} at most")
        for move in batch.moves:
            self._check_move(move)
        self._check_entries(batch.entries)

    def _check_move(self, move: Trim | Copy) -> None:
        slots = (move.slot,) if isinstance(move, Trim) else (move.source, move.target)
        if not all(0 <= slot < self.slots for slot in slots):
            raise EngineFailure(f"{move} names a slot that is none of {self.slots}")
        if not self.can_trim and move.length:
            raise EngineFailure("this model's slots can only be emptied")

    def _check_entries(self, entries: Sequence[Entry]) -> None:
        taken: set[int] = set()
        for entry in entries:
            if not 0 <= entry.slot < self.slots or entry.slot in taken:
                raise EngineFailure(f"a batch has two entries for slot {entry.slot}, or there is no such slot")
            taken.add(entry.slot)
            if not entry.tokens or not 0 <= min(entry.tokens) <= max(entry.tokens) < self.tokenizer.size:
                raise EngineFailure(f"the entry for slot {entry.slot} is empty or has a token that does not exist")


def model_info(model: Model, tokenizer: LlamaTokenizer, context_length: int) -> ModelInfo:
    def spelled(token: int) -> str:
        return tokenizer.piece(token).decode("utf-8", "replace") if token >= 0 else ""

    c = model.library.c
    return ModelInfo(
        name=model.name,
        context_length=context_length,
        chat_template=model.chat_template,
        bos_token=spelled(c.llama_vocab_bos(model.vocab)),
        eos_token=spelled(c.llama_vocab_eos(model.vocab)),
    )


def load(
    path: Path,
    *,
    context_length: int | None = None,
    slots: int = 8,
    threads: int | None = None,
    gpu_layers: int = 0,
    library: Path | None = None,
    batch_tokens: int = 512,
    progress: Progress | None = None,
) -> LlamaBackend:
    """Loads a GGUF model; blocks for seconds to minutes. Raises `ModelLoadError` with a line for the user.

    `context_length` is what one sequence may hold, and the number of cells that all `slots` share. None: what the model
    was trained for, `DEFAULT_CONTEXT` at most. `threads` None: the physical cores. `gpu_layers` -1: all. `progress`
    gets fractions from 0 to 1; an exception it raises ends the loading and is passed on.
    """
    if not 1 <= slots <= MAX_SLOTS:
        raise ModelLoadError(f"{slots} slots; llama.cpp can have 1 to {MAX_SLOTS}")
    if batch_tokens < slots:
        raise ModelLoadError(f"a batch of {batch_tokens} tokens cannot serve {slots} slots")
    opened = open_library(library)
    file = inspect(opened, path)
    length = choose_context(file, context_length)
    if gpu_layers == 0:  # what a GPU takes does not count here
        check_memory(file, length, available_memory())
    model = Model(opened, file, gpu_layers, progress)
    context = Context(model, cells=length, slots=slots, threads=threads or usable_cores(), batch_tokens=batch_tokens)
    return LlamaBackend(model, context, context_length=length, slots=slots, batch_tokens=batch_tokens)


def choose_context(file: ModelFile, wanted: int | None) -> int:
    if wanted is None:
        return min(file.trained_context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    if wanted < 1:
        raise ModelLoadError(f"a context of {wanted} tokens")
    if wanted > file.trained_context > 0:
        logger.warning("the model was trained for %d tokens of context, not %d", file.trained_context, wanted)
    return wanted


def check_memory(file: ModelFile, cells: int, available: int | None) -> None:
    """Raises `ModelLoadError` if weights and cache together do not fit into `available` bytes (None: unknown)."""
    cache = cells * file.cell
    if available is not None and file.weights + cache > available:
        raise ModelLoadError(
            f"{file.path.name} needs {_mb(file.weights)} for weights and {_mb(cache)} for a context of {cells} tokens; "
            f"{_mb(available)} of memory are available"
        )


def _mb(size: int) -> str:
    return f"{size / 1_000_000:,.0f} MB"
