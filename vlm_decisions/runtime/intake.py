"""The input side: camera health, sampling, and the bounded queue of groups."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ..frames import NS, Frame, Group, Sampler
from .health import HealthMonitor, HealthState
from .settings import RuntimeSettings
from .statistics import Meter

#: A clock that steps back by more than this was set anew.
CLOCK_JUMP_NS = NS // 2


#: A clock that goes from 0 to more than this in one step has only begun (simulated time).
CLOCK_BEGIN_NS = NS

#: Frames over which a mixture of cameras or sizes is looked for, and the rate is measured.
RECENT_FRAMES = 30

#: So many usual intervals without a frame are a pause.
PAUSE = 5

#: So many changes among them are no switch from one camera to another, but a mixture.
MIXED_CHANGES = 4


@dataclass(frozen=True)
class Arrival:
    """What a frame's arrival means.

    `frame`: the newest that counts from now on, with the camera's `health` then; both None where
    none does (yet): `refusal` says why. `reset_reason`: why to forget all answers, or empty.
    """

    frame: Frame | None = None
    health: HealthState | None = None
    reset_reason: str = ""
    refusal: str = ""


class Intake:
    """Frames in, groups out, oldest dropped first. Thread-safe.

    `generation` counts the runs of frame time: it changes when image time or the clock goes
    backwards, and earlier evidence is then invalid. `changed` is the condition to
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
        self._looking_at: tuple[Frame, ...] = ()  # what Tier 0 has not spoken about yet
        self._unfit_segment = -1  # no group of it or an older one may be used any more
        self._limit = settings.queue_groups
        self._meter = meter
        self._sampler = Sampler(settings.fps, settings.jitter_s)
        self._monitor = HealthMonitor()
        self._queue: deque[tuple[Group, int, float]] = deque()  # with generation and timer
        self._clock_last_ns: int | None = None
        self._recent: deque[tuple[int, tuple[int, int], str]] = deque(maxlen=RECENT_FRAMES)

    def __len__(self) -> int:
        """Return how many groups wait."""
        return len(self._queue)

    def push(self, frame: Frame, now_ns: int) -> Arrival:
        """Take a frame that arrived at `now_ns`: order, Tier 0, sampling, queue."""
        began_s = self._meter.timer()
        with self._pushing:
            usable, seen = self._monitor.usable, False
            try:
                with self.changed:
                    reason = self.note_clock(now_ns)
                    self._meter.count("frames")
                    epoch = self._sampler.epoch
                    group = self._sample(frame)
                    taken = self._looking_at = self._sampler.taken
                    if self._sampler.epoch != epoch:
                        reason = "image time went backwards"
                        self._begin_generation()
                    usable = self._monitor.usable
                    for one in taken:
                        self._recent.append((one.stamp_ns, one.size, one.frame_id))
                    if group is not None:
                        self._enqueue(group, began_s)
                with self._meter.stage("health"):
                    for one in taken:
                        self._monitor.update(one)
                seen = True
            finally:
                with self.changed:
                    self._looking_at = ()
                    if not seen or self._monitor.usable != usable:
                        self._end_segment()
                    self._looked.notify_all()
            if not taken:
                return Arrival(None, None, reason, "image stamps do not advance")
            return Arrival(taken[-1], self._monitor.state(), reason)

    def _sample(self, frame: Frame) -> Group | None:
        sampler = self._sampler
        late, ahead = sampler.late, sampler.ahead
        group = sampler.push(frame)
        self._meter.drop("late", sampler.late - late)
        self._meter.drop("ahead", sampler.ahead - ahead)
        return group

    def fit(self, group: Group) -> bool:
        """Wait until Tier 0 has seen all of a group taken; return whether it may be used.

        It may not where one of its frames, or one since, made the camera unusable.
        """
        with self.changed:
            newest = group.frames[-1]
            self._looked.wait_for(lambda: all(one is not newest for one in self._looking_at))
            return group.segment > self._unfit_segment

    def note_clock(self, now_ns: int) -> str:
        """Return why to forget all answers if the clock began or stepped back, else empty."""
        with self._pushing, self.changed:
            last_ns, self._clock_last_ns = self._clock_last_ns, now_ns
            if last_ns == 0 and now_ns > CLOCK_BEGIN_NS:
                reason = "the clock began"
            elif last_ns is not None and now_ns < last_ns - CLOCK_JUMP_NS:
                reason = "the clock went backwards"
            else:
                return ""
            self.reset()
            return reason

    def reset(self) -> None:
        """Forget frames and groups; begin a new generation."""
        with self._pushing, self.changed:
            self._begin_generation()
            self._sampler.reset()

    def take(self, newest_only: bool = False) -> tuple[Group | None, int, bool]:
        """Return the next group (None if none waits), its generation, and whether more wait.

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

    def image_rate_hz(self, silent_s: float = 0.0) -> float:
        """Return frames per second of frame time, over the last 30; 0 before the second.

        A pause (more than PAUSE of the usual intervals) says nothing of the rate and is left out,
        once it is over. `silent_s`: no image has come for so long; beyond PAUSE of the usual
        intervals the rate is what one image in that time would be.
        """
        with self.changed:
            stamps_ns = [stamp_ns for stamp_ns, _, _ in self._recent]
        intervals_ns = [new - old for old, new in pairwise(stamps_ns)]
        limit_ns = PAUSE * median(intervals_ns or [0])
        counted = [interval for interval in intervals_ns if interval <= limit_ns]
        rate_hz = len(counted) * NS / sum(counted) if sum(counted) > 0 else 0.0
        return rate_hz if silent_s * rate_hz <= PAUSE else 1.0 / silent_s

    def mixture(self) -> str:
        """Return what is wrong where images of two cameras or sizes come in turn, else empty."""
        with self.changed:
            sizes = [size for _, size, _ in self._recent]
            names = [name for _, _, name in self._recent]
        if _changes(names) >= MIXED_CHANGES:
            return "images of several cameras come in turn: frame_id " + _listed(map(repr, names))
        if _changes(sizes) >= MIXED_CHANGES:
            shown = (f"{width}x{height}" for height, width in sizes)
            return "images of several sizes come in turn: " + _listed(shown)
        return ""

    def breaks(self) -> dict[str, int]:
        """Return how often windows were broken off by the images, by cause."""
        with self.changed:
            sampler = self._sampler
            return {"gaps": sampler.gaps, "resized": sampler.resized,
                    "switched": sampler.switched, "rewinds": sampler.rewinds}

    def _begin_generation(self) -> None:
        self.generation += 1
        self._monitor.reset()
        self._recent.clear()
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


def _changes(values: Sequence[object]) -> int:
    return sum(one != other for one, other in zip(values, values[1:], strict=False))


def _listed(values: Iterable[str]) -> str:
    return " and ".join(sorted(set(values)))
