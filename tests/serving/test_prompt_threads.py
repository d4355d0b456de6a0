"""Large prompts are made beside the event loop, a few at once, and only as long as somebody wants them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import httpx
import pytest

from antiphon.engine.base import Finish, Step
from antiphon.engine.byte_tokenizer import ByteTokenizer
from antiphon.protocol.errors import RequestRefused
from antiphon.serving.prepare import INLINE_PROMPT
from antiphon.serving.prompt_threads import PROMPT_THREADS, WAITING_BYTES, Abandoned, Check, PromptThreads
from antiphon.text.prompt import Prompt
from tests.engines import SPECIAL, GivenEngine
from tests.server import error_of, running_server


def unavailable() -> RequestRefused:
    return RequestRefused("It ends.", status=503)


class Slow:
    """Work that goes on until it is let go; `alive` of them are on a thread."""

    alive = 0

    def __init__(self, name: str = "") -> None:
        self.started = threading.Event()
        self.let_go = threading.Event()
        self.abandoned = threading.Event()
        self._prompt = Prompt(name, [1])

    def __call__(self, check: Check) -> Prompt:
        Slow.alive += 1
        self.started.set()
        try:
            while not self.let_go.wait(0.001):
                check()
        except Abandoned:
            self.abandoned.set()
            raise
        finally:
            Slow.alive -= 1
        return self._prompt


async def begun(slow: Slow) -> None:
    await asyncio.to_thread(slow.started.wait)


async def test_a_few_at_once_and_the_rest_in_order() -> None:
    threads = PromptThreads[Prompt](unavailable)
    works = [Slow(str(n)) for n in range(6)]
    made = [asyncio.create_task(threads.make(1, work)) for work in works]
    for n, work in enumerate(works):
        await begun(work)
        assert not any(later.started.is_set() for later in works[n + PROMPT_THREADS :])
        work.let_go.set()
        assert (await made[n]).text == str(n)
    await threads.close()


async def test_what_the_work_raises_is_raised() -> None:
    def fail(check: Check) -> Prompt:
        raise RequestRefused("No.", param="input")

    threads = PromptThreads[Prompt](unavailable)
    with pytest.raises(RequestRefused, match="No"):
        await threads.make(1, fail)
    done = Slow()
    done.let_go.set()
    assert (await threads.make(1, done)).tokens == [1]


async def test_more_than_may_wait_is_refused_until_there_is_room() -> None:
    threads = PromptThreads[Prompt](unavailable)
    work = Slow()
    first = asyncio.create_task(threads.make(WAITING_BYTES, work))
    await begun(work)
    with pytest.raises(RequestRefused) as refused:
        await threads.make(1, work)
    assert (refused.value.status, refused.value.code, refused.value.retry_after) == (429, "rate_limit_exceeded", 1)
    work.let_go.set()
    await first
    await threads.make(WAITING_BYTES, work)


async def test_what_nobody_waits_for_is_given_up() -> None:
    threads = PromptThreads[Prompt](unavailable)
    works = [Slow() for _ in range(PROMPT_THREADS + 2)]
    made = [asyncio.create_task(threads.make(1, work)) for work in works]
    for work in works[:PROMPT_THREADS]:
        await begun(work)
    for task in (made[0], made[-2]):  # one that runs and one that waits
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.to_thread(works[0].abandoned.wait)
    await begun(works[-1])
    for work in works:
        work.let_go.set()
    await asyncio.gather(made[1], made[-1])
    assert not works[-2].started.is_set()
    await threads.close()


async def test_closing_refuses_what_is_not_done_and_leaves_no_thread_at_work() -> None:
    threads = PromptThreads[Prompt](unavailable)
    works = [Slow() for _ in range(PROMPT_THREADS + 2)]
    made = [asyncio.create_task(threads.make(1, work)) for work in works]
    await begun(works[PROMPT_THREADS - 1])
    await threads.close()
    assert Slow.alive == 0
    for outcome in await asyncio.gather(*made, return_exceptions=True):
        assert isinstance(outcome, RequestRefused)
        assert outcome.status == 503
    with pytest.raises(RequestRefused, match="It ends"):
        await threads.make(1, works[0])
    await threads.close()
    assert not any(work.started.is_set() for work in works[PROMPT_THREADS:])


class Gated(ByteTokenizer):
    """Stops where it tokenizes, until it is let go."""

    def __init__(self) -> None:
        super().__init__(SPECIAL)
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def parts(self, text: str) -> Iterator[str]:
        yield text[:10]
        self.reached.set()
        self.let_go.wait()
        yield text[10:]


def gated_engine() -> tuple[GivenEngine, Gated]:
    engine = GivenEngine([Step((97,), Finish.STOP)], context_length=100_000)
    engine.tokenizer = tokenizer = Gated()
    return engine, tokenizer


LARGE = {"input": "x" * 2 * INLINE_PROMPT}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_is_not_worked_for(stream: bool) -> None:
    engine, tokenizer = gated_engine()
    async with running_server(engine.load) as server:
        ended = server.service.metrics.ended
        asking = asyncio.create_task(server.post({**LARGE, "stream": stream}))
        await asyncio.to_thread(tokenizer.reached.wait)
        asking.cancel()
        while not ended["cancelled"]:  # noqa: ASYNC110  # figures have no event for it
            await asyncio.sleep(0)
        tokenizer.let_go.set()
        assert (await server.post(LARGE)).status_code == 200
        assert len(engine.asked) == 1


async def test_a_server_that_stops_refuses_whose_prompt_is_not_made() -> None:
    engine, tokenizer = gated_engine()
    async with running_server(engine.load) as server:
        asking = [asyncio.create_task(server.post(LARGE)) for _ in range(PROMPT_THREADS + 2)]
        await asyncio.to_thread(tokenizer.reached.wait)
        server.stop.set()
        answers: list[httpx.Response] = await asyncio.gather(*asking)
        assert [answer.status_code for answer in answers] == [503] * len(asking)
        assert {error_of(answer)["code"] for answer in answers} == {"server_unavailable"}
        tokenizer.let_go.set()
    assert engine.asked == []
