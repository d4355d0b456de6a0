"""The servers that the engine benchmark compares, each in a process of its own on a free port of 127.0.0.1.

All get the same number of sequences at once, the same length of a sequence, and the same threads.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.engine_client import Api, BenchmarkError, ChatApi, ResponsesApi, get, post
from msgspec import Struct

START_SECONDS = 600.0
"""Longest start: vLLM compiles its model, which took 100 s with one busy core."""

STOP_SECONDS = 60.0
"""Longest end, in which the product may write its prefixes to disk."""

SAVED_SLOT = "slot.bin"

LLAMA_BEST: Mapping[str, Any] = {
    "cont_batching": True,
    "cache_prompt": True,  # keep what a slot has computed, and go on from the common part
    "n_cache_reuse": 256,  # also parts that have moved, of at least so many tokens
    "cache_ram_mib": 8192,  # what slots had before, in memory
    "cache_idle_slots": True,
    "slot_prompt_similarity": 0.1,
    "n_batch": 2048,
    "n_ubatch": 512,
    "verbosity": 1,
    "ui": False,
}
"""llama.cpp's server at its best on these loads; flash attention is on. Attributes of `xllamacpp.CommonParams`."""

LLAMA_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "unified": {"kv_unified": True},
    "split": {"kv_unified": False},
    "n_batch 512": {"kv_unified": True, "n_batch": 512},
    "n_batch 256": {"kv_unified": True, "n_batch": 256, "n_ubatch": 256},
    "saved slot": {"kv_unified": True},
}
"""One of these does best, another for each load. "saved slot" keeps a slot's state over a restart: its file is written
and read on two extra requests, which the client must know to make."""


class Room(Struct, frozen=True):
    """What a load needs of a server: sequences at once, and tokens in each of them."""

    slots: int
    tokens: int


class Launch(Struct, frozen=True):
    """How to start one server. `saves_slot`: the first slot is saved before a restart and restored after it."""

    name: str
    command: Callable[[int], list[str]]  # the arguments, for a port
    api: Api
    env: Mapping[str, str] = {}
    saves_slot: bool = False


class Machine(Struct, frozen=True):
    """What is the same for every server of one run."""

    model: Path
    threads: int
    folder: Path  # for logs and what servers save
    end_tokens: Sequence[int]


def product(machine: Machine, room: Room, arguments: Sequence[str], prefix_dir: Path | None) -> Launch:
    def command(port: int) -> list[str]:
        serve = [sys.executable, "-m", "antiphon", "serve", str(machine.model), "--port", str(port)]
        serve += ["--max-concurrency", str(room.slots), "--context-length", str(room.tokens)]
        serve += ["--cache-tokens", str(room.slots * room.tokens), "--threads", str(machine.threads)]
        if prefix_dir is not None:
            serve += ["--prefix-dir", str(prefix_dir)]
        return [*serve, "--log-level", "warning", *arguments]

    return Launch("antiphon", command, ResponsesApi(machine.end_tokens))


def llama_server(machine: Machine, room: Room, variant: str) -> Launch:
    settings = {
        "model": str(machine.model),
        "n_threads": machine.threads,
        "n_parallel": room.slots,
        "n_ctx": room.slots * room.tokens,
        "slot_save_path": f"{machine.folder}/",
        **LLAMA_BEST,
        **LLAMA_VARIANTS[variant],
    }
    script = str(Path(__file__).with_name("engine_llama_server.py"))

    def command(port: int) -> list[str]:
        return [sys.executable, script, json.dumps({**settings, "port": port})]

    # The shortest chain of samplers that is greedy: no time lost on those that would not change the choice.
    api = ChatApi({"samplers": ["temperature"]})
    return Launch(f"llama.cpp, {variant}", command, api, saves_slot=variant == "saved slot")


def vllm_server(machine: Machine, room: Room, python: Path, model: Path) -> Launch:
    def command(port: int) -> list[str]:
        serve = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        serve += ["--served-model-name", "model", "--host", "127.0.0.1", "--port", str(port)]
        serve += ["--dtype", "bfloat16", "--enable-prefix-caching", "--enable-prompt-tokens-details"]
        return [*serve, "--max-num-seqs", str(room.slots), "--max-model-len", str(room.tokens)]

    # vLLM would leave one core to itself; what the caller's environment says comes first.
    env = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0))[: machine.threads])),
    }
    return Launch("vLLM", command, ChatApi({"model": "model"}), env={**env, **os.environ})


class Server:
    """A started server. `stop` may be called in any state and more than once."""

    def __init__(self, launch: Launch, log: Path) -> None:
        self.name = launch.name
        self.api = launch.api
        self.port = 0
        self._launch = launch
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Until it answers `/health` with 200. Raises `BenchmarkError` with the end of its log if it does not."""
        self.port = free_port()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._launch.command(self.port),
                env={**os.environ, **self._launch.env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C comes to us alone; `stop` ends the whole group
            )
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await self._healthy():
                    if self._process.returncode is not None:
                        raise BenchmarkError(f"{self.name} did not start:\n{self.log_tail()}")
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise BenchmarkError(f"{self.name} was not ready in {START_SECONDS:.0f} s:\n{self.log_tail()}") from error

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            with suppress(ProcessLookupError):
                process.terminate()
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            print(f"{self.name} did not end in {STOP_SECONDS:.0f} s", file=sys.stderr)
        finally:
            # Whatever is left of its group, such as a worker process of vLLM.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    async def restart(self) -> None:
        await self._slot("save")
        await self.stop()
        await self.start()
        await self._slot("restore")

    def log_tail(self) -> str:
        return self._log.read_text("utf-8", "replace")[-3000:]

    async def _healthy(self) -> bool:
        try:
            return (await get(self.port, "/health"))[0] == 200
        except (OSError, asyncio.IncompleteReadError):
            return False

    async def _slot(self, action: str) -> None:
        if not self._launch.saves_slot:
            return
        status, body = await post(self.port, f"/slots/0?action={action}", {"filename": SAVED_SLOT})
        if status != 200:
            raise BenchmarkError(f"{self.name} did not {action} its slot: {status} {body}")


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
