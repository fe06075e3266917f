"""The input side: camera health, sampling, and the bounded queues of groups."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ..frames import MAX_INTERVAL_S, NS, Frame, Group, Sampler, StampOrder
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
    """The frames of one camera: their order, its health, and the queues of those that sample it.

    `generation` counts the runs of frame time: it changes when image time or the clock goes
    backwards, and earlier evidence is then invalid. `changed` is the condition to
    wait on; it is notified when a group is queued. Thread-safe.

    A group is queued before its newest frame has been through Tier 0, so that the vision encoder
    need not wait for that; nothing may be made of its features before `fit` says so.
    """

    def __init__(
        self, settings: RuntimeSettings, meter: Meter, changed: threading.Condition | None = None
    ) -> None:
        """Start empty. `changed`: shared with other cameras that the same thread waits for."""
        self.changed = changed or threading.Condition(threading.RLock())
        self._looked = threading.Condition(threading.Lock())  # Tier 0 is done with a frame
        self.generation = 0
        self._pushing = threading.RLock()  # frames one by one; taken before `changed`
        self._looking_at: tuple[Frame, ...] = ()  # what Tier 0 has not spoken about yet
        self._meter = meter
        self._order = StampOrder(1.0 / settings.fps, settings.jitter_s)
        self._monitor = HealthMonitor()
        self._queues: tuple[GroupQueue, ...] = ()
        self._clock_last_ns: int | None = None
        self._recent: deque[tuple[int, tuple[int, int], str]] = deque(maxlen=RECENT_FRAMES)

    def open(self, settings: RuntimeSettings, meter: Meter | None = None) -> GroupQueue:
        """Return a new queue of groups, sampled as the settings say."""
        queue = GroupQueue(settings, meter or self._meter, self)
        with self._pushing, self.changed:
            self._queues = (*self._queues, queue)
        return queue

    def close(self, queue: GroupQueue) -> None:
        """Take a queue out."""
        with self._pushing, self.changed:
            self._queues = tuple(one for one in self._queues if one is not queue)

    def push(self, frame: Frame, now_ns: int) -> Arrival:
        """Take a frame that arrived at `now_ns`: order, Tier 0, sampling, queues."""
        began_s = self._meter.timer()
        with self._pushing:
            usable, seen = self._monitor.usable, False
            try:
                with self.changed:
                    reason = self.note_clock(now_ns)
                    self._meter.count("frames")
                    rewinds = self._order.rewinds
                    taken = self._looking_at = self._ordered(frame)
                    if self._order.rewinds != rewinds:
                        reason = "image time went backwards"
                        self._begin_generation()
                        for queue in self._queues:
                            queue.sampler.rewind()
                    usable = self._monitor.usable
                    for one in taken:
                        self._recent.append((one.stamp_ns, one.size, one.frame_id))
                    for queue in self._queues:
                        queue.feed(taken, usable, began_s)
                with self._meter.stage("health"):
                    for one in taken:
                        self._monitor.update(one)
                seen = True
            finally:
                with self.changed:
                    if not seen or self._monitor.usable != usable:
                        for queue in self._queues:
                            queue.end_segment()
                    with self._looked:
                        self._looking_at = ()
                        self._looked.notify_all()
            if not taken:
                return Arrival(None, None, reason, "image stamps do not advance")
            return Arrival(taken[-1], self._monitor.state(), reason)

    def _ordered(self, frame: Frame) -> tuple[Frame, ...]:
        late, ahead = self._order.late, self._order.ahead
        taken = tuple(self._order.push(frame))
        self._meter.drop("late", self._order.late - late)
        self._meter.drop("ahead", self._order.ahead - ahead)
        return taken

    def wait_seen(self, frame: Frame) -> None:
        """Wait until Tier 0 has seen a frame."""
        with self._looked:
            self._looked.wait_for(lambda: all(one is not frame for one in self._looking_at))

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
            self._order.reset()
            for queue in self._queues:
                queue.sampler.reset()

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the newest frame; None where there is none since frame time began."""
        with self.changed:
            return self._recent[-1][1] if self._recent else None

    def image_rate_hz(self, silent_s: float = 0.0) -> float:
        """Return frames per second of frame time, over the last 30; 0 before the second.

        A pause (more than PAUSE of the usual intervals) says nothing of the rate and is left out,
        once it is over. `silent_s`: no image has come for so long; beyond PAUSE of the usual
        intervals the rate is what one image in that time would be.
        """
        rate_hz = self._usual_hz()
        return rate_hz if silent_s * rate_hz <= PAUSE else 1.0 / silent_s

    def silent(self, silent_s: float) -> bool:
        """Return whether images have stopped, none having come for `silent_s`.

        That is a pause which is as long as images may be apart at all, or longer.
        """
        return silent_s > MAX_INTERVAL_S and silent_s * self._usual_hz() > PAUSE

    def _usual_hz(self) -> float:
        intervals_ns = self._intervals_ns()
        limit_ns = PAUSE * median(intervals_ns or [0])
        counted = [interval for interval in intervals_ns if interval <= limit_ns]
        return len(counted) * NS / sum(counted) if sum(counted) > 0 else 0.0

    def _intervals_ns(self) -> list[int]:
        with self.changed:
            return [new[0] - old[0] for old, new in pairwise(self._recent)]

    def mixture(self) -> str:
        """Return what is wrong where images of two cameras or sizes come in turn, else empty.

        What came before the last pause says nothing of the cameras that are there now.
        """
        with self.changed:
            intervals_ns = self._intervals_ns()
            limit_ns = max(PAUSE * median(intervals_ns or [0]), MAX_INTERVAL_S * NS)
            begin = max((k for k, interval in enumerate(intervals_ns, 1) if interval > limit_ns),
                        default=0)
            recent = list(self._recent)[begin:]
        sizes = [size for _, size, _ in recent]
        names = [name for _, _, name in recent]
        if _changes(names) >= MIXED_CHANGES:
            return "images of several cameras come in turn: frame_id " + _listed(map(repr, names))
        if _changes(sizes) >= MIXED_CHANGES:
            shown = (f"{width}x{height}" for height, width in sizes)
            return "images of several sizes come in turn: " + _listed(shown)
        return ""

    def rewinds(self) -> int:
        """Return how often image time went backwards."""
        return self._order.rewinds

    def _begin_generation(self) -> None:
        self.generation += 1
        self._monitor.reset()
        self._recent.clear()
        for queue in self._queues:
            queue.clear("reset")


