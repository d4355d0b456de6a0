"""The worker with memory and a real folder for prefixes: what it keeps over evictions, faults and restarts."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.engine.backend import Batch, ContextLost, Restore, Sampled
from antiphon.engine.base import EngineFailure, Generation, Sampling
from antiphon.engine.observe import StepReport
from antiphon.engine.prefix_store import SUFFIX, PrefixStore, Record
from antiphon.engine.stepper import Options
from antiphon.engine.worker import WorkerEngine
from tests.engine.arithmetic_backend import ArithmeticBackend, Hook, alone
from tests.engine.worker_support import (
    LOGGER,
    Fault,
    Gate,
    Idleness,
    failed,
    output,
    read,
    serving,
    submit,
    text,
    works,
)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


@asynccontextmanager
async def keeping(
    folder: Path, backend: ArithmeticBackend | None = None, *, options: Options | None = None
) -> AsyncIterator[WorkerEngine]:
    """An engine that keeps its prefixes in this folder. A new one is a new process."""
    backend = backend or ArithmeticBackend()
    store = PrefixStore(folder, backend.fingerprint)
    async with serving(backend, options=options, store=store) as engine:
        yield engine


async def known(engine: WorkerEngine, prompt: list[int], limit: int = 3) -> int:
    """Asks; how many tokens were cached."""
    stream = submit(engine, prompt, limit)
    assert await output(stream) == alone(prompt, limit)
    return stream.cached_tokens


# Memory


def roomy(backend: ArithmeticBackend) -> Options:
    return Options(prefix_ram=1_000 * backend.cell_bytes)


async def test_what_was_evicted_comes_back_from_memory() -> None:
    backend = ArithmeticBackend(cells=128)
    reports: list[StepReport] = []
    async with serving(backend, options=roomy(backend), observe=reports.append) as engine:
        for start in (0, 100):
            assert await known(engine, text(100, start)) == 0
        assert await known(engine, text(100)) == 99
        assert reports[-1].restored >= 99
        assert reports[-1].ram_bytes >= 100 * backend.cell_bytes


class Forgetful(Hook):
    """States that were saved cannot be put back."""

    def saved(self, data: bytes) -> bytes:
        return b"torn"


async def test_a_state_that_cannot_be_restored_is_computed_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    backend = ArithmeticBackend(cells=128, hook=Forgetful())
    async with serving(backend, options=roomy(backend)) as engine:
        for start in (0, 100):
            await known(engine, text(100, start))
        await known(engine, text(100))
        assert backend.resets == 1
        await known(engine, text(100, 100))
        await works(engine)


@pytest.mark.parametrize("lost", [False, True])
async def test_a_state_that_cannot_be_restored_when_nobody_runs(lost: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Who wanted it was refused before the batch, and what was booked for it is done alone."""

    class Broken(ArithmeticBackend):
        def execute(self, batch: Batch) -> list[Sampled | EngineFailure]:
            if lost and any(isinstance(move, Restore) for move in batch.moves):
                raise ContextLost("device lost")
            return super().execute(batch)

    caplog.set_level(logging.CRITICAL, LOGGER)
    backend = Broken(cells=128, hook=Forgetful())
    idle = Idleness()
    async with serving(backend, options=roomy(backend), observe=idle) as engine:
        for start in (0, 100):
            await known(engine, text(100, start))
        idle.forget()
        refused = Sampling(logit_bias={1_000: 1.0})
        assert await failed(engine.submit(Generation(id="r", prompt=text(100), sampling=refused)))
        await idle.wait()
        assert backend.resets == 1
        if lost:
            await works(engine)
        else:
            assert await known(engine, text(100)) == 0
    assert backend.resets == 1


async def test_everybody_else_is_computed_again_with_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)

    class Torn(Gate):
        def saved(self, data: bytes) -> bytes:
            return b"torn"

    gate = Torn(6)
    backend = ArithmeticBackend(cells=256, context_length=128, nodes=2, hook=gate)
    async with serving(backend, options=roomy(backend)) as engine:
        for start in (0, 50, 100):  # Executions 0 to 5; two slots for three.
            await known(engine, text(40, start), 2)
        talking = submit(engine, text(9, 200), 40)
        await gate.reached(6)
        back = submit(engine, [*text(40), 7], 3)
        gate.open(6)
        assert await output(back) == alone([*text(40), 7], 3)
        assert await output(talking) == alone(text(9, 200), 40)
    assert backend.resets == 1


