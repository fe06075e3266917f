"""What changed in the picture since each visual token was last encoded.

Compared are the pixels of a pair of frames with those that each token was last encoded from: so a
slow change adds up until it counts, which it never would against the group before. Each frame is
read once, into means of blocks of a few pixels of what the model sees; all else is done with those.
Sensor noise counts less in them, and a frame in which nothing changed need not be resized.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

BLOCK: Final = 4  # pixels along one side of a block, where a token's side is a multiple of 8
DARK: Final = 16  # cells darker than this say nothing about a brightness ratio
BRIGHTER: Final = 0.2  # a light that changed by more than this share is a change
SAME: Final = 0.004  # less than this share is less than a grey level
#: Pixels, in the model's sight, that the whole picture may be shifted by along each axis without
#: that being a change: a camera that shakes.
SHAKE: Final = 1.1
SHIFTED: Final = 0.1  # pixels that are worth shifting back
ROUNDS: Final = 3  # of estimating the shift, each leaving out more of what moves by itself
OUTLIER: Final = 4.0  # grey levels that noise leaves; what moves by itself differs by more
CELLS: Final = 1500  # at most so many of a picture tell its brightness and its shift


@dataclass(frozen=True)
class Change:
    """A pair of frames compared with what each token was last encoded from.

    score: float32 (rows, columns), the mean absolute difference of each token's most changed cell
    of 2 x 2 blocks, grey levels. brightness: of each frame, how much brighter than when all tokens
    were encoded, as a ratio; 1.0 where that was not to be divided out. shift: of each frame, pixels
    (x, y) by which its picture lies further than it did then, as far as that is no change. moved:
    it lies further still, as when the camera turns.
    """

    score: np.ndarray
    brightness: tuple[float, float] = (1.0, 1.0)
    shift: tuple[tuple[float, float], tuple[float, float]] = ((0.0, 0.0), (0.0, 0.0))
    moved: bool = False


@dataclass(frozen=True)
class _Looked:
    """A pair, its frames' blocks as they were when all tokens were encoded, and how it differs."""

    frames: tuple[np.ndarray, np.ndarray]
    blocks: list[np.ndarray]
    brightness: tuple[float, float]
    shift: tuple[tuple[float, float], tuple[float, float]]
    moved: bool


