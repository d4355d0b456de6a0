"""A greedy answer is the same whatever happened to its sequence: alone, in company, behind a shared prefix, preempted,
back from memory, back from a file.

"The same" is: token by token, or up to a place where the two best tokens lie closer than `TOLERANCE`, since kernels
round differently by the shape of a batch and the place in the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from antiphon.engine.base import Generation, Sampling, TokenLogprob
from antiphon.engine.llama import LlamaBackend, load
from antiphon.engine.observe import StepReport
from antiphon.engine.prefix_store import PrefixStore
from antiphon.engine.stepper import Options
from antiphon.engine.worker import WorkerEngine
from tests.engine.llama.generate import assert_same_tokens
from tests.tiny_model import FAMILIES, Tiny, write_tiny_model

LENGTH = 24
"""Tokens of an answer."""

Load = Callable[..., LlamaBackend]


class Answer(Struct, frozen=True):
    logprobs: list[TokenLogprob]
    cached: int

    @property
    def tokens(self) -> list[int]:
        return [one.token for one in self.logprobs]


class Run:
    """An engine and what its last step said."""

    def __init__(self, engine: WorkerEngine, reports: list[StepReport], end: Sequence[int]) -> None:
        self._engine = engine
        self._reports = reports
        # Answers of equal length: nothing ends by itself.
        self._sampling = Sampling(temperature=0, top_logprobs=5, logit_bias=dict.fromkeys(end, -100.0))

    @property
    def last(self) -> StepReport:
        return self._reports[-1]

    async def ask(self, prompt: Sequence[int], length: int = LENGTH, owner: str = "") -> Answer:
        generation = Generation(id="resp_same", prompt=prompt, max_tokens=length, sampling=self._sampling, owner=owner)
        stream = self._engine.submit(generation)
        logprobs: list[TokenLogprob] = []
        while True:
            for step in await stream.take():
                logprobs += step.logprobs
                if step.finish is not None:
                    return Answer(logprobs, stream.cached_tokens)

    async def ask_all(self, *prompts: Sequence[int], length: int = LENGTH) -> list[Answer]:
        return list(await asyncio.gather(*(self.ask(prompt, length) for prompt in prompts)))


@asynccontextmanager
async def running(backend: LlamaBackend, *, ram: int = 0, directory: Path | None = None) -> AsyncIterator[Run]:
    """`ram` in tokens. The backend is closed at the end."""
    reports: list[StepReport] = []
    engine = WorkerEngine(
        backend,
        options=Options(prefix_ram=ram * backend.cell_bytes),
        store=PrefixStore(directory, backend.fingerprint) if directory is not None and backend.can_trim else None,
        observe=reports.append,
    )
    try:
        yield Run(engine, reports, list(backend.tokenizer.end))
    finally:
        await engine.aclose()


class Machine(Struct, frozen=True):
    """A model and a prompt for it, with another text that nothing has in common with it."""

    load: Load
    prompt: list[int]
    other: list[int]
    shares: bool

    @property
    def common(self) -> int:
        """Tokens that branches need not compute again."""
        return len(self.prompt) - 10 if self.shares else 0

    def branch(self, number: int) -> list[int]:
        """A prompt that begins like `prompt`."""
        return [*self.prompt[:-10], *self.other[number : number + 15]]


def tokens_of(backend: LlamaBackend, count: int, text: str) -> list[int]:
    tokens = backend.tokenizer.encode(text, control=False)
    return (tokens * (count // len(tokens) + 1))[:count]


@pytest.fixture(params=["the default model", *FAMILIES])
def machine(request: pytest.FixtureRequest, tmp_path: Path, real_model_path: Path) -> Machine:
    real = request.param == "the default model"
    path = real_model_path if real else write_tiny_model(tmp_path / "tiny.gguf", Tiny(family=request.param))

    def load_one(*, cells: int = 2048, lanes: int = 8, context: int = 512) -> LlamaBackend:
        return load(path, context_length=context, cells=cells, lanes=lanes, batch_tokens=128, threads=1)

    backend = load_one()
    prompt = tokens_of(
        backend, 200, "The old mill stood by the river, and nobody in the village could say who built it. "
    )
    other = tokens_of(backend, 200, "hello world, this is about something else: numbers such as 1, 2, 3 and 5. ")
    shares = backend.can_trim
    backend.close()
    return Machine(load_one, prompt, other, shares)


async def reference(machine: Machine, prompt: Sequence[int], length: int = LENGTH) -> Answer:
    """The answer of an engine that has never seen anything else."""
    async with running(machine.load()) as run:
        answer = await run.ask(prompt, length)
    assert answer.cached == 0
    assert len(answer.tokens) == length
    return answer


def same(expected: Answer, answer: Answer) -> None:
    assert_same_tokens(answer.tokens, expected.logprobs)


async def test_in_a_full_batch(machine: Machine) -> None:
    expected = await reference(machine, machine.prompt)
    others = [machine.other[n:] for n in range(7)]
    async with running(machine.load()) as run:
        answer, *_ = await run.ask_all(machine.prompt, *others)
    same(expected, answer)


async def test_behind_a_shared_prefix(machine: Machine) -> None:
    """The first computes it, the others wait for it; then a later one finds it."""
    prompts = [machine.branch(n) for n in range(4)]
    expected = [await reference(machine, prompt) for prompt in prompts]
    async with running(machine.load()) as run:
        answers = await run.ask_all(*prompts[:3])
        answers.append(await run.ask(prompts[3]))
    for one, other in zip(expected, answers, strict=True):
        same(one, other)
    assert [answer.cached for answer in answers] == [0, machine.common, machine.common, machine.common]


async def test_a_conversation_goes_on_from_its_own_answer(machine: Machine) -> None:
    async with running(machine.load()) as run:
        first = await run.ask(machine.prompt)
        prompt = [*machine.prompt, *first.tokens, *machine.other[:9]]
        second = await run.ask(prompt)
    same(await reference(machine, prompt), second)
    assert second.cached >= (len(machine.prompt) + len(first.tokens) - 1 if machine.shares else 0)


async def test_after_being_preempted(machine: Machine) -> None:
    """Two that together want more than the cache holds: the younger one gives way and comes back."""
    expected = await reference(machine, machine.prompt, length=90)
    async with running(machine.load(cells=512)) as run:
        _, answer = await run.ask_all(machine.other, machine.prompt, length=90)
        assert run.last.preempted > 0
    same(expected, answer)


async def test_back_from_memory(machine: Machine) -> None:
    expected = await reference(machine, machine.branch(0))
    async with running(machine.load(cells=512, lanes=2), ram=4096) as run:
        await run.ask(machine.prompt)
        await run.ask(machine.other, length=300)  # Everything else makes way.
        answer = await run.ask(machine.branch(0))
        assert run.last.restored >= machine.common
    same(expected, answer)
    assert answer.cached == machine.common


async def test_back_from_a_file(machine: Machine, tmp_path: Path) -> None:
    expected = await reference(machine, machine.branch(0))
    async with running(machine.load(), directory=tmp_path / "prefixes") as run:
        await run.ask(machine.prompt)
    async with running(machine.load(), directory=tmp_path / "prefixes") as run:
        answer = await run.ask(machine.branch(0))
        stranger = await run.ask(machine.prompt, owner="somebody else")
    same(expected, answer)
    assert answer.cached == machine.common
    assert stranger.cached == 0