class GroupQueue:
    """The groups of one view that wait, oldest dropped first. Thread-safe."""

    def __init__(self, settings: RuntimeSettings, meter: Meter, intake: Intake) -> None:
        """Belong to an intake, which feeds it."""
        self.sampler = Sampler(settings.fps, settings.jitter_s)
        self._intake = intake
        self._changed = intake.changed
        self._limit = settings.queue_groups
        self._meter = meter
        self._unfit_segment = -1  # no group of it or an older one may be used any more
        self._waiting: deque[tuple[Group, int, float]] = deque()  # with generation and timer

    def __len__(self) -> int:
        """Return how many groups wait."""
        return len(self._waiting)

    def feed(self, frames: Iterable[Frame], usable: bool, began_s: float) -> None:
        """Sample frames in order; under `changed`. `began_s`: when they arrived."""
        for frame in frames:
            group = self.sampler.sample(frame)
            if group is not None and not usable:
                self._meter.drop("unusable")
            elif group is not None:
                self._enqueue(group, began_s)

    def fit(self, group: Group) -> bool:
        """Wait until Tier 0 has seen all of a group taken; return whether it may be used.

        It may not where one of its frames, or one since, made the camera unusable.
        """
        self._intake.wait_seen(group.frames[-1])
        with self._changed:
            return group.segment > self._unfit_segment

    def take(self, newest_only: bool = False) -> tuple[Group | None, int, bool]:
        """Return the next group (None if none waits), its generation, and whether more wait.

        `newest_only` drops those that wait before the newest.
        """
        with self._changed:
            while newest_only and len(self._waiting) > 1:
                self._waiting.popleft()
                self._meter.drop("catch_up")
            if not self._waiting:
                return None, self._intake.generation, False
            group, generation, queued_s = self._waiting.popleft()
            self._meter.note("wait", self._meter.timer() - queued_s)
            return group, generation, bool(self._waiting)

    def breaks(self) -> dict[str, int]:
        """Return how often windows were broken off by the images, by cause."""
        with self._changed:
            sampler = self.sampler
            return {"gaps": sampler.gaps, "resized": sampler.resized,
                    "switched": sampler.switched, "rewinds": self._intake.rewinds()}

    def clear(self, cause: str) -> None:
        """Drop the groups that wait."""
        self._meter.drop(cause, len(self._waiting))
        self._waiting.clear()

    def end_segment(self) -> None:
        """Unusable frames have no place in a window, before or after."""
        self._unfit_segment = self.sampler.segment
        self.sampler.break_segment()
        self.clear("unusable")

    def _enqueue(self, group: Group, began_s: float) -> None:
        self._meter.count("groups")
        if len(self._waiting) >= self._limit:
            # The worker sees from the group's index that the window is not contiguous any more.
            self._waiting.popleft()
            self._meter.drop("queue")
        now_s = self._meter.timer()
        self._meter.note("intake", now_s - began_s)
        self._waiting.append((group, self._intake.generation, now_s))
        self._changed.notify_all()


def _changes(values: Sequence[object]) -> int:
    return sum(one != other for one, other in zip(values, values[1:], strict=False))


def _listed(values: Iterable[str]) -> str:
    return " and ".join(sorted(set(values)))
