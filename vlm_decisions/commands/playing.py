"""Cameras played into a runtime at their own pace, a thread each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from ..frames import NS, Frame
from ..runtime import Runtime
from ..sources.source import Source

LATE_S = 0.5
"""Frames of a video file that are later than this are passed over, so that the newest is of now."""

LOOK_S = 0.05
CHECK_S = 0.2
"""Times between two looks at the display, and at the freshness of the answers, seconds."""

Camera = tuple[str, str]


def play(sources: Mapping[Camera, Source], runtime: Runtime, tell: Callable[[str], None], *,
         taken: Callable[[Frame, Camera, float], None] = lambda frame, camera, t_s: None,
         closed: Callable[[], bool] = lambda: False, max_s: float | None = None) -> None:
    """Push frames until every source has ended, `closed` says so, or `max_s` seconds are over.

    `sources`: by the views' camera; files among them keep one pace. `taken`: gets each frame with
    its time in the source, in the thread of its camera. `tell`: gets what a live source says of
    itself. Raises what a source raises.
    """
    pace = _Pace()
    players = [_Player(frames, camera, runtime, pace, tell, taken)
               for camera, frames in sources.items()]
    end_s = time.monotonic() + (max_s or float("inf"))
    for player in players:
        player.start()
    checked_s = 0.0
    try:
        while any(player.is_alive() for player in players) and time.monotonic() < end_s:
            if time.monotonic() - checked_s > CHECK_S:
                checked_s = time.monotonic()
                runtime.check_freshness()
            if closed() or any(player.error for player in players):
                break
            time.sleep(LOOK_S)
    finally:
        pace.over.set()
        for player in players:
            player.join()
    for player in players:
        if player.error is not None:
            raise player.error


class _Pace:
    """When frames are due: on the system's clock, files from one moment on."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.file_ns = time.time_ns()  # when a file's second 0 is
        self.steady_ns = time.time_ns() - time.monotonic_ns()
        self._lock = threading.Lock()

    def slow_down(self, late_s: float) -> None:
        """Play files later by so much: one of them cannot even be decoded at its pace."""
        with self._lock:
            self.file_ns += round(late_s * NS)


class _Player(threading.Thread):
    """Plays one camera; `error`: what ended it."""

    def __init__(self, frames: Source, camera: Camera, runtime: Runtime, pace: _Pace,
                 tell: Callable[[str], None],
                 taken: Callable[[Frame, Camera, float], None]) -> None:
        super().__init__(name=f"camera {camera[0]}", daemon=True)
        self._frames, self._camera, self._runtime = frames, camera, runtime
        self._pace, self._tell, self._taken = pace, tell, taken
        self._live = hasattr(frames, "trouble")
        self._trouble = ""
        self.error: Exception | None = None

    def run(self) -> None:
        """Play until the source ends or the others do."""
        try:
            while not self._frames.ended and not self._pace.over.is_set():
                self._step()
        except Exception as error:
            self.error = error

    def _step(self) -> None:
        frames, pace = self._frames, self._pace
        late_s = (time.time_ns() - pace.file_ns) / NS - LATE_S
        found = frames.next() if self._live else frames.next(max(late_s, 0.0))
        if self._live and frames.trouble != self._trouble:
            self._trouble = frames.trouble
            self._tell(f"{self._trouble}; trying again" if self._trouble
                       else f"{frames.name} is back")
        if found is None:
            return
        rgb, t_s = found
        stamp_ns = self._stamp_ns(t_s)
        ahead_s = (stamp_ns - time.time_ns()) / NS
        if ahead_s < -LATE_S and not self._live:
            pace.slow_down(-ahead_s)
            stamp_ns = self._stamp_ns(t_s)
        if ahead_s > 0 and pace.over.wait(ahead_s):
            return
        frame = Frame(rgb, stamp_ns, self._camera[0] or "camera", time.time_ns(),
                      getattr(frames, "motion", None))
        self._runtime.push(frame, self._camera)
        self._taken(frame, self._camera, t_s)

    def _stamp_ns(self, t_s: float) -> int:
        """Return a stamp; times of a live source are steady, those of a file begin at 0."""
        return (self._pace.steady_ns if self._live else self._pace.file_ns) + round(t_s * NS)
