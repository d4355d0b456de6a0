"""The file of a prefix: what was written is read back, and nothing else is; keys; which records have a whole path."""

from __future__ import annotations

import hashlib
import io
import random
import struct
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.prefix_file import (
    KEY_BYTES,
    MAGIC,
    MAX_HEADER_BYTES,
    VERSION,
    FileRefused,
    PathHash,
    Record,
    encode_header,
    path_key,
    read_data,
    read_record,
    rooted,
    write_prefix,
)

FINGERPRINT = "model-1/f16"
TOKENS = (5, 0, 70_000, 2**31 - 1, -1)
RECORD = Record("anna", TOKENS, 0, b"", path_key("anna", TOKENS))
DATA = bytes(range(40))
HEAD = struct.Struct("<8sIIQI")


def written(record: Record = RECORD, data: bytes = DATA, fingerprint: str = FINGERPRINT) -> bytes:
    file = io.BytesIO()
    write_prefix(file, encode_header(record, fingerprint), data)
    return file.getvalue()


def read(content: bytes, record: Record = RECORD) -> tuple[Record, bytes]:
    """What a scan and then a read give."""
    found = read_record(io.BytesIO(content), len(content), record.key, FINGERPRINT)
    data = read_data(io.BytesIO(content), len(content), encode_header(record, FINGERPRINT))
    return found, data


def forged(header: bytes, data: bytes = b"", *, version: int = VERSION, magic: bytes = MAGIC) -> bytes:
    """A file with right checksums, whatever is in it: the layout as the module's head documents it."""
    layout = HEAD.pack(magic, version, len(header), len(data), 0)
    return layout + hashlib.blake2b(layout + header, digest_size=16).digest() + header + data


def header(*fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


def path(owner: str, *runs: Sequence[int]) -> list[Record]:
    """The records of one path that is cut into runs."""
    keys, starts, tokens = [b""], [0], list[int]()
    for run in runs:
        tokens += run
        keys.append(path_key(owner, tokens))
        starts.append(len(tokens))
    return [Record(owner, tuple(run), starts[i], keys[i], keys[i + 1]) for i, run in enumerate(runs)]


def changed(record: Record, **changes: object) -> Record:
    return msgspec.structs.replace(record, **changes)


# Keys


@given(st.text(max_size=5), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=12), st.data())
def test_a_key_is_of_the_whole_path_however_it_is_cut(owner: str, tokens: list[int], draw: st.DataObject) -> None:
    cuts = draw.draw(st.lists(st.integers(0, len(tokens)), max_size=4).map(sorted))
    grown = PathHash(owner)
    for start, end in pairwise([0, *cuts, len(tokens)]):
        grown = grown.copy().extend(tokens[start:end])
        assert grown.key == path_key(owner, tokens[:end])
    assert len(grown.key) == KEY_BYTES


def test_a_copy_grows_apart() -> None:
    trunk = PathHash("anna").extend([1, 2])
    twig = trunk.copy().extend([3])
    assert trunk.key == path_key("anna", [1, 2])
    assert twig.key == path_key("anna", [1, 2, 3])


def test_keys_differ_by_owner_and_by_token() -> None:
    paths = [("", []), ("a", []), ("ab", []), ("a", [98]), ("", [1]), ("", [256]), ("", [1, 0]), ("", [0, 1])]
    paths += [("\1\0\0\0", []), ("", [2**31 - 1]), ("", [-1])]
    assert len({path_key(owner, tokens) for owner, tokens in paths}) == len(paths)


def test_a_key_never_changes() -> None:
    """A server must find the files of the one before it."""
    digest = hashlib.blake2b(digest_size=16, person=b"antiphon.prefix")
    digest.update(b"\4\0\0\0\0\0\0\0anna" + b"\1\0\0\0" + b"\0\1\0\0")
    assert path_key("anna", [1, 256]) == digest.digest()


# Round trip


