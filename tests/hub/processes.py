"""Starts `tests.hub.fetch` and reads what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def start(name: str, cache: Path, environment: Mapping[str, str], hold: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.hub.fetch", name, str(cache), hold],
        cwd=ROOT,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def fetch(name: str, cache: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """The last thing it said: the result, or `{"error": ...}`. A traceback fails the test."""
    with start(name, cache, environment) as process:
        return last_line(process)


def last_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate("\n")
    assert "Traceback" not in err, err
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert process.returncode == ("error" in result)
    return result


def read_until(process: subprocess.Popen[str], stage: str) -> list[str]:
    """The stages that it reported, up to this one."""
    assert process.stdout is not None
    stages: list[str] = []
    while stage not in stages:
        line = process.stdout.readline()
        assert line, f"ended before {stage}"
        stages.append(json.loads(line).get("stage", "end"))
    return stages
