"""What changed in the picture since each visual token was last encoded.

Compared are the pixels that the model sees, after the resize, with those that each token was last
encoded from: so a slow change adds up until it counts, which it never would against the group
before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

CELLS: Final = 4  # along one side of a token: 8 x 8 pixels where a token has 32 x 32
DARK: Final = 16  # cells darker than this say nothing about a brightness ratio
BRIGHTER: Final = 0.1  # a light that changed by more than this share is a change


@dataclass(frozen=True)
class Change:
    """A pair of frames compared with what each token was last encoded from.

    score: float32 (rows, columns), the mean absolute difference of each token's most changed cell,
    grey levels. brightness: how much brighter the picture has become, as a ratio; 1.0 where that
    was not to be divided out.
    """

    score: np.ndarray
    brightness: float = 1.0


class ChangeTracker:
    """The pixels each token was last encoded from, and how far a new pair of frames is from them.

    Pairs are uint8 (2, H, W, 3), H and W multiples of ``side``, the pixels along one side of a
    token.
    """

    def __init__(self, side: int, *, brightness: bool = True) -> None:
        """Start without any pixels."""
        self._side, self._cell, self._brightness = side, max(1, side // CELLS), brightness
        self._encoded: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the pixels, None while there are none."""
        return None if self._encoded is None else self._encoded.shape

    def compare(self, pair: np.ndarray) -> Change:
        """Compare a pair of the same shape; there must have been one."""
        encoded = self._encoded
        cells = [self._cells(frame) for frame in encoded] if self._brightness else []
        ratio = 1.0
        if self._brightness:
            ratio = _ratio(cells, [self._cells(frame) for frame in pair])
        worst = None
        for frame, before in zip(pair, encoded, strict=True):
            if ratio != 1.0:
                before = cv2.convertScaleAbs(before, alpha=ratio)
            score = self._cells(cv2.absdiff(frame, before))
            worst = score if worst is None else cv2.max(worst, score)
        grey = cv2.transform(worst, np.full((1, 3), 1 / 3, np.float32))
        rows, columns = (size // (self._side // self._cell) for size in grey.shape)
        per = grey.reshape(rows, self._side // self._cell, columns, -1)
        return Change(per.max(axis=(1, 3)), ratio)

    def encoded(self, pair: np.ndarray, tokens: np.ndarray | None = None) -> None:
        """Note that ``tokens`` (indices in reading order; None: all) were encoded from ``pair``."""
        if tokens is None:
            self._encoded = pair.copy()
            return
        side = self._side
        _, height, width, _ = pair.shape
        shape = (2, height // side, side, width // side, side, 3)
        row, column = np.divmod(tokens, width // side)
        self._encoded.reshape(shape)[:, row, :, column] = pair.reshape(shape)[:, row, :, column]

    def _cells(self, frame: np.ndarray) -> np.ndarray:
        """Mean of each cell, float32 (h, w, 3)."""
        height, width = (size // self._cell for size in frame.shape[:2])
        small = cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA)
        return small.astype(np.float32)


def _ratio(before: list[np.ndarray], now: list[np.ndarray]) -> float:
    """Return how much brighter most of the picture is; 1.0 where it is another light."""
    one, other = np.concatenate(before), np.concatenate(now)
    lit = one > DARK
    if not lit.any():
        return 1.0
    ratio = float(np.median(other[lit] / one[lit]))
    return ratio if abs(ratio - 1.0) <= BRIGHTER else 1.0