async def test_a_loss_beside_what_is_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    hook = Fault(ContextLost("device lost"), 8)
    backend = ArithmeticBackend(cells=128, hook=hook)
    async with serving(backend, options=roomy(backend)) as engine:
        for start in (0, 100, 0, 100):
            await known(engine, text(100, start))
        assert await known(engine, text(100)) == 99
    assert backend.resets == 1


# Files


async def test_the_next_process_computes_one_token_of_a_known_prompt(tmp_path: Path) -> None:
    async with keeping(tmp_path) as engine:
        assert await known(engine, text(90)) == 0
    backend = ArithmeticBackend()
    async with keeping(tmp_path, backend) as engine:
        assert await known(engine, text(90), 1) == 89
        assert backend.computed == 1


async def test_a_conversation_goes_on_in_the_next_processes(tmp_path: Path) -> None:
    prompt = text(20)
    for turn in range(5):
        async with keeping(tmp_path) as engine:
            stream = submit(engine, prompt, 4)
            said = await output(stream)
        assert said == alone(prompt, 4)
        assert stream.cached_tokens == (len(prompt) - 4 if turn else 0)
        prompt = [*prompt, *said, *text(3, 10 * turn)]


async def test_owners_are_kept_apart_in_files_too(tmp_path: Path) -> None:
    for owner, cached in (("a", 0), ("b", 0), ("a", 39)):
        async with keeping(tmp_path) as engine:
            stream = engine.submit(Generation(id="r", prompt=text(40), max_tokens=1, owner=owner))
            await read(stream)
            assert stream.cached_tokens == cached


async def test_closing_saves_what_a_running_answer_has_computed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    gate = Gate(3)
    async with keeping(tmp_path, ArithmeticBackend(hook=gate)) as engine:
        stream = submit(engine, text(40))
        await gate.reached(3)
        await engine.aclose()
        assert await failed(stream)
    async with keeping(tmp_path) as engine:
        assert await known(engine, text(40)) == 39


async def test_closing_does_not_take_away_what_was_in_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    async with keeping(tmp_path) as engine:
        await known(engine, text(40))
    gate = Gate(1)
    async with keeping(tmp_path, ArithmeticBackend(hook=gate)) as engine:
        submit(engine, text(40))
        await gate.reached(1)
    async with keeping(tmp_path) as engine:
        assert await known(engine, text(40)) == 39


