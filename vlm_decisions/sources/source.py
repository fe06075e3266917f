"""What `--source` names: a webcam, a network stream or a video file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from .live import is_url, open_stream, open_webcam
from .video import SourceError, VideoFile

__all__ = ["Source", "SourceError", "open_source"]


class Source(Protocol):
    """Where frames come from.

    `ended`: no more will come. `shortfall`: after the end, what of it could not be read.
    """

    ended: bool
    shortfall: str

    def next(self, from_s: float = 0.0) -> tuple[np.ndarray, float] | None:
        """Return (uint8 RGB (H, W, 3), time in seconds), of a time from `from_s` on.

        Times of a file begin at 0, those of a live camera are on the steady clock. None where
        there is none: at the end, or of a live camera for now.
        """

    def __iter__(self) -> Iterator[tuple[np.ndarray, float]]:
        """Yield frames to the end."""


def open_source(source: str) -> Source:
    """Open `webcam`, `webcam:N`, a stream's address or a video file. Raises SourceError."""
    name, colon, index = source.partition(":")
    if is_url(source):
        return open_stream(source)
    if name == "webcam":
        if colon and not index.isdigit():
            raise SourceError(f"{source!r}: a webcam is `webcam` or `webcam:N`, N from 0 on")
        return open_webcam(int(index or 0))
    return VideoFile(source)
