"""What decisions rested on, in files: a picture and the decision at each change, clips of events.

A folder of entries, each a folder `<frame time, ms>_<id>`, of a view with a name
`<frame time, ms>_<view>.<id>`: `decision.json` and `frame.jpg` (the newest frame that the decision
rests on), or for an event `event.json` and the bag `clip` (mcap: the newest frame of each group,
and the decisions as JSON). A thread of its own encodes and writes; what
it cannot keep up with is dropped and counted.
"""

from __future__ import annotations

import json
import queue
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..decision import UNKNOWN, Decision
from ..events import Event
from ..files.atomic import write_text
from ..files.extras import missing
from ..frames import NS, Frame
from ..kinds import in_view
from ..views import MAX_VIEWS
from .evidence import Look

MAX_JOBS = 64
"""Entries that may wait to be written; one more is dropped."""

WAIT_S = 5.0
"""A clip waits so much longer than its own time for frames that do not come, seconds."""

PICTURE_BYTES = 96_000_000
"""Frames kept for clips are no larger in all; the oldest go first."""


@dataclass(frozen=True)
class EvidenceSettings:
    """`max_bytes` of all entries; seconds of a clip before and after its event."""

    folder: Path
    max_bytes: int = 500_000_000
    before_s: float = 3.0
    after_s: float = 2.0


