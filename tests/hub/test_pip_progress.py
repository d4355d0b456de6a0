"""Watching pip's folder: it comes and goes under our eyes."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from antiphon.hub.pip import announced_size, largest_wheel


def test_the_largest_wheel_counts(tmp_path: Path) -> None:
    assert largest_wheel(tmp_path) == 0
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "m.whl").write_bytes(b"x" * 30)
    (tmp_path / "m.whl").write_bytes(b"x" * 10)
    (tmp_path / "other").write_bytes(b"x" * 99)
    assert largest_wheel(tmp_path) == 30


def test_folders_that_vanish_while_we_look(tmp_path: Path) -> None:
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            (tmp_path / "pip-unpack" / "deep").mkdir(parents=True)
            (tmp_path / "pip-unpack" / "deep" / "m.whl").write_bytes(b"x")
            shutil.rmtree(tmp_path / "pip-unpack")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        sizes = {largest_wheel(tmp_path) for _ in range(2000)}
    finally:
        ended.set()
        thread.join()
    assert sizes <= {0, 1}


def test_the_size_that_pip_announces() -> None:
    assert announced_size("Collecting m\n  Downloading m-1.0-py3-none-any.whl (92.9 MB)\n") == 92_900_000
    assert announced_size("  Using cached m-1.0-py3-none-any.whl (1.5 kB)\n") == 1500
    assert announced_size("Processing ./m-1.0-py3-none-any.whl\n") is None
