"""Write files completely or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` when the block ends without an error.

    Otherwise `path` is unchanged. A link stays a link, and a file that is replaced keeps its
    permissions. What is no file (/dev/stdout, a pipe) is written to. Raises OSError that names
    `path`.
    """
    try:
        with _device(path) if _is_device(path) else _replacing(path) as file:
            yield file
    except OSError as error:
        if error.errno is None:
            raise
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from error


def _is_device(path: str | os.PathLike) -> bool:
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


@contextmanager
def _device(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    with open(path, "wb") as file:
        yield file


@contextmanager
def _replacing(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    target = Path(os.path.realpath(path))
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write `text` as UTF-8. Raises OSError."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write `value` as indented JSON. Raises OSError."""
    write_text(path, json.dumps(value, indent=2) + "\n")
