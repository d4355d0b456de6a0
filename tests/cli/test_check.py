"""`antiphon check` on the bytes of a stream."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.server import scripted_server


def check(data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "antiphon", "check", "-", *arguments]
    return subprocess.run(command, input=data, capture_output=True, timeout=60)


async def test_a_valid_stream_and_a_damaged_one(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, [{"steps": ["Hello", " there"]}]) as server:
        stream = await server.stream({"input": "Hi"})
    good = check(stream)
    assert (good.returncode, good.stdout, good.stderr) == (0, b"valid\n", b"")
    bad = check(stream.replace(b'"delta":" there"', b'"delta":" hear"'))
    assert bad.returncode == 1
    assert b"text.sum" in bad.stdout
    assert b"of the contract" in bad.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "antiphon", "check", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
