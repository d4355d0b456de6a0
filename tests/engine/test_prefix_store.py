"""The folder of prefixes: what it keeps, what it removes, and that no fault of a disk is more than a missing prefix."""

from __future__ import annotations

import itertools
import logging
import os
import queue
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.prefix_store import (
    LOCK,
    PARTIAL,
    SUFFIX,
    PrefixStore,
    PrefixStoreError,
    Record,
    Unreadable,
    path_key,
)

FINGERPRINT = "model-1/f16"

posix = pytest.mark.skipif(os.name != "posix", reason="signals, limits and links of POSIX")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "prefixes"


@pytest.fixture
def store(directory: Path) -> Iterator[PrefixStore]:
    with opened(directory) as store:
        yield store


@contextmanager
def opened(directory: Path, fingerprint: str = FINGERPRINT, *, pending_bytes: int = 2**20) -> Iterator[PrefixStore]:
    ticks = itertools.count(1_000, 1_000)
    store = PrefixStore(directory, fingerprint, pending_bytes=pending_bytes, clock=lambda: next(ticks))
    try:
        yield store
    finally:
        store.close()


def path(owner: str, *runs: Sequence[int]) -> list[Record]:
    """The records of one path that is cut into runs."""
    records, key, tokens = list[Record](), b"", list[int]()
    for run in runs:
        start, parent = len(tokens), key
        tokens += run
        key = path_key(owner, tokens)
        records.append(Record(owner, tuple(run), start, parent, key))
    return records


ROOT, TWIG = path("anna", [1, 2, 3], [4, 5])


def write(store: PrefixStore, record: Record, data: bytes | bytearray = b"state") -> bool:
    """Waits for what `done` is told."""
    box: queue.SimpleQueue[bool] = queue.SimpleQueue()
    store.write(record, data, box.put)
    return box.get(timeout=60)


def read(store: PrefixStore, record: Record) -> bytes | Unreadable | None:
    """Waits for what `done` is told, and so for all that was asked for before."""
    box: queue.SimpleQueue[bytes | Unreadable | None] = queue.SimpleQueue()
    store.read(record, box.put)
    return box.get(timeout=60)


def scanned(store: PrefixStore) -> list[Record]:
    return [record for record, _ in store.scan()]


def file_of(directory: Path, record: Record) -> Path:
    return directory / (record.key.hex() + SUFFIX)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} - {LOCK}


# What is kept


def test_a_prefix_outlives_the_store(directory: Path) -> None:
    with opened(directory) as store:
        assert write(store, ROOT, b"one")
        assert write(store, TWIG, b"two")
    with opened(directory) as store:
        assert store.scan() == [(record, file_of(directory, record).stat().st_size) for record in (ROOT, TWIG)]
        assert read(store, ROOT) == b"one"
        assert read(store, TWIG) == b"two"


def test_the_last_write_counts(store: PrefixStore) -> None:
    assert write(store, ROOT, b"old")
    assert write(store, ROOT, b"new")
    assert read(store, ROOT) == b"new"


def test_work_is_done_in_the_order_it_was_asked_for(store: PrefixStore) -> None:
    box: queue.SimpleQueue[tuple[str, object]] = queue.SimpleQueue()
    store.read(ROOT, lambda data: box.put(("read", data)))
    store.write(ROOT, b"state", lambda written: box.put(("write", written)))
    store.read(ROOT, lambda data: box.put(("read", data)))
    store.remove(ROOT.key)
    store.read(ROOT, lambda data: box.put(("read", data)))
    assert [box.get(timeout=60) for _ in range(4)] == [
        ("read", None),
        ("write", True),
        ("read", b"state"),
        ("read", None),
    ]


def test_the_least_recently_used_comes_first(store: PrefixStore) -> None:
    records = [path("anna", [i])[0] for i in range(4)]
    for record in records:
        assert write(store, record)
    for i in (2, 0):
        assert read(store, records[i]) is not None
    assert scanned(store) == [records[i] for i in (1, 3, 2, 0)]


def test_removing_what_is_not_there_is_nothing(store: PrefixStore, caplog: pytest.LogCaptureFixture) -> None:
    store.remove(ROOT.key)
    assert write(store, ROOT)
    assert scanned(store) == [ROOT]
    assert not caplog.records


