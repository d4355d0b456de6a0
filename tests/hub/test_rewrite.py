"""A model written anew in a faster type: the same metadata, the weights within the rounding of the new type."""

from __future__ import annotations

import hashlib
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, quants

from antiphon.engine.llama import load
from antiphon.hub.gguf_header import DamagedGguf
from antiphon.hub.rewrite import CHUNK, SLOW, rewrite
from tests.hub.quantised import write_quantised

Q8_0 = GGMLQuantizationType.Q8_0


def no_report(done: int, total: int) -> None:
    """Nobody looks."""


def fields(reader: GGUFReader) -> dict[str, tuple[object, ...]]:
    """Types and bytes of all metadata but the file type."""
    return {
        name: (field.types, [part.tobytes() for part in field.parts])
        for name, field in reader.fields.items()
        if name != "general.file_type"
    }


@pytest.mark.parametrize("kind", sorted(SLOW), ids=lambda kind: str(kind.name))
def test_weights_are_within_the_rounding_and_metadata_is_equal(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    before = GGUFReader(source := write_quantised(tmp_path / "m.gguf", kind))
    digest = rewrite(source, target := tmp_path / "new.gguf", no_report)
    after = GGUFReader(target)
    assert digest == hashlib.sha256(target.read_bytes()).hexdigest()
    assert fields(after) == fields(before)
    assert after.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q8_0
    assert [tensor.name for tensor in after.tensors] == [tensor.name for tensor in before.tensors]
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert list(old.shape) == list(new.shape)
        if old.tensor_type in SLOW:
            assert new.tensor_type == Q8_0
            wanted = quants.dequantize(old.data, old.tensor_type)
            assert np.array_equal(new.data, quants.quantize(wanted, Q8_0)), "in pieces as at once"
            assert_rounded(wanted, quants.dequantize(new.data, Q8_0))
        else:
            assert (new.tensor_type, new.data.tobytes()) == (old.tensor_type, old.data.tobytes())


def assert_rounded(wanted: np.ndarray, found: np.ndarray) -> None:
    """Half a step of 1/127 of the largest value of each block of 32; and the scale is a float of 11 bits."""
    blocks = wanted.reshape(-1, 32)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    assert np.all(np.abs(found.reshape(-1, 32) - blocks) <= largest * (0.5 / 127 + 2**-11) + 1e-7)


def test_llama_cpp_loads_it(tmp_path: Path) -> None:
    source = write_quantised(tmp_path / "m.gguf", GGMLQuantizationType.Q4_1)
    rewrite(source, target := tmp_path / "new.gguf", no_report)
    old, new = load(source, context_length=64), load(target, context_length=64)
    try:
        assert new.info == old.info
        assert new.tokenizer.encode("hello world", control=False) == old.tokenizer.encode("hello world", control=False)
    finally:
        old.close()
        new.close()


def test_large_tensors_go_through_in_pieces(tmp_path: Path) -> None:
    rows, columns = 3 * CHUNK // 64 + 5, 64
    data = np.random.default_rng(1).normal(size=(rows, columns)).astype(np.float32)
    writer = gguf.GGUFWriter(source := tmp_path / "m.gguf", "llama")
    packed = quants.quantize(data, GGMLQuantizationType.Q4_0)
    writer.add_tensor("a", packed, raw_dtype=GGMLQuantizationType.Q4_0)
    writer.add_tensor("b", data[:7])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    seen: list[tuple[int, int]] = []
    rewrite(source, target := tmp_path / "new.gguf", lambda done, total: seen.append((done, total)))
    new = GGUFReader(target)
    wanted = quants.quantize(quants.dequantize(packed, GGMLQuantizationType.Q4_0), Q8_0)
    assert np.array_equal(new.tensors[0].data, wanted)
    assert np.array_equal(new.tensors[1].data, data[:7])
    assert len(seen) > 4 and seen == sorted(seen)
    assert seen[-1] == (target.stat().st_size, target.stat().st_size)


def test_damaged_files_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    whole = write_quantised(tmp_path / "m.gguf", GGMLQuantizationType.Q4_1).read_bytes()
    at = whole.index(b"token_embd.weight") + len(b"token_embd.weight")
    odd_row = (33).to_bytes(8, "little")
    for damaged, message in (
        (whole[:-1000], "cut short"),  # in the middle of the data
        (whole[:5000], "cut short"),  # in the middle of the vocabulary
        (whole[: at + 4] + odd_row + whole[at + 12 :], "rows of 33 elements"),
        (whole[: at + 20] + b"\xfe\0\0\0" + whole[at + 24 :], "a tensor of type 254"),
    ):
        source = tmp_path / "damaged.gguf"
        source.write_bytes(damaged)
        with pytest.raises(DamagedGguf, match=message):
            rewrite(source, tmp_path / "new.gguf", no_report)
        assert not (tmp_path / "new.gguf").exists()


def test_an_existing_target_is_never_written_over(tmp_path: Path) -> None:
    source = write_quantised(tmp_path / "m.gguf", GGMLQuantizationType.Q4_1)
    (tmp_path / "new.gguf").write_text("mine")
    with pytest.raises(FileExistsError):
        rewrite(source, tmp_path / "new.gguf", no_report)
    assert (tmp_path / "new.gguf").read_text() == "mine"
