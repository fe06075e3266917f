"""Which parts of a video's pictures its coding says have changed: its motion vectors.

A decoder that exports them tells for each block of a picture from where it was taken. A cell has
changed where a block that overlaps it moved by TAU or more, or was not predicted at all; a key
frame changes every cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np

CELL: Final = 8
"""Pixels along one side of a cell."""

TAU: Final = 0.5
"""Length of a motion vector from which on a block has moved, pixels of the picture."""


_RUNS = count()


@dataclass(frozen=True, eq=False)
class CodedMotion:
    """What has changed up to one picture of a video.

    changed_at: int32 (rows, columns) of cells, the number of the picture that changed each last.
    number: of this picture. run: which pictures it follows without a loss; numbers of another run
    cannot be compared.
    """

    changed_at: np.ndarray
    number: int
    run: int

    def since(self, before: CodedMotion | None) -> np.ndarray:
        """Return which cells changed after an earlier picture, bool (rows, columns).

        All, where it is of another run, or None.
        """
        if before is None or before.run != self.run or before.changed_at.shape != self.shape:
            return np.ones(self.shape, bool)
        return self.changed_at > before.number

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of cells."""
        return self.changed_at.shape


class MotionLog:
    """Follows the pictures of a video in the order in which they are shown."""

    def __init__(self) -> None:
        """Start before the first picture."""
        self._changed_at = np.zeros((0, 0), np.int32)
        self._number, self._run = 0, next(_RUNS)

    def lose(self) -> None:
        """Note that pictures are missing before the next."""
        self._run = next(_RUNS)

    def push(self, frame: Any) -> CodedMotion:
        """Take the next picture, an av.VideoFrame as it was decoded."""
        cells = -(-frame.height // CELL), -(-frame.width // CELL)
        side = frame.side_data.get("MOTION_VECTORS")
        changed = moved(side.to_ndarray() if side is not None else None, cells)
        changed = np.rot90(changed, round(frame.rotation / 90) % 4)
        self._number += 1
        if self._changed_at.shape != changed.shape:
            self._changed_at = np.zeros(changed.shape, np.int32)
            changed = np.ones(changed.shape, bool)
        self._changed_at = np.where(changed, np.int32(self._number), self._changed_at)
        return CodedMotion(self._changed_at, self._number, self._run)


def moved(blocks: np.ndarray | None, cells: tuple[int, int]) -> np.ndarray:
    """Return which cells (rows, columns) the blocks of a picture, as PyAV gives them, changed.

    All where there are none: a key frame.
    """
    if blocks is None or not len(blocks):
        return np.ones(cells, bool)
    scale = np.maximum(blocks["motion_scale"], 1).astype(np.float32)
    length = np.hypot(blocks["motion_x"] / scale, blocks["motion_y"] / scale)
    predicted, changed = np.zeros(cells, bool), np.zeros(cells, bool)
    _mark(predicted, blocks)
    _mark(changed, blocks[length >= TAU])
    return changed | ~predicted


def over_patches(cells: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Return the largest value of the cells (h, w) that overlap each patch of a grid."""
    for axis, patches in enumerate(grid):
        size = cells.shape[axis]
        edges = [(i * size // patches, max(-(-(i + 1) * size // patches), i * size // patches + 1))
                 for i in range(patches)]
        cells = np.stack([cells.take(range(a, min(b, size)), axis).max(axis)
                          for a, b in edges], axis)
    return cells


def _mark(cells: np.ndarray, blocks: np.ndarray) -> None:
    """Set the cells that blocks overlap."""
    rows, columns = cells.shape
    for w, h in np.unique(np.stack([blocks["w"], blocks["h"]], axis=1), axis=0):
        own = blocks[(blocks["w"] == w) & (blocks["h"] == h)]
        # A block is placed by its centre.
        x, y = own["dst_x"].astype(int) - w // 2, own["dst_y"].astype(int) - h // 2
        for down in range(0, h + CELL - 1, min(h, CELL)):
            for right in range(0, w + CELL - 1, min(w, CELL)):
                row = np.minimum(y + down, y + h - 1) // CELL
                column = np.minimum(x + right, x + w - 1) // CELL
                cells[np.clip(row, 0, rows - 1), np.clip(column, 0, columns - 1)] = True
