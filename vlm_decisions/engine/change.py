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
SAME: Final = 0.004  # less than this share is less than a grey level


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
        # The pair looked at last, its brightness, and the means of its cells.
        self._newest: tuple[np.ndarray, tuple[float, float], list[np.ndarray]] | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the pixels, None while there are none."""
        return None if self._encoded is None else self._encoded.shape

    def compare(self, pair: np.ndarray) -> Change:
        """Compare a pair of the same shape; there must have been one."""
        ratios = self._look(pair)[0]
        worst = None
        for frame, before, ratio in zip(pair, self._encoded, ratios, strict=True):
            score = _means(cv2.absdiff(_divided(frame, ratio), before), self._cell)
            worst = score if worst is None else np.maximum(worst, score)
        cells = self._side // self._cell
        per = worst.reshape(worst.shape[0] // cells, cells, worst.shape[1] // cells, cells)
        return Change(per.max(axis=(1, 3)), ratios)

    def levelled(self, pair: np.ndarray) -> np.ndarray:
        """Return the pair in the brightness of the one that all tokens were last encoded from."""
        ratios = self._look(pair)[0]
        return np.stack([_divided(*both) for both in zip(pair, ratios, strict=True)])

    def encoded(self, pair: np.ndarray, tokens: np.ndarray | None = None) -> None:
        """Note that ``tokens`` (indices in reading order; None: all) were encoded from ``pair``."""
        if tokens is None:
            self._encoded = pair.copy()
            if self._level:
                self._means = [_means(frame, self._cell) for frame in pair]
        else:
            ratios, means = self._look(pair)
            side, cells = self._side, self._side // self._cell
            for row, column in zip(*np.divmod(tokens, pair.shape[2] // side), strict=True):
                place = (slice(row * side, (row + 1) * side),
                         slice(column * side, (column + 1) * side))  # fmt: skip
                small = (slice(row * cells, (row + 1) * cells),
                         slice(column * cells, (column + 1) * cells))  # fmt: skip
                for i, ratio in enumerate(ratios):
                    self._encoded[i][place] = _divided(pair[i][place], ratio)
                    if self._level:
                        self._means[i][small] = means[i][small] / ratio
        self._newest = None

    def _look(self, pair: np.ndarray) -> tuple[tuple[float, float], list[np.ndarray]]:
        """Return how much brighter most of each frame is, and the means of its cells.

        1.0 where it is another light, or the same but for rounding.
        """
        if not self._level:
            return (1.0, 1.0), []
        if self._newest is None or self._newest[0] is not pair:
            means = [_means(frame, self._cell) for frame in pair]
            ratios = []
            for now, before in zip(means, self._means, strict=True):
                lit = before > DARK
                ratio = float(np.median(now[lit] / before[lit])) if lit.any() else 1.0
                ratios.append(ratio if SAME < abs(ratio - 1.0) <= BRIGHTER else 1.0)
            self._newest = pair, tuple(ratios), means
        return self._newest[1:]


def _means(frame: np.ndarray, cell: int) -> np.ndarray:
    """Mean of each cell over all channels, float32 (h, w), of a uint8 (H, W, 3) frame."""
    height, width, channels = frame.shape
    flat = frame.reshape(height, width * channels)
    if cell & (cell - 1):  # not a power of two
        total = cv2.integral(flat)[::cell, :: cell * channels].astype(np.float32)
        whole = total[1:, 1:] - total[1:, :-1] - total[:-1, 1:] + total[:-1, :-1]
        return whole / (cell * cell * channels)
    while cell > 1:  # halving is several times as fast as averaging at once
        flat = cv2.resize(flat, (flat.shape[1] // 2, flat.shape[0] // 2),
                          interpolation=cv2.INTER_AREA)  # fmt: skip
        cell //= 2
    parts = [flat[:, channel::channels].astype(np.float32) for channel in range(channels)]
    return sum(parts) / channels


def _divided(frame: np.ndarray, ratio: float) -> np.ndarray:
    return frame if ratio == 1.0 else cv2.convertScaleAbs(frame, alpha=1 / ratio)
