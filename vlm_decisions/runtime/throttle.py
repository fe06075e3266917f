"""Limit how often the same message is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

MOST_KEYS = 1000  # messages that carry numbers are each new


class Throttle:
    """Lets each key pass at most once in `every_s` seconds of a monotonic clock."""

    def __init__(self, every_s: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Let every key pass the first time."""
        self._every_s, self._clock_s = every_s, clock_s
        self._passed_s: dict[Hashable, float] = {}

    def passes(self, key: Hashable = None) -> bool:
        """Tell whether `key` may pass now; if so, it has."""
        now_s = self._clock_s()
        before_s = self._passed_s.get(key)
        if before_s is not None and now_s - before_s < self._every_s:
            return False
        if len(self._passed_s) >= MOST_KEYS:
            self._passed_s.clear()
        self._passed_s[key] = now_s
        return True
