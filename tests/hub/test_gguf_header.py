"""The header of a GGUF: the same as the gguf package sees, encoded to the same bytes, and never trusted."""

from __future__ import annotations

import random
from pathlib import Path

import gguf
import pytest
from gguf import GGMLQuantizationType

from antiphon.hub.gguf_header import DamagedGguf, Header, read_header
from tests.hub.quantised import write_quantised


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_quantised(tmp_path_factory.mktemp("header") / "m.gguf", GGMLQuantizationType.Q4_1)


def header_of(path: Path) -> Header:
    with path.open("rb") as file:
        return read_header(file)


def test_what_the_gguf_package_sees(model: Path) -> None:
    header, reader = header_of(model), gguf.GGUFReader(model)
    assert [tensor.name.decode() for tensor in header.tensors] == [tensor.name for tensor in reader.tensors]
    assert [tensor.shape for tensor in header.tensors] == [tuple(map(int, t.shape)) for t in reader.tensors]
    assert [tensor.kind for tensor in header.tensors] == [tensor.tensor_type for tensor in reader.tensors]
    places = [header.data_start + tensor.offset for tensor in header.tensors]
    assert places == [tensor.data_offset for tensor in reader.tensors]
    assert header.pairs == len([name for name in reader.fields if not name.startswith("GGUF.")])
    assert header.alignment == 32


def test_encoded_it_is_the_start_of_the_file(model: Path) -> None:
    header = header_of(model)
    assert header.encode() == model.read_bytes()[: header.data_start]


def test_another_alignment(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_custom_alignment(128)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = header_of(tmp_path / "a.gguf")
    assert (header.alignment, header.file_type_at, header.data_start % 128) == (128, None, 0)


def test_cut_short_anywhere(model: Path, tmp_path: Path) -> None:
    whole = model.read_bytes()
    end = header_of(model).data_start - 32
    path = tmp_path / "cut.gguf"
    for cut in [*range(200), *range(200, end, 97)]:
        path.write_bytes(whole[:cut])
        with pytest.raises(DamagedGguf):
            header_of(path)


def test_whatever_numbers_stand_in_it(model: Path, tmp_path: Path) -> None:
    """Read in no time and little memory, or refused: a length of 2**63 is no reason to try."""
    whole = bytearray(model.read_bytes())
    start = header_of(model).data_start
    path, chance = tmp_path / "wrong.gguf", random.Random(1)
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole)
        at = chance.randrange(4, start - 8)
        damaged[at : at + 8] = chance.choice([b"\xff" * 8, b"\x00" * 8, chance.randbytes(8)])
        path.write_bytes(damaged)
        try:
            header_of(path)
        except DamagedGguf:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, b"GGML", "no GGUF file"),
        (4, (1).to_bytes(4, "little"), "version 0x1 of the format"),
        (4, (3).to_bytes(4, "big"), "version 0x3000000 of the format"),
        (8, (1 << 60).to_bytes(8, "little"), "cut short"),
        (16, (1 << 60).to_bytes(8, "little"), "cut short"),
    ],
)
def test_why_it_is_refused(model: Path, tmp_path: Path, place: int, value: bytes, message: str) -> None:
    whole = bytearray(model.read_bytes())
    whole[place : place + len(value)] = value
    path = tmp_path / "wrong.gguf"
    path.write_bytes(whole)
    with pytest.raises(DamagedGguf, match=message):
        header_of(path)


def test_tensors_that_cannot_be(model: Path, tmp_path: Path) -> None:
    whole = model.read_bytes()
    at = whole.index(b"token_embd.weight") + len(b"token_embd.weight")
    for wrong, message in ((b"\x05\0\0\0", "5 dimensions"), (b"\x02\0\0\0" + bytes(8), "without elements")):
        path = tmp_path / "wrong.gguf"
        path.write_bytes(whole[:at] + wrong + whole[at + len(wrong) :])
        with pytest.raises(DamagedGguf, match=message):
            header_of(path)
