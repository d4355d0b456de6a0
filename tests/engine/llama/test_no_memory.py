"""A prefix that there is no memory to save is not saved, and nothing else happens. In a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny_model import Tiny, write_tiny_model

NO_MEMORY = """
import re, resource, sys
from pathlib import Path
from antiphon.engine.backend import Batch, Entry, Parcel, Save, Share
from antiphon.engine.llama import load

backend = load(Path(sys.argv[1]), context_length=4096, cells=8192, lanes=2, threads=1, batch_tokens=512)
for start in range(0, 4000, 500):
    backend.execute(Batch(entries=(Entry(0, start, tuple(range(1, 251)) * 2),)))
backend.execute(Batch(moves=(Share(0, 5, 0, 4000),)))
assert 4000 * backend.cell_bytes > 2_000_000
used = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
parcel = Parcel()
resource.setrlimit(resource.RLIMIT_AS, (used + 1_000_000, -1))  # small things still find room
backend.execute(Batch(moves=(Save(5, parcel),)))
print(parcel.data)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
backend.execute(Batch(moves=(Save(5, parcel),)))
print(len(parcel.data) >= 4000 * backend.cell_bytes)
backend.close()
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the size of a process as Linux tells it")
def test_a_slot_that_there_is_no_memory_to_save_stays_as_it_is(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", Tiny(context=4096, layers=8))
    # glibc reserves room for each thread, in which a limit is not felt.
    environment = os.environ | {"MALLOC_ARENA_MAX": "1"}
    child = subprocess.run(
        [sys.executable, "-c", NO_MEMORY, str(path)], capture_output=True, text=True, env=environment, timeout=60
    )
    assert child.stdout.split() == ["None", "True"], child.stderr
