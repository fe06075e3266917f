"""The page's source in the process of a runtime, without ROS."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..decision import Decision
from ..events import EventBook, EventSpec
from ..frames import Frame
from ..model_scope import scope_mark
from ..questions import Question
from ..runtime import Runtime
from ..runtime.system import System
from ..sources.truth import TruthRow
from ..views import ALL, View, named
from . import overlay
from .board import Board
from .camera_grid import CameraGrid
from .pictures import Pictures
from .source import CAMERA, OVERLAY, PageSourceError
from .state import ENDED

PERIOD_S = 0.2
SYSTEM_S = 1.0


class RuntimeSource:
    """Shows a runtime, of whose decisions it listens to each; hand it each frame.

    While it runs, it also has the runtime check for answers that became stale, so that the page
    says so even where the camera delivers nothing at all.
    """

    kind = "runtime"

    def __init__(self, board: Board, pictures: Pictures, name: str) -> None:
        self.name = name
        self._board, self._pictures = board, pictures
        self._runtime: Runtime | None = None
        self._mark, self._simulated = "", False
        self._over = False
        self._newest: dict[str, dict[str, Decision]] = {}  # by view and question
        self._frames: dict[tuple[str, str], Frame] = {}  # by camera
        self._grid = CameraGrid()
        self._lock = threading.Lock()
        self._events = EventBook()
        self._unlisten: Callable[[], None] = lambda: None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="viewer-refresh", daemon=True)

    def start(self, runtime: Runtime, events: Iterable[EventSpec] = (), *,
              simulated: bool = False) -> None:
        """Begin to show `runtime`, and the events that `events` make of its decisions.

        `simulated`: what it sees is the simulated desk.
        """
        self._simulated = simulated
        placed = {one.id: one.view for one in runtime.questions() if one.view not in ("", ALL)}
        self._events = EventBook(events, placed)
        self._runtime = runtime
        self._board.link(True, "")
        self._measure()
        self._announce()
        self._unlisten = runtime.listen(self._decided)
        self._thread.start()

    def ended(self) -> None:
        """Say from now on that the recording has ended."""
        self._over = True
        self._measure()

    def stop(self) -> None:
        """End; before the runtime is stopped."""
        self._stop.set()
        self._unlisten()
        if self._thread.is_alive():
            self._thread.join()

    # -- what is shown ---------------------------------------------------------------------------

    def _decided(self, decision: Decision) -> None:
        with self._lock:
            self._newest.setdefault(decision.view, {})[decision.question_id] = decision
        self._board.decision(decision)
        for event in self._events.update(decision):
            self._board.machine_event(event)

    def frame(self, frame: Frame, camera: tuple[str, str]) -> None:
        """Take a camera's newest frame, from any thread; `camera`: see View.camera."""
        with self._lock:
            self._frames[camera] = frame
        views = self._runtime.views()
        self._grid.keep(dict.fromkeys(view.camera for view in views))
        self._grid.put(camera, lambda: frame.image)
        self._pictures.put(CAMERA, self._grid.draw)
        self._pictures.put(OVERLAY, lambda: self._draw(views))
        for view in views:
            if view.camera == camera:
                if self._pictures.moments.due(view.name):  # whether or not a page is open
                    self._pictures.moments.put(frame.image, view.name)
                self._pictures.put(f"{CAMERA}/{view.name}", frame.image)
                self._pictures.put(f"{OVERLAY}/{view.name}", lambda view=view: self._draw([view]))

    def truth(self, row: TruthRow, camera: tuple[str, str]) -> None:
        """Take what is true of what a camera shows, for the views that show all of it."""
        self._board.truth(row, [view.name for view in self._runtime.views()
                                if view.camera == camera and not view.region])

    def _draw(self, views: Iterable[View]) -> np.ndarray:
        with self._lock:
            newest = {view: dict(decisions) for view, decisions in self._newest.items()}
            seen = [(view, self._frames[view.camera].image) for view in views
                    if view.camera in self._frames]
        return overlay.draw_views(seen, self._runtime.questions(), newest, time.time_ns(),
                                  self._mark)

    def _refresh(self) -> None:
        told_s, loaded = -SYSTEM_S, False
        while not self._stop.wait(PERIOD_S):
            if loaded:  # while the model loads, a missing answer is no fault
                self._runtime.check_freshness()
            if not loaded or time.monotonic() - told_s >= SYSTEM_S:
                told_s, loaded = time.monotonic(), self._measure()

    def _measure(self) -> bool:
        """Show how the runtime does; return whether the model is loaded."""
        stats = self._runtime.stats()
        # Whoever runs it without ROS looks at a real camera or a film of one.
        self._mark = scope_mark(stats.model, simulated=self._simulated)
        more: dict[str, Any] = {"state": ENDED} if self._over else {}
        views = self._runtime.views()
        if len(views) > 1:
            more["views"] = {view.name: {"topic": view.image, "condition": ""} for view in views}
        self._board.system(System.of(stats, self._runtime.settings, mark=self._mark, **more))
        return bool(stats.model)

    def _announce(self) -> None:
        standing = self._runtime.questions()
        views = self._runtime.views()
        self._board.views(views)
        self._board.questions(standing, [view.name for view in views])
        with self._lock:
            ids = {question.id for question in standing}
            self._newest = {view: {name: d for name, d in decisions.items()
                                   if name in ids or name.startswith("camera_")}
                            for view, decisions in self._newest.items()}

    # -- what is asked of it ---------------------------------------------------------------------

    def add(self, question: Question) -> str:
        """Add a standing question. Raises QuestionError."""
        self._runtime.add_question(question)
        self._announce()
        return f"added '{question.id}'"

    def remove(self, question_id: str) -> str:
        """Remove a standing question. Raises QuestionError."""
        self._runtime.remove_question(question_id)
        self._announce()
        return f"removed '{question_id}'"

    def change(self, question: Question, changes: Mapping[str, Any]) -> str:
        """Change fields of a standing question. Raises QuestionError."""
        self._runtime.replace_question(question.id, **changes)
        self._announce()
        return f"changed '{question.id}'"

    def ask(self, question: Question, timeout_s: float) -> Decision:
        """Answer one question about now."""
        return self._runtime.ask(question, timeout_s)

    def cost(self, question: Question) -> tuple[int, float] | None:
        """Return what a question would cost, None while the model loads."""
        cost = self._runtime.cost(question)
        return None if cost is None else (cost.tokens, cost.ms)

    def correct(self, question_id: str, view: str, answer: str, start_ns: int, end_ns: int) -> str:
        """Refuse: without a node there is no place to keep it."""
        raise PageSourceError("corrections are kept by the node only, with learn_dir set")

    def add_view(self, view: View, of: str) -> str:
        """Add a view of the camera of the view `of`. Raises ViewError and QuestionError."""
        base = named(self._runtime.views(), of)
        self._runtime.add_view(replace(view, image=base.image, transport=base.transport))
        self._announce()
        self._measure()
        return f"added view '{view.name}'"

    def undo_learning(self, question_id: str, view: str) -> str:
        """Refuse: without a node nothing is learned."""
        raise PageSourceError("only the node learns, with learn_dir set")

    def watch(self, channels: frozenset[str]) -> None:
        """Hand the newest frames on: after the end of a recording no other comes."""
        with self._lock:
            frames = dict(self._frames)
        for camera, frame in frames.items():
            self.frame(frame, camera)