@posix
def test_only_the_owner_of_the_process_can_read(store: PrefixStore, directory: Path) -> None:
    assert write(store, ROOT)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_a_folder_that_is_there_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "half.partial").write_text("mine")
    before = tmp_path.stat().st_mode
    with opened(tmp_path) as store:
        assert write(store, ROOT)
        assert scanned(store) == [ROOT]
    assert names(tmp_path) == {"notes.txt", "half.partial", file_of(tmp_path, ROOT).name}
    assert tmp_path.stat().st_mode == before


# What is removed


@pytest.mark.parametrize("position", [0, 8, 12, 16, 24, 28, 44, 60, -1])
def test_a_damaged_file_is_never_used(store: PrefixStore, directory: Path, position: int) -> None:
    """One byte of each region; the tests of the file format try all."""
    assert write(store, ROOT)
    content = bytearray(file_of(directory, ROOT).read_bytes())
    content[position] ^= 4
    file_of(directory, ROOT).write_bytes(content)
    assert scanned(store) == ([ROOT] if position == -1 else [])
    assert read(store, ROOT) is None
    assert names(directory) == set()


@pytest.mark.parametrize("length", [0, 7, 30, 43, 44, 60, -1])
def test_a_file_that_was_cut_is_removed(store: PrefixStore, directory: Path, length: int) -> None:
    assert write(store, ROOT)
    os.truncate(file_of(directory, ROOT), length % file_of(directory, ROOT).stat().st_size)
    assert scanned(store) == []
    assert names(directory) == set()


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"\x89prefix\n" + b"\xff" * 100, os.urandom(5000)])
def test_garbage_is_removed(store: PrefixStore, directory: Path, content: bytes) -> None:
    file_of(directory, ROOT).write_bytes(content)
    assert scanned(store) == []
    assert names(directory) == set()
    file_of(directory, ROOT).write_bytes(content)
    assert read(store, ROOT) is None
    assert names(directory) == set()


def test_files_of_another_model_are_removed(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(directory) as store:
        assert write(store, ROOT) and write(store, TWIG)
    caplog.set_level(logging.INFO)
    with opened(directory, "model-2/f16") as store:
        assert read(store, TWIG) is None
        caplog.clear()
        assert scanned(store) == []
    assert caplog.messages == ["prefix files removed: 1 of another model or settings"]
    assert names(directory) == set()


@pytest.mark.parametrize("name", ["", "zz", "00" * 15, "00" * 17, "AB" * 16, "0 " * 16, "not hex at all"])
def test_a_file_with_a_name_that_is_no_key_is_removed(store: PrefixStore, directory: Path, name: str) -> None:
    assert write(store, ROOT)
    file_of(directory, ROOT).rename(directory / (name + SUFFIX))
    assert scanned(store) == []
    assert names(directory) == set()


def test_a_file_under_another_key_is_removed(store: PrefixStore, directory: Path) -> None:
    assert write(store, ROOT)
    file_of(directory, ROOT).rename(file_of(directory, TWIG))
    assert read(store, TWIG) is None
    assert write(store, ROOT)
    file_of(directory, ROOT).rename(file_of(directory, TWIG))
    assert scanned(store) == []
    assert names(directory) == set()


def test_orphans_are_removed_with_all_that_stands_on_them(store: PrefixStore, directory: Path) -> None:
    records = path("anna", [1], [2], [3], [4])
    for record in records:
        assert write(store, record)
    store.remove(records[1].key)
    assert read(store, records[0]) is not None
    assert scanned(store) == [records[0]]
    assert names(directory) == {file_of(directory, records[0]).name}


@posix
def test_links_are_not_followed(store: PrefixStore, directory: Path, tmp_path: Path) -> None:
    assert write(store, ROOT)
    outside = tmp_path / "outside"
    file_of(directory, ROOT).rename(outside)
    file_of(directory, ROOT).symlink_to(outside)
    assert scanned(store) == []
    assert names(directory) == set()
    file_of(directory, ROOT).symlink_to(outside)
    assert read(store, ROOT) is None
    file_of(directory, ROOT).symlink_to(outside)
    before = outside.read_bytes()
    assert write(store, ROOT, b"other")
    assert not file_of(directory, ROOT).is_symlink()
    assert outside.read_bytes() == before


@posix
def test_a_write_does_not_go_through_a_link(store: PrefixStore, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    (directory / (ROOT.key.hex() + PARTIAL)).symlink_to(tmp_path / "outside")
    assert not write(store, ROOT)
    assert write(store, ROOT)
    assert (tmp_path / "outside").read_text() == "mine"


@posix
def test_a_pipe_does_not_hold_the_store(store: PrefixStore, directory: Path) -> None:
    pipe = file_of(directory, ROOT)
    os.mkfifo(pipe)
    assert scanned(store) == []
    os.mkfifo(pipe)
    assert read(store, ROOT) is None
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDWR), "rb"):  # one who may write, and does not
        assert read(store, ROOT) is None
    assert names(directory) == set()