@given(
    st.text(max_size=20),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=50),
    st.integers(0, 2**40),
    st.binary(max_size=300),
)
def test_round_trip(owner: str, tokens: list[int], start: int, data: bytes) -> None:
    record = Record(owner, tuple(tokens), start, b"" if start == 0 else bytes(16), path_key(owner, tokens))
    assert read(written(record, data), record) == (record, data)


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]])
def test_every_kind_of_bytes_can_be_written(data: bytes | bytearray | memoryview) -> None:
    file = io.BytesIO()
    write_prefix(file, encode_header(RECORD, FINGERPRINT), data)
    assert read(file.getvalue()) == (RECORD, b"abc")


# Damage


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_changed_byte_anywhere_is_found(flip: int) -> None:
    content = written()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= flip
        with pytest.raises(FileRefused):
            read(bytes(damaged))


def test_damage_before_the_data_is_found_without_reading_it() -> None:
    content = written()
    for position in range(len(content) - len(DATA)):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        with pytest.raises(FileRefused):
            read_record(io.BytesIO(damaged), len(damaged), RECORD.key, FINGERPRINT)


def test_a_cut_anywhere_is_found_without_reading_the_data() -> None:
    content = written()
    for length in range(len(content)):
        with pytest.raises(FileRefused):
            read_record(io.BytesIO(content[:length]), length, RECORD.key, FINGERPRINT)
        with pytest.raises(FileRefused):
            read_data(io.BytesIO(content[:length]), length, encode_header(RECORD, FINGERPRINT))


def test_a_file_that_ends_before_its_size_is_damaged() -> None:
    """It was cut after the system was asked for its size."""
    content = written()
    for length in range(len(content)):
        with pytest.raises(FileRefused):
            read_data(io.BytesIO(content[:length]), len(content), encode_header(RECORD, FINGERPRINT))


def test_missing_data_is_damage_even_if_its_checksum_fits() -> None:
    header = encode_header(RECORD, FINGERPRINT)
    whole = forged(header, b"state")  # with the checksum of no data
    with pytest.raises(FileRefused, match="damaged"):
        read_data(io.BytesIO(whole.removesuffix(b"state")), len(whole), header)


def test_bytes_behind_the_end_are_damage() -> None:
    with pytest.raises(FileRefused):
        read(written() + b"\0")


def test_garbage_is_refused() -> None:
    noise = random.Random(1)
    for length in [0, 1, 43, 44, 45, 1000, 100_000]:
        content = noise.randbytes(length)
        with pytest.raises(FileRefused):
            read(content)
        with pytest.raises(FileRefused):
            read(MAGIC + content)


@pytest.mark.parametrize(
    "content, reason",
    [
        (written(fingerprint="model-2/f16"), "of another model or settings"),
        (forged(b"", version=VERSION + 1), "of another version"),
        (forged(encode_header(RECORD, FINGERPRINT), magic=b"GGUF\0\0\0\0"), "damaged"),
        (forged(b""), "damaged"),
        (forged(header(FINGERPRINT, "anna", 0, b"")), "damaged"),
        (forged(header(FINGERPRINT, "anna", 0, b"", b"\1\0\0\0", 1)), "damaged"),
        (forged(header(FINGERPRINT, "anna", "0", b"", b"\1\0\0\0")), "damaged"),
        (forged(header(FINGERPRINT, "anna", 0, b"", b"")), "damaged"),
        (forged(header(FINGERPRINT, "anna", 0, b"", b"\1\0\0")), "damaged"),
        (forged(b"\x95" + b"\xa0\xa0\0\xc4\0" + b"\x91" * 100_000), "damaged"),
        (forged(b"\x96" + b"\xa0\xa0\0\xc4\0\xc4\0" + b"\x91" * 100_000), "damaged"),
    ],
)
def test_headers_that_pass_the_checksum_are_still_checked(content: bytes, reason: str) -> None:
    with pytest.raises(FileRefused, match=f"^{reason}$"):
        read_record(io.BytesIO(content), len(content), RECORD.key, FINGERPRINT)


