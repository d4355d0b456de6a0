"""Small real engines for what a script cannot do."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.engine.base import EngineFailure, Generation, ModelInfo, Step, StepStream
from antiphon.engine.byte_tokenizer import ByteTokenizer
from antiphon.serving.service import Report

SPECIAL = ("<|im_start|>", "<|im_end|>")


class RefusingEngine:
    """An engine that takes no sequence: `submit` raises `error`."""

    alive = True

    def __init__(self, error: Exception) -> None:
        self.info = ModelInfo(name="refusing", context_length=10_000, dialect="plain")
        self.tokenizer = ByteTokenizer(SPECIAL)
        self._error = error

    def submit(self, generation: Generation) -> StepStream:
        raise self._error

    async def aclose(self) -> None:
        """There is nothing to end."""

    async def load(self, report: Report) -> RefusingEngine:
        """A loader."""
        return self


class GivenEngine:
    """An engine that gives the same steps to each sequence, all at once, whatever they are.

    It keeps what it was asked for. `cached` is what it says of each prompt's cached tokens.
    """

    alive = True

    def __init__(
        self, steps: Sequence[Step], *, dialect: str = "hermes", cached: int = 0, context_length: int = 10_000
    ) -> None:
        self.info = ModelInfo(name="given", context_length=context_length, dialect=dialect)
        self.tokenizer = ByteTokenizer(SPECIAL)
        self.asked: list[Generation] = []
        self._steps = steps
        self._cached = cached
        self.live: list[StepStream] = []  # those that have not ended

    def submit(self, generation: Generation) -> StepStream:
        self.asked.append(generation)
        stream = StepStream(lambda: self.live.remove(stream))
        stream.cached_tokens = self._cached
        stream.extend(self._steps)
        if not stream.closed:
            self.live.append(stream)
        return stream

    async def aclose(self) -> None:
        for stream in self.live:
            stream.fail(EngineFailure("the engine was closed"))
        self.live.clear()

    async def load(self, report: Report) -> GivenEngine:
        """A loader."""
        return self
