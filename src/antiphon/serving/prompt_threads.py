"""What is made of requests beside the event loop (prompts, grammars): a few at once, the rest in order of arrival.

A thread cannot be stopped from outside: the work looks now and then, through `check`, whether anybody still wants it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from antiphon.protocol.errors import RequestRefused

PROMPT_THREADS = 2
"""At once. Each takes a core from the engine; with a single one, a long prompt would hold up all others."""

WAITING_BYTES = 256 * 1024 * 1024
"""Of the bodies whose prompts are not made yet: eight of the largest, or 2,500 agents' of 100 kB. Parsed, a body takes
two or three times as much memory."""

Check = Callable[[], None]
T = TypeVar("T")


class Abandoned(Exception):
    """Nobody wants this any more."""


class _Job(Generic[T]):
    def __init__(self, work: Callable[[Check], T]) -> None:
        self.work = work
        self.done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.wanted = True

    def check(self) -> None:
        """On the thread."""
        if not self.wanted:
            raise Abandoned

    def end(self, outcome: T | Exception) -> None:
        self.wanted = False
        if self.done.done():
            return
        if isinstance(outcome, Exception):
            self.done.set_exception(outcome)
        else:
            self.done.set_result(outcome)


class PromptThreads(Generic[T]):
    """Used on the event loop. `unavailable` makes the refusal of what is not done when it is closed."""

    def __init__(self, unavailable: Callable[[], RequestRefused]) -> None:
        self._unavailable = unavailable
        self._waiting: deque[_Job[T]] = deque()
        self._running: dict[asyncio.Task[None], _Job[T]] = {}
        self._bytes = 0
        self._closed = False

    async def make(self, size: int, work: Callable[[Check], T]) -> T:
        """What `work` returns or raises; `size` is that of the request, in bytes. Cancelled, the work is given up.

        Raises `RequestRefused`: too much is waiting (429), the server stops (503).
        """
        if self._closed:
            raise self._unavailable()
        if self._bytes + size > WAITING_BYTES:
            message = "Too many large requests are waiting."
            raise RequestRefused(
                message, code="rate_limit_exceeded", status=429, kind="rate_limit_error", retry_after=1
            )
        job = _Job(work)
        self._bytes += size
        self._waiting.append(job)
        self._start()
        try:
            return await job.done
        finally:
            self._bytes -= size
            job.wanted = False
            if job in self._waiting:
                self._waiting.remove(job)

    async def close(self) -> None:
        """Refuses what is not done, and returns when the threads have noticed. Idempotent."""
        self._closed = True
        for job in (*self._waiting, *self._running.values()):
            job.end(self._unavailable())
        self._waiting.clear()
        while self._running:
            await asyncio.wait(self._running)

    def _start(self) -> None:
        while self._waiting and len(self._running) < PROMPT_THREADS:
            job = self._waiting.popleft()
            task = asyncio.create_task(self._run(job))
            self._running[task] = job
            task.add_done_callback(self._ended)

    async def _run(self, job: _Job[T]) -> None:
        try:
            job.end(await asyncio.to_thread(job.work, job.check))
        except Exception as error:
            job.end(error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._start()
