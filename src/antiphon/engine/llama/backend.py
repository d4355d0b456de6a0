"""`engine.backend.Backend` on llama.cpp.

Logits that are no numbers. NaN that one sequence computes lies in its cells. Where a kernel multiplies masked cells
too, as the CPU's flash attention does for many tokens at once, it spreads to the others of the batch, and from cells
that were freed to whoever comes later. So such a batch is computed again, each entry apart and in small pieces, which
leaves the bad sequence alone with it; and when it shows a second time, the context is given up.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property, partial

from antiphon.engine.backend import Batch, ContextLost, Entry, Move, Restore, Sampled, Save, Share, Trim
from antiphon.engine.base import EngineClosed, EngineFailure, ModelInfo, Sampling
from antiphon.engine.llama.checks import BatchRules
from antiphon.engine.llama.context import Context, Shape
from antiphon.engine.llama.fingerprint import fingerprint
from antiphon.engine.llama.model import Model
from antiphon.engine.llama.sampling import NumpySampler, are_numbers, logprob
from antiphon.engine.llama.tokenizer import LlamaTokenizer

log = logging.getLogger(__name__)

# Tokens at a time of a batch that is computed apart: the CPU's flash attention takes another path from 64 on
# (GGML_FA_TILE_Q), one that skips no masked cell.
APART_TOKENS = 32

NO_NUMBERS = "the model computed logits that are no numbers"


class LlamaBackend:
    """Called from one thread, but for `abort` and the tokenizer."""

    def __init__(self, model: Model, context: Context, shape: Shape, context_length: int) -> None:
        self.lanes = shape.lanes
        self.slots = shape.slots
        # llama.cpp ends the process when a batch is larger than the cache.
        self.batch_tokens = min(shape.batch_tokens, context.cells)
        self.cells = context.cells
        self.cell_bytes = context.cell_bytes() if model.can_trim else model.file.cell
        self._identify = partial(fingerprint, model.library.build, model.file, model.window, context.params)
        self.can_trim = model.can_trim
        self.tokenizer = LlamaTokenizer(model)
        self.info = model_info(model, self.tokenizer, context_length)
        self._context = context
        self._rules = BatchRules(
            lanes=shape.lanes,
            slots=shape.slots,
            batch_tokens=self.batch_tokens,
            vocabulary=self.tokenizer.size,
            can_trim=model.can_trim,
        )
        self._closed = False
        self._lost = False  # until `reset`
        self._spoilt = False  # a sequence has failed for its logits in this context

    @property
    def threads(self) -> int:
        return self._context.threads

    @cached_property
    def fingerprint(self) -> str:
        """See `engine.backend.Backend`. Reads all of the model the first time, which takes a second a GB; may be on
        another thread. Raises `ModelLoadError` if it cannot be read any more."""
        return self._identify()

    @property
    def native_seconds(self) -> float:
        return self._context.native.seconds

    def set_threads(self, threads: int) -> None:
        if threads < 1:
            raise EngineFailure(f"{threads} threads")
        self._context.set_threads(threads)

    def sampler(self, sampling: Sampling, prompt: Sequence[int]) -> NumpySampler:
        """Raises `EngineFailure` if `logit_bias` names a token that does not exist."""
        return NumpySampler(sampling, prompt, self.tokenizer.size, self.tokenizer.end)

    def execute(self, batch: Batch) -> list[Sampled | EngineFailure]:
        """See `engine.backend.Backend`. A batch that is refused for what it says leaves every slot as it was.

        The slot of an entry whose result is a failure ends where the entry started, or is empty if the model cannot
        trim.
        """
        self._require_open()
        if self._lost:
            raise ContextLost("the context was lost and not made anew")
        self._rules.check(batch)
        try:
            for move in batch.moves:
                self._move(move)
            return self._compute(batch.entries) if batch.entries else []
        except ContextLost:
            self._lost = True
            raise

    def reset(self) -> None:
        """See `engine.backend.Backend`."""
        self._require_open()
        self._lost = True
        self._context.reset()
        self._lost = self._spoilt = False

    def abort(self) -> None:
        """Ends a running `execute` with `EngineFailure`, and every later one. Any thread; for shutting down."""
        self._context.abort()

    def close(self) -> None:
        """Frees the cache. The weights go when nobody holds the tokenizer any more. Idempotent."""
        self._closed = True
        self._context.close()

    def _require_open(self) -> None:
        if self._closed:
            raise EngineClosed("the model is closed")

    def _move(self, move: Move) -> None:
        match move:
            case Trim():
                self._context.trim(move)
            case Share():
                self._context.share(move)
            case Save():
                self._context.save(move)
            case Restore():
                self._context.restore(move)

    def _compute(self, entries: Sequence[Entry]) -> list[Sampled | EngineFailure]:
        outputs = self._context.decode(entries)
        good = [are_numbers(self._context.logits(output)) for output in outputs]
        if all(good):
            return self._sample_all(entries, outputs, good)
        if self._spoilt:  # perhaps this batch was, by what is left of the one before; no sampler has seen it yet
            raise ContextLost(f"{NO_NUMBERS}, again")
        results = self._compute_apart(entries) if self.can_trim else self._sample_all(entries, outputs, good)
        self._spoilt = any(isinstance(result, EngineFailure) for result in results)
        return results

    def _compute_apart(self, entries: Sequence[Entry]) -> list[Sampled | EngineFailure]:
        """Computes entries again that were computed together."""
        if not self._context.take_back(entries):
            raise ContextLost("a batch cannot be taken back")
        results: list[Sampled | EngineFailure] = []
        try:
            for entry in entries:
                for piece in _pieces(entry):
                    outputs = self._context.decode([piece])
                good = [are_numbers(self._context.logits(output)) for output in outputs]
                results += self._sample_all([entry], outputs, good)
        except EngineFailure:
            self._context.take_back(entries)
            raise
        return results

    def _sample_all(
        self, entries: Sequence[Entry], outputs: Sequence[int], good: Sequence[bool]
    ) -> list[Sampled | EngineFailure]:
        found: list[Sampled | EngineFailure] = []
        for entry, output, numbers in zip(entries, outputs, good, strict=True):
            if isinstance(entry.sampler, NumpySampler):
                found.append(self._sample(entry.sampler, output) if numbers else EngineFailure(NO_NUMBERS))
                if isinstance(found[-1], EngineFailure):
                    self._context.drop(entry)
        return found

    def _sample(self, sampler: NumpySampler, output: int) -> Sampled | EngineFailure:
        logits = self._context.logits(output)
        try:
            with self._context.native:  # numpy's passes over the vocabulary, and 20 to 60 us of Python between them
                token = sampler.sample(logits)
                told = None if sampler.top_logprobs is None else logprob(logits, token, sampler.top_logprobs)
        except EngineFailure as failure:
            return failure
        except Exception as error:  # A fault of ours ends this sequence, not the engine.
            log.exception("a token cannot be sampled")
            return EngineFailure(f"a token cannot be sampled: {error!r}")
        return Sampled(token, token in self.tokenizer.end, told)


def _pieces(entry: Entry) -> list[Entry]:
    tokens, step = entry.tokens, APART_TOKENS
    return [Entry(entry.slot, entry.start + at, tokens[at : at + step]) for at in range(0, len(tokens), step)]


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
