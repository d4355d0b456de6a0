"""Fetches one wheel with the machine's own pip: its index, proxy, certificates, credentials and cache.

pip compares the file with the hash that the index gives. Only wheels are taken: a source archive would run the
package's code to build itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from antiphon.hub.base import HubError, one_line

POLL = 0.2  # seconds between two looks at the growing file; a person sees no finer
OUTPUT_TAIL = 64 * 1024  # bytes of what pip said that are read for its cause; the cause stands at the end

_UNITS = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_SIZE = re.compile(r"(?:Downloading|Using cached) \S+ \(([\d.]+) (bytes|kB|MB|GB)\)")

# pip, tied to us by its standard input: that ends when we do, even if we are killed, and then pip ends too. Otherwise
# an orphan would go on to fill the folder that the next run cleans.
_TIED_PIP = """
import os, runpy, threading
threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""

# What pip says, and what we say; the first that is found counts, so causes stand before their consequences.
_CAUSES = [
    (re.compile(r"No module named '?pip\b"), "this Python has no pip ({python}); python -m ensurepip installs it"),
    (re.compile(r"No space left on device|Errno 28|Errno 122"), "disk full while downloading {requirement}"),
    (  # older pips do not notice that a download was cut until they compare the hash
        re.compile(r"DO NOT MATCH THE HASHES"),
        "digest mismatch: what came for {requirement} is not what the index names; if it was cut, run it again",
    ),
    (
        re.compile(r"Retrying \(Retry|NewConnectionError|ConnectTimeout|ProxyError|SSLError|Temporary failure in name"),
        "no network: pip cannot reach the package index for {requirement}",
    ),
    (
        re.compile(r"IncompleteRead|Connection broken|ConnectionReset|Read timed out|ReadTimeout|not enough bytes"),
        "the download of {requirement} was cut; run it again",
    ),
    (re.compile(r"from versions: none\)"), "no such package, or it has no wheel: {requirement}"),
    (re.compile(r"from versions: ([^)]*)\)"), "no such version: {requirement} (there are: {found})"),
]


def download_wheel(requirement: str, folder: Path, report: Callable[[int, int | None], None]) -> Path:
    """Downloads the wheel of `package==version` into the (empty) folder, without its dependencies.

    `report` is called with the bytes so far and in all, None until pip has said the size. Raises `HubError`. pip's own
    temporary files also live in the folder, so that deleting it leaves nothing behind.
    """
    said, wheels = folder / "pip.log", folder / "wheels"
    wheels.mkdir()
    with (
        said.open("wb") as log,
        # Leaving this block closes pip's input, so that it ends, and waits for it.
        subprocess.Popen(
            _command(requirement, wheels), stdin=subprocess.PIPE, stdout=log, stderr=log, env=_environment(folder)
        ) as process,
    ):
        _watch(process, folder, said, report)
    if process.returncode != 0:
        raise HubError(_cause(_tail(said), requirement))
    found = list(wheels.glob("*.whl"))
    if len(found) != 1:
        raise HubError(f"pip fetched no wheel for {requirement}")
    return found[0]


def _command(requirement: str, target: Path) -> list[str]:
    # -P: a pip.py in the current folder is not the pip that we mean.
    pip = [sys.executable, "-P", "-c", _TIED_PIP, "--no-input", "--disable-pip-version-check", "download"]
    flags = ["--no-deps", "--only-binary", ":all:", "--progress-bar", "off", "--dest", str(target)]
    return [*pip, *flags, "--", requirement]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}


def _watch(
    process: subprocess.Popen[bytes], folder: Path, said: Path, report: Callable[[int, int | None], None]
) -> None:
    """Reports the size of the growing file until pip ends: no version of pip gives numbers on a pipe by itself."""
    total: int | None = None
    while True:
        try:
            process.wait(POLL)
            return
        except subprocess.TimeoutExpired:
            total = total or announced_size(_tail(said))
            report(largest_wheel(folder), total)


def largest_wheel(folder: Path) -> int:
    """Bytes of the largest wheel below the folder: pip copies the file once more when it is whole."""
    sizes = [0]
    for parent, _, names in os.walk(folder):  # not rglob: it fails when pip removes a folder meanwhile
        for name in names:
            if name.endswith(".whl"):
                with suppress(FileNotFoundError):
                    sizes.append(os.path.getsize(os.path.join(parent, name)))
    return max(sizes)


def announced_size(said: str) -> int | None:
    """Bytes of the wheel, as pip rounds them when it starts a download."""
    match = _SIZE.search(said)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - OUTPUT_TAIL))
        return file.read().decode(errors="replace")


def _cause(said: str, requirement: str) -> str:
    """One line for what went wrong, out of the many that pip wrote."""
    for pattern, message in _CAUSES:
        if match := pattern.search(said):
            found = match[1] if match.groups() else ""
            return message.format(python=sys.executable, requirement=requirement, found=found)
    errors = (
        [line for line in said.splitlines() if line.startswith("ERROR:")] or said.splitlines() or ["no reason given"]
    )
    return f"pip cannot fetch {requirement}: {one_line(errors[-1].removeprefix('ERROR:'))}"