async def test_closing_takes_no_longer_than_it_may(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    minutes = itertools.count(0, 60)
    gate = Gate(2)
    options = Options(clock=lambda: float(next(minutes)))
    async with keeping(tmp_path, ArithmeticBackend(hook=gate), options=options) as engine:
        submit(engine, text(40))
        await gate.reached(2)
    assert "not all prefixes could be written" in caplog.text


class Understated(ArithmeticBackend):
    """A token takes more in a parcel than it says."""

    cell_bytes = 4


async def test_a_prefix_that_the_folder_cannot_take_holds_nobody_up(tmp_path: Path) -> None:
    backend = Understated()
    store = PrefixStore(tmp_path, backend.fingerprint, pending_bytes=250)
    idle = Idleness()
    async with serving(backend, store=store, observe=idle) as engine:
        short, long = submit(engine, text(20), 1), submit(engine, text(40, 100), 2)
        assert await output(short) == alone(text(20), 1)
        assert await output(long) == alone(text(40, 100), 2)
        await idle.wait()
        assert await known(engine, text(41, 100), 1) == 40
    async with keeping(tmp_path) as engine:
        assert await known(engine, text(20)) == 19
        assert await known(engine, text(40, 100)) == 0


class Scarce(Hook):
    """No memory for long states."""

    def saved(self, data: bytes) -> bytes | None:
        return data if len(data) < 400 else None


async def test_a_prefix_that_there_is_no_memory_for_costs_only_itself(tmp_path: Path) -> None:
    async with keeping(tmp_path, ArithmeticBackend(hook=Scarce())) as engine:
        assert await known(engine, text(20)) == 0
        assert await known(engine, text(100, 100)) == 0
        await works(engine)
    async with keeping(tmp_path) as engine:
        assert await known(engine, text(20)) == 19
        assert await known(engine, text(100, 100)) == 0


async def test_the_next_one_is_written_at_once(tmp_path: Path) -> None:
    """Behind a prefix that there is no memory for, when nobody asks for anything."""
    stored = threading.Event()

    def observe(report: StepReport) -> None:
        if report.disk_bytes:
            stored.set()

    backend = ArithmeticBackend(hook=Scarce())
    async with serving(backend, store=PrefixStore(tmp_path, backend.fingerprint), observe=observe) as engine:
        short, long = submit(engine, text(20), 1), submit(engine, text(100, 100), 2)
        await output(short)
        await output(long)
        assert await asyncio.to_thread(stored.wait, 60)


class Crowded(PrefixStore):
    """Its folder is full of files that cannot be read."""

    def scan(self) -> list[tuple[Record, int]]:
        found = super().scan()
        self.left_bytes = 10**6
        return found


async def test_files_that_cannot_be_read_take_their_room(tmp_path: Path) -> None:
    options = Options(prefix_disk=10**6)
    store = Crowded(tmp_path, ArithmeticBackend.fingerprint)
    async with serving(ArithmeticBackend(), options=options, store=store) as engine:
        await known(engine, text(20))
    assert files(tmp_path) == []


async def test_a_disk_that_does_not_answer_does_not_hold_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    reached, gate = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        reached.set()
        gate.wait(60)

    minutes = itertools.count(0, 60)
    store = PrefixStore(tmp_path, ArithmeticBackend.fingerprint)
    options = Options(clock=lambda: float(next(minutes)))
    async with serving(ArithmeticBackend(), options=options, store=store) as engine:
        await known(engine, text(40))
        store.read(Record("", (1,), 0, b"", bytes(16)), hold)
        reached.wait()
    assert "its thread left behind" in caplog.text
    gate.set()
    store.close()


async def test_an_engine_that_broke_saves_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, LOGGER)
    hook = Fault(RuntimeError("a bug"), 1)
    async with keeping(tmp_path, ArithmeticBackend(hook=hook)) as engine:
        with pytest.raises(EngineFailure):
            await read(submit(engine, text(40)))
    assert files(tmp_path) == []


async def test_damaged_files_are_computed_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOGGER)
    async with keeping(tmp_path) as engine:
        await known(engine, text(90))
    for file in files(tmp_path):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    async with keeping(tmp_path) as engine:
        assert await known(engine, text(90)) == 0
    async with keeping(tmp_path) as engine:
        assert await known(engine, text(90)) == 89


async def test_files_are_bounded(tmp_path: Path) -> None:
    backend = ArithmeticBackend()
    options = Options(prefix_disk=100 * backend.cell_bytes)
    async with keeping(tmp_path, backend, options=options) as engine:
        for start in range(0, 200, 20):
            await known(engine, text(30, start), 1)
    store = PrefixStore(tmp_path, backend.fingerprint)
    lengths = [len(record.tokens) for record, _ in store.scan()]
    store.close()
    assert 0 < sum(lengths) <= 100


async def test_what_does_not_fit_into_the_cache_goes_to_files_and_comes_back(tmp_path: Path) -> None:
    backend = ArithmeticBackend(cells=128)
    async with keeping(tmp_path, backend) as engine:
        for start in (0, 100):
            await known(engine, text(100, start))
        assert await known(engine, text(100)) == 99


async def test_without_slots_for_prefixes_a_folder_is_of_no_use_and_does_no_harm(tmp_path: Path) -> None:
    async with keeping(tmp_path, ArithmeticBackend(can_trim=False)) as engine:
        assert await known(engine, text(40)) == await known(engine, text(40)) == 0
    assert files(tmp_path) == []