def test_a_folder_in_a_files_place_is_left_alone(store: PrefixStore, directory: Path) -> None:
    (file_of(directory, ROOT) / "inside").mkdir(parents=True)
    assert write(store, TWIG)
    assert scanned(store) == []
    assert read(store, ROOT) is None
    assert not write(store, ROOT)
    assert (file_of(directory, ROOT) / "inside").is_dir()
    assert names(directory) == {file_of(directory, ROOT).name}


def test_unfinished_writes_are_removed_at_the_start(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / (ROOT.key.hex() + PARTIAL)).write_bytes(b"half")
    with opened(directory):
        assert names(directory) == set()


class Tree:
    """Random paths of two owners that branch, and files of them lost at random."""

    def __init__(self, choices: list[tuple[int, list[int], int]]) -> None:
        self.records: dict[bytes, Record] = {}
        self.lost: set[bytes] = set()
        paths: list[tuple[str, list[int]]] = [("anna", []), ("bert", [])]
        for parent, run, luck in choices:
            owner, before = paths[parent % len(paths)]
            record = Record(owner, tuple(run), len(before), _key(owner, before), _key(owner, before + run))
            self.records[record.key] = record
            paths.append((owner, before + run))
            if luck == 0:
                self.lost.add(record.key)

    def whole(self, key: bytes) -> bool:
        return not key or (key not in self.lost and self.whole(self.records[key].parent))


def _key(owner: str, tokens: list[int]) -> bytes:
    return path_key(owner, tokens) if tokens else b""


