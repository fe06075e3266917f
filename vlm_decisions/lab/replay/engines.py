"""Engines around an engine, for comparisons: one that is timed, one that sees single frames."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...questions import Question
from ...runtime.engine_protocol import EngineLike, ReadoutLike, StreamLike

STAGES = ("encode", "append", "ask", "idle")


class MeteredEngine:
    """
    The engine given, with the seconds of every call kept in `spent_s` by stage.

    `turns`: by group encoded, the seconds spent on it and then, as dead-time work, after it.
    """

    def __init__(
        self, engine: EngineLike, timer: Callable[[], float] = time.perf_counter
    ) -> None:
        """Count from here on."""
        self._engine, self._timer = engine, timer
        self.name, self.fingerprint = engine.name, engine.fingerprint
        self.pixel_budget = engine.pixel_budget
        self.spent_s: dict[str, list[float]] = {stage: [] for stage in STAGES}
        self.turns: list[list[float]] = []

    def __getattr__(self, name: str) -> Any:
        """Leave everything else (device, dtype, ...) to the engine."""
        return getattr(self._engine, name)

    def encode(self, frames: Sequence[np.ndarray]) -> Any:
        """Encode a group."""
        return self.timed("encode", self._engine.encode, frames)

    def stream(self, window_groups: int = 8, mode: str = "stream") -> MeteredStream:
        """Return a timed stream."""
        return MeteredStream(self, self._engine.stream(window_groups, mode))

    def timed(self, stage: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call, and note how long it took."""
        began_s = self._timer()
        try:
            return call(*arguments)
        finally:
            seconds = self._timer() - began_s
            self.spent_s[stage].append(seconds)
            if stage == "encode":
                self.turns.append([0.0, 0.0])
            if self.turns:
                self.turns[-1][stage == "idle"] += seconds


class MeteredStream:
    """A stream whose calls are timed by its engine."""

    def __init__(self, engine: MeteredEngine, stream: StreamLike) -> None:
        """Wrap a stream."""
        self._engine, self._stream = engine, stream

    @property
    def n_groups(self) -> int:
        """Return the groups that the state holds."""
        return self._stream.n_groups

    def append(self, group: Any, t_s: float) -> None:
        """Append a group."""
        self._engine.timed("append", self._stream.append, group, t_s)

    def ask(self, queries: Sequence[Question]) -> Sequence[ReadoutLike]:
        """Answer all."""
        return self._engine.timed("ask", self._stream.ask, queries)

    def reset(self) -> None:
        """Drop all groups."""
        self._stream.reset()

    def idle(self) -> bool:
        """Use dead time."""
        return self._engine.timed("idle", self._stream.idle)


class RecentFrames:
    """
    Asks about the last `count` single frames, one a second (SimpleStream), from nothing each time.

    A frame is encoded as a group of itself twice, so that no motion is seen within one. Needs an
    engine with `window(groups, times_s)`.
    """

    def __init__(self, engine: Any, count: int = 4, apart_s: float = 1.0) -> None:
        """`count` frames, `apart_s` seconds apart. Raises ValueError."""
        if count < 1 or not apart_s > 0:
            raise ValueError(f"{count} frames {apart_s} s apart: at least one, apart, are needed")
        self._engine, self._count, self._apart_s = engine, count, apart_s
        self.name, self.fingerprint = engine.name, engine.fingerprint
        self.pixel_budget = engine.pixel_budget

    def __getattr__(self, name: str) -> Any:
        """Leave everything else (device, dtype, ...) to the engine."""
        return getattr(self._engine, name)

    def encode(self, frames: Sequence[np.ndarray]) -> Any:
        """Encode the newest frame, twice."""
        return self._engine.encode([frames[-1], frames[-1]])

    def stream(self, window_groups: int = 8, mode: str = "stream") -> RecentStream:
        """Return what looks like a stream; its window is that of the single frames."""
        return RecentStream(self._engine, self._count, self._apart_s)


class RecentStream:
    """Keeps encoded frames and asks about the newest and those one, two, ... steps before it."""

    def __init__(self, engine: Any, count: int, apart_s: float) -> None:
        """Start empty."""
        self._engine, self._count, self._apart_s = engine, count, apart_s
        self._kept: deque[tuple[float, Any]] = deque()

    @property
    def n_groups(self) -> int:
        """Return the groups from the oldest frame asked about on."""
        return len(self._kept)

    def append(self, group: Any, t_s: float) -> None:
        """Keep a frame, as long as it may be asked about."""
        self._kept.append((t_s, group))
        while t_s - self._kept[0][0] > (self._count - 1) * self._apart_s + 1e-6:
            self._kept.popleft()

    def ask(self, queries: Sequence[Question]) -> Sequence[ReadoutLike]:
        """Answer all about the recent frames."""
        chosen = self.chosen()
        first_s = chosen[0][0]
        window = self._engine.window([group for _, group in chosen],
                                     [t_s - first_s for t_s, _ in chosen])
        return window.ask(queries)

    def chosen(self) -> list[tuple[float, Any]]:
        """Return (time, frame) of those asked about, the oldest first."""
        newest_s = self._kept[-1][0]
        picked: dict[float, Any] = {}
        for step in range(self._count):
            wanted_s = newest_s - step * self._apart_s
            t_s, group = min(self._kept, key=lambda one: abs(one[0] - wanted_s))
            if abs(t_s - wanted_s) <= self._apart_s / 2:
                picked[t_s] = group
        return sorted(picked.items(), key=lambda one: one[0])

    def reset(self) -> None:
        """Drop all."""
        self._kept.clear()

    def idle(self) -> bool:
        """Have nothing to do."""
        return False
