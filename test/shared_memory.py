"""What Fast DDS keeps in shared memory: whose it is, and removing what nobody uses any more."""

from __future__ import annotations

import re
from pathlib import Path

SHARED = Path("/dev/shm")
#: Fast DDS 3 (Kilted) writes fastdds, 2 (Jazzy) fastrtps.
OURS = re.compile(r"(sem\.)?fast(dds|rtps)_\w+")


def used_by(process: Path) -> set[str]:
    """Return the names of the shared files that a process (its folder in /proc) has open."""
    try:
        links = [link.readlink() for link in (process / "fd").iterdir()]
        lines = (process / "maps").read_text().splitlines()
    except OSError:  # it has ended, or is somebody else's
        return set()
    paths = [*map(str, links), *(line.partition("/")[1] + line.partition("/")[2] for line in lines)]
    return {Path(path).name for path in paths if path.startswith(f"{SHARED}/")}


def segments_of(pid: int) -> set[Path]:
    """Return the segments that a process made: those whose lock it holds."""
    names = used_by(Path("/proc", str(pid)))
    return {SHARED / name.removesuffix("_el") for name in names
            if re.fullmatch(r"fast(dds|rtps)_[0-9a-f]{16}_el", name)}


def remove_unused() -> list[str]:
    """Remove what processes that were killed have left; return the names."""
    if not SHARED.is_dir():
        return []
    there = [path.name for path in SHARED.iterdir() if OURS.fullmatch(path.name)]
    used = set().union(*(used_by(process) for process in Path("/proc").glob("[0-9]*")))
    removed = []
    for name in there:
        # A port's or segment's lock is opened before and closed after it.
        if not {name, f"{name}_el", name.removesuffix("_el")} & used:
            try:
                (SHARED / name).unlink()
            except OSError:  # somebody else's, or removed meanwhile
                continue
            removed.append(name)
    return removed
