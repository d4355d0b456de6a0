"""Backends to test with: tiny ones with random weights, and one real small model for the whole session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from antiphon.engine.llama import LlamaBackend, load
from tests.default_model import default_model_path
from tests.engine.llama.generate import empty
from tests.tiny_model import Tiny, write_tiny_model


class LoadTiny(Protocol):
    def __call__(
        self,
        tiny: Tiny | None = None,
        *,
        lanes: int = 8,
        batch_tokens: int = 64,
        context_length: int | None = None,
        cells: int | None = None,
    ) -> LlamaBackend: ...


@pytest.fixture
def load_tiny(tmp_path: Path) -> Iterator[LoadTiny]:
    """Loads tiny models; closed at the end of the test."""
    loaded: list[LlamaBackend] = []

    def load_one(
        tiny: Tiny | None = None,
        *,
        lanes: int = 8,
        batch_tokens: int = 64,
        context_length: int | None = None,
        cells: int | None = None,
    ) -> LlamaBackend:
        path = write_tiny_model(tmp_path / f"tiny-{len(loaded)}.gguf", tiny)
        backend = load(
            path, lanes=lanes, batch_tokens=batch_tokens, context_length=context_length, cells=cells, threads=1
        )
        loaded.append(backend)
        return backend

    yield load_one
    for backend in loaded:
        backend.close()


@pytest.fixture
def tiny(load_tiny: Callable[[], LlamaBackend]) -> LlamaBackend:
    return load_tiny()


@pytest.fixture(scope="session")
def real_model_path() -> Path:
    if given := os.environ.get("ANTIPHON_TEST_MODEL"):
        return Path(given)
    return default_model_path()


@pytest.fixture(scope="session")
def shared_real(real_model_path: Path) -> Iterator[LlamaBackend]:
    # One thread: with other tests beside this one, two wait for each other.
    backend = load(real_model_path, context_length=2048, cells=4096, lanes=8, threads=1)
    yield backend
    backend.close()


@pytest.fixture
def real(shared_real: LlamaBackend) -> LlamaBackend:
    """The real model with all slots empty."""

    empty(shared_real)
    return shared_real
