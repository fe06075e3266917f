"""Vision that encodes only what changed: one encoder per stream of pictures.

Each layer's keys and values are kept for all patches of the picture. A group's changed tokens go
through the tower and attend to all, with their own keys and values put in place of the old
ones; the other tokens' features stay. What the language model and the heads get is always the whole
grid. It is an approximation: a token that did not change is not told of those that did. Two rules
bound it: all are encoded where much changed, and at the latest some groups after the last time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import mlx.core as mx
import numpy as np

from ..reuse import DUE, FIRST, LARGE, LOSS, PIXELS, RESIZED, VECTORS, ReuseSettings, ReuseStats
from .arrays import Array, wide
from .change import ChangeTracker, levelled
from .errors import FrameError
from .pixels import PixelSettings, resized, resized_size
from .vision import Kept, VisionEncoder, VisionGroup

#: Share of the threshold from which on a token is encoded along with others: what moves slowly is
#: then of one time, and a picture in which nothing reaches the threshold stands still all the same.
ALONG: Final = 0.8

#: Share of the threshold that the tokens which did not change may differ by on average. Beyond it
#: the whole picture has changed a little, as when the camera moves: all tokens are encoded.
RESTLESS: Final = 0.8

#: Where so large a share of the tokens was encoded bit by bit and the picture then rests, all are
#: encoded: the others know nothing of the change.
SETTLED: Final = 0.3


class ReusingEncoder:
    """Encodes the groups of one stream of pictures, one after the other.

    Not thread-safe: belongs to the thread that loaded the engine. A full pass gives bit for bit
    what ``VisionEncoder.encode`` does.
    """

    def __init__(
        self, vision: VisionEncoder, settings: ReuseSettings, pixels: PixelSettings | None = None
    ) -> None:
        """Start with nothing to reuse; pixels: if not the vision encoder's own settings."""
        self._vision, self.settings, self._pixels = vision, settings, pixels or vision.settings
        self.stats = ReuseStats()
        self._start_over(FIRST)

    def encode(
        self, frames: Sequence[np.ndarray], changed: np.ndarray | None = None
    ) -> VisionGroup:
        """Encode the next group of two uint8 RGB frames (H, W, 3); raises FrameError.

        changed: bool (rows, columns) of the grid, which tokens changed since the group before,
        where the caller knows (motion vectors, which ``vectors`` needs); else the pixels tell.
        """
        size = resized_size(frames, self._pixels)
        why, tokens = self._plan(frames, size, changed)
        before = self._group
        group = self._see(frames, why, tokens)
        self._since = 0 if tokens is None else self._since + 1
        self._mixed = tokens is not None and (self._mixed or tokens.size > 0)
        if tokens is None:
            self._anew = np.zeros(group.n_tokens, bool)
        else:
            self._anew[tokens] = True
        self._rests = tokens is not None and not tokens.size
        if why == DUE:
            self._note_drift(before, group, self._still(frames, size))
        if tokens is None or tokens.size:
            self._tracker.encoded(frames, tokens, size)
        self._group, self._pending = group, ""
        # For `idle`: a copy, since a camera may use its memory again.
        self._frames = [frame.copy() for frame in frames] if self._due() else None
        self.stats.groups[why] += 1
        self.stats.tokens += group.n_tokens
        return group

    def grid(self, frames: Sequence[np.ndarray]) -> tuple[int, int]:
        """Return the rows and columns of visual tokens of such frames; raises FrameError."""
        height, width = self._pixels.target_size(*frames[0].shape[:2])
        return height // self._pixels.factor, width // self._pixels.factor

    def idle(self) -> bool:
        """Encode the newest group in full if the next one would have to be; whether it was."""
        if self._group is None or self._pending or not self._due():
            return False
        before = self._group
        group = self._see(self._frames, DUE, None)
        self._note_drift(before, group, np.ones(group.n_tokens, bool))
        self._tracker.encoded(self._frames, size=self._tracker.size)
        self._group, self._since, self._mixed, self._frames = group, 0, False, None
        self._anew[:] = False
        self.stats.in_dead_time += 1
        return True

    def lost(self) -> None:
        """Say that pictures before the next were lost or broken: it is encoded in full."""
        if self._group is not None:
            self._pending = LOSS

    def reset(self) -> None:
        """Forget everything: the next group is a first one."""
        self._start_over(FIRST)

    # ---- inside --------------------------------------------------------------------------------

    def _start_over(self, why: str) -> None:
        settings, side = self.settings, self._pixels.factor
        self._tracker = ChangeTracker(side, brightness=settings.brightness)
        self._kept, self._group, self._frames = Kept(), None, None
        self._since, self._mixed = 0, False  # groups since all were encoded; whether not all were
        self._anew, self._rests = np.zeros(0, bool), False  # tokens since then; none in the last
        self._pending = why  # why the next group is encoded in full

    def _due(self) -> bool:
        """Return whether the next group has to be encoded in full."""
        every = self.settings.refresh_groups
        if not every or not self._mixed:
            return False
        return self._since + 1 >= every or (self._rests and self._anew.mean() >= SETTLED)

    def _plan(
        self, frames: Sequence[np.ndarray], size: tuple[int, int], changed: np.ndarray | None
    ) -> tuple[str, np.ndarray | None]:
        """Return why, and which tokens are to be encoded (None: all)."""
        settings = self.settings
        if settings.mode == VECTORS and changed is None:
            raise FrameError(
                "reuse by vectors needs the motion vectors of each group, and these pictures have "
                "none: take pixels"
            )
        side = self._pixels.factor
        grid = size[0] // side, size[1] // side
        if changed is not None and np.shape(changed) != grid:
            raise FrameError(
                f"which tokens changed must be told for a grid of {grid[0]} x {grid[1]}, not "
                f"{' x '.join(map(str, np.shape(changed)))}"
            )
        if self._pending:
            return self._pending, None
        if self._tracker.size != size:
            return RESIZED, None
        if self._due():
            return DUE, None
        restless = False
        if changed is None:
            change = self._tracker.compare(frames)
            changed = change.score >= settings.threshold
            if changed.any():
                changed = change.score >= ALONG * settings.threshold
            rest = change.score[~changed]
            restless = change.moved or (
                rest.size > 0 and rest.mean() > RESTLESS * settings.threshold)
        tokens = np.flatnonzero(changed)
        if restless or tokens.size > settings.full_above * changed.size:
            return LARGE, None
        return (VECTORS if settings.mode == VECTORS else PIXELS), tokens

    def _still(self, frames: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
        """Return which tokens did not change, bool (T,)."""
        if self._tracker.size != size:
            return np.zeros(0, bool)
        return (self._tracker.compare(frames).score < self.settings.threshold).reshape(-1)

    def _see(
        self, frames: Sequence[np.ndarray], why: str, tokens: np.ndarray | None
    ) -> VisionGroup:
        if tokens is not None and not tokens.size:
            return replace(self._group, encoded=0.0, why=why)
        pair = resized(frames, self._pixels)
        if tokens is None:
            self._kept = Kept()
        elif self.settings.brightness:  # all tokens are then of one light
            ratios = self._tracker.brightness(frames)
            pair = np.stack([levelled(*both) for both in zip(pair, ratios, strict=True)])
        try:
            features, deep, grid = self._vision.see([pair], self._kept, tokens)
        except BaseException:
            self._start_over(self._pending or LOSS)  # keys and values may be half old, half new
            raise
        features, deep = features[0], [level[0] for level in deep]
        if tokens is not None:
            old = self._group
            features = _placed(old.features, tokens, features)
            deep = [
                _placed(whole, tokens, part) for whole, part in zip(old.deep, deep, strict=True)
            ]
        group = self._vision.group(features, deep, grid)
        n = group.n_tokens if tokens is None else tokens.size
        self.stats.encoded += n
        return replace(group, encoded=n / group.n_tokens, why=why)

    def _note_drift(self, before: VisionGroup | None, group: VisionGroup, same: np.ndarray) -> None:
        """Compare features before a refresh with those after, where the picture is the same."""
        self.stats.refreshes += 1
        if before is None or before.grid != group.grid or not same.any():
            return
        one, other = (np.array(wide(each.features))[same] for each in (before, group))
        norm = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        drift = float(1.0 - ((one * other).sum(axis=1) / np.maximum(norm, 1e-12)).mean())
        self.stats.drift = drift
        self.stats.worst_drift = float(np.max([drift, self.stats.worst_drift or 0.0]))


def _placed(whole: Array, tokens: np.ndarray, part: Array) -> Array:
    """Return a copy of ``whole`` (T, D) with the rows ``tokens`` replaced by ``part``."""
    if isinstance(part, np.ndarray):
        out = np.array(whole)
        out[tokens] = part
        return out
    out = mx.array(whole)
    out[mx.array(tokens)] = part
    return out
