"""The decision log: one decision a line (JSONL), never a torn one."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..decision import Decision

#: Bytes looked back for the last line end of a log that was cut off; no line is longer.
_TAIL = 1 << 20


class RecordError(OSError):
    """A log that cannot be written or read; the message names the file."""


class DecisionLog:
    """Append decisions to a file, one line of JSON each, rotated by size. Thread-safe.

    Each line is handed to the system in one write, so it outlives a killed process, and is taken
    back where it could not be written whole (disk full). A torn end that a crash of the machine
    left is cut off at opening. `path` rotates to `path.1`, `path.2`, ... of which `keep` stay.
    One writer at a time: a second is refused. `missing` counts the decisions that could not be
    written; each is tried, so that the log goes on once there is room again.
    """

    def __init__(
        self, path: str | os.PathLike, *, max_bytes: int = 50_000_000, keep: int = 5
    ) -> None:
        """Open or create the file. Raises RecordError, and ValueError for limits without sense."""
        if max_bytes < 1 or keep < 0:
            raise ValueError("max_bytes must be above 0 and keep not below 0")
        self.path = Path(path)
        self._max_bytes = max_bytes
        self._keep = keep
        self.missing = 0
        self._lock = threading.Lock()
        self._handle, self._size = _open(self.path)

    def write(self, decision: Decision) -> None:
        """Append one decision. Raises RecordError; the file then holds whole lines only."""
        line = (decision.to_json() + "\n").encode()
        with self._lock:
            if self._handle < 0:
                raise RecordError(f"{self.path}: the log is closed")
            try:
                full = self._size and self._size + len(line) > self._max_bytes
                if full and _is_file(self._handle):
                    self._rotate()
                self._append(line)
            except OSError as error:
                self.missing += 1
                if isinstance(error, RecordError):
                    raise
                raise RecordError(f"{self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def __enter__(self) -> DecisionLog:
        """Return the log."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the file."""
        self.close()

    def _append(self, line: bytes) -> None:
        written = 0
        try:
            while written < len(line):
                written += os.write(self._handle, line[written:])
        except OSError:
            with suppress(OSError):  # a device, which has no size: what went wrong is told
                os.ftruncate(self._handle, self._size)
            raise
        self._size += len(line)

    def _rotate(self) -> None:
        """Begin a new file; move this one to `.1` and older ones up by one."""
        # The new one first: where it cannot be made, all stay where they are.
        fresh = self.path.with_name(f"{self.path.name}.new")
        handle, size = _open(fresh)
        try:
            for number in range(self._keep, 0, -1):
                older = self._numbered(number - 1)
                if older.exists():
                    os.replace(older, self._numbered(number))
            os.replace(fresh, self.path)
        except OSError:
            os.close(handle)
            raise
        os.close(self._handle)
        self._handle, self._size = handle, size

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path


def _open(path: Path) -> tuple[int, int]:
    """Open a log to append to, for this process alone; return the handle and its size, bytes."""
    handle = -1
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if not _is_file(handle):  # a device or a pipe: nothing to lock or to go on from
            return handle, 0
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(handle).st_size
        whole = _whole_lines(handle, size)
        if whole < size:
            os.ftruncate(handle, whole)
    except BlockingIOError as error:
        os.close(handle)
        raise RecordError(f"{path}: another process writes this log") from error
    except OSError as error:
        if handle >= 0:
            os.close(handle)
        raise RecordError(f"{path}: {error.strerror or error}") from error
    return handle, whole


def read_log(path: str | os.PathLike) -> Iterator[dict[str, Any]]:
    """Yield the decisions of a log file as dictionaries (see Decision.to_dict), oldest first.

    A last line that is still being written is left out. Raises RecordError naming the line.
    """
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise RecordError(f"{path}:{number}: not a decision: {error}") from error
    except RecordError:
        raise
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from error


def _is_file(handle: int) -> bool:
    return stat.S_ISREG(os.fstat(handle).st_mode)


def _whole_lines(handle: int, size: int) -> int:
    """Return the size up to and including the last line end. Raises OSError if there is none."""
    begin = max(0, size - _TAIL)
    tail = os.pread(handle, size - begin, begin)
    end = tail.rfind(b"\n") + 1
    if end == 0 and begin > 0:
        raise OSError(0, "not a decision log: it has no lines")
    return begin + end
