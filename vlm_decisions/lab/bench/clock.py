"""Times and peak memory of runs that take turns."""

from __future__ import annotations

import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np


@dataclass
class Clock:
    """Times runs by name; the first round of all only warms up and tells the peak memory.

    seconds: of each run of a later round. peaks: bytes that the first run needed beside what was
    held before, by name. warm: set from the second round on.
    """

    seconds: dict[Any, list[float]] = field(default_factory=lambda: defaultdict(list))
    peaks: dict[Any, int] = field(default_factory=dict)
    warm: bool = False

    def __call__(self, name: Any, run: Callable[[], Any]) -> Any:
        """Run once under ``name``; return what it returns."""
        if not self.warm:
            mx.clear_cache()
            before = mx.get_active_memory()
            mx.reset_peak_memory()
            tracemalloc.start()  # sees NumPy's arrays
        start = time.perf_counter()
        out = run()
        taken = time.perf_counter() - start
        if self.warm:
            self.seconds[name].append(taken)
        else:
            self.peaks[name] = max(0, mx.get_peak_memory() - before)
            self.peaks[name] += tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return out

    def median(self, name: Any) -> float:
        """Return the median seconds of a name's runs."""
        return float(np.median(self.seconds[name]))