class ChangeTracker:
    """The pixels each token was last encoded from, and how far a new pair of frames is from them.

    Pairs are two uint8 (H, W, 3). The model sees them at a size (height, width), multiples of
    ``side``, the pixels along one side of a token; None: as they are. What is kept has the
    brightness and the place of the pair that all tokens were last encoded from: so tokens that were
    encoded in different light are compared alike.
    """

    def __init__(self, side: int, *, brightness: bool = True, shake: float = SHAKE) -> None:
        """Start without any pixels."""
        block = BLOCK
        while block > 1 and side % (2 * block):
            block //= 2
        self._block, self._per_side = block, side // block
        self._level, self._shake = brightness, shake
        self._size: tuple[int, int] | None = None
        self._encoded: list[np.ndarray] = []  # blocks of both frames
        self._newest: _Looked | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """Size at which the model saw the pixels, None while there are none."""
        return self._size

    def compare(self, frames: Sequence[np.ndarray]) -> Change:
        """Compare a pair that the model sees at the same size; there must have been one."""
        self._newest = None  # a camera may use its memory again
        looked = self._look(frames)
        first, second = (_grey(_halved(cv2.absdiff(now, before)))
                         for now, before in zip(looked.blocks, self._encoded, strict=True))
        worst = np.maximum(first, second)
        cells = self._per_side // 2
        rows, columns = (length // cells for length in worst.shape)
        score = worst.reshape(rows, cells, columns, cells).max(axis=(1, 3))
        return Change(score, looked.brightness, looked.shift, looked.moved)

    def brightness(self, frames: Sequence[np.ndarray]) -> tuple[float, float]:
        """Return how much brighter each frame is than when all tokens were encoded."""
        return self._look(frames).brightness

    def encoded(
        self,
        frames: Sequence[np.ndarray],
        tokens: np.ndarray | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        """Note that ``tokens`` were encoded from a pair.

        tokens: indices in reading order; None: all, which the model saw at ``size``.
        """
        if tokens is None:
            self._size = size or frames[0].shape[:2]
            self._encoded = [self._blocks(frame) for frame in frames]
        else:
            side, blocks = self._per_side, self._look(frames).blocks
            height, width, _ = blocks[0].shape
            tiles = height // side, side, width // side, side, 3
            rows, columns = np.divmod(tokens, width // side)
            for kept, now in zip(self._encoded, blocks, strict=True):
                place = kept.reshape(tiles)  # the same memory
                place[rows, :, columns] = now.reshape(tiles)[rows, :, columns]
        self._newest = None

    def _blocks(self, frame: np.ndarray) -> np.ndarray:
        """Means of the blocks of a frame, uint8 (h, w, 3); not the frame's own memory."""
        height, width = (length // self._block for length in self._size)
        out = frame
        while out.shape[0] >= 2 * height and out.shape[1] >= 2 * width and not any(
            length % 2 for length in out.shape[:2]
        ):
            out = _halved(out)  # several times as fast as averaging at once
        if out.shape[:2] != (height, width):
            little = out.shape[0] <= 2 * height and out.shape[1] <= 2 * width
            how = cv2.INTER_LINEAR if little else cv2.INTER_AREA  # it leaves no pixel out
            return cv2.resize(out, (width, height), interpolation=how)
        return out.copy() if out is frame else out

    def _look(self, frames: Sequence[np.ndarray]) -> _Looked:
        """Return the pair's blocks as they were when all tokens were encoded."""
        known = self._newest
        if known is None or any(a is not b for a, b in zip(known.frames, frames, strict=True)):
            blocks, ratios, shifts, moved = [], [], [], False
            for frame, before in zip(frames, self._encoded, strict=True):
                now, ratio, shift = self._blocks(frame), 1.0, (0.0, 0.0)
                if self._level or self._shake:
                    cells, old = _grey(_few(now)), _grey(_few(before))
                    if self._level:
                        ratio = _brighter(cells, old)
                    if self._shake:
                        cell = self._size[0] // len(cells)
                        found = _shift(cells / np.float32(ratio), old, cell)
                        shift = tuple(max(-self._shake, min(self._shake, one)) for one in found)
                        moved = moved or shift != found
                    now = _moved(levelled(now, ratio), shift, self._block)
                blocks.append(now)
                ratios.append(ratio)
                shifts.append(shift)
            self._newest = _Looked(tuple(frames), blocks, tuple(ratios), tuple(shifts), moved)
        return self._newest


def _halved(picture: np.ndarray) -> np.ndarray:
    """Means of 2 x 2 pixels of a uint8 picture (H, W, 3), H and W even."""
    height, width = picture.shape[:2]
    return cv2.resize(picture, (width // 2, height // 2), interpolation=cv2.INTER_AREA)


def _few(blocks: np.ndarray) -> np.ndarray:
    """Return larger blocks where there are more than CELLS."""
    while blocks.shape[0] * blocks.shape[1] > CELLS and not any(n % 2 for n in blocks.shape[:2]):
        blocks = _halved(blocks)
    return blocks


def _grey(picture: np.ndarray) -> np.ndarray:
    """Mean over the channels of a uint8 picture (h, w, 3), float32 (h, w)."""
    return picture.astype(np.float32) @ np.full(3, 1 / 3, np.float32)


def _brighter(now: np.ndarray, before: np.ndarray) -> float:
    """Return how much brighter most cells are; 1.0 where that is another light, or rounding."""
    lit = before > DARK
    ratios = (now / before if lit.all() else now[lit] / before[lit]).ravel()
    if not ratios.size:
        return 1.0
    middle = (ratios.size - 1) // 2, ratios.size // 2
    ratios.partition(middle)  # the median, in a third of np.median's time
    ratio = float(ratios[middle[0]] + ratios[middle[1]]) / 2
    return ratio if SAME < abs(ratio - 1.0) <= BRIGHTER else 1.0


def _shift(now: np.ndarray, before: np.ndarray, cell: int) -> tuple[float, float]:
    """Return by how many pixels (x, y) the picture lies further.

    Grey cells (h, w) of so many pixels. Fitted to the brightness' slopes by least squares; cells
    that still differ, where something moves by itself, count less each time.
    """
    inner = before[1:-1, 1:-1]
    slopes = np.empty((2, *inner.shape), np.float32)
    np.subtract(before[1:-1, 2:], before[1:-1, :-2], out=slopes[0])
    np.subtract(before[2:, 1:-1], before[:-2, 1:-1], out=slopes[1])
    slopes = slopes.reshape(2, -1)
    slopes *= np.float32(0.5 / cell)  # grey levels a pixel
    left = (inner - now[1:-1, 1:-1]).ravel()
    weighted, rest = slopes, left
    for _ in range(ROUNDS):
        (a, b), (_, c) = (weighted @ slopes.T).tolist()
        x, y = (weighted @ left).tolist()
        a, c = a + 1, c + 1  # no slope, no shift
        whole = a * c - b * b
        found = (c * x - b * y) / whole, (a * y - b * x) / whole
        rest = left - np.array(found, np.float32) @ slopes
        weighted = slopes / (1 + np.square(rest * np.float32(1 / OUTLIER)))
    shifted = max(map(abs, found)) >= SHIFTED
    if shifted and _apart(rest) >= _apart(left):
        return 0.0, 0.0  # something large moves by itself
    return found


def _apart(left: np.ndarray) -> float:
    """Return how many cells differ by more than noise does; others count in part."""
    squares = left * left
    return float((squares / (squares + OUTLIER**2)).sum())


def _moved(blocks: np.ndarray, shift: tuple[float, float], block: int) -> np.ndarray:
    """Return blocks of so many pixels with a picture's shift taken back."""
    if max(map(abs, shift)) < SHIFTED:
        return blocks
    there = np.float32([[1, 0, shift[0] / block], [0, 1, shift[1] / block]])
    return cv2.warpAffine(blocks, there, blocks.shape[1::-1], borderMode=cv2.BORDER_REPLICATE,
                          flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)  # fmt: skip


def levelled(picture: np.ndarray, ratio: float) -> np.ndarray:
    """Return a uint8 picture as it is where the light is not ``ratio`` times as bright."""
    return picture if ratio == 1.0 else cv2.convertScaleAbs(picture, alpha=1 / ratio)
