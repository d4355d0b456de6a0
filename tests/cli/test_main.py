"""The command as a whole: version, help, and that small commands stay small."""

from __future__ import annotations

import subprocess
import sys

from antiphon import __version__
from tests.cli.processes import antiphon, environment

HEAVY = [
    "numpy",
    "xllamacpp",
    "cffi",
    "cryptography",
    "huggingface_hub",
    "starlette",
    "uvicorn",
    "jinja2",
    "asyncio",
    "httpx",
]


def test_version_and_help() -> None:
    assert antiphon("--version").stdout == f"antiphon {__version__}\n"
    bare = antiphon()
    assert (bare.returncode, bare.stdout) == (0, antiphon("--help").stdout)
    for command in ("serve", "ask", "models"):
        assert command in bare.stdout


def imported(*arguments: str) -> set[str]:
    code = "import sys; from antiphon.cli.main import run; run(sys.argv[1:]); sys.stderr.write(' '.join(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment(), capture_output=True, text=True, check=True
    )
    return set(run.stderr.splitlines()[-1].split())


def test_small_commands_load_nothing_heavy() -> None:
    for arguments in (["--help"], ["serve", "--help"], ["ask", "x", "--url", "http://127.0.0.1:9"]):
        loaded = imported(*arguments)
        assert "antiphon.cli.main" in loaded
        assert not loaded.intersection(HEAVY), arguments
