"""The loads of the engine benchmark, as data, and how one round of each is run on one server.

A round asks only for texts that no server has seen before, so everything is cold unless the load says otherwise. In the
same round all servers are asked for the same texts.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Iterable, Sequence
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from benchmarks.engine_client import BenchmarkError, Message, Reply, ask
from benchmarks.engine_servers import Room, Server
from benchmarks.engine_words import Vocabulary
from msgspec import Struct
from msgspec.structs import replace

TEMPLATE_TOKENS = 64
"""Room in a sequence for what the chat template adds to a message, and for words of more than one token."""

OWN_SYSTEM = 8
"""Tokens of a system text that only one request has."""

QUICK = 8
"""`--quick` divides texts and answers by this: it shows that the benchmark works, its figures mean nothing."""

_T = TypeVar("_T")


class Round(Struct):
    """One load on one server once. Times in seconds; `prompts` has the tokens of each request, in order."""

    wall: float
    ttft_mean: float
    ttft_median: float
    worst_gap: float
    tokens_per_second: float
    prompts: list[int]
    cached: int
    cold_ttft: float | None = None  # of the same prompt before the restart


class Source(NamedTuple):
    """Where a round's texts come from."""

    vocabulary: Vocabulary
    seed: str

    def text(self, label: str, tokens: int) -> str:
        return self.vocabulary.text(Random(f"{self.seed} {label}"), tokens)


class Load(Protocol):
    exact_prompts: bool
    """Whether every server counts the same prompt tokens: not where answers become part of the next prompt."""

    @property
    def room(self) -> Room: ...

    async def run(self, server: Server, source: Source) -> Round: ...

    def quick(self) -> Load: ...


class Burst(Struct, frozen=True):
    """Requests at once, all with the same system text of `prefix` tokens, and each with a question. A prefix of 0: each
    with a short system text of its own, since templates put in one that all would share."""

    requests: int
    prefix: int
    question: int
    output: int
    exact_prompts = True

    @property
    def room(self) -> Room:
        return Room(self.requests, _padded(self.prefix + self.question + self.output))

    async def run(self, server: Server, source: Source) -> Round:
        prompts = [self._prompt(source, number) for number in range(self.requests)]
        start = time.perf_counter()
        replies = await _all(ask(server.port, server.api, prompt, self.output) for prompt in prompts)
        return _round(replies, time.perf_counter() - start)

    def _prompt(self, source: Source, number: int) -> list[Message]:
        system = source.text("system", self.prefix) if self.prefix else source.text(f"system {number}", OWN_SYSTEM)
        return [Message("system", system), Message("user", source.text(f"question {number}", self.question))]

    def quick(self) -> Burst:
        return replace(self, prefix=_less(self.prefix), question=_less(self.question), output=_less(self.output))


class AgentLoop(Struct, frozen=True):
    """Workers that share a system text and take turns of their own: an answer is kept, and the next message follows."""

    workers: int
    turns: int
    prefix: int
    message: int
    output: int
    exact_prompts = False

    @property
    def room(self) -> Room:
        turn = self.message + self.output + TEMPLATE_TOKENS
        return Room(self.workers, _padded(self.prefix + self.turns * turn))

    async def run(self, server: Server, source: Source) -> Round:
        start = time.perf_counter()
        replies = await _all(self._work(server, source, worker) for worker in range(self.workers))
        return _round([reply for some in replies for reply in some], time.perf_counter() - start)

    async def _work(self, server: Server, source: Source, worker: int) -> list[Reply]:
        messages = [Message("system", source.text("system and tools", self.prefix))]
        replies: list[Reply] = []
        for turn in range(self.turns):
            messages.append(Message("user", source.text(f"worker {worker} turn {turn}", self.message)))
            replies.append(await ask(server.port, server.api, messages, self.output))
            messages.append(Message("assistant", replies[-1].text))
        return replies

    def quick(self) -> AgentLoop:
        sizes = {"prefix": _less(self.prefix), "message": _less(self.message), "output": _less(self.output)}
        return replace(self, turns=2, **sizes)


