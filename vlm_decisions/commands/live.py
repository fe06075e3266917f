"""`vlm-decisions run`: the runtime on a webcam or a video file, without ROS."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..decision import Decision
from ..files import resources
from ..frames import NS, Frame
from ..questions import Question, QuestionBook, questions_path
from ..runtime import Runtime
from ..runtime.log import DecisionLog
from ..runtime.settings import RuntimeSettings
from ..sources.source import Source, open_source
from ..viewer.table import Table

if TYPE_CHECKING:
    from ..viewer.local import LocalViewer

WINDOW = "vlm_decisions"

END_S = 30.0
"""At the end, a slow model has this long to finish the group in work."""


def make_book(questions: str | None, texts: Sequence[str]) -> QuestionBook:
    """Load the standing questions and add one per text, with ids ask_1, ask_2, ..."""
    book = QuestionBook.load(questions_path(questions)) if questions else QuestionBook()
    for number, text in enumerate(texts, 1):
        book.add(Question(id=f"ask_{number}", text=text))
    return book


def run_live(source: str, *, model: str = "sim_desk", questions: str | None = "desk",
             texts: Sequence[str] = (), log: str | None = None, view: bool = True,
             settings: RuntimeSettings | None = None, max_s: float | None = None,
             viewer: LocalViewer | None = None) -> Runtime:
    """Play `source` through the runtime at its own pace until it ends.

    Args:
        source: `webcam`, `webcam:N` or a video file.
        model: embedded name, local path or hub name.
        questions: shipped set or YAML file; None for none.
        texts: further yes/no questions.
        log: JSONL file to append every decision to.
        settings: of the runtime.
        view: show the picture in a window, where there is a display.
        max_s: stop after so many seconds.
        viewer: page to show it on; it is stopped at the end.

    Returns:
        The stopped runtime, for its statistics.

    Raises:
        SourceError, QuestionError, EngineError, OSError: what cannot be opened, by name.
    """
    def load() -> object:
        from ..engine.engine import Engine

        return Engine.load(model)

    frames = open_source(source)
    book = make_book(questions, texts)
    watch = _Watch(view and _display())
    writer = DecisionLog(log) if log else None

    said: set[str] = set()

    def complain(message: str) -> None:
        if message not in said:  # a repeated fault is reported once
            said.add(message)
            print(message, file=sys.stderr)

    runtime = Runtime(load, book, on_decision=watch.take, on_error=complain, settings=settings,
                      head_paths=[resources.share_dir() / "heads"])
    unlisten = runtime.listen(writer.write) if writer else lambda: None
    runtime.start()
    try:
        if viewer:
            viewer.start(runtime, book.events)
        runtime.wait_ready()
        _play(frames, runtime, watch, max_s, viewer)
        # The newest groups are still in work.
        end = time.monotonic() + 2.0
        while runtime.stats().queue and time.monotonic() < end:
            time.sleep(0.02)
    except KeyboardInterrupt:
        pass
    finally:
        if viewer:
            viewer.stop()
        if not runtime.stop(END_S):
            print(f"the model did not end within {END_S:g} s", file=sys.stderr)
        unlisten()  # what is answered after that has no log
        watch.close()
        if writer:
            writer.close()
    return runtime


def _play(frames: Source, runtime: Runtime, watch: _Watch, max_s: float | None,
          viewer: LocalViewer | None) -> None:
    start_ns = time.time_ns()
    checked = 0.0
    while not frames.ended:
        taken = frames.next()
        if taken is None:
            runtime.check_freshness()
            continue
        rgb, t_s = taken
        if max_s is not None and t_s > max_s:
            break
        stamp_ns = start_ns + round(t_s * NS)
        wait_s = (stamp_ns - time.time_ns()) / NS
        if wait_s > 0:
            time.sleep(wait_s)
        frame = Frame(rgb, stamp_ns, "camera", time.time_ns())
        runtime.push(frame)
        if viewer:
            viewer.frame(frame)
        if time.monotonic() - checked > 0.2:
            checked = time.monotonic()
            runtime.check_freshness()
        if watch.show(frame, runtime.questions()):
            break


class _Watch:
    """The newest decisions on the terminal and, where there is a display, over the picture."""

    def __init__(self, window: bool) -> None:
        self._window = window
        self._lock = threading.Lock()
        self._newest: dict[str, Decision] = {}
        self._times: dict[str, deque[int]] = {}
        self._table = Table(sys.stdout)

    def take(self, decision: Decision) -> None:
        with self._lock:
            self._newest[decision.question_id] = decision
            times = self._times.setdefault(decision.question_id, deque(maxlen=12))
            if decision.t_end_ns and (not times or decision.t_end_ns > times[-1]):
                times.append(decision.t_end_ns)

    def show(self, frame: Frame, questions: Iterable[Question]) -> bool:
        """Draw; return whether the user closed the window (q or Escape)."""
        with self._lock:
            newest = dict(self._newest)
            rates = {name: (len(t) - 1) * NS / (t[-1] - t[0])
                     for name, t in self._times.items() if len(t) > 1}
        self._table.show(newest.values(), None, rates)
        if not self._window:
            return False
        import cv2

        from ..viewer.overlay import draw

        picture = draw(frame.image, [q.id for q in questions], newest, time.time_ns())
        cv2.imshow(WINDOW, picture[..., ::-1])
        return cv2.waitKey(1) & 0xFF in (27, ord("q"))

    def close(self) -> None:
        self._table.done()
        if self._window:
            import cv2

            cv2.destroyAllWindows()


def _display() -> bool:
    """Whether a window can be shown; asking OpenCV where it cannot would end the process."""
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

