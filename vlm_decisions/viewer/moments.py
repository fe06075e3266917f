"""Small pictures of the last hours, to look back at. Bounded: older ones stand further apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .jpeg import encode

SIDE, QUALITY = 400, 70
"""Longest side of a picture kept, pixels, and its quality as JPEG."""

EVERY_S = 1.0
"""At most one picture of a view is kept in this time, seconds."""

MAX_BYTES = 24_000_000
"""All pictures together are no larger; where they would be, every second of the older half goes."""

SHOWN_BEFORE, SHOWN_AFTER = 2, 1
"""So many pictures are shown of a view before and after a moment."""


@dataclass(frozen=True)
class KeptPicture:
    """A picture of `view` at `t_s` (epoch, seconds), `number` counts them."""

    number: int
    t_s: float
    view: str
    jpeg: bytes


class Moments:
    """The pictures that were kept, in order of time. Thread-safe."""

    def __init__(self, wall: Callable[[], float] = time.time, max_bytes: int = MAX_BYTES) -> None:
        """Keep nothing yet; `wall` returns the time, seconds since the epoch."""
        self._wall, self._max_bytes = wall, max_bytes
        self._lock = threading.Lock()
        self._kept: list[KeptPicture] = []
        self._bytes = self._count = 0
        self._newest_s: dict[str, float] = {}

    def due(self, view: str = "") -> bool:
        """Tell whether a picture of a view would be kept now."""
        with self._lock:
            return not 0 <= self._wall() - self._newest_s.get(view, 0.0) < EVERY_S

    def put(self, image: np.ndarray, view: str = "") -> None:
        """Keep a picture, uint8 RGB (H, W, 3), of now."""
        jpeg = encode(image, SIDE, QUALITY)
        with self._lock:
            t_s = self._wall()
            self._count += 1
            self._newest_s[view] = t_s
            self._kept.append(KeptPicture(self._count, t_s, view, jpeg))
            self._bytes += len(jpeg)
            if self._bytes > self._max_bytes:
                self._thin()

    def jpeg(self, number: int) -> bytes | None:
        """Return a picture that is still kept, or None."""
        with self._lock:
            return next((one.jpeg for one in self._kept if one.number == number), None)

    def around(self, t_s: float, view: str | None = None) -> list[KeptPicture]:
        """Return the pictures next to a time, in order; of one view, or of all (None)."""
        with self._lock:
            kept = [one for one in self._kept if view in (None, one.view)]
        found: list[KeptPicture] = []
        for name in dict.fromkeys(one.view for one in kept):
            own = [one for one in kept if one.view == name]
            before = sum(one.t_s <= t_s for one in own)
            found += own[max(0, before - SHOWN_BEFORE):before + SHOWN_AFTER]
        return sorted(found, key=lambda one: one.t_s)

    def _thin(self) -> None:
        half = len(self._kept) // 2
        seen: dict[str, int] = {}
        older = []
        for one in self._kept[:half]:
            seen[one.view] = seen.get(one.view, 0) + 1
            if seen[one.view] % 2:
                older.append(one)
        self._kept[:half] = older
        if self._bytes > self._max_bytes and len(older) == half:  # one of each view: too large
            del self._kept[0]
        self._bytes = sum(len(one.jpeg) for one in self._kept)
