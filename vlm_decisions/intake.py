"""The input side: camera health, sampling, and the bounded queue of groups."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from .frames import NS, Frame, Group, Sampler
from .settings import RuntimeSettings
from .stats import Meter
from .tiers.health import HealthMonitor, HealthState

#: A clock that steps back by more than this was set anew.
CLOCK_JUMP_NS = NS // 2


@dataclass(frozen=True)
class Arrival:
    """
    What a frame's arrival means: the camera's health, and why to forget all answers (or empty).

    `health` is None for a frame that came too late to count.
    """

    health: HealthState | None
    reset_reason: str = ""


class Intake:
    """
    Frames in, groups out, oldest dropped first. Thread-safe.

    `generation` counts the runs of frame time: it changes when image time or the clock goes
    backwards, and whatever was seen before is then worth nothing. `changed` is the condition to
    wait on; it is notified when a group is queued.
    """

    def __init__(self, settings: RuntimeSettings, meter: Meter) -> None:
        """Start empty."""
        self.changed = threading.Condition(threading.RLock())
        self.generation = 0
        self._limit = settings.queue_groups
        self._meter = meter
        self._sampler = Sampler(settings.fps, settings.jitter_s)
        self._monitor = HealthMonitor()
        self._queue: deque[tuple[Group, int, float]] = deque()  # with generation and timer
        self._clock_last_ns: int | None = None
        self._stamps_ns: deque[int] = deque(maxlen=30)

    def __len__(self) -> int:
        """Return how many groups wait."""
        return len(self._queue)

    def push(self, frame: Frame, now_ns: int) -> Arrival:
        """Take a frame that arrived at `now_ns`: Tier 0, sampling, queue."""
        with self.changed:
            reason = self.note_clock(now_ns)
            self._meter.count("frames")
            late, epoch = self._sampler.late, self._sampler.epoch
            group = self._sampler.push(frame)
            if self._sampler.late != late:
                self._meter.drop("late")
                return Arrival(None, reason)
            if self._sampler.epoch != epoch:
                reason = "image time went backwards"
                self._begin_generation()
            self._stamps_ns.append(frame.stamp_ns)
            usable = self._monitor.usable
            with self._meter.stage("health"):
                self._monitor.update(frame)
            if self._monitor.usable != usable:
                # Unusable frames have no place in a window, before or after.
                self._sampler.break_segment()
                self._meter.drop("unusable", len(self._queue) + (group is not None))
                self._queue.clear()
            elif group is not None:
                self._enqueue(group)
            return Arrival(self._monitor.state(), reason)

    def note_clock(self, now_ns: int) -> str:
        """Return why to forget all answers if the clock stepped back, else empty."""
        with self.changed:
            last_ns, self._clock_last_ns = self._clock_last_ns, now_ns
            if last_ns is None or now_ns >= last_ns - CLOCK_JUMP_NS:
                return ""
            self.reset()
            return "the clock went backwards"

    def reset(self) -> None:
        """Forget frames and groups; begin a new generation."""
        with self.changed:
            self._begin_generation()
            self._sampler.reset()

    def take(self, newest_only: bool = False) -> tuple[Group | None, int, bool]:
        """
        Return the next group (None if none waits), its generation, and whether more wait.

        `newest_only` drops those that wait before the newest.
        """
        with self.changed:
            while newest_only and len(self._queue) > 1:
                self._queue.popleft()
                self._meter.drop("catch_up")
            if not self._queue:
                return None, self.generation, False
            group, generation, queued_s = self._queue.popleft()
            self._meter.note("wait", self._meter.timer() - queued_s)
            return group, generation, bool(self._queue)

    def image_rate_hz(self) -> float:
        """Return frames per second of frame time, over the last 30; 0 before the second."""
        with self.changed:
            stamps = self._stamps_ns
            span_s = (stamps[-1] - stamps[0]) / NS if len(stamps) > 1 else 0.0
            return (len(stamps) - 1) / span_s if span_s > 0 else 0.0

    def _begin_generation(self) -> None:
        self.generation += 1
        self._monitor.reset()
        self._stamps_ns.clear()
        self._meter.drop("reset", len(self._queue))
        self._queue.clear()

    def _enqueue(self, group: Group) -> None:
        if not self._monitor.usable:
            self._meter.drop("unusable")
            return
        self._meter.count("groups")
        if len(self._queue) >= self._limit:
            # The worker sees from the group's index that the window is not contiguous any more.
            self._queue.popleft()
            self._meter.drop("queue")
        self._queue.append((group, self.generation, self._meter.timer()))
        self.changed.notify_all()
