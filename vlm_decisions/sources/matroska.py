"""Whether a Matroska or WebM file is whole: it states no number of frames that could tell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Final

_SEGMENT, _CLUSTER = 0x18538067, 0x1F43B675
_OUTSIDE: Final = {  # header, seek head, information, tracks, cues, attachments, chapters, tags
    0x1A45DFA3, 0x114D9B74, 0x1549A966, 0x1654AE6B, 0x1C53BB6B, 0x1941A469, 0x1043A770,
    0x1254C367, _SEGMENT, _CLUSTER}
_INSIDE: Final = {0xE7, 0xA3, 0xA0, 0xA7, 0xAB, 0x5854, 0xAF}  # a cluster: time, blocks, positions
_ANYWHERE: Final = {0xEC, 0xBF}  # void, checksum
_UNKNOWN: Final = -1


def broken_at(path: str | Path) -> int | None:
    """Return the byte at which no element begins or one does not fit; None where all do.

    A reader passes over what lies there without a word, up to the next cluster that it finds.
    """
    size = os.path.getsize(path)
    inside, end = False, 0  # in a cluster, and where that ends; 0: not stated
    at = 0
    with open(path, "rb") as file:
        while at < size:
            file.seek(at)
            try:
                name, length = _number(file, marked=True), _number(file)
            except ValueError:
                return at
            body = file.tell()
            until = body + length
            if name in _OUTSIDE:
                if at < end:
                    return at  # in the middle of a cluster
                inside, end = name == _CLUSTER, until if name == _CLUSTER else 0
            elif name not in _ANYWHERE and not (inside and name in _INSIDE):
                return at
            elif length == _UNKNOWN or 0 < end < until:
                return at
            if name in (_SEGMENT, _CLUSTER):
                end = 0 if length == _UNKNOWN else end
                at = body
            elif until > size:
                return at
            else:
                at = until
            if 0 < end == at:
                inside, end = False, 0
    return size if end > size else None


def _number(file: IO[bytes], *, marked: bool = False) -> int:
    """Read a number of a length of its own; `marked`: with the bit that tells it, as names are.

    Raises ValueError where none begins.
    """
    first = file.read(1)
    width = 9 - first[0].bit_length() if first else 9
    rest = file.read(width - 1)
    if width > 8 or len(rest) < width - 1:
        raise ValueError("no number begins here")
    value = int.from_bytes(first + rest, "big")
    ones = (1 << 7 * width) - 1
    if marked:
        return value
    return _UNKNOWN if value & ones == ones else value & ones
