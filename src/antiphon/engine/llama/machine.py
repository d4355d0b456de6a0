"""What this machine offers: memory that is free, cores that may be used. Read from the system on every call."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
CPUS = Path("/sys/devices/system/cpu")
MEMINFO = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Bytes that can be taken without swapping, under the container's limit too; None where it cannot be told."""
    known = [size for size in (_system_memory(), _container_memory()) if size is not None]
    return min(known, default=None)


def usable_cores() -> int:
    """Physical cores that this process may use: a second thread on a core only slows matrix products down."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = len({_siblings(cpu) for cpu in os.sched_getaffinity(0)})
    return max(1, min(cores, _container_cpus() or cores))


def _siblings(cpu: int) -> str:
    """Names the core of a hardware thread; each thread is a core of its own where the system does not say."""
    return _read(CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu)


def _system_memory() -> int | None:
    for line in (_read(MEMINFO) or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _container_memory() -> int | None:
    limit, used = _read(CGROUP / "memory.max"), _read(CGROUP / "memory.current")
    if limit is None or used is None or limit == "max":
        return None
    # Cached file pages count as used, but go when memory is needed.
    stat = dict(line.split() for line in (_read(CGROUP / "memory.stat") or "").splitlines())
    return max(0, int(limit) - int(used) + int(stat.get("inactive_file", 0)))


def _container_cpus() -> int | None:
    quota, _, period = (_read(CGROUP / "cpu.max") or "max").partition(" ")
    return None if quota == "max" else math.ceil(int(quota) / int(period))


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
