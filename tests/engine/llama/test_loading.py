"""Every file that cannot be served gives one line, and never ends the process."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import gguf
import numpy as np
import pytest

from antiphon.engine.backend import CellsExhausted, Entry, Share
from antiphon.engine.llama import ModelLoadError, load
from antiphon.engine.llama.binding import open_library
from antiphon.engine.llama.gguf import ModelFile, inspect
from antiphon.engine.llama.loading import DEFAULT_CONTEXT, check_memory, choose_cells, choose_context, choose_slots
from antiphon.engine.llama.machine import available_memory, usable_cores
from tests.engine.llama.conftest import LoadTiny
from tests.engine.llama.generate import compute, generate, make_node, move
from tests.tiny_model import CHATML, Tiny, write_tiny_model


def refusal(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load(path, threads=1)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_what_is_known_of_a_model(load_tiny: LoadTiny) -> None:
    backend = load_tiny(Tiny(context=300))
    info = backend.info
    assert (info.name, info.context_length, info.chat_template) == ("Tiny", 300, CHATML)
    assert (info.bos_token, info.eos_token) == ("<|endoftext|>", "<|im_end|>")
    assert (backend.lanes, backend.slots, backend.batch_tokens, backend.can_trim) == (8, 128, 64, True)
    assert backend.threads == 1


@pytest.mark.parametrize(("asked", "held"), [(300, 512), (512, 512), (513, 768)])
def test_cells_are_what_the_cache_holds(load_tiny: LoadTiny, asked: int, held: int) -> None:
    backend = load_tiny(context_length=300, cells=asked, batch_tokens=1024)
    assert backend.cells == held
    compute(backend, *(Entry(lane, 0, [5] * (held // 8)) for lane in range(8)))
    with pytest.raises(CellsExhausted):
        compute(backend, Entry(0, held // 8, (5,)))


def test_model_without_name_or_template(load_tiny: LoadTiny) -> None:
    info = load_tiny(Tiny(name="", chat_template=None)).info
    assert (info.name, info.chat_template) == ("tiny-0", None)


def test_progress_goes_from_0_to_1(tmp_path: Path) -> None:
    seen: list[float] = []
    load(write_tiny_model(tmp_path / "m.gguf"), threads=1, progress=seen.append).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_progress_that_raises_ends_the_loading(tmp_path: Path) -> None:
    def stop(fraction: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(write_tiny_model(tmp_path / "m.gguf"), threads=1, progress=stop)


def test_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.gguf") == f"there is no model file {tmp_path / 'none.gguf'}"


def test_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path} cannot be read: Is a directory"


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04 and so on", b"ggml" * 100])
def test_file_that_is_no_gguf(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert refusal(path) == "m.gguf is not a GGUF file"


def test_file_cut_short_at_any_length(tmp_path: Path) -> None:
    whole = write_tiny_model(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for length in [*range(4, 200, 7), *range(200, len(whole), len(whole) // 60), len(whole) - 1]:
        path.write_bytes(whole[:length])
        message = refusal(path)
        assert message.startswith(("cut.gguf is damaged or cut short", "cut.gguf is cut short: ")), length


def test_file_damaged_in_its_header_ends_in_an_error_or_loads(tmp_path: Path) -> None:
    whole = bytearray(write_tiny_model(tmp_path / "whole.gguf").read_bytes())
    random = np.random.default_rng(1)
    path = tmp_path / "damaged.gguf"
    refused = 0
    for at in random.integers(4, 600, 60):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        try:
            inspect(open_library(), path)
        except ModelLoadError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 10


def test_unknown_architecture_is_told_with_the_reason(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "nonesuch")
    writer.add_tensor("t", np.zeros(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    message = refusal(tmp_path / "m.gguf")
    assert message.startswith("llama.cpp cannot load m.gguf: ")
    assert "nonesuch" in message


def test_missing_part_of_several(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    write_split_head(path, 2)
    assert refusal(path) == f"there is no model file {tmp_path / 'm-00002-of-00002.gguf'}"
    path.rename(tmp_path / "m.gguf")
    assert refusal(tmp_path / "m.gguf") == "m.gguf is not the first of its 2 parts; name that one"


def write_split_head(path: Path, count: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.count", count)
    writer.add_tensor("t", np.zeros(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(("lanes", "batch_tokens"), [(0, 64), (256, 512), (8, 7)])
def test_sizes_that_llama_cpp_cannot_have(tmp_path: Path, lanes: int, batch_tokens: int) -> None:
    path = write_tiny_model(tmp_path / "m.gguf")
    with pytest.raises(ModelLoadError):
        load(path, lanes=lanes, batch_tokens=batch_tokens)


def test_most_lanes(load_tiny: LoadTiny) -> None:
    backend = load_tiny(lanes=255, batch_tokens=255)
    assert (backend.lanes, backend.slots) == (255, 255)
    assert generate(backend, [5, 6], 3, slot=254) == generate(backend, [5, 6], 3, slot=0)


def test_logits_are_reserved_for_lanes_alone(load_tiny: LoadTiny, caplog: pytest.LogCaptureFixture) -> None:
    """As llama.cpp tells it. Slots for prefixes would cost a vocabulary of floats each."""
    with caplog.at_level(logging.DEBUG, "antiphon.engine.llama.log"):
        assert load_tiny(lanes=5).slots == 128
    told = [message.split()[-1] for message in caplog.messages if " n_outputs_max " in message]
    assert told == ["6"]  # and one through which states are written


def test_last_slot(load_tiny: LoadTiny) -> None:
    backend = load_tiny(lanes=200, batch_tokens=200)
    make_node(backend, 254, [5] * 20)
    move(backend, Share(254, 1, 0, 20))
    assert generate(backend, [5] * 30, 3, slot=1, start=20) == generate(backend, [5] * 30, 3)


def test_number_of_slots() -> None:
    assert [choose_slots(lanes) for lanes in (1, 8, 64, 65, 127, 128, 255)] == [128, 128, 128, 130, 254, 255, 255]


def file_of(weights: int, cell: int, trained: int) -> ModelFile:
    return ModelFile(Path("m.gguf"), weights, cell, trained)


def test_memory_is_checked_before_loading() -> None:
    file = file_of(3_000_000_000, 100_000, 8192)
    check_memory(file, 8192, 3_900_000_000)
    check_memory(file, 8192, None)
    with pytest.raises(ModelLoadError) as caught:
        check_memory(file, 8192, 3_800_000_000)
    assert str(caught.value) == (
        "m.gguf needs 3,000 MB for weights and 819 MB for a cache of 8192 tokens; 3,800 MB of memory are available"
    )


def test_context_that_no_memory_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="of memory are available"):
        load(write_tiny_model(tmp_path / "m.gguf"), context_length=2**31 - 1)


def test_size_of_a_cell_is_what_llama_cpp_takes(tmp_path: Path) -> None:
    file = inspect(open_library(), write_tiny_model(tmp_path / "m.gguf", Tiny(width=64, layers=3)))
    # 3 layers, 2 key-value heads of 16, keys and values, 2 bytes.
    assert file.cell == 3 * 2 * 16 * 2 * 2
    assert file.weights == (tmp_path / "m.gguf").stat().st_size


def test_recurrent_model_has_no_cells(tmp_path: Path) -> None:
    assert inspect(open_library(), write_tiny_model(tmp_path / "m.gguf", Tiny(family="mamba"))).cell == 0


def test_choice_of_context(caplog: pytest.LogCaptureFixture) -> None:
    assert choose_context(file_of(0, 0, 131_072), None) == DEFAULT_CONTEXT
    assert choose_context(file_of(0, 0, 2048), None) == 2048
    assert choose_context(file_of(0, 0, 0), None) == DEFAULT_CONTEXT
    assert choose_context(file_of(0, 0, 131_072), 100_000) == 100_000
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert choose_context(file_of(0, 0, 2048), 4096) == 4096
    assert "trained for 2048" in caplog.text
    with pytest.raises(ModelLoadError):
        choose_context(file_of(0, 0, 2048), 0)


GIB = 2**30


@pytest.mark.parametrize(
    ("available", "cells"),
    [(9 * GIB, 16_384), (9 * GIB - 1, 8_192), (20 * GIB, 16_384), (GIB // 2, 8_192), (None, 8_192)],
)
def test_choice_of_cells(available: int | None, cells: int) -> None:
    """16,384 tokens take 2 GiB, a quarter of what the weights leave of 9."""
    assert choose_cells(file_of(GIB, 2**17, 8_192), 8_192, None, available) == cells


def test_cells_that_are_asked_for() -> None:
    file = file_of(GIB, 2**17, 8_192)
    assert choose_cells(file, 8_192, 8_192, None) == 8_192
    assert choose_cells(file, 8_192, 100_000, GIB) == 100_000
    with pytest.raises(ModelLoadError, match="a cache of 8191 tokens cannot hold a context of 8192"):
        choose_cells(file, 8_192, 8_191, None)


def test_machine_is_read() -> None:
    memory = available_memory()
    assert memory is None or memory > 0
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
