"""A vocabulary for tests of grammars: the bytes, some control tokens, and an end-of-generation token."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.engine.byte_tokenizer import ByteTokenizer

END = "<eos>"


class EndingTokenizer(ByteTokenizer):
    """A `ByteTokenizer` whose last control token ends the generation."""

    def __init__(self, control: Sequence[str] = ()) -> None:
        super().__init__((*control, END))

    @property
    def end(self) -> frozenset[int]:  # type: ignore[override]
        return frozenset({self.size - 1})
