"""From options to an engine: what a model cannot make use of is said, never dropped in silence."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from antiphon.cli.engines import engine_loader
from antiphon.cli.errors import CommandError
from antiphon.cli.options import ServeOptions
from antiphon.engine.base import Engine
from antiphon.hub import ModelFile
from tests.tiny_model import Tiny, write_tiny_model


async def loaded(path: Path, options: ServeOptions) -> Engine:
    file = ModelFile(path=path, name="tiny", digest=None, size=1)
    return await engine_loader(options, lambda report: file, lambda report: None)(lambda progress: None)


@pytest.mark.parametrize("family", ["mamba", "gemma3"])
@pytest.mark.parametrize(("folder", "ram"), [(True, None), (False, 2**20), (True, 2**20), (False, 0), (False, None)])
async def test_a_model_whose_prefixes_cannot_be_kept_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, family: str, folder: bool, ram: int | None
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", Tiny(family=family))
    prefixes = tmp_path / "prefixes"
    options = ServeOptions(
        cache=tmp_path, prefix_dir=prefixes if folder else None, prefix_ram=ram, context_length=256, threads=1
    )
    caplog.set_level(logging.WARNING, "antiphon")
    await (await loaded(path, options)).aclose()
    flags = ["--prefix-dir"] * folder + ["--prefix-ram"] * bool(ram)
    assert [message.split(" not used: ")[0] for message in caplog.messages] == [" and ".join(flags)] * bool(flags)
    assert not prefixes.exists()


async def test_a_model_whose_prefixes_can_be_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    options = ServeOptions(
        cache=tmp_path, prefix_dir=tmp_path / "prefixes", prefix_ram=2**20, context_length=256, threads=1
    )
    caplog.set_level(logging.WARNING, "antiphon")
    await (await loaded(path, options)).aclose()
    assert (tmp_path / "prefixes").is_dir()
    assert caplog.messages == []


async def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    options = ServeOptions(cache=tmp_path, prefix_dir=path, context_length=256, threads=1)
    with pytest.raises(
        CommandError, match=r"--prefix-dir \(ANTIPHON_PREFIX_DIR\): .*tiny\.gguf: prefixes cannot be kept"
    ):
        await loaded(path, options)


async def test_more_memory_for_prefixes_than_there_is(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    options = ServeOptions(cache=tmp_path, prefix_ram=2**60, context_length=256, threads=1)
    with pytest.raises(CommandError, match=r"^--prefix-ram \(ANTIPHON_PREFIX_RAM\): .* GB are available$"):
        await loaded(path, options)
