"""Runs `python -m antiphon` as a user would, with an environment in which no variable of ours is set."""

from __future__ import annotations

import os
import subprocess
import sys

Result = subprocess.CompletedProcess[str]


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTIPHON_", "HF_"))}
    return {**kept, "COLUMNS": "200", **variables}


def antiphon(*arguments: str, stdin: str = "", variables: dict[str, str] | None = None) -> Result:
    return subprocess.run(
        [sys.executable, "-m", "antiphon", *arguments],
        input=stdin,
        env=environment(**(variables or {})),
        capture_output=True,
        text=True,
    )


def refused(result: Result, code: int) -> str:
    """The one line of a refusal; anything else fails the test."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("antiphon: "), result.stderr
    return lines[0].removeprefix("antiphon: ")
