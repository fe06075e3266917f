"""Faults told once: a stream of bad requests must not become a stream of log lines."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from ..runtime.throttle import MOST_KEYS, Throttle

QUIET_S = 10.0


class Complaints:
    """Pass messages on to `tell`, each kind at most every QUIET_S seconds. Thread-safe."""

    def __init__(self, tell: Callable[[str], None],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._throttle = Throttle(QUIET_S, clock)
        self._held_back: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, message: str, kind: str | None = None) -> None:
        """Tell a message, unless one of its kind (itself, if not given) was told just now."""
        key = kind or message
        with self._lock:
            if not self._throttle.passes(key):
                if len(self._held_back) >= MOST_KEYS:
                    self._held_back.clear()
                self._held_back[key] += 1
                return
            held_back = self._held_back.pop(key, 0)
        more = f" ({held_back} more like this before)" if held_back else ""
        self._tell(f"{message}{more}")
