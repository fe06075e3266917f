"""
Frames, and the 2-frame groups sampled from them on frame time.

Frame time is what the camera stamped (integer nanoseconds), never the time of arrival: a
slow network, a fast replay and a live camera then give the same groups.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

import numpy as np

NS = 1_000_000_000

#: Frames a second that are looked at, if nothing else is said; two of them make a group.
FPS = 8.0

#: How the last groups are held: as a running state, or as a window that is computed anew.
MODES = ("stream", "window")

#: Cameras slower than this give no groups: two frames further apart are not one motion.
MAX_INTERVAL_S = 1.0


class FrameError(ValueError):
    """An image or stamp that cannot be a frame."""


@dataclass(frozen=True, eq=False)
class Frame:
    """
    One camera image.

    `image` is uint8 (H, W, 3) RGB and is not written to afterwards, `stamp_ns` the frame time,
    `frame_id` the camera's TF frame, `received_ns` the node's clock at arrival (0 where that does
    not matter). Raises FrameError.
    """

    image: np.ndarray
    stamp_ns: int
    frame_id: str = ""
    received_ns: int = 0

    def __post_init__(self) -> None:
        """Refuse what no later stage could use, here, where the cause is still known."""
        image = self.image
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
            kind = getattr(image, "dtype", type(image).__name__)
            raise FrameError(f"a frame's image must be a uint8 array, not {kind}")
        if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise FrameError(f"a frame's image must be (H, W, 3), not {image.shape}")
        if isinstance(self.stamp_ns, bool) or not isinstance(self.stamp_ns, (int, np.integer)):
            raise FrameError(f"a frame's stamp must be integer nanoseconds, not {self.stamp_ns!r}")

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return self.image.shape[0], self.image.shape[1]


@dataclass(frozen=True, eq=False)
class Group:
    """
    Two successive sampled frames: the unit that the vision encoder sees.

    `segment` changes whenever contiguity breaks (gap, reset, size change), `epoch` only when
    time went backwards; `index` counts from 0 within the segment.
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


class Sampler:
    """
    Take `fps` frames a second of frame time and pair them into groups.

    Sampling follows a grid of 1/fps: of the frames around a grid point the nearest is taken, so
    the mean rate is kept for cameras of any faster rate (10, 25, 30 fps) and under jitter.

    Contiguity is judged on the frames that arrive: an interval longer than the expected one plus
    `jitter_s` is a gap, where the expected interval is 1/fps, or the camera's own (median of its
    last 5) if that is slower. So a 30 fps camera may lose a few frames unnoticed, a lost frame of
    an 8 or a 5 fps camera is a gap, and a 5 fps camera makes groups at its own rate after its
    first interval has been learnt. Intervals above MAX_INTERVAL_S + jitter are always gaps.

    A frame at most `jitter_s` older than the newest arrived late (or twice) and is ignored;
    further back, time went backwards (bag loop, simulation reset): new epoch, new segment.
    Counters: `gaps`, `late`, `rewinds`, `resized` (new segments or ignored frames, by cause).
    """

    def __init__(self, fps: float = FPS, jitter_s: float = 0.05) -> None:
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
        self.gaps = self.late = self.rewinds = self.resized = 0
        self._intervals: deque[int] = deque(maxlen=5)
        self._last: Frame | None = None
        self._first: Frame | None = None
        self._due_ns = 0
        self._index = 0

    def reset(self) -> None:
        """Forget the frames seen; the next one starts a new segment of the same epoch."""
        self._intervals.clear()
        self._last = None
        self.break_segment()

    def break_segment(self) -> None:
        """Start a new segment at the next sampled frame (a group was lost further on)."""
        self.segment += 1
        self._first = None
        self._index = 0

    def push(self, frame: Frame) -> Group | None:
        """Take a frame; return the group that it completes, or None."""
        last = self._last
        if last is None:
            self._last = frame
            return self._take(frame, anchor=True)
        interval = frame.stamp_ns - last.stamp_ns
        if -self.jitter_ns <= interval <= 0:
            self.late += 1
            return None
        self._last = frame
        if interval < 0:
            self.rewinds += 1
            self.epoch += 1
            self._intervals.clear()
            self.break_segment()
            return self._take(frame, anchor=True)
        gap = interval > self._gap_ns()
        if interval <= self._max_interval_ns + self.jitter_ns:
            self._intervals.append(interval)
        if gap or frame.size != last.size:
            self.gaps += gap
            self.resized += not gap
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
