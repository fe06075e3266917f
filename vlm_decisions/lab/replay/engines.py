"""Engines that wrap an engine for comparisons: one measures times, one sees single frames."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...engine.errors import ModeError
from ...frames import NS
from ...questions import Question
from ...reuse import ReuseSettings
from ...runtime.engine_protocol import (
    EngineLike,
    ReadoutLike,
    ReusingLike,
    StreamLike,
    TimedGroup,
)

STAGES = ("encode", "append", "ask", "idle")


class MeteredEngine:
    """An engine whose calls are timed.

    Attributes:
        spent_s: seconds of every call, by stage.
        turns: for each encoded group, the seconds spent on it, and those of dead-time work after
            it.
    """

    def __init__(
        self, engine: EngineLike, timer: Callable[[], float] = time.perf_counter
    ) -> None:
        """Start measuring."""
        self._engine, self._timer = engine, timer
        self.name, self.fingerprint = engine.name, engine.fingerprint
        self.pixel_budget = engine.pixel_budget
        self.spent_s: dict[str, list[float]] = {stage: [] for stage in STAGES}
        self.turns: list[list[float]] = []

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute (device, dtype, ...) of the engine."""
        return getattr(self._engine, name)

    def encode(self, frames: Sequence[np.ndarray]) -> Any:
        """Encode a group."""
        return self.timed("encode", self._engine.encode, frames)

    def reusing(self, settings: ReuseSettings, **more: Any) -> MeteredEncoder:
        """Return a timed encoder that encodes only what changed."""
        return MeteredEncoder(self, self._engine.reusing(settings, **more))

    def stream(
        self, window_groups: int = 8, mode: str = "stream", **more: Any
    ) -> MeteredStream:
        """Return a timed stream."""
        return MeteredStream(self, self._engine.stream(window_groups, mode, **more))

    def timed(self, stage: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function and record how long it took."""
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


class MeteredEncoder:
    """A reusing encoder whose calls are timed by its engine."""

    def __init__(self, engine: MeteredEngine, encoder: ReusingLike) -> None:
        """Wrap an encoder."""
        self._engine, self._encoder, self.stats = engine, encoder, encoder.stats

    def encode(self, frames: Sequence[np.ndarray]) -> Any:
        """Encode the next group."""
        return self._engine.timed("encode", self._encoder.encode, frames)

    def idle(self) -> bool:
        """Use dead time."""
        return self._engine.timed("idle", self._encoder.idle)


class MeteredStream:
    """A stream whose calls are timed by its engine."""

    def __init__(self, engine: MeteredEngine, stream: StreamLike) -> None:
        """Wrap a stream."""
        self._engine, self._stream = engine, stream

    @property
    def history(self) -> Sequence[TimedGroup]:
        """Return the groups that the next questions see."""
        return self._stream.history

    def append(
        self, group: Any, stamps_ns: tuple[int, int], *, left_out_ns: int = 0
    ) -> None:
        """Append a group."""
        self._engine.timed(
            "append", partial(self._stream.append, left_out_ns=left_out_ns), group, stamps_ns)

    def ask(self, queries: Sequence[Question]) -> Sequence[ReadoutLike]:
        """Answer all questions."""
        return self._engine.timed("ask", self._stream.ask, queries)

    def reset(self) -> None:
        """Drop all groups."""
        self._stream.reset()

    def start_over(self) -> None:
        """Drop the state."""
        self._stream.start_over()

    def idle(self) -> bool:
        """Use dead time."""
        return self._engine.timed("idle", self._stream.idle)


class RecentFrames:
    """An engine that asks about the last `count` single frames, one a second (SimpleStream).

    Each time the frames are processed anew. A frame is encoded as a group of itself twice, so that
    a group shows no motion. Needs an engine with `window(groups, times_s)`.
    """

    def __init__(self, engine: Any, count: int = 4, apart_s: float = 1.0) -> None:
        """Use `count` frames that are `apart_s` seconds apart. Raises ValueError, ModeError."""
        if getattr(engine, "n_frames", 2) < 2:
            raise ModeError(f"{engine.name!r} sees one image at a time")
        if count < 1 or not apart_s > 0:
            raise ValueError(f"{count} frames {apart_s} s apart: at least one, apart, are needed")
        self._engine, self._count, self._apart_s = engine, count, apart_s
        self.name, self.fingerprint = engine.name, engine.fingerprint
        self.pixel_budget = engine.pixel_budget

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute (device, dtype, ...) of the engine."""
        return getattr(self._engine, name)

    def encode(self, frames: Sequence[np.ndarray]) -> Any:
        """Encode the newest frame as a group."""
        return self._engine.encode([frames[-1], frames[-1]])

    def stream(self, window_groups: int = 8, mode: str = "stream") -> RecentStream:
        """Return an object like a stream that asks about single frames."""
        return RecentStream(self._engine, self._count, self._apart_s)


class KeptGroup(NamedTuple):
    """An encoded frame, and the stamps of the group that it is the newest frame of.

    left_out_ns: how much of the time since the group before the model is not told.
    """

    group: Any
    t_start_ns: int
    t_end_ns: int
    left_out_ns: int = 0


class RecentStream:
    """Keeps encoded frames, and asks about the newest and those 1, 2, ... steps before it."""

    def __init__(self, engine: Any, count: int, apart_s: float) -> None:
        """Start without frames."""
        self._engine, self._count, self._apart_s = engine, count, apart_s
        self._kept: deque[KeptGroup] = deque()

    @property
    def history(self) -> Sequence[KeptGroup]:
        """Return the groups from the oldest frame asked about on."""
        return tuple(self._kept)

    def append(
        self, group: Any, stamps_ns: tuple[int, int], *, left_out_ns: int = 0
    ) -> None:
        """Keep a frame for as long as it may be asked about; times are always told."""
        self._kept.append(KeptGroup(group, *stamps_ns))
        span_ns = round((self._count - 1) * self._apart_s * NS)
        while stamps_ns[1] - self._kept[0].t_end_ns > span_ns:
            self._kept.popleft()

    def ask(self, queries: Sequence[Question]) -> Sequence[ReadoutLike]:
        """Answer all questions about the recent frames."""
        chosen = self.chosen()
        first_ns = chosen[0].t_end_ns
        window = self._engine.window([kept.group for kept in chosen],
                                     [(kept.t_end_ns - first_ns) / NS for kept in chosen])
        return window.ask(queries)

    def chosen(self) -> list[KeptGroup]:
        """Return (time, frame) of the frames to ask about, the oldest first."""
        apart_ns = round(self._apart_s * NS)
        picked: dict[int, KeptGroup] = {}
        for step in range(self._count):
            wanted_ns = self._kept[-1].t_end_ns - step * apart_ns
            kept = min(self._kept, key=lambda one: abs(one.t_end_ns - wanted_ns))
            if abs(kept.t_end_ns - wanted_ns) <= apart_ns // 2:
                picked[kept.t_end_ns] = kept
        return [picked[t_ns] for t_ns in sorted(picked)]

    def reset(self) -> None:
        """Drop all frames."""
        self._kept.clear()

    def start_over(self) -> None:
        """Have no state to drop."""

    def idle(self) -> bool:
        """Do nothing: there is no dead-time work."""
        return False
