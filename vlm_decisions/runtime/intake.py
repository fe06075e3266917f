"""The input side: camera health, sampling, and the bounded queue of groups."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from ..frames import NS, Frame, Group, Sampler
from .health import HealthMonitor, HealthState
from .settings import RuntimeSettings
from .statistics import Meter

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

    A group is queued before its newest frame has been through Tier 0, so that the vision encoder
    need not wait for that; nothing may be made of its features before `fit` says so.
    """

    def __init__(self, settings: RuntimeSettings, meter: Meter) -> None:
        """Start empty."""
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self._looked = threading.Condition(lock)  # Tier 0 is done with a frame
        self.generation = 0
        self._pushing = threading.RLock()  # frames one by one; taken before `changed`
        self._looking_at: Frame | None = None  # what Tier 0 has not spoken about yet
        self._unfit_segment = -1  # no group of it or an older one may be used any more
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
        began_s = self._meter.timer()
        with self._pushing:
            usable, seen = self._monitor.usable, False
            try:
                with self.changed:
                    reason = self.note_clock(now_ns)
                    self._meter.count("frames")
                    late, epoch = self._sampler.late, self._sampler.epoch
                    group = self._sampler.push(frame)
                    if self._sampler.late != late:
                        self._meter.drop("late")
                        seen = True
                        return Arrival(None, reason)
                    if self._sampler.epoch != epoch:
                        reason = "image time went backwards"
                        self._begin_generation()
                    usable = self._monitor.usable
                    self._stamps_ns.append(frame.stamp_ns)
                    self._looking_at = frame
                    if group is not None:
                        self._enqueue(group, began_s)
                with self._meter.stage("health"):
                    self._monitor.update(frame)
                seen = True
            finally:
                with self.changed:
                    self._looking_at = None
                    if not seen or self._monitor.usable != usable:
                        self._end_segment()
                    self._looked.notify_all()
            return Arrival(self._monitor.state(), reason)

    def fit(self, group: Group) -> bool:
        """
        Wait until Tier 0 has seen all of a group taken; return whether it may be used.

        It may not where one of its frames, or one since, made the camera unusable.
        """
        with self.changed:
            self._looked.wait_for(lambda: self._looking_at is not group.frames[-1])
            return group.segment > self._unfit_segment

    def note_clock(self, now_ns: int) -> str:
        """Return why to forget all answers if the clock stepped back, else empty."""
        with self._pushing, self.changed:
            last_ns, self._clock_last_ns = self._clock_last_ns, now_ns
            if last_ns is None or now_ns >= last_ns - CLOCK_JUMP_NS:
                return ""
            self.reset()
            return "the clock went backwards"

    def reset(self) -> None:
        """Forget frames and groups; begin a new generation."""
        with self._pushing, self.changed:
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

    def _end_segment(self) -> None:
        """Unusable frames have no place in a window, before or after."""
        self._unfit_segment = self._sampler.segment
        self._sampler.break_segment()
        self._meter.drop("unusable", len(self._queue))
        self._queue.clear()

    def _enqueue(self, group: Group, began_s: float) -> None:
        if not self._monitor.usable:
            self._meter.drop("unusable")
            return
        self._meter.count("groups")
        if len(self._queue) >= self._limit:
            # The worker sees from the group's index that the window is not contiguous any more.
            self._queue.popleft()
            self._meter.drop("queue")
        now_s = self._meter.timer()
        self._meter.note("intake", now_s - began_s)
        self._queue.append((group, self.generation, now_s))
        self.changed.notify_all()
