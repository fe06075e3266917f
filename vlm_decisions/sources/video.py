"""Frames of a video file or a webcam, with their times."""

from __future__ import annotations

import os
import time
from typing import Protocol

import cv2
import numpy as np

from ..frames import NS


class SourceError(ValueError):
    """A file or camera that gives no video; the message names it."""


class Source(Protocol):
    """Where frames come from."""

    def next(self) -> tuple[np.ndarray, float] | None:
        """Return (uint8 RGB (H, W, 3), time in seconds), or None at the end."""


class VideoFile:
    """A file that OpenCV decodes (its FFmpeg: H.264, HEVC, raw Annex B, ...), rotated upright.

    Times are the file's own presentation times, made to rise where it has none (raw streams) or
    repeats them (damaged ones). Raises SourceError for a file that cannot be read.
    """

    def __init__(self, path: str) -> None:
        """Open the file and check that a first frame can be decoded."""
        if not os.path.isfile(path):
            raise SourceError(f"there is no file {path!r}")
        self._path = path
        self._period_s = 1.0 / 25.0
        self.rewind()
        if self.next() is None:
            raise SourceError(f"{path!r} holds no video that can be decoded")
        self.rewind()

    def rewind(self) -> None:
        """Start again at the first frame."""
        self._capture = cv2.VideoCapture(self._path)
        fps = self._capture.get(cv2.CAP_PROP_FPS)
        if 1.0 <= fps <= 240.0:
            self._period_s = 1.0 / fps
        self._t_s = -self._period_s

    def next(self) -> tuple[np.ndarray, float] | None:
        """Return (uint8 RGB (H, W, 3), presentation time in seconds), or None at the end."""
        ok, bgr = self._capture.read()
        if not ok:
            return None
        t_s = self._capture.get(cv2.CAP_PROP_POS_MSEC) / 1000.0
        self._t_s = t_s if t_s > self._t_s else self._t_s + self._period_s
        return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), self._t_s


class Webcam:
    """A camera of this machine; times are those of the reading, since the first frame."""

    def __init__(self, index: int = 0) -> None:
        """Open camera `index`; raises SourceError where there is none."""
        self._capture = cv2.VideoCapture(index)
        if not self._capture.isOpened():
            raise SourceError(f"there is no camera {index} on this machine; "
                              "--source FILE plays a video file")
        self._start_ns = time.monotonic_ns()

    def next(self) -> tuple[np.ndarray, float] | None:
        """Wait for the next frame; None when the camera is gone."""
        ok, bgr = self._capture.read()
        if not ok:
            return None
        t_s = (time.monotonic_ns() - self._start_ns) / NS
        return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), t_s


def open_source(source: str) -> Source:
    """Open `webcam`, `webcam:N`, or a video file. Raises SourceError naming it."""
    name, _, index = source.partition(":")
    if name == "webcam" and (not index or index.isdigit()):
        return Webcam(int(index or 0))
    return VideoFile(source)
