"""A request on its way through the engine."""

from __future__ import annotations

from antiphon.engine.backend import Sampler
from antiphon.engine.base import Generation
from antiphon.engine.prefix_tree import Node


class Sequence:
    """`computed` of its `tokens` are in the cache of its lane; those up to the end of `leaf` belong to the prefix tree,
    the rest are its own."""

    def __init__(self, generation: Generation, context_length: int) -> None:
        self.generation = generation
        self.tokens = list(generation.prompt)
        room = context_length - len(self.tokens)
        self.limit = len(self.tokens) + (room if generation.max_tokens is None else min(generation.max_tokens, room))
        self.lane = -1
        self.leaf: Node | None = None
        self.computed = 0
        self.cached: int | None = None
        self.publishable = True  # False: there was no slot for what it computed
        self.lost_alone = False  # The context was lost in a batch that was all its own.
        self.sampler: Sampler | None = None

    @property
    def pending(self) -> int:
        """Tokens that must be computed before the next one can be sampled; 1 while decoding."""
        return len(self.tokens) - self.computed

    @property
    def own(self) -> int:
        """Cells that nobody else counts."""
        return self.computed - (self.leaf.end if self.leaf is not None else 0)