class Interruption(Struct, frozen=True):
    """Streams that run while a long prompt arrives, once each has had `head_start` pieces of text.

    `worst_gap` is that of the streams from then on, the time to first token that of the long prompt; `wall` is until
    all have ended.
    """

    streams: int
    question: int
    output: int
    head_start: int
    arriving: int
    arriving_output: int
    exact_prompts = True

    @property
    def room(self) -> Room:
        return Room(self.streams + 1, _padded(max(self.arriving + self.arriving_output, self.question + self.output)))

    async def run(self, server: Server, source: Source) -> Round:
        running = asyncio.Event()
        behind = self.streams

        def on_text(pieces: int) -> None:
            nonlocal behind
            behind -= pieces == self.head_start
            if behind == 0:
                running.set()

        async def arrive() -> Reply:
            await running.wait()
            prompt = [Message("user", source.text("arriving", self.arriving))]
            return await ask(server.port, server.api, prompt, self.arriving_output)

        questions = [[Message("user", source.text(f"stream {n}", self.question))] for n in range(self.streams)]
        streams = [ask(server.port, server.api, each, self.output, on_text) for each in questions]
        replies = await _all([*streams, arrive()])
        return self._judge(server, replies[:-1], replies[-1])

    def _judge(self, server: Server, streams: Sequence[Reply], arrived: Reply) -> Round:
        if min(reply.ended for reply in streams) < arrived.times[0]:
            raise BenchmarkError(f"{server.name}: a stream ended before the long prompt was computed: raise `output`")
        measured = _round([*streams, arrived], max(reply.ended for reply in streams) - streams[0].sent)
        measured.ttft_mean = measured.ttft_median = arrived.first
        measured.worst_gap = max(reply.worst_gap(arrived.sent) for reply in streams)
        return measured

    def quick(self) -> Interruption:
        return replace(self, output=self.output // 2, head_start=2, arriving=_less(self.arriving))


class Restart(Struct, frozen=True):
    """A long prompt, a restart of the server, the same prompt again: the times are those of the second."""

    prompt: int
    output: int
    exact_prompts = True

    @property
    def room(self) -> Room:
        return Room(1, _padded(self.prompt + self.output))

    async def run(self, server: Server, source: Source) -> Round:
        prompt = [Message("user", source.text("known", self.prompt))]
        cold = await ask(server.port, server.api, prompt, self.output)
        await server.restart()
        again = await ask(server.port, server.api, prompt, self.output)
        if again.text != cold.text:
            print(f"  {server.name}: the answer after the restart differs from the one before")
        measured = _round([again], again.ended - again.sent)
        measured.cold_ttft = cold.first
        return measured

    def quick(self) -> Restart:
        return replace(self, prompt=_less(self.prompt))


class Goal(NamedTuple):
    """`figure` of the rivals over ours is at least `ratio`, or ours alone at most `limit` seconds."""

    figure: str
    ratio: float
    limit: float | None = None


class Workload(Struct, frozen=True):
    """A row of the table. `variants` are the settings of llama.cpp's server that take part; its best counts."""

    name: str
    title: str
    load: Load
    goals: tuple[Goal, ...]
    variants: tuple[str, ...] = ("unified", "split")
    prefix_dir: bool = False


WORKLOADS = (
    Workload("one", "1 stream, 128 tokens", Burst(1, 0, 32, 128), (Goal("wall", 1.0),)),
    Workload("unrelated", "8 unrelated prompts at once", Burst(8, 0, 160, 64), (Goal("wall", 1.1),)),
    Workload(
        "common-1000",
        "8 at once, 1,000-token common prefix, cold",
        Burst(8, 1000, 32, 64),
        (Goal("wall", 4.0), Goal("ttft_mean", 4.0)),
    ),
    Workload(
        "common-3000",
        "12 at once, 3,000-token common prefix, cold",
        Burst(12, 3000, 32, 64),
        (Goal("wall", 10.0),),
        variants=("split",),  # the better one for long contexts without sharing; minutes a round
    ),
    Workload(
        "agents",
        "agent loop: 4 workers x 6 turns, 1,500 tokens of system and tools, 150 new a turn",
        AgentLoop(4, 6, 1500, 64, 150),
        (Goal("wall", 2.5),),
    ),
    Workload(
        "interrupted",
        "4 streams while a 4,000-token prompt arrives",
        Interruption(4, 32, 384, 16, 4000, 16),
        (Goal("worst_gap", 2.0, limit=1.0),),
        variants=("unified", "n_batch 512", "n_batch 256"),
    ),
    Workload(
        "restart",
        "known 4,000-token prompt after a restart",
        Restart(4000, 16),
        (Goal("restart", 10.0),),
        variants=("unified", "saved slot"),
        prefix_dir=True,
    ),
)


async def warm_up(server: Server, source: Source) -> None:
    """One short request, whose text no load uses: memory is touched and threads are started."""
    system, user = Message("system", source.text("system", OWN_SYSTEM)), Message("user", source.text("user", 16))
    await ask(server.port, server.api, [system, user], 8)


async def _all(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Everything at once; the first error cancels the rest and is raised as it is."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def _round(replies: Sequence[Reply], wall: float) -> Round:
    firsts = [reply.first for reply in replies]
    return Round(
        wall=wall,
        ttft_mean=statistics.fmean(firsts),
        ttft_median=statistics.median(firsts),
        worst_gap=max(reply.worst_gap() for reply in replies),
        tokens_per_second=sum(reply.usage.output for reply in replies) / wall,
        prompts=[reply.usage.prompt for reply in replies],
        cached=sum(reply.usage.cached for reply in replies),
    )


def _padded(tokens: int) -> int:
    """With the template's own tokens and a twentieth for words of several tokens; whole blocks of 256, as llama.cpp
    divides its cells."""
    return -(-(tokens + tokens // 20 + TEMPLATE_TOKENS) // 256) * 256


def _less(tokens: int) -> int:
    return -(-tokens // QUICK)
