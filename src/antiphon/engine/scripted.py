"""The scripted engine: plays token steps from a file instead of computing them.

It is an engine like any other, so that everything above engines is the real path: for developing clients without a
model, and for tests that say exactly what a model emits, in which pieces, and when it fails. `docs/scripted.md`
describes the file.

Rules
* What is played depends on the file, the prompt and the order of the requests alone: nothing is random.
* `submit` chooses the turn, so the order of the calls decides about `times`; a task then plays it.
* A reached limit is `Finish.LENGTH` even if the turn would have ended there: a model that stops at a limit does not
  know either whether the next token would have been its last.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from antiphon.engine.base import (
    Constraint,
    EngineClosed,
    EngineFailure,
    Finish,
    Generation,
    ModelInfo,
    Sampling,
    Step,
    StepStream,
    TokenLogprob,
)
from antiphon.engine.byte_tokenizer import ByteTokenizer
from antiphon.engine.script_file import Emit, Fail, Hang, Pause, Script, Turn

# How much of the newest block a "no turn matches" message shows; enough to see which request it was.
SHOWN_CHARACTERS = 200


class _Playing(NamedTuple):
    stream: StepStream
    task: asyncio.Task[None]


class ScriptedEngine:
    """Plays a `Script`. `sleep` takes seconds."""

    def __init__(
        self,
        script: Script,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._script = script
        self._sleep = sleep
        self._used = [0] * len(script.turns)
        self._numbers = itertools.count()
        self._playing: dict[int, _Playing] = {}
        self._closed = False

    @property
    def info(self) -> ModelInfo:
        return self._script.info

    @property
    def tokenizer(self) -> ByteTokenizer:
        return self._script.tokenizer

    @property
    def running(self) -> int:
        """Number of sequences that have not ended."""
        return len(self._playing)

    @property
    def alive(self) -> bool:
        return not self._closed

    def submit(self, generation: Generation) -> StepStream:
        number = next(self._numbers)
        stream = StepStream(partial(self._stop, number))
        try:
            if self._closed:
                raise EngineClosed("the engine is closed")
            limit = self._limit(generation)
            turn = self._choose(generation.prompt)
        except EngineFailure as failure:
            stream.fail(failure)
            return stream
        run = self._run(number, turn, limit, generation.sampling)
        task = asyncio.get_running_loop().create_task(run, name=generation.id)
        self._playing[number] = _Playing(stream, task)
        return stream

    async def aclose(self) -> None:
        self._closed = True
        ended, self._playing = self._playing, {}
        for playing in ended.values():
            playing.stream.fail(EngineClosed("the engine was closed"))
            playing.task.cancel()
        await asyncio.gather(*(playing.task for playing in ended.values()), return_exceptions=True)

    def _stop(self, number: int) -> None:
        if playing := self._playing.pop(number, None):
            playing.task.cancel()

    def _limit(self, generation: Generation) -> int:
        """How many tokens may come: at least one."""
        room = self.info.context_length - len(generation.prompt)
        if room < 1:
            raise EngineFailure(f"a prompt of {len(generation.prompt)} tokens leaves no room in the context")
        return room if generation.max_tokens is None else min(room, generation.max_tokens)

    def _choose(self, prompt: Sequence[int]) -> Turn:
        """The first turn that fits, which is thereby used once."""
        for index, turn in enumerate(self._script.turns):
            if turn.times is not None and self._used[index] >= turn.times:
                continue
            if turn.when is None or turn.when.search(self._searched(turn, prompt)):
                self._used[index] += 1
                return turn
        block = newest_block(prompt, self._script.message_marker, self.tokenizer)
        raise EngineFailure(f"no turn of the script matches {block[:SHOWN_CHARACTERS]!r}")

    def _searched(self, turn: Turn, prompt: Sequence[int]) -> str:
        if turn.whole_prompt:
            return self.tokenizer.decode(prompt)
        return newest_block(prompt, self._script.message_marker, self.tokenizer)

    async def _run(self, number: int, turn: Turn, limit: int, sampling: Sampling) -> None:
        stream = self._playing[number].stream
        try:
            await self._play(turn, stream, limit, sampling)
        except EngineFailure as failure:
            stream.fail(failure)
        finally:
            self._playing.pop(number, None)

    async def _play(self, turn: Turn, stream: StepStream, limit: int, sampling: Sampling) -> None:
        if turn.prefill:
            await self._sleep(turn.prefill)
        left, top_logprobs = limit, sampling.top_logprobs
        check = None if sampling.constraint is None else _Check(sampling.constraint, self.tokenizer)
        rounds = itertools.chain(itertools.repeat(turn.repeated, turn.repeat - 1), [turn.closing])
        for action in itertools.chain.from_iterable(rounds):
            if not isinstance(action, Emit):
                await self._wait(action)
                continue
            steps: Sequence[Step] = action.steps if action.tokens < left else _cut(action.steps, left)
            fault = None
            if check is not None:
                steps, fault = check.passed(steps)
            stream.extend(steps if top_logprobs is None else [_certain(step, top_logprobs) for step in steps])
            if fault is not None:
                raise EngineFailure(fault)
            if stream.closed:
                return
            left -= action.tokens

    async def _wait(self, action: Pause | Fail | Hang) -> None:
        match action:
            case Pause(seconds):
                await self._sleep(seconds)
            case Fail(message):
                raise EngineFailure(message)
            case Hang():
                await asyncio.get_running_loop().create_future()


class _Check:
    """Follows what is played through the request's constraint."""

    def __init__(self, constraint: Constraint, tokenizer: ByteTokenizer) -> None:
        self._constraint = constraint
        self._tokenizer = tokenizer
        self._count = 0

    def passed(self, steps: Sequence[Step]) -> tuple[Sequence[Step], str | None]:
        """The steps that the constraint lets through, and what is wrong with the next one."""
        for n, step in enumerate(steps):
            for token in step.tokens:
                self._count += 1
                if not self._constraint.accept(token):
                    return steps[:n], f"token {self._count}, {self._tokenizer.piece(token)!r}, breaks the constraint"
            if step.finish is Finish.STOP and not self._constraint.may_end:
                return steps[:n], f"the constraint does not let the output end behind token {self._count}"
        return steps, None


def newest_block(prompt: Sequence[int], marker: str, tokenizer: ByteTokenizer) -> str:
    """What stands between the last but one and the last `marker`; from the start of the prompt if there is only one.

    If the marker is a control token, only that token counts: a user who writes its spelling moves nothing.
    """
    token = tokenizer.id_of(marker)
    if token is None:
        parts = tokenizer.decode(prompt).rsplit(marker, 2)
        return parts[-2] if len(parts) > 1 else parts[0]
    places = [index for index, found in enumerate(prompt) if found == token][-2:]
    start = places[0] + 1 if len(places) == 2 else 0
    return tokenizer.decode(prompt[start : places[-1]] if places else prompt)


def _cut(steps: Sequence[Step], limit: int) -> list[Step]:
    """The first `limit` tokens of steps that hold at least as many; the last step says that the limit was reached."""
    kept: list[Step] = []
    for step in steps:
        if len(step.tokens) >= limit:
            kept.append(Step(step.tokens[:limit], Finish.LENGTH))
            break
        kept.append(step)
        limit -= len(step.tokens)
    return kept


def _certain(step: Step, top: int) -> Step:
    """The step with log-probabilities: a script is certain of every token."""
    entries = tuple(TokenLogprob(token, 0.0, ((token, 0.0),) if top else ()) for token in step.tokens)
    return Step(step.tokens, step.finish, entries)