RUNS = st.lists(st.integers(0, 2), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), RUNS, st.integers(0, 4)), max_size=20).map(Tree))
def test_no_orphan_survives_a_scan(tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as name, opened(Path(name)) as store:
        for record in tree.records.values():
            assert write(store, record)
        for key in tree.lost:
            store.remove(key)
        survivors = {key for key in tree.records if tree.whole(key)}
        assert read(store, ROOT) is None  # so all before it is done
        assert {record.key for record in scanned(store)} == survivors
        assert names(Path(name)) == {key.hex() + SUFFIX for key in survivors}
        assert {record.key for record in scanned(store)} == survivors


# What goes wrong


def test_a_folder_serves_one_store(store: PrefixStore, directory: Path) -> None:
    with pytest.raises(PrefixStoreError, match="another server keeps its prefixes there"):
        PrefixStore(directory, FINGERPRINT)
    assert write(store, ROOT)


def test_a_second_store_removes_nothing_of_the_first(store: PrefixStore, directory: Path) -> None:
    half = directory / (ROOT.key.hex() + PARTIAL)
    half.write_bytes(b"half")
    with pytest.raises(PrefixStoreError):
        PrefixStore(directory, FINGERPRINT)
    assert half.exists()


def test_a_closed_store_leaves_the_folder_to_the_next(directory: Path) -> None:
    for _ in range(3):
        with opened(directory):
            with pytest.raises(PrefixStoreError):
                PrefixStore(directory, FINGERPRINT)


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(PrefixStoreError, match="prefixes cannot be kept there: (File exists|Not a directory)"):
            PrefixStore(place, FINGERPRINT)


def test_a_folder_that_is_gone(store: PrefixStore, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    assert not write(store, ROOT)
    assert read(store, ROOT) is None
    assert scanned(store) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3


def test_what_waits_to_be_written_is_bounded(directory: Path) -> None:
    with opened(directory, pending_bytes=10) as store:
        assert not write(store, ROOT, bytes(11))
        gate, answers = held(store), list[bool]()
        store.write(ROOT, bytes(6), answers.append)
        store.write(TWIG, bytes(5), answers.append)
        assert answers == [False]  # at once, while the thread is held
        store.write(TWIG, bytes(4), answers.append)
        gate.set()
        assert read(store, TWIG) == bytes(4)
        assert answers == [False, True, True]
        assert write(store, ROOT, bytes(10))


def held(store: PrefixStore) -> threading.Event:
    """Stops the store's thread; gives what lets it go on."""
    reached, gate = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        reached.set()
        gate.wait(60)

    store.read(ROOT, hold)
    reached.wait()
    return gate


def test_a_thread_that_does_not_end_is_left_behind(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It drops what waits, and keeps the folder as long as it lives."""
    store = PrefixStore(directory, FINGERPRINT)
    gate, answers = held(store), list[bool]()
    store.write(ROOT, b"state", answers.append)
    caplog.clear()
    store.close(0.0)
    assert [message.split(":")[0] for message in caplog.messages] == ["the folder of prefixes is too slow"]
    with pytest.raises(PrefixStoreError, match="another server"):
        PrefixStore(directory, FINGERPRINT)
    gate.set()
    store.close()
    assert answers == []
    with opened(directory) as store:
        assert scanned(store) == []


@pytest.mark.timeout(20)
def test_a_store_at_rest_holds_no_data(store: PrefixStore) -> None:
    data = bytearray(10)
    assert write(store, ROOT, data)
    while True:  # `done` is called a moment before the data is let go of
        try:
            return data.append(0)
        except BufferError:
            os.sched_yield()


def test_a_done_that_fails_does_not_end_the_store(store: PrefixStore, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("the caller's own fault")

    store.write(ROOT, b"state", fail)
    store.read(ROOT, fail)
    assert read(store, ROOT) == b"state"
    assert [record.message for record in caplog.records] == ["a job of the prefix store failed"] * 2


def test_a_prefix_that_is_too_long_for_a_file(store: PrefixStore) -> None:
    (long,) = path("anna", range(2**22))
    assert not write(store, long)
    assert write(store, ROOT)


def test_closing_finishes_what_is_queued(directory: Path) -> None:
    records = path("anna", *([i] for i in range(50)))
    answers: list[bool] = []
    store = PrefixStore(directory, FINGERPRINT)
    for record in records:
        store.write(record, bytes(1000), answers.append)
    store.close()
    assert answers == [True] * 50
    with opened(directory) as store:
        assert set(scanned(store)) == set(records)


def test_a_closed_store_answers(directory: Path) -> None:
    with opened(directory) as store:
        assert write(store, ROOT)
    store.close()
    assert not write(store, TWIG)
    assert read(store, ROOT) is None
    store.remove(ROOT.key)
    assert names(directory) == {file_of(directory, ROOT).name}


@contextmanager
def powerless() -> Iterator[None]:
    """As nobody: the superuser may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@posix
def test_a_file_that_cannot_be_opened_now_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And with it all that stands on it, which is no orphan for that."""
    first, second, third = path("anna", [1], [2], [3])
    (other,) = path("bert", [1])
    with chdir(tmp_path), opened(Path("open")) as store:
        assert all(write(store, record) for record in (first, second, third, other))
        for place in (tmp_path, Path("open"), *Path("open").iterdir()):
            place.chmod(0o755)
        closed = file_of(Path("open"), first)
        closed.chmod(0)
        with powerless():
            assert read(store, first) is Unreadable.NOW
            assert scanned(store) == [other]
        assert store.left_bytes == sum(
            file_of(Path("open"), record).stat().st_size for record in (first, second, third)
        )
        assert caplog.messages == [
            f"prefix file {closed.name} cannot be read now: Permission denied",
            "prefix files left alone, which cannot be read now: 1 Permission denied, 2 behind another one",
        ]
        Path("open").chmod(0o444)  # its names can be listed, its files not even looked at
        with powerless():
            assert scanned(store) == []
        Path("open").chmod(0o755)
        closed.chmod(0o600)
        assert set(scanned(store)) == {first, second, third, other}
        assert store.left_bytes == 0


# In a process of its own

CHILD = """
import os, queue, resource, sys
from pathlib import Path
from antiphon.engine.prefix_store import PrefixStore, Record, path_key

def write(store, record, data):
    box = queue.SimpleQueue()
    store.write(record, data, box.put)
    return box.get(timeout=60)

def node(i, parent):
    return Record("anna", (i,), i, parent, path_key("anna", range(i + 1)))
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD + script, *map(str, arguments)]
    memory = {"MALLOC_ARENA_MAX": "1"}  # glibc reserves room for each thread, in which a limit is not felt
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | memory)


def run(script: str, *arguments: object) -> str:
    with start(script, *arguments) as child:
        out, error = child.communicate(timeout=60)
    assert child.returncode == 0, error
    return out


ENDLESS = """
store, i, parent = PrefixStore(Path(sys.argv[1]), sys.argv[2]), 0, b""
while True:
    record = node(i, parent)
    assert write(store, record, bytes([i % 256]) * 4_000_000)
    print(record.key.hex(), flush=True)
    i, parent = i + 1, record.key
"""


def lines(stream: IO[str] | None) -> Iterator[str]:
    assert stream is not None
    return (line.strip() for line in stream)


@posix
@pytest.mark.parametrize("writes", [1, 4])
def test_killed_while_writing(directory: Path, writes: int) -> None:
    with start(ENDLESS, directory, FINGERPRINT) as child:
        told = lines(child.stdout)
        before = list(itertools.islice(told, writes))
        child.send_signal(signal.SIGKILL)
        before += [line for line in told if len(line) == 32]
    with opened(directory) as store:
        records = sorted(scanned(store), key=lambda record: record.start)
        assert len(before) <= len(records) <= len(before) + 1
        assert [record.key.hex() for record in records][: len(before)] == before
        assert names(directory) == {file_of(directory, record).name for record in records}
        assert all(read(store, record) == bytes([record.start]) * 4_000_000 for record in records)


LIMITED = """
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
store = PrefixStore(Path(sys.argv[1]), sys.argv[2])
first, second = node(0, b""), node(1, node(0, b"").key)
print(write(store, first, bytes(200_000)), write(store, first, bytes(50_000)), write(store, second, bytes(100_000)))
store.close()
"""


@posix
def test_no_room_for_a_file(directory: Path) -> None:
    """The system ends a write in its middle, as it does on a full disk."""
    assert run(LIMITED, directory, FINGERPRINT) == "False True False\n"
    with opened(directory) as store:
        (record,) = scanned(store)
        assert read(store, record) == bytes(50_000)
        assert names(directory) == {file_of(directory, record).name}


HUGE = """
from antiphon.engine import prefix_file
store, record = PrefixStore(Path(sys.argv[1]), sys.argv[2]), node(0, b"")
header = prefix_file.encode_header(record, sys.argv[2])
layout = prefix_file._LAYOUT.pack(prefix_file.MAGIC, prefix_file.VERSION, len(header), 2**33, 0)
path = Path(sys.argv[1], record.key.hex() + ".antiphon-prefix")
head = layout + prefix_file._checksum(layout, header) + header
path.write_bytes(head)
os.truncate(path, len(head) + 2**33)  # takes no room
resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
box = queue.SimpleQueue()
store.read(record, box.put)
print(box.get(timeout=60), path.exists(), write(store, record, b"state"))
store.close()
"""


@posix
def test_no_memory_for_a_file(directory: Path) -> None:
    """The file may be good: it is left alone, until it is written anew."""
    assert run(HUGE, directory, FINGERPRINT) == "Unreadable.NOW True True\n"


LONG = """
import re
store = PrefixStore(Path(sys.argv[1]), sys.argv[2], pending_bytes=10)
tokens = tuple(range(1_000_000))
long = Record("anna", tokens, 0, b"", bytes(16))
used = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 2_000_000, -1))
print(write(store, long, bytes(10)), write(store, node(0, b""), bytes(10)))
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(write(store, long, bytes(10)))
store.close()
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the size of a process as Linux tells it")
def test_no_memory_to_write_a_file(directory: Path) -> None:
    """That one is not kept, and what waits is counted down all the same."""
    assert run(LONG, directory, FINGERPRINT).split() == ["False", "True", "True"]


SECOND = """
try:
    PrefixStore(Path(sys.argv[1]), sys.argv[2])
except Exception as error:
    print(type(error).__name__)
"""


def test_a_folder_serves_one_process(store: PrefixStore, directory: Path) -> None:
    assert run(SECOND, directory, FINGERPRINT) == "PrefixStoreError\n"
