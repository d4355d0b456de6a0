"""Command line clients from the npm registry: an exact version of each, fetched once into the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from antiphon.hub import default_cache


def installed(package: str, version: str, command: str) -> Path:
    """The path of a package's command. The first call on a machine downloads the package."""
    folder = default_cache(os.environ) / "tests" / f"npm-{package.replace('/', '-')}-{version}"
    if not folder.is_dir():
        _install(f"{package}@{version}", folder)
    return folder / "node_modules" / ".bin" / command


def _install(package: str, folder: Path) -> None:
    """The folder appears when it is whole; of two that install at once, the first counts."""
    npm = shutil.which("npm")
    assert npm is not None, f"the tests run {package}, and need npm for it (Node.js 20 or later; on Debian: npm)"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as partial:
        unpacked = Path(partial, "unpacked")
        quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", "--loglevel=error"]
        subprocess.run([npm, "install", *quiet, "--prefix", str(unpacked), package], check=True)
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
