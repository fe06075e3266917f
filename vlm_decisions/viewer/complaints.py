"""Faults told once: a stream of bad requests must not become a stream of log lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

QUIET_S = 10.0
KINDS = 100


class Complaints:
    """Pass messages on to `tell`, each kind at most every QUIET_S seconds. Thread-safe."""

    def __init__(self, tell: Callable[[str], None],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._lock = threading.Lock()
        self._told: dict[str, tuple[float, int]] = {}

    def __call__(self, message: str, kind: str | None = None) -> None:
        """Tell a message, unless one of its kind (itself, if not given) was told just now."""
        key, now_s = kind or message, self._clock()
        with self._lock:
            told_s, held_back = self._told.get(key, (-QUIET_S, 0))
            if now_s - told_s < QUIET_S:
                self._told[key] = (told_s, held_back + 1)
                return
            if len(self._told) >= KINDS:
                self._told.clear()
            self._told[key] = (now_s, 0)
        more = f" ({held_back} more like this before)" if held_back else ""
        self._tell(f"{message}{more}")
