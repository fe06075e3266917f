"""`vlm-decisions run`: the runtime on webcams, network streams, videos or a bag, without ROS."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import Commands, port, positive, reuse_arguments, reuse_settings
from .sources import warn_of_scope

if TYPE_CHECKING:
    from ..decision import Decision
    from ..frames import Frame
    from ..question_book import QuestionBook
    from ..runtime import Runtime
    from ..runtime.log import DecisionLog
    from ..runtime.settings import RuntimeSettings
    from ..runtime.statistics import RuntimeStats
    from ..sources.source import Source
    from ..sources.truth import Truth
    from ..viewer.local import LocalViewer

WINDOW = "vlm_decisions"

END_S, SOON_S = 30.0, 5.0
"""At the end, and after an interrupt, a slow model has this long to finish the group in work."""


def add(commands: Commands) -> None:
    live = commands.add_parser(
        "run", help="the runtime on a webcam, a stream or a video file, without ROS",
        example="--source webcam --ask 'Is the door open?' --viewer")
    live.add_argument("--source", required=True, action="append", metavar="webcam|URL|FILE|BAG",
                      help="webcam, webcam:N, rtsp://..., a video file or a bag; of several "
                      "cameras IMAGE=SOURCE for each, IMAGE as the views name it, or one bag")
    live.add_argument("--topic", metavar="T", help="image topic of a bag that holds several")
    live.add_argument("--partial", action="store_true",
                      help="play what is whole of a bag that is cut off")
    live.add_argument("--model", default="sim_desk",
                      help="embedded name, local path or hub name [sim_desk]")
    live.add_argument("--questions", metavar="F", default=None,
                      help="shipped set or YAML file [desk, or none with --ask]")
    live.add_argument("--views", metavar="F",
                      help="YAML file of views [those of the questions' file]")
    live.add_argument("--ask", action="append", default=[], metavar="TEXT",
                      help="a further yes/no question; may be repeated")
    live.add_argument("--log", metavar="F", help="append every decision to F, a JSON object a line")
    live.add_argument("--no-view", action="store_true", help="no window")
    live.add_argument("--viewer", action="store_true",
                      help="serve a page that shows it (and no window); it stays until Ctrl-C")
    live.add_argument("--port", type=port, default=8321, help="of the page [8321]")
    live.add_argument("--truth", metavar="F", help="what is true in the recording, for the page "
                      "with a running score: a YAML file, or a topic of the bag")
    reuse_arguments(live)
    live.add_argument("--seconds", type=positive, default=None, help="stop after so long")
    live.only("--viewer", lambda options: options.viewer, "--port", "--truth")
    live.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..runtime.log import DecisionLog
    from ..runtime.settings import RuntimeSettings
    from ..sources.source import open_sources, simulated

    book = make_book(options.questions or (None if options.ask else "desk"), options.ask,
                     options.views)
    cameras = {view.image: view.camera for view in book.views}
    opened = open_sources(options.source, list(cameras), vectors=options.reuse == "vectors",
                          topic=options.topic, partial=options.partial)
    sources = {cameras[image]: frames for image, frames in opened.items()}
    told = _truth_of(options, book) if options.truth else None
    viewer = None
    if options.viewer:
        from ..viewer.local import LocalViewer

        viewer = LocalViewer(", ".join(options.source), _complain, port=options.port)
        print(f"viewer: {viewer.server.url}", flush=True)
    warn_of_scope(options.model, simulated=simulated(sources.values()))
    writer = DecisionLog(options.log) if options.log else None
    runtime = run_live(sources, book, model=options.model, log=writer,
                       view=not (options.no_view or viewer), max_s=options.seconds, viewer=viewer,
                       truth=told,
                       settings=RuntimeSettings(reuse=reuse_settings(options)))
    print(*summary(runtime.stats()), sep="\n")
    for frames in sources.values():
        if frames.shortfall:
            _complain(f"not all of the video was seen: {frames.shortfall}")
    if writer and writer.missing:
        _complain(f"{writer.missing} decisions are missing in {writer.path}")
        return 1
    return 0


def _truth_of(options: argparse.Namespace, book: QuestionBook) -> Truth:
    """Return what is true at seconds since the first image of the one recording that is played.

    Raises TruthError.
    """
    from ..sources.recording import open_recording
    from ..sources.truth import TruthError

    if len(options.source) > 1 or not Path(options.source[0]).exists():
        raise TruthError("--truth goes with one video file or bag as the only --source")
    with open_recording(options.source[0], options.truth, book, topic=options.topic,
                        ignore_unknown=True) as recording:
        if recording.note:
            _complain(f"warning: {recording.note}")
        return recording.truth.shifted(-recording.first_ns)


def make_book(
    questions: str | None, texts: Sequence[str], views_file: str | None = None
) -> QuestionBook:
    """Load the standing questions and add one per text, with ids ask_1, ask_2, ..."""
    from ..question_book import QuestionBook, questions_path
    from ..questions import QuestionError, unnamed
    from ..views import load_views

    views = load_views(views_file) if views_file else ()
    book = (QuestionBook.load(questions_path(questions), views) if questions
            else QuestionBook(views=views))
    for number, text in enumerate(texts, 1):
        try:
            book.add(unnamed(f"ask_{number}", text=text))
        except QuestionError as error:
            raise QuestionError(f"--ask {text[:40]!r}: {error}") from error
    # Nothing is sent by a transport here: views of one image are of one source.
    return QuestionBook(book, book.events, [replace(view, source=(view.image, ""))
                                            for view in book.views])


def run_live(sources: Mapping[tuple[str, str], Source], book: QuestionBook, *,
             model: str = "sim_desk", log: DecisionLog | None = None, view: bool = True,
             max_s: float | None = None, viewer: LocalViewer | None = None,
             settings: RuntimeSettings | None = None, truth: Truth | None = None) -> Runtime:
    """Play sources through the runtime at their own pace until all end, or are interrupted.

    Args:
        sources: of webcams, streams, video files or a bag, by the views' camera; they are closed at
            the end.
        book: the standing questions.
        model: embedded name, local path or hub name.
        log: takes every decision, and is closed at the end.
        view: show the picture in a window, where there is a display.
        max_s: stop after so many seconds.
        settings: of the runtime.
        viewer: page to show it on; it stays after the end of a file, until `max_s` or an interrupt.
        truth: of the one source, at seconds since its first image, for the page.

    Returns:
        The stopped runtime, for its statistics.

    Raises:
        EngineError, OSError: what cannot be opened, by name.
    """
    from ..files import resources
    from ..frames import NS
    from ..model_scope import scope_mark
    from ..runtime import Runtime
    from ..sources.source import close, simulated
    from ..sources.truth import TruthRow
    from .playing import play

    def load_engine() -> Any:
        from ..engine.loading import load

        return load(model)

    of_desk = simulated(sources.values())
    display = _Display(view, scope_mark(model, simulated=of_desk))
    said: set[str] = set()

    def complain(message: str) -> None:
        if message not in said:  # a repeated fault is reported once
            said.add(message)
            _complain(message)

    def taken(frame: Frame, camera: tuple[str, str], t_s: float) -> None:
        if viewer:
            viewer.frame(frame, camera)
            if truth and (facts := truth.facts(round(t_s * NS))):
                viewer.truth(TruthRow(frame.stamp_ns, facts), camera)
        display.frame(frame, camera)

    runtime = Runtime(load_engine, book, on_decision=display.take, on_error=complain,
                      head_paths=[resources.share_dir() / "heads"], settings=settings)
    unlisten = runtime.listen(log.write) if log else lambda: None
    runtime.start()
    patience_s = 0.0  # a model that still loads need not be loaded to its end
    try:
        if viewer:
            viewer.start(runtime, book.events, simulated=of_desk)
        while not _ready(runtime):  # in turns: an interrupt does not wait for the model
            pass
        patience_s = SOON_S
        with suppress(KeyboardInterrupt):
            end_s = time.monotonic() + (max_s or float("inf"))
            play(sources, runtime, _complain, taken=taken, max_s=max_s,
                 closed=lambda: display.show(runtime))
            if viewer:
                _wait(runtime, sources, display, viewer, end_s)
            # The newest groups are still in work.
            runtime.wait_idle(2.0)
            patience_s = END_S
    finally:
        if viewer:
            viewer.stop()
        if not runtime.stop(patience_s) and patience_s:
            _complain(f"the model did not end within {patience_s:g} s")
        unlisten()  # what is answered after that has no log
        display.close()
        if log:
            log.close()
        close(sources.values())
    return runtime


def _wait(runtime: Runtime, cameras: Iterable[tuple[str, str]], display: _Display,
          viewer: LocalViewer, end_s: float) -> None:
    """Let the page stay after the end."""
    if time.monotonic() < end_s:
        runtime.wait_idle(2.0)  # the newest groups are still in work
        viewer.ended()
        print("the video has ended; the page stays until Ctrl-C", flush=True)
    while time.monotonic() < end_s:
        time.sleep(0.2)
        for camera in cameras:
            runtime.refuse("the recording has ended", camera)
        runtime.check_freshness()
        display.show(runtime)


def _ready(runtime: Runtime) -> bool:
    from ..runtime import NotReadyError

    try:
        runtime.wait_ready(0.2)
    except NotReadyError:
        return False
    return True


class _Display:
    """The newest decisions on the terminal and, where there is a display, over the pictures."""

    def __init__(self, window: bool, mark: str) -> None:
        from ..viewer.table import Table
        from ..viewer.window import Window, possible

        self._window = Window(WINDOW) if window and possible() else None
        self._mark = mark
        self._lock = threading.Lock()
        self._newest: dict[str, dict[str, Decision]] = {}  # by view and question
        self._times: dict[str, deque[int]] = {}  # by name in the table
        self._frames: dict[tuple[str, str], Frame] = {}  # by camera
        self._fresh = False
        self._table = Table(sys.stdout)

    def take(self, decision: Decision) -> None:
        """Take a decision, from any thread."""
        from ..views import address

        with self._lock:
            self._newest.setdefault(decision.view, {})[decision.question_id] = decision
            name = address(decision.view, decision.question_id)
            times = self._times.setdefault(name, deque(maxlen=12))
            if decision.t_end_ns and (not times or decision.t_end_ns > times[-1]):
                times.append(decision.t_end_ns)

    def frame(self, frame: Frame, camera: tuple[str, str]) -> None:
        """Take a camera's newest frame, from any thread."""
        with self._lock:
            self._frames[camera] = frame
            self._fresh = True

    def show(self, runtime: Runtime) -> bool:
        """Draw; return whether the user closed the window (q or Escape)."""
        with self._lock:
            newest = {view: dict(decisions) for view, decisions in self._newest.items()}
            rates = {name: (len(t) - 1) * 1e9 / (t[-1] - t[0])
                     for name, t in self._times.items() if len(t) > 1}
            frames, fresh, self._fresh = dict(self._frames), self._fresh, False
        self._table.show([d for decisions in newest.values() for d in decisions.values()], None,
                         rates)
        if self._window is None or not fresh:
            return False
        if self._window.failed:
            self._window.close()
            self._window = None
            _complain("no window: this display cannot be used; everything else goes on")
            return False
        from ..viewer.overlay import draw_views

        seen = [(view, frames[view.camera].image) for view in runtime.views()
                if view.camera in frames]
        self._window.show(draw_views(seen, runtime.questions(), newest, time.time_ns(),
                                     self._mark))
        return self._window.closed

    def close(self) -> None:
        """Leave the last table standing, close the window."""
        self._table.done()
        if self._window is not None:
            self._window.close()


def _complain(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def summary(stats: RuntimeStats) -> Iterator[str]:
    """Yield lines of what was done, and what broke windows off: without one nothing is answered."""
    total = stats.tick_ms.get("total")
    tick = f", tick p50 {total.p50:.0f} ms, p95 {total.p95:.0f} ms" if total else ""
    yield (f"{stats.frames} frames, {stats.ticks} of {stats.groups} groups answered, dropped: "
           f"{_counts(stats.dropped)}; {stats.decisions} decisions{tick}")
    if any(stats.breaks.values()):
        yield f"windows broken off: {_counts(stats.breaks)}"
    if stats.reuse is not None:
        yield (f"reuse: {stats.reuse.share:.0%} of the visual tokens encoded, {stats.still} groups "
               "stood still")


def _counts(by_cause: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {cause}" for cause, n in by_cause.items() if n) or "none"
