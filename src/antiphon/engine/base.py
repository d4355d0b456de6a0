"""What every engine is: token ids in, steps of token ids out.

Rules
* No text, no HTTP, no responses here: an engine knows tokens, and the tokenizer that belongs to them.
* `submit` and everything on a `StepStream` happen on the event loop's thread. An engine with a thread of its own
  hands its steps over with one `call_soon_threadsafe` a step of the whole batch.
* A stream ends in exactly one of two ways: a step whose `finish` is set, or an `EngineFailure`. After `cancel` nothing
  more is delivered.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class EngineFailure(Exception):
    """The engine could not go on with a sequence. The text is for the log, never for a client."""


class EngineClosed(EngineFailure):
    """The engine was closed while the sequence was waiting or running: no fault, the server stops."""


class EngineBusy(Exception):
    """The engine's queue is full. `retry_after` is in seconds."""

    def __init__(self, retry_after: int = 1) -> None:
        super().__init__(f"the engine's queue is full; retry after {retry_after} s")
        self.retry_after = retry_after


class Finish(enum.Enum):
    """Why a sequence ended: an end-of-generation token, or a limit (`max_tokens`, the context)."""

    STOP = "stop"
    LENGTH = "length"


class Constraint(Protocol):
    """What the tokens of one sequence may be. Belongs to that sequence alone, and to the thread that samples it."""

    def allowed(self) -> bytes:
        """A byte for each token id, 0: it must not come next. End-of-generation tokens are among them.

        Raises `EngineFailure` if that cannot be known.
        """
        ...

    def accept(self, token: int) -> bool:
        """The token has come, no end-of-generation token. False: it must not have; nothing can follow it."""
        ...

    @property
    def may_end(self) -> bool:
        """Whether the sequence may end here."""
        ...


class Sampling(Struct, frozen=True, kw_only=True):
    """How the next token is chosen. The defaults change nothing about the model's own distribution."""

    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0  # 1: off
    top_k: int = 0  # 0: off
    min_p: float = 0.0  # 0: off
    repetition_penalty: float = 1.0  # 1: off; counts prompt and output, multiplicative
    presence_penalty: float = 0.0  # 0: off; counts output only, as OpenAI documents it
    frequency_penalty: float = 0.0  # 0: off; counts output only
    seed: int | None = None  # any integer; None: a fresh one
    logit_bias: Mapping[int, float] = {}
    top_logprobs: int | None = None  # None: no log-probabilities; n: the sampled token's and the n most likely
    constraint: Constraint | None = None  # of this sequence alone; None: any token may come


class Generation(Struct, frozen=True, kw_only=True):
    """One request to an engine."""

    id: str  # names it in logs; the id of the response
    prompt: Sequence[int]  # at least one token, shorter than the context
    max_tokens: int | None = None  # at least 1; None: as far as the context reaches
    sampling: Sampling = Sampling()
    owner: str = ""  # whose prompt it is: what was computed for one owner is never reused for another


class TokenLogprob(Struct, frozen=True, gc=False):
    """Natural logarithms, of the distribution before temperature and truncation."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Step(Struct, frozen=True, gc=False):
    """What one engine step added to one sequence.

    `tokens` never holds the end-of-generation token (it is not counted in usage) and may be empty only when `finish` is
    set. `logprobs` is empty or as long as `tokens`.
    """

    tokens: tuple[int, ...]
    finish: Finish | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


class ModelInfo(Struct, frozen=True, kw_only=True):
    """What the layers above must know of a loaded model."""

    name: str  # as served, such as "SmolLM2-135M-Instruct"
    context_length: int  # tokens; prompt and output together
    chat_template: str | None = None  # Jinja source; None: the built-in ChatML template
    bos_token: str = ""  # the spelling, for templates
    eos_token: str = ""
    dialect: str | None = None  # fixed by the engine's own configuration; None: told from the template
    chooses: bool = True  # its tokens are chosen as they come; False: they are given, and can only be checked


class Tokenizer(Protocol):
    """Text to token ids and back. Safe to call on any thread."""

    @property
    def size(self) -> int:
        """Number of token ids: valid ids are 0 to size - 1."""
        ...

    @property
    def bos(self) -> int | None:
        """The token that every prompt of this model must start with, or None if it needs none."""
        ...

    @property
    def end(self) -> Collection[int]:
        """The end-of-generation tokens. An engine that ends sequences in another way may have none."""
        ...

    @property
    def control(self) -> Mapping[int, str]:
        """The control tokens (`<|im_end|>`, ...) with their spelling: never ordinary text."""
        ...

    def encode(self, text: str, *, control: bool) -> list[int]:
        """The tokens of `text`, without an automatic beginning-of-sequence token.

        With `control`, spelled control tokens become those tokens; without, they are text like any other.
        """
        ...

    def fewest(self, text: str, enough: int) -> int:
        """A number of tokens that `text` has at least, found quickly; may stop at `enough`. 0: nothing is known."""
        ...

    def parts(self, text: str) -> Iterator[str]:
        """`text` in parts that can be tokenized one by one, with `control`: their tokens are those of the text.

        A part is as short as that allows, but no shorter than is worth a look at what there is by then.
        """
        ...

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for; for a control token its spelling. UTF-8 may be torn between tokens."""
        ...


class StepStream:
    """The steps of one sequence, from the engine to its one reader.

    `cached_tokens` is the number of prompt tokens that were not computed anew; it is final when the first step arrives.
    """

    __slots__ = ("_cancel", "_cancelled", "_failure", "_steps", "_waiter", "cached_tokens", "closed")

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cached_tokens = 0
        self.closed = False
        self._cancel = cancel
        self._cancelled = False
        self._failure: EngineFailure | None = None
        self._steps: list[Step] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, step: Step) -> None:
        """Engine's side: one more step."""
        if not self.closed:
            self._steps.append(step)
            self.closed = step.finish is not None
            self._wake()

    def extend(self, steps: Sequence[Step]) -> None:
        """Engine's side: several steps that are ready at once; only the last may finish."""
        if steps and not self.closed:
            self._steps.extend(steps)
            self.closed = steps[-1].finish is not None
            self._wake()

    def fail(self, failure: EngineFailure) -> None:
        """Engine's side: the sequence cannot go on. What was put before is still delivered."""
        if not self.closed:
            self.closed = True
            self._failure = failure
            self._wake()

    def cancel(self) -> None:
        """Reader's side: no more steps are wanted. The engine frees the sequence within a step. Idempotent."""
        self._cancelled = True
        self._steps.clear()
        if not self.closed:
            self.closed = True
            self._cancel()
            self._wake()

    def ready(self) -> list[Step]:
        """Reader's side: the steps that arrived since the last look, without waiting; may be empty."""
        steps, self._steps = self._steps, []
        return steps

    async def take(self) -> list[Step]:
        """Reader's side: the steps that arrived since the last look, at least one; none once it was cancelled.

        Raises `EngineFailure` when there are no more because the engine failed.
        """
        while not self._steps:
            if self._cancelled:
                return []
            if self._failure is not None:
                raise self._failure
            if self.closed:
                raise RuntimeError("take() after the end of the stream")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.ready()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Engine(Protocol):
    """A loaded model."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def alive(self) -> bool:
        """Whether it can still answer: False once it has failed for good, or was closed."""
        ...

    def submit(self, generation: Generation) -> StepStream:
        """Starts a sequence. Raises `EngineBusy` when the queue is full; never blocks."""
        ...

    async def aclose(self) -> None:
        """Ends every running sequence with an `EngineFailure` and frees the model. Idempotent."""
        ...