class Endless(io.RawIOBase):
    """A file as long as one wants, which counts what is read of it."""

    def __init__(self, start: bytes) -> None:
        self._start = start
        self.taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        content = self._start[self.taken :][: len(buffer)].ljust(len(buffer), b"\0")
        buffer[:] = content
        self.taken += len(content)
        return len(content)


@pytest.mark.parametrize("header_bytes", [MAX_HEADER_BYTES + 1, 2**32 - 1])
def test_an_absurd_length_is_not_read(header_bytes: int) -> None:
    raw = Endless(HEAD.pack(MAGIC, VERSION, header_bytes, 10, 0))
    file = io.BufferedReader(raw)
    with pytest.raises(FileRefused, match="damaged"):
        read_record(file, 44 + header_bytes + 10, RECORD.key, FINGERPRINT)
    assert raw.taken <= io.DEFAULT_BUFFER_SIZE


def test_data_is_never_read_for_its_record() -> None:
    content = written(data=bytes(2**20))
    raw = Endless(content)
    assert read_record(io.BufferedReader(raw), len(content), RECORD.key, FINGERPRINT) == RECORD
    assert raw.taken <= io.DEFAULT_BUFFER_SIZE


@pytest.mark.parametrize(
    "other",
    [
        changed(RECORD, owner="bert"),
        changed(RECORD, tokens=(5,)),
        changed(RECORD, tokens=(*TOKENS, 1)),
        changed(RECORD, start=1),
        changed(RECORD, parent=bytes(16)),
    ],
)
def test_data_of_another_record_is_refused(other: Record) -> None:
    content = written(other)
    with pytest.raises(FileRefused, match="of something else"):
        read_data(io.BytesIO(content), len(content), encode_header(RECORD, FINGERPRINT))


def test_data_of_another_model_is_refused() -> None:
    content = written()
    with pytest.raises(FileRefused, match="of something else"):
        read_data(io.BytesIO(content), len(content), encode_header(RECORD, "model-2/f16"))


def test_a_header_longer_than_can_be_read_is_not_made() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode_header(changed(RECORD, tokens=(0,) * (MAX_HEADER_BYTES // 4)), FINGERPRINT)


# Paths


def test_a_whole_path_is_rooted_parents_first() -> None:
    records = path("anna", [1, 2], [3], [4, 5, 6])
    assert list(rooted(reversed(records))) == records


def test_what_stands_behind_a_gap_is_not_rooted() -> None:
    first, second, third, fourth = path("anna", [1], [2], [3], [4])
    assert list(rooted([first, third, fourth])) == [first]
    assert list(rooted([second, third, fourth])) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"key": bytes(16)},
        {"tokens": (3, 5)},
        {"tokens": (3, 4, 5)},
        {"start": 1},
        {"start": 3},
        {"owner": "bert"},
        {"parent": bytes(16)},
        {"parent": b""},
        {"parent": b"", "start": 0},
    ],
)
def test_a_record_that_is_not_what_its_key_says_is_not_rooted(changes: dict[str, object]) -> None:
    first, second = path("anna", [1, 2], [3, 4])
    assert list(rooted([first, changed(second, **changes)])) == [first]


def test_a_path_that_does_not_start_at_0_is_not_rooted() -> None:
    (record,) = path("anna", [1, 2])
    assert list(rooted([changed(record, start=1)])) == []


def test_branches_are_rooted_apart() -> None:
    trunk, left = path("anna", [1, 2], [3])
    _, right, leaf = path("anna", [1, 2], [4, 5], [6])
    assert set(rooted([leaf, left, right, trunk])) == {trunk, left, right, leaf}


def test_equal_tokens_of_two_owners_are_two_paths() -> None:
    records = path("anna", [1], [2]) + path("bert", [1], [2])
    assert len(list(rooted(records))) == 4