class EvidenceRecorder:
    """Records changes of answers, and events. Listener and watcher of a runtime; thread-safe.

    `announce` gets the path of each entry once it is whole, `complain` what cannot be written; both
    in the recorder's thread.
    """

    def __init__(self, settings: EvidenceSettings, announce: Callable[[Path], None],
                 complain: Callable[[str], None]) -> None:
        """Make the folder, and begin. Raises OSError."""
        self.settings = settings
        self._announce, self._complain = announce, complain
        settings.folder.mkdir(parents=True, exist_ok=True)
        self._sizes = {path: _size(path) for path in sorted(settings.folder.iterdir())
                       if path.is_dir()}
        self._lock = threading.Lock()
        self._frames: deque[tuple[str, Frame]] = deque()  # with the view's name
        self._bytes = 0
        self._decisions: deque[Decision] = deque(maxlen=4096)
        self._answers: dict[tuple[str, str], str] = {}
        self._jobs: queue.Queue[tuple[float, Decision | Event] | None] = queue.Queue(MAX_JOBS)
        self.dropped = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="evidence", daemon=True)
        self._thread.start()

    def look(self, look: Look) -> None:
        """Keep the frame of a look for a while."""
        with self._lock:
            lately = islice(reversed(self._frames), MAX_VIEWS)
            if any(view == look.view and frame is look.frame for view, frame in lately):
                return
            self._frames.append((look.view, look.frame))
            self._bytes += look.frame.image.nbytes
            while self._bytes > PICTURE_BYTES and len(self._frames) > 1:
                self._bytes -= self._frames.popleft()[1].image.nbytes

    def decision(self, decision: Decision) -> None:
        """Record a decision whose answer is another than the one before."""
        key = decision.view, decision.question_id
        with self._lock:
            self._decisions.append(decision)
            before = self._answers.get(key)
            self._answers[key] = decision.answer
        if decision.answer not in (UNKNOWN, before):
            self._put(decision)

    def event(self, event: Event) -> None:
        """Record an event, with a clip."""
        self._put(event)

    def cpu_s(self) -> float:
        """Return the CPU time that the recorder's thread has taken, in seconds."""
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what waits, clips with what there is, and end."""
        self._closing.set()
        self._jobs.put(None)
        self._thread.join(timeout_s)

    def _put(self, what: Decision | Event) -> None:
        try:
            self._jobs.put_nowait((time.monotonic(), what))
        except queue.Full:
            self.dropped += 1

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        clips: list[tuple[float, Event]] = []
        while True:
            try:
                job = self._jobs.get(timeout=0.1)
            except queue.Empty:
                job = ()
            if job and isinstance(job[1], Event):
                clips.append(job)
            elif job:
                self._keep(job[1])
            ended = job is None
            for clip in [one for one in clips if ended or self._is_over(*one)]:
                clips.remove(clip)
                self._keep(clip[1])
            if ended:
                return

    def _is_over(self, put_s: float, event: Event) -> bool:
        end_ns = event.t_end_ns + round(self.settings.after_s * NS)
        with self._lock:
            newest_ns = self._frames[-1][1].stamp_ns if self._frames else 0
        late = time.monotonic() - put_s > self.settings.after_s + WAIT_S
        return newest_ns >= end_ns or late

    def _keep(self, what: Decision | Event) -> None:
        """Write an entry whole, or nothing of it."""
        name = what.event_id if isinstance(what, Event) else what.question_id
        name = in_view(what.view, name) if what.view else name
        path = self.settings.folder / f"{what.t_end_ns // 1_000_000:015d}_{name}"
        try:
            frame = None if isinstance(what, Event) else self._frame_of(what)
            if frame is None and not isinstance(what, Event):
                return
            shutil.rmtree(path, ignore_errors=True)  # of a recording that is played again
            path.mkdir()
            if isinstance(what, Event):
                self._write_clip(path, what)
            else:
                (path / "frame.jpg").write_bytes(_jpeg(frame.image).tobytes())
                write_text(path / "decision.json", what.to_json() + "\n")
        except Exception as error:  # a full disk, say: the next may fit again
            shutil.rmtree(path, ignore_errors=True)
            self._sizes.pop(path, None)
            self._complain(f"evidence: {path.name}: {error}")
            return
        self._sizes[path] = _size(path)
        self._make_room()
        self._announce(path)

    def _frame_of(self, decision: Decision) -> Frame | None:
        with self._lock:
            return next((frame for view, frame in reversed(self._frames)
                         if view == decision.view and frame.stamp_ns == decision.t_end_ns), None)

    def _make_room(self) -> None:
        """Remove the oldest entries, but not the newest, until the rest fits."""
        while sum(self._sizes.values()) > self.settings.max_bytes and len(self._sizes) > 1:
            oldest = min(self._sizes)
            shutil.rmtree(oldest, ignore_errors=True)
            del self._sizes[oldest]

    def _write_clip(self, path: Path, event: Event) -> None:
        from ..sources.bag_writer import BagWriter

        settings = self.settings
        begin_ns = event.t_start_ns - round(settings.before_s * NS)
        end_ns = event.t_end_ns + round(settings.after_s * NS)
        with self._lock:
            frames = [(view, frame) for view, frame in self._frames
                      if begin_ns <= frame.stamp_ns <= end_ns]
            decisions = [one for one in self._decisions if begin_ns <= one.t_end_ns <= end_ns]
        with BagWriter(path / "clip") as bag:
            written: list[tuple[int, str, str, dict[str, Any]]] = [
                (frame.stamp_ns, f"/{view or 'camera'}/image/compressed",
                 "sensor_msgs/msg/CompressedImage", _message(frame)) for view, frame in frames]
            written += [(one.t_end_ns, "/decisions_json", "std_msgs/msg/String",
                         {"data": one.to_json()}) for one in decisions]
            for stamp_ns, topic, kind, fields in sorted(written, key=lambda one: one[0]):
                bag.write(topic, kind, stamp_ns, fields)
        write_text(path / "event.json", json.dumps(event.to_dict(), ensure_ascii=False) + "\n")


def check_clips() -> None:
    """Raise ValueError, saying what to install, where clips cannot be written."""
    from ..sources.bag_writer import types

    try:
        types()
    except ImportError as error:
        raise ValueError(f"evidence_dir, clips of events: {missing(error)}") from error


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _jpeg(rgb: np.ndarray) -> np.ndarray:
    import cv2

    return cv2.imencode(".jpg", np.ascontiguousarray(rgb[..., ::-1]),
                        [cv2.IMWRITE_JPEG_QUALITY, 90])[1].reshape(-1)


def _message(frame: Frame) -> dict[str, Any]:
    sec, nanosec = divmod(frame.stamp_ns, NS)
    return {"header": {"stamp": {"sec": sec, "nanosec": nanosec}, "frame_id": frame.frame_id},
            "format": "rgb8; jpeg compressed bgr8", "data": _jpeg(frame.image)}
