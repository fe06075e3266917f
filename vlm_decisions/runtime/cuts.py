"""Cuts: where a picture follows another of which most is elsewhere.

A group of two frames that lies across a cut shows neither picture, and what is said about it can be
anything. What was said about the picture before a cut says little about the one after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

import cv2
import numpy as np

from .health import grey_copy

#: Pictures are compared at this size, (width, height).
SIZE = (64, 48)

#: Grey levels by which a pixel must differ, once brightness is divided out.
DIFFERS = 12

#: A change of brightness up to this share is divided out: light flickers.
BRIGHTER = 0.25

#: A cut changes so many times as much as the frames before it do in the median: a camera that
#: moves has no cuts.
STANDS_OUT = 3.0

#: Comparisons that this takes, and that are needed to tell.
RECENT, LEAST = 8, 2


class CutFinder:
    """Finds cuts between the frames of one view's groups. Not thread-safe.

    `cut_ns`: stamp of the first frame after the newest cut, 0 before the first.
    """

    def __init__(self, share: float | None) -> None:
        """`share` of the picture that a cut changes at least, 0 to 1; None to find none."""
        self._share = share
        self._last: np.ndarray | None = None
        self._recent: deque[float] = deque(maxlen=RECENT)
        self.cut_ns = 0

    def forget(self) -> None:
        """Begin anew: what comes next does not follow what was."""
        self._last = None
        self._recent.clear()
        self.cut_ns = 0

    def look(self, images: Sequence[np.ndarray], stamps_ns: Sequence[int]) -> bool:
        """Take the next group's uint8 (H, W, 3) images; return whether a cut parts them."""
        if self._share is None:
            return False
        found = [self._cuts(image) for image in images]
        for cut, stamp_ns in zip(found, stamps_ns, strict=True):
            if cut:
                self.cut_ns = stamp_ns
        return any(found[1:])

    def _cuts(self, image: np.ndarray) -> bool:
        small = cv2.resize(grey_copy(image), SIZE, interpolation=cv2.INTER_AREA).astype(np.float32)
        last, self._last = self._last, small
        if last is None:
            return False
        ratio = (float(small.mean()) + 1.0) / (float(last.mean()) + 1.0)
        level = small / ratio if abs(ratio - 1.0) <= BRIGHTER else small
        changed = float((np.abs(level - last) > DIFFERS).mean())
        usual = median(self._recent) if len(self._recent) >= LEAST else 1.0
        self._recent.append(changed)
        return changed > self._share and changed > STANDS_OUT * usual
