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
BRIGHTER: Final = 0.2  # a light that changed by more than this share is a change


@dataclass(frozen=True)
class Change:
    """A pair of frames compared with what each token was last encoded from.

    score: float32 (rows, columns), the mean absolute difference of each token's most changed cell,
    grey levels. brightness: of each frame, how much brighter than when all tokens were encoded, as
    a ratio; 1.0 where that was not to be divided out.
    """

    score: np.ndarray
    brightness: tuple[float, float] = (1.0, 1.0)


class ChangeTracker:
    """The pixels each token was last encoded from, and how far a new pair of frames is from them.

    Pairs are uint8 (2, H, W, 3), H and W multiples of ``side``, the pixels along one side of a
    token. What is kept has the brightness of the pair that all tokens were last encoded from: so
    tokens that were encoded in different light are compared alike.
    """

    def __init__(self, side: int, *, brightness: bool = True) -> None:
        """Start without any pixels."""
        self._side, self._cell, self._level = side, max(1, side // CELLS), brightness
        self._encoded: np.ndarray | None = None
        self._means: list[np.ndarray] = []  # of the cells, where brightness is divided out
        self._newest: tuple[np.ndarray, tuple[float, float]] | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the pixels, None while there are none."""
        return None if self._encoded is None else self._encoded.shape

    def compare(self, pair: np.ndarray) -> Change:
        """Compare a pair of the same shape; there must have been one."""
        ratios = self._ratios(pair)
        worst = None
        for frame, before, ratio in zip(pair, self._encoded, ratios, strict=True):
            score = self._cells(cv2.absdiff(_divided(frame, ratio), before))
            worst = score if worst is None else cv2.max(worst, score)
        grey = cv2.transform(worst, np.full((1, 3), 1 / 3, np.float32))
        cells = self._side // self._cell
        per = grey.reshape(grey.shape[0] // cells, cells, grey.shape[1] // cells, cells)
        return Change(per.max(axis=(1, 3)), ratios)

    def encoded(self, pair: np.ndarray, tokens: np.ndarray | None = None) -> None:
        """Note that ``tokens`` (indices in reading order; None: all) were encoded from ``pair``."""
        if tokens is None:
            self._encoded = pair.copy()
        else:
            ratios = self._ratios(pair)
            now = np.stack([_divided(*both) for both in zip(pair, ratios, strict=True)])
            side = self._side
            _, height, width, _ = pair.shape
            shape = (2, height // side, side, width // side, side, 3)
            row, column = np.divmod(tokens, width // side)
            self._encoded.reshape(shape)[:, row, :, column] = now.reshape(shape)[:, row, :, column]
        if self._level:
            self._means = [self._cells(frame) for frame in self._encoded]
        self._newest = None

    def _ratios(self, pair: np.ndarray) -> tuple[float, float]:
        """Return how much brighter most of each frame is; 1.0 where it is another light."""
        if not self._level:
            return 1.0, 1.0
        if self._newest is None or self._newest[0] is not pair:
            ratios = []
            for frame, before in zip(pair, self._means, strict=True):
                lit = before > DARK
                ratio = float(np.median(self._cells(frame)[lit] / before[lit])) if lit.any() else 1
                ratios.append(ratio if abs(ratio - 1.0) <= BRIGHTER else 1.0)
            self._newest = pair, tuple(ratios)
        return self._newest[1]

    def _cells(self, frame: np.ndarray) -> np.ndarray:
        """Mean of each cell, float32 (h, w, 3)."""
        height, width = (size // self._cell for size in frame.shape[:2])
        small = cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA)
        return small.astype(np.float32)


def _divided(frame: np.ndarray, ratio: float) -> np.ndarray:
    return frame if ratio == 1.0 else cv2.convertScaleAbs(frame, alpha=1 / ratio)
