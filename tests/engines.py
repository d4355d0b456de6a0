"""Small real engines for what a script cannot do."""

from __future__ import annotations

from antiphon.engine.base import Generation, ModelInfo, StepStream
from antiphon.engine.byte_tokenizer import ByteTokenizer
from antiphon.serving.service import Report

SPECIAL = ("<|im_start|>", "<|im_end|>")


class RefusingEngine:
    """An engine that takes no sequence: `submit` raises `error`."""

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
