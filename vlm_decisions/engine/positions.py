"""Explicit M-RoPE positions: where each token stands, from the token layout alone.

Text tokens advance all three axes (time, height, width) together. A visual block that starts at
position s puts its tokens at (s, s + row, s + column) and the text after it goes on at
s + max(rows, columns). So a prefix of 282 tokens may end at position 42, and a question behind it
starts there, not at 282. Nothing is kept on the model object (mlx-vlm's ``_rope_deltas``), so two
streams cannot disturb each other.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=256)
def group_layout(n_before: int, rows: int, columns: int, n_after: int = 1) -> np.ndarray:
    """Positions of one vision group relative to its start, as a read-only int32 (3, L) array.

    n_before: text tokens before the visual block (the time stamp and vision_start).
    rows, columns: the grid in merged visual tokens. n_after: text tokens after it (vision_end).
    """
    before = np.broadcast_to(np.arange(n_before), (3, n_before))
    grid = np.zeros((3, rows, columns), dtype=np.int64)
    grid[1] = np.arange(rows)[:, None]
    grid[2] = np.arange(columns)[None, :]
    start = n_before + max(rows, columns)
    after = np.broadcast_to(np.arange(start, start + n_after), (3, n_after))
    out = np.concatenate([before, grid.reshape(3, -1) + n_before, after], axis=1).astype(np.int32)
    out.setflags(write=False)
    return out


def group_span(n_before: int, rows: int, columns: int, n_after: int = 1) -> int:
    """How far a vision group advances the position of what follows it."""
    return n_before + max(rows, columns) + n_after


def text_positions(start: int, offsets: np.ndarray) -> np.ndarray:
    """Positions (3, L) of text tokens that stand ``offsets`` tokens after position ``start``."""
    return np.broadcast_to(start + offsets, (3, len(offsets))).astype(np.int32)


class Rotary:
    """Cosines and sines of a model's interleaved M-RoPE, computed with numpy."""

    def __init__(self, inv_freq: np.ndarray, axis: np.ndarray) -> None:
        """Take the frequencies (F,) and the axis (0 time, 1 height, 2 width) each one follows."""
        self._inv_freq = np.asarray(inv_freq, dtype=np.float32)
        self._axis = np.asarray(axis)

    @property
    def dims(self) -> int:
        """How many leading dimensions of a head are rotated."""
        return 2 * len(self._inv_freq)

    def __call__(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return cos and sin, each float32 (L, F), at ``positions`` (3, L)."""
        angle = positions[self._axis].T.astype(np.float32) * self._inv_freq
        return np.cos(angle), np.sin(angle)
