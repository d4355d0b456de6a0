"""A parcel's name tells apart what must not be mixed, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

from antiphon.engine.llama import load
from antiphon.engine.llama.binding import open_library
from antiphon.engine.llama.errors import ModelLoadError
from antiphon.engine.llama.fingerprint import SETTINGS, digest, fingerprint
from antiphon.engine.llama.gguf import ModelFile, inspect
from tests.engine.llama.conftest import LoadTiny
from tests.tiny_model import Tiny, write_tiny_model


def digest_of(path: Path) -> str:
    return digest(inspect(open_library(), path).parts)


def test_same_for_a_copy_elsewhere_and_other_sizes(tmp_path: Path, load_tiny: LoadTiny) -> None:
    original = load_tiny()
    copy = tmp_path / "elsewhere" / "other name.gguf"
    copy.parent.mkdir()
    shutil.copyfile(tmp_path / "tiny-0.gguf", copy)
    other = load(copy, lanes=3, cells=4096, context_length=512, threads=1, batch_tokens=32)
    assert other.fingerprint == original.fingerprint
    assert len(original.fingerprint) == 32
    assert int(original.fingerprint, 16)
    other.close()


@pytest.mark.parametrize("tiny", [Tiny(seed=1), Tiny(layers=3), Tiny(name="Other"), Tiny(family="qwen3")])
def test_another_model_has_another_one(load_tiny: LoadTiny, tiny: Tiny) -> None:
    assert load_tiny(tiny).fingerprint != load_tiny().fingerprint


@pytest.mark.parametrize("place", [0.0, 0.1, 0.3, 0.5, 0.999])
def test_a_change_of_any_byte_is_seen(tmp_path: Path, place: float) -> None:
    """Size and time say nothing: both are as before."""
    path = write_tiny_model(tmp_path / "m.gguf")
    parts, status = inspect(open_library(), path).parts, path.stat()
    before, content = digest(parts), bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest(parts) != before


def test_a_change_of_one_value_of_any_tensor_is_seen(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf")
    known = {digest_of(path)}
    for tensor in gguf.GGUFReader(path, "r+").tensors:
        tensor.data.reshape(-1)[:1] += 1
        found = digest_of(path)
        assert found not in known, tensor.name
        known.add(found)


def test_a_model_that_is_gone(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf")
    parts = inspect(open_library(), path).parts
    path.unlink()
    with pytest.raises(ModelLoadError, match=r"m\.gguf cannot be read: No such file"):
        digest(parts)


def test_every_part_of_a_split_model_counts(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2))
    write_part(first, 0, 1.0)
    write_part(second, 1, 1.0)
    whole = digest_of(first)
    write_part(second, 1, 2.0)
    assert digest_of(first) != whole
    write_part(second, 1, 1.0)
    assert digest_of(first) == whole


def write_part(path: Path, number: int, value: float) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.count", 2)
    writer.add_uint16("split.no", number)
    writer.add_tensor(f"t{number}", np.full(8, value, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Params:
    """Stands for `llama_context_params`."""

    def __init__(self, n_ctx: int = 1000, **settings: float) -> None:
        self.n_ctx = n_ctx
        self.__dict__.update(dict.fromkeys(SETTINGS, 0) | settings)


FILE = ModelFile(Path("m.gguf"), 1, 1, 1, original_context=0)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_that_changes_keys_and_values_counts(name: str) -> None:
    assert fingerprint("build", FILE, 0, Params()) != fingerprint("build", FILE, 0, Params(**{name: 1}))


def test_build_and_window_count_and_cells_do_not() -> None:
    reference = fingerprint("build", FILE, 0, Params())
    assert fingerprint("build", FILE, 0, Params(n_ctx=5000)) == reference
    assert fingerprint("other", FILE, 0, Params()) != reference
    assert fingerprint("build", FILE, 16, Params()) != reference


def test_a_stretched_context_counts() -> None:
    """LongRoPE: keys are others in a cache that is longer than the original context."""
    file = ModelFile(Path("m.gguf"), 1, 1, 1, original_context=4096)
    within, beyond, further = (fingerprint("build", file, 0, Params(n_ctx=n)) for n in (4096, 4097, 9000))
    assert within != beyond
    assert beyond == further
