"""How much memory a model may take on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import mlx.core as mx


def free_bytes() -> int | None:
    """Bytes that can still be allocated for a model; None where the system does not tell.

    On an NVIDIA GPU what is free of its memory; in Apple's shared one what MLX is advised to keep
    in use at most; on Linux what the kernel says is available, within the limit of the process's
    group.
    """
    if mx.default_device() != mx.Device(mx.cpu):
        told = mx.device_info()
        if "free_memory" in told:
            return int(told["free_memory"]) + mx.get_cache_memory()  # which MLX takes again
        advised = told.get("max_recommended_working_set_size") or told.get("memory_size")
        return int(advised) - mx.get_active_memory() if advised else None
    limits = [_available(), _group_limit()]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else _physical()


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None


def _group_limit() -> int | None:
    """Return what a container's memory limit leaves (control groups, version 2)."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
        stat = Path("/sys/fs/cgroup/memory.stat").read_text(encoding="ascii").split()
        if limit == "max":
            return None
        given_back = int(stat[stat.index("inactive_file") + 1])  # cached files make room
        return int(limit) - int(used) + given_back
    except (OSError, ValueError):
        return None


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
