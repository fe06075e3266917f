"""Frames, and the 2-frame groups sampled from them on frame time.

Frame time is what the camera stamped (integer nanoseconds), never the time of arrival: a
slow network, a fast replay and a live camera then give the same groups.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

import numpy as np

from .motion import CodedMotion

NS = 1_000_000_000

#: Default number of frames sampled per second; two of them make a group.
FPS = 8.0

#: What a question sees: the last groups, as a running state or as a window computed anew, or the
#: newest image alone, which decision models do. auto: stream, or image for such a model.
MODES = ("auto", "stream", "window", "image")

#: Cameras slower than this give no groups: two frames further apart are not one motion.
MAX_INTERVAL_S = 1.0


class InvalidFrameError(ValueError):
    """An image or stamp that cannot be a frame."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One camera image.

    Attributes:
        image: uint8 (H, W, 3) RGB; not written to afterwards.
        stamp_ns: frame time.
        frame_id: the camera's TF frame.
        received_ns: the node's clock at arrival, 0 if it does not matter.
        motion: what the video's coding says has changed up to it; None where it does not tell.

    Raises:
        InvalidFrameError: an image or stamp that cannot be a frame.
    """

    image: np.ndarray
    stamp_ns: int
    frame_id: str = ""
    received_ns: int = 0
    motion: CodedMotion | None = None

    def __post_init__(self) -> None:
        """Refuse here, where the cause is known, what no later stage could use."""
        image = self.image
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
            kind = getattr(image, "dtype", type(image).__name__)
            raise InvalidFrameError(f"a frame's image must be a uint8 array, not {kind}")
        if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise InvalidFrameError(f"a frame's image must be (H, W, 3), not {image.shape}")
        if isinstance(self.stamp_ns, bool) or not isinstance(self.stamp_ns, (int, np.integer)):
            raise InvalidFrameError(
                f"a frame's stamp must be integer nanoseconds, not {self.stamp_ns!r}")

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return self.image.shape[0], self.image.shape[1]


@dataclass(frozen=True, eq=False)
class Group:
    """Two successive sampled frames: the unit of the vision encoder.

    Attributes:
        frames: the older and the newer one.
        index: number of the group within the segment, from 0.
        segment: changes whenever contiguity breaks (gap, reset, size change).
        epoch: changes only when time went backwards.
    """

    frames: tuple[Frame, Frame]
    segment: int
    epoch: int
    index: int

    @property
    def t_start_ns(self) -> int:
        """Stamp of the older frame."""
        return self.frames[0].stamp_ns

    @property
    def t_end_ns(self) -> int:
        """Stamp of the newer frame."""
        return self.frames[1].stamp_ns

    @property
    def t_mid_s(self) -> float:
        """Mean time of the two frames, seconds of frame time."""
        return (self.t_start_ns + self.t_end_ns) / (2 * NS)


class StampOrder:
    """Put a camera's frames in the order of their stamps, and tell stray stamps from a new time.

    One frame proves nothing: the network swaps frames, and a driver stamps one wrongly now and
    then. So what does not follow on waits for the frame after it:

    - a frame older than the newest by at most `jitter_s`, or by twice the camera's own interval
      (median of its last 5), came late and is dropped;
    - one further back is held: time has gone backwards (bag loop, simulation reset) where the next
      is back there, too; else its stamp was wrong, and it is dropped;
    - one ahead by more than the expected interval (`period_s`, or the camera's own if longer) plus
      `jitter_s` is held until the next: it stays where that comes after it, or where it follows on
      from that (the two were swapped); else its stamp was wrong, and it is dropped.

    Counters: `late` (frames that came after a newer one, dropped or put in order), `ahead` (frames
    dropped because their stamp was ahead), `rewinds`.
    """

    def __init__(self, period_s: float = 0.125, jitter_s: float = 0.05) -> None:
        """Both in seconds."""
        self._period_ns, self._jitter_ns = round(period_s * NS), round(jitter_s * NS)
        self.late = self.ahead = self.rewinds = 0
        self.reset()

    def reset(self) -> None:
        """Forget earlier frames: the next one is accepted as it is."""
        self._newest_ns: int | None = None
        self._held: Frame | None = None
        self._intervals: deque[int] = deque(maxlen=5)

    def push(self, frame: Frame) -> list[Frame]:
        """Take a frame; return those that count from now on, in order: none, it, or two.

        Where `rewinds` has grown, they are the first of a new time.
        """
        if self._newest_ns is None:
            return [self._follow(frame)]
        held, self._held = self._held, None
        if held is not None and held.stamp_ns > self._newest_ns:
            return self._after_ahead(held, frame)
        back_ns = self._newest_ns - frame.stamp_ns
        if 0 <= back_ns <= max(self._jitter_ns, 2 * self._interval_ns()):
            self._held = held
            self.late += 1
            return []
        if back_ns < 0:
            self.late += held is not None  # the one frame that was back
            return self._forward(frame)
        if held is not None and held.stamp_ns < frame.stamp_ns:
            self.rewinds += 1
            self.reset()
            return [self._follow(held), *self._forward(frame)]
        self.late += held is not None
        self._held = frame
        return []

    def _after_ahead(self, held: Frame, frame: Frame) -> list[Frame]:
        if frame.stamp_ns > held.stamp_ns:
            return [self._follow(held), *self._forward(frame)]
        if frame.stamp_ns <= self._newest_ns or frame.stamp_ns == held.stamp_ns:
            taken = self.push(frame)  # late or back: nothing is said of the one held
            self._held = self._held or held
            return taken
        limit_ns = self._limit_ns()
        taken = [self._follow(frame)]
        if held.stamp_ns - frame.stamp_ns <= limit_ns:
            self.late += 1  # swapped
            return [*taken, self._follow(held)]
        self.ahead += 1
        return taken

    def _forward(self, frame: Frame) -> list[Frame]:
        if frame.stamp_ns - self._newest_ns > self._limit_ns():
            self._held = frame
            return []
        return [self._follow(frame)]

    def _follow(self, frame: Frame) -> Frame:
        if self._newest_ns is not None:
            self._intervals.append(frame.stamp_ns - self._newest_ns)
        self._newest_ns = frame.stamp_ns
        return frame

    def _interval_ns(self) -> int:
        return int(median(self._intervals)) if self._intervals else 0

    def _limit_ns(self) -> int:
        return max(self._period_ns, self._interval_ns()) + self._jitter_ns


class Sampler:
    """Take `fps` frames a second of frame time and pair them into groups.

    Sampling follows a grid of 1/fps: of the frames around a grid point the nearest is taken, so
    the mean rate is kept for cameras of any faster rate (10, 25, 30 fps) and under jitter.

    Frames go through a StampOrder first; `taken` holds those that the last push made count.
    Contiguity is judged on them: an interval longer than the expected one plus
    `jitter_s` is a gap, where the expected interval is 1/fps, or the camera's own (median of its
    last 5) if that is slower. So a 30 fps camera may lose a few frames unnoticed, a lost frame of
    an 8 or a 5 fps camera is a gap, and a 5 fps camera makes groups at its own rate after its
    first interval has been learnt. Intervals above MAX_INTERVAL_S + jitter are always gaps.

    Another size or another `frame_id` (two cameras on one topic) begins a new segment; time going
    backwards a new epoch, too. Counters, by cause: `gaps`, `resized`, `switched` (another
    frame_id), `rewinds` (new segments), `late`, `ahead` (frames; see StampOrder).
    """

    def __init__(self, fps: float = 8.0, jitter_s: float = 0.05) -> None:
        """`fps` in frames per second of frame time, `jitter_s` in seconds. Raises ValueError."""
        if not 0.1 <= fps <= 240.0:
            raise ValueError(f"fps must be between 0.1 and 240, not {fps!r}")
        if not 0.0 <= jitter_s <= 1.0:
            raise ValueError(f"jitter_s must be between 0 and 1, not {jitter_s!r}")
        self.period_ns = round(NS / fps)
        self.jitter_ns = round(jitter_s * NS)
        self._max_interval_ns = max(round(MAX_INTERVAL_S * NS), self.period_ns)
        self.epoch = 0
        self.segment = 0
        self.gaps = self.resized = self.switched = 0
        self.taken: tuple[Frame, ...] = ()
        self._order = StampOrder(1.0 / fps, jitter_s)
        self._intervals: deque[int] = deque(maxlen=5)
        self._last: Frame | None = None
        self._first: Frame | None = None
        self._due_ns = 0
        self._index = 0

    @property
    def late(self) -> int:
        """Frames that came after a newer one."""
        return self._order.late

    @property
    def ahead(self) -> int:
        """Frames dropped because their stamp was ahead of those around them."""
        return self._order.ahead

    @property
    def rewinds(self) -> int:
        """How often time went backwards."""
        return self._order.rewinds

    def reset(self) -> None:
        """Forget earlier frames; the next one starts a new segment of the same epoch."""
        self._order.reset()
        self._intervals.clear()
        self._last = None
        self.break_segment()

    def break_segment(self) -> None:
        """Start a new segment at the next sampled frame (a group was lost later on)."""
        self.segment += 1
        self._first = None
        self._index = 0

    def push(self, frame: Frame) -> Group | None:
        """Process a frame; return the group that is complete now, or None."""
        rewinds = self._order.rewinds
        self.taken = tuple(self._order.push(frame))
        if self._order.rewinds != rewinds:
            self.rewind()
        group = None
        for one in self.taken:  # of two in a row, only one can be the second of a pair
            group = self.sample(one) or group
        return group

    def rewind(self) -> None:
        """Begin a new epoch: time has gone backwards."""
        self.epoch += 1
        self._intervals.clear()
        self._last = None
        self.break_segment()

    def sample(self, frame: Frame) -> Group | None:
        """Process a frame that is in order already; return the group complete now, or None."""
        last, self._last = self._last, frame
        if last is None:
            return self._take(frame, anchor=True)
        interval = frame.stamp_ns - last.stamp_ns
        gap = interval > self._gap_ns()
        if interval <= self._max_interval_ns + self.jitter_ns:
            self._intervals.append(interval)
        resized, switched = frame.size != last.size, frame.frame_id != last.frame_id
        if gap or resized or switched:
            self.gaps += gap
            self.resized += resized and not gap
            self.switched += switched and not gap
            self.break_segment()
            return self._take(frame, anchor=True)
        # Half the camera's own interval early is nearer to the grid point than the next frame.
        if frame.stamp_ns < self._due_ns - min(self.jitter_ns, interval // 2):
            return None
        return self._take(frame)

    def _gap_ns(self) -> int:
        expected = median(self._intervals) if self._intervals else 0
        return int(max(self.period_ns, expected)) + self.jitter_ns

    def _take(self, frame: Frame, anchor: bool = False) -> Group | None:
        self._due_ns += self.period_ns
        # A whole period behind the grid (slow camera): anchor again, else it would catch up in a
        # burst as soon as the camera gets faster.
        if anchor or self._due_ns < frame.stamp_ns:
            self._due_ns = frame.stamp_ns + self.period_ns
        if self._first is None:
            self._first = frame
            return None
        group = Group((self._first, frame), self.segment, self.epoch, self._index)
        self._first = None
        self._index += 1
        return group
