"""The plain pictures of several cameras as one: a grid, where those that stand still are dark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable

import numpy as np

from ..sources.images import ImageError
from .overlay import grid

STILL_S = 2.5
"""A camera without a new picture for so long is shown dark, beside others that go on."""


class CameraGrid:
    """The newest picture of each camera. Thread-safe."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._newest: dict[Hashable, tuple[Callable[[], np.ndarray], float]] = {}

    def keep(self, cameras: Iterable[Hashable]) -> None:
        """Forget all but these; the grid has their order."""
        with self._lock:
            self._newest = {camera: self._newest.get(camera, (None, 0.0)) for camera in cameras}

    def put(self, camera: Hashable, picture: Callable[[], np.ndarray]) -> None:
        """Take what returns the newest picture of a camera: uint8 RGB (H, W, 3)."""
        with self._lock:
            self._newest[camera] = picture, time.monotonic()

    def draw(self) -> np.ndarray:
        """Return the grid, uint8 RGB; of one camera its picture as it is.

        Raises ImageError where none can be read; else those that cannot are left out.
        """
        with self._lock:
            newest = [entry for entry in self._newest.values() if entry[0] is not None]
        drawn, fault = [], ImageError("none", "no camera has sent a picture")
        for picture, taken_s in newest:
            try:
                image = picture()
            except ImageError as error:
                fault = error
                continue
            still = len(newest) > 1 and time.monotonic() - taken_s > STILL_S
            drawn.append(image // 3 if still else image)
        if not drawn:
            raise fault
        return grid(drawn)
