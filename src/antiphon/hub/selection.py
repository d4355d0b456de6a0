"""Which GGUF of a repository is meant: pure functions over file names.

A split model (`name-00001-of-00003.gguf`, llama.cpp's `gguf-split`) is one choice with several files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from antiphon.hub.base import HubError, few

# What we take when a repository has several and the user named none: the common trade of size against quality first.
PREFERRED = ("Q4_K_M", "Q8_0", "Q5_K_M", "Q6_K", "Q4_K_S", "Q4_0", "Q4_1", "BF16", "F16")

# GGUF files that are no language models of their own: image projectors and importance matrices.
_COMPANIONS = ("mmproj", "imatrix")

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)


def choose(files: Iterable[str], selector: str | None, where: str) -> list[str]:
    """The files of the chosen model, first part first. Raises `HubError` if there is none, or no one choice.

    `selector` is a file, a quantisation (compared without case, as a whole word of the name), or None.
    """
    names = sorted(f for f in files if f.lower().endswith(".gguf"))
    if not names:
        raise HubError(f"{where} has no GGUF file")
    if selector is not None and selector.lower().endswith(".gguf"):
        if selector not in names:
            raise HubError(f"{where} has no file {selector}; it has {few(names)}")
        return _parts(selector, names, where)
    models = [n for n in names if not n.rpartition("/")[2].lower().startswith(_COMPANIONS) and _number(n) == 1]
    if selector is not None:
        return _parts(_one(_named(models, selector), models, selector, where), names, where)
    return _parts(_preferred(models, where), names, where)


def matches(file: str, selector: str | None) -> bool:
    """Whether a selector means this file (or the split model that it is a part of)."""
    if selector is None:
        return True
    if selector.lower().endswith(".gguf"):
        return _stem(file) == _stem(selector)
    return bool(_named([file], selector))


def group(files: Iterable[str]) -> dict[str, list[str]]:
    """The files by model: the parts of a split model together, under the name of its first present part."""
    by_stem: dict[str, list[str]] = {}
    for file in sorted(files):
        by_stem.setdefault(_stem(file), []).append(file)
    return {parts[0]: parts for parts in by_stem.values()}


def _preferred(models: list[str], where: str) -> str:
    if len(models) == 1:
        return models[0]
    for quant in PREFERRED:
        if len(found := _named(models, quant)) == 1:
            return found[0]
    raise HubError(f"{where} has several GGUF files; name one after a colon: {few(models) or 'only companions'}")


def _one(found: list[str], models: list[str], selector: str, where: str) -> str:
    if not found:
        raise HubError(f"{where} has no GGUF file for {selector}; it has {few(models)}")
    if len(found) > 1:
        raise HubError(f"{where} has several GGUF files for {selector}; name one: {few(found)}")
    return found[0]


def _named(models: list[str], quant: str) -> list[str]:
    # A whole word: Q4_K is not Q4_K_M, and Q4_XS is not IQ4_XS.
    word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(quant)}(?![A-Za-z0-9_])", re.IGNORECASE)
    return [m for m in models if word.search(m)]


def _stem(name: str) -> str:
    match = _PART.fullmatch(name)
    return match["stem"] if match else name


def _number(name: str) -> int:
    match = _PART.fullmatch(name)
    return int(match["number"]) if match else 1


def _parts(first: str, names: list[str], where: str) -> list[str]:
    match = _PART.fullmatch(first)
    if not match:
        return [first]
    parts = [n for n in names if _PART.fullmatch(n) and _stem(n) == match["stem"]]
    if len(parts) != int(match["count"]):
        raise HubError(f"{where} has only {len(parts)} of the {int(match['count'])} parts of {match['stem']}")
    return parts
