"""Frames in, decisions out: the views, the engine thread, and the standing questions.

Needs neither ROS nor MLX to be imported: the engine, the clock and the listeners are passed in.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import methodcaller
from typing import Any

from ..decision import FAULT, NO_IMAGE, OK, STALE, UNKNOWN, Decision
from ..files.listing import listed, there_are
from ..frames import Frame
from ..kinds import in_view, question_of
from ..question_book import QuestionBook
from ..questions import WINDOW, Question, QuestionError
from ..reuse import ReuseStats
from ..views import View, ViewError, address
from .costs import Cost
from .encoding import Encoding, check_region
from .engine_protocol import EngineLike
from .evidence import Look, Result
from .heads import Head, by_cause, language_of, load_heads
from .intake import Intake
from .learned import Learned, LearnedError
from .listeners import Listeners
from .one_off import OneOffs
from .settings import RuntimeSettings
from .smoothing import decide, no_answer
from .speed import Speed, measure
from .statistics import Meter, RuntimeStats
from .threads import leave_thread
from .tick import Work
from .view_state import ViewState

#: Longest turn of one thread of the interpreter while another waits, seconds.
SWITCH_S = 0.0001

#: Pieces of dead-time work after one group; more than any stream has.
MAX_IDLE_PIECES = 64

#: Longest wait until the engine's thread has opened a view that is added, seconds.
OPEN_S = 10.0

#: Pause of the engine's thread after a turn that failed, seconds.
FAILED_S = 0.1

Listener = Callable[[Decision], None]


class NotReadyError(TimeoutError):
    """The engine has not been loaded in the time given; a loader's own timeout is another."""


class Runtime:
    """Answers standing questions about the frames pushed into it.

    Loading fails with QuestionError where a standing question can never be answered by the model.
    One engine thread owns the engine: it calls `engine_factory`, processes the groups that `push`
    samples, and lets the engine go. Listeners are called from the engine's, the pushing and the
    checking thread, decisions one at a time and in order; they may call back, except `ask`.

    Each group goes: vision, Tier 1, append, Tier 2. All views that have a group are seen to first
    (vision, Tier 1); then the view is asked about (Tier 2) whose answers would otherwise be oldest
    against its `max_age_s`, by priority. While groups of a view wait, its Tier 2 is skipped; when
    its last evidence is half of `max_age_s` old, those waiting are dropped but for the newest, so
    that it gets its turn before answers expire (`catch_up` in the statistics). Without views in
    the book there is one, without a name.
    """

    def __init__(
        self,
        engine_factory: Callable[[], EngineLike],
        book: QuestionBook,
        *,
        on_decision: Listener | None = None,
        on_error: Callable[[str], None] | None = None,
        head_paths: Sequence[str | os.PathLike] = (),
        settings: RuntimeSettings | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Load nothing yet.

        `book` belongs to the runtime from here on: change it through the runtime. `on_decision`
        is the first listener (see `listen`). `head_paths`: npz files, or folders of them.
        `clock_ns`: the clock that the frames' stamps are on. `timer`: seconds, for durations.
        `on_error` gets messages for the operator, unthrottled.
        """
        self.settings = settings or RuntimeSettings()
        self._clock_ns = clock_ns
        self._tell = on_error or (lambda message: None)
        # Guards the gates, the book and the listeners, and is held while decisions are published:
        # one at a time, in order. Taken before the intakes'.
        self._lock = threading.RLock()
        self._listeners: Listeners[Decision] = Listeners("decisions", self._error, self._lock)
        self._watchers: Listeners[Look] = Listeners("looks", self._error, self._lock)
        if on_decision is not None:
            self._listeners.add(on_decision)
        self._publisher: int | None = None  # thread that hands decisions to the listeners now
        self._book = book
        self._standing: dict[str, Question] = {}  # read without the lock
        self._views_named: frozenset[str] = frozenset()  # by conditions of questions
        self._placed: dict[str, frozenset[str]] = {}  # ids of what is asked of one view only

        self._meter = Meter(timer)
        self._changed = threading.Condition(threading.RLock())  # there is something to do
        self._one_offs = OneOffs(self._changed)
        self._intakes: dict[tuple[str, str], Intake] = {}  # by camera
        self._views: tuple[ViewState, ...] = ()
        self._shared: tuple[ViewState, ...] = ()  # those that the encoding knows of
        self._begun = 0  # streams opened so far
        for view in book.views:
            self._open(view)
        self._book_changed()

        self._engine_factory = engine_factory
        self._engine: EngineLike | None = None
        self._encoding: Encoding | None = None
        self._reused: ReuseStats | None = None  # what it was when the engine was let go
        self._head_paths = tuple(head_paths)
        self._heads: dict[int | None, list[Head]] = {}  # by a view's pixel budget
        self._heads_refused: dict[int | None, dict[str, str]] = {}  # by pixel budget, as heads
        self._model = ""
        self.speed: Speed | None = None  # measured once loaded

        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._load_error: BaseException | None = None
        self._busy = False  # a turn is under way; this and the next under the condition
        self._stopping = False

    # -- decisions -------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Let `listener` have every decision from now on; return a function that ends that.

        A listener that raises is reported and stops neither the answers nor the other listeners.
        One that is slow delays both.
        """
        return self._listeners.add(listener)

    def watch(self, watcher: Callable[[Look], None]) -> Callable[[], None]:
        """Let `watcher` have every look that gave an answer; return a function that ends that.

        It is called in the engine's thread, which waits for it, before the decision is published.
        """
        return self._watchers.add(watcher)

    def _publish(self, view: ViewState, decisions: Iterable[Decision]) -> None:
        """Hand decisions to the listeners; under the lock."""
        before, self._publisher = self._publisher, threading.get_ident()
        try:
            for decision in decisions:
                self._publish_one(view, decision)
        finally:
            self._publisher = before

    def _publish_one(self, view: ViewState, decision: Decision) -> None:
        if view.name:
            decision = replace(decision, view=view.name)
        known = decision.answer != UNKNOWN
        view.meter.published(decision.tier, decision.age_s if known else None)
        self._listeners.tell(decision)

    # -- frames ----------------------------------------------------------------------------------

    def push(self, frame: Frame, camera: tuple[str, str] | None = None) -> None:
        """Take a frame: Tier 0, sampling, queues. Returns at once; thread-safe.

        `camera`: whose it is, see View.camera; may be left out where there is one.
        """
        now_ns = self._clock_ns()
        intake, views = self._of_camera(camera)
        arrival = intake.push(frame, now_ns)
        with self._lock:
            for view in views:
                if arrival.reset_reason:
                    self._reset(view, arrival.reset_reason, now_ns, arrival.frame)
                if arrival.frame is None:
                    view.gate.refused(arrival.refusal, now_ns)
                    continue
                note = intake.mixture() or view.overload(now_ns)
                self._publish(
                    view,
                    view.gate.image(arrival.frame, arrival.health, note, view.questions, now_ns),
                )

    def refuse(self, reason: str, camera: tuple[str, str] | None = None) -> None:
        """Note why images do not come as they should, to be told where answers are unknown."""
        with self._lock:
            for view in self._of_camera(camera)[1]:
                view.gate.troubled(reason, self._clock_ns())

    def check_freshness(self, now_ns: int | None = None) -> None:
        """Publish `unknown` for every question that has no fresh answer. Call a few times a second.

        `now_ns`: the present, if not read from the clock.
        """
        now_ns = self._clock_ns() if now_ns is None else now_ns
        for intake in tuple(self._intakes.values()):
            reset_reason = intake.note_clock(now_ns)
            with self._lock:
                for view in self._seen_by(intake):
                    if reset_reason:
                        self._reset(view, reset_reason, now_ns)
                    else:
                        self._publish(view, view.gate.refresh(view.questions, now_ns))

    def reset(self, reason: str) -> None:
        """Drop all state and answers, as if frame time had gone backwards (a clock jump)."""
        for intake in tuple(self._intakes.values()):
            intake.reset()
            with self._lock:
                for view in self._seen_by(intake):
                    self._reset(view, reason, self._clock_ns())

    def _reset(
        self, view: ViewState, reason: str, now_ns: int, frame: Frame | None = None
    ) -> None:
        self._publish(view, view.gate.reset(reason, view.questions, now_ns, frame))

    def _of_camera(self, camera: tuple[str, str] | None) -> tuple[Intake, list[ViewState]]:
        """Return a camera's intake, and the views of it. Raises ViewError."""
        if camera is None and len(self._intakes) == 1:
            camera = next(iter(self._intakes))
        if camera not in self._intakes:
            there = listed(sorted(topic or "the node's own" for topic, _ in self._intakes))
            raise ViewError(f"no view is of the camera {camera} (there are views of: {there})")
        intake = self._intakes[camera]
        return intake, self._seen_by(intake)

    def _seen_by(self, intake: Intake) -> list[ViewState]:
        return [view for view in self._views if view.intake is intake]

    # -- views -----------------------------------------------------------------------------------

    def views(self) -> tuple[View, ...]:
        """Return the views in order."""
        return tuple(view.view for view in self._views)

    def add_view(self, view: View) -> None:
        """Add a view; questions that are of each view are asked of it.

        Waits until the engine's thread has opened it, at most OPEN_S, unless a listener calls this.
        Raises QuestionError, also where the engine cannot open it or its region of what its camera
        shows now is too thin; nothing is added then.
        """
        with self._lock:
            self._check_region(view)
            self._book.add_view(view)
            added = self._open(view)
            self._book_changed()
            if self._thread in (None, threading.current_thread()) and self._engine is not None:
                self._begin_views(self._engine)
        fault = self._opening(added)
        if fault:
            self.remove_view(view.name)
            raise QuestionError(fault, "view")

    def _check_region(self, view: View) -> None:
        intake = self._intakes.get(view.camera)
        size = intake.size if intake else None
        if size is None or self._engine is None:
            return  # each group is checked
        try:
            check_region(view, size, self._engine.token_pixels)
        except ViewError as error:
            raise QuestionError(str(error), error.field) from error

    def _opening(self, view: ViewState) -> str:
        """Wait until the engine's thread has opened a view; return why it has not, or nothing."""
        with self._changed:
            self._changed.notify_all()
            if self._engine is None or self._publisher == threading.get_ident():
                return view.fault  # it is opened when the engine is loaded, or at the next turn
            ended = self._changed.wait_for(lambda: view.opened or self._stopping, OPEN_S)
        return view.fault or ("" if ended else f"view '{view.name}': the engine was busy for "
                              f"{OPEN_S:g} s and did not open it: try again")

    def remove_view(self, name: str) -> View:
        """Take a view out and return it. Raises QuestionError."""
        with self._lock:
            view = self._book.remove_view(name)
            gone = next(state for state in self._views if state.name == name)
            self._views = tuple(state for state in self._views if state is not gone)
            gone.intake.close(gone.queue)
            if not self._seen_by(gone.intake):
                del self._intakes[view.camera]
            self._book_changed()
        return view

    def _open(self, view: View) -> ViewState:
        intake = self._intakes.get(view.camera)
        if intake is None:
            intake = Intake(self.settings, self._meter, self._changed)
            self._intakes[view.camera] = intake
        opened = ViewState(view, self.settings, intake, self._meter)
        self._views = (*self._views, opened)
        return opened

    def _named(self, name: str) -> ViewState | None:
        return next((view for view in self._views if view.name == name), None)

    # -- questions -------------------------------------------------------------------------------

    def questions(self) -> tuple[Question, ...]:
        """Return the standing questions in order."""
        return tuple(self._standing.values())

    def add_question(self, question: Question) -> None:
        """Add a standing question, asked on the next group.

        Raises QuestionError, also where the loaded model and its heads could never answer it.
        """
        with self._lock:
            self._check(question)
            self._book.add(question)
            self._begin_question(question.id)

    def remove_question(self, question_id: str) -> Question:
        """Take a question out and return it. Raises QuestionError."""
        with self._lock:
            question = self._book.remove(question_id)
            self._book_changed()
            for view in self._views:
                view.scheduler.forget(question_id)
                view.contradictions.forget(question_id)
                view.gate.removed(question_id)
                self._unlearn(view, question_id)
        return question

    def replace_question(self, question_id: str, **changes: Any) -> Question:
        """Change fields of a question, all or none. Raises QuestionError.

        Rates, thresholds and smoothing change in passing; another text, kind, set of options,
        view or calibration starts it anew.
        """
        with self._lock:
            old = self._book.get(question_id)
            self._check(self._book.replaced(question_id, **changes))
            new = self._book.replace(question_id, **changes)
            if new.asks_the_same(old):
                self._book_changed()
            else:
                self._begin_question(question_id)
        return new

    def save_questions(self, path: str | os.PathLike) -> None:
        """Write the standing questions as YAML, atomically. Raises QuestionError."""
        with self._lock:
            book = self._book.copy()
        book.save(path)

    def check_question(self, question: Question, replace: bool = False) -> None:
        """Raise QuestionError where adding the question would; nothing is changed.

        `replace`: a question of the same id gives way to it.
        """
        with self._lock:
            self._check(question)
            if replace and question.id in self._standing:
                changes = {name: getattr(question, name) for name in question.__dataclass_fields__}
                self._book.replaced(question.id, **changes)
            else:
                self._book.copy().add(question)

    def _begin_question(self, question_id: str) -> None:
        """Ask a new question from the next group on, with nothing left of an old one of that id."""
        for view in self._views:
            view.scheduler.forget(question_id)
            view.gate.added(question_id, self._clock_ns())
            self._unlearn(view, question_id)
        self._book_changed()

    def _check(self, question: Question) -> None:
        for view in self._asked_of(question):
            if view.processor is not None:
                view.processor.answerers.check(question)

    def _asked_of(self, question: Question) -> list[ViewState]:
        return [view for view in self._views if question.is_of(view.name)]

    def _book_changed(self) -> None:
        self._standing = {question.id: question for question in self._book}
        self._views_named = frozenset(
            name for question in self._book for name in question.views_named)
        placed: dict[str, set[str]] = {}
        for question_id, name in self._book.placed.items():
            placed.setdefault(name, set()).add(question_id)
        self._placed = {name: frozenset(ids) for name, ids in placed.items()}
        for view in self._views:
            view.questions = tuple(one for one in self._book if one.is_of(view.name))

    def cost(self, question: Question) -> Cost | None:
        """Return what a question, standing or not, costs; None before the model is loaded."""
        for view in self._asked_of(question):
            if view.processor is not None:
                others = [one for one in view.questions if one.id != question.id]
                return view.processor.costs([*others, question])[question.id]
        return None

    # -- what was learned ------------------------------------------------------------------------

    def learn(self, learned: Learned) -> None:
        """Answer a question at a view with what was learned, from the next group on.

        Raises QuestionError, ViewError or LearnedError where it is not of this question, view and
        model, and RuntimeError before the model is loaded.
        """
        with self._lock:
            engine = self._engine
            if engine is None:
                raise RuntimeError("the model is not loaded")
            question, view = self._book.get(learned.question_id), self._named(learned.view)
            if view is None or not question.is_of(view.name):
                raise ViewError(f"'{question.id}' is not asked of a view '{learned.view}'")
            learned.check(question, engine.fingerprint,
                          view.view.pixel_budget or engine.pixel_budget, language_of(engine))
            view.learned = {**view.learned, question.id: learned}

    def unlearn(self, question_id: str, view_name: str) -> Learned:
        """Answer as before anything was learned; return what was. Raises LearnedError."""
        with self._lock:
            view = self._named(view_name)
            if view is None or question_id not in view.learned:
                wanted = address(view_name, question_id)
                there = there_are((address(*one.key) for one in self.learned()), wanted)
                raise LearnedError(f"nothing was learned of '{wanted}' ({there})")
            return self._unlearn(view, question_id)

    def learned(self) -> list[Learned]:
        """Return what was learned and is in use."""
        with self._lock:
            return [one for view in self._views for one in view.learned.values()]

    def _unlearn(self, view: ViewState, question_id: str) -> Learned | None:
        gone = view.learned.get(question_id)
        if gone is not None:
            view.learned = {name: one for name, one in view.learned.items() if name != question_id}
        return gone

    # -- one-off questions -----------------------------------------------------------------------

    def ask(self, question: Question, timeout_s: float = 5.0) -> Decision:
        """Answer one question about now, unsmoothed; `unknown` with the reason if that fails.

        Waits for the engine thread, at most `timeout_s`; without one, asks in this thread. Raises
        QuestionError where there are several views and the question names none: see `ask_each`.
        """
        if len(self._asked_of(question)) > 1:
            names = listed(view.name for view in self._views)
            raise QuestionError(f"question '{question.id}': name the view to ask: {names}", "view")
        return self.ask_each(question, timeout_s)[0]

    def ask_each(self, question: Question, timeout_s: float = 5.0) -> list[Decision]:
        """Answer one question about now of each view that it is of. Raises QuestionError."""
        views = self._asked_of(question)
        if not views:
            self._book.view(question.view)  # says that there is none
        if self._thread is None:
            return [self._answer_now(question, view) or self._no_answer(
                question, view, "no group yet", NO_IMAGE) for view in views]
        if threading.current_thread() is self._thread:
            raise RuntimeError("ask() would wait for the thread that it is called from")
        with self._changed:
            if self._stopping:
                return [self._no_answer(question, view, "the runtime has stopped")
                        for view in views]
            futures = [self._one_offs.put(question, view.name) for view in views]
        deadline_s = time.monotonic() + timeout_s
        out = []
        for view, future in zip(views, futures, strict=True):
            try:
                out.append(future.result(max(0.0, deadline_s - time.monotonic())))
            except FutureTimeout:
                future.cancel()
                with self._lock:
                    status, reason = view.gate.cause(self._clock_ns())
                reason = f"no answer within {timeout_s:g} s: {reason or 'the engine is busy'}"
                out.append(
                    self._no_answer(question, view, reason, STALE if status == OK else status)
                )
        return out

    def _answer_now(self, question: Question, view: ViewState) -> Decision | None:
        """Return the answer about the newest group, None if there is no fresh one."""
        now_ns = self._clock_ns()
        with self._lock:
            condition = view.gate.condition(now_ns)
        if condition or not view.fresh(now_ns):
            return None
        try:
            view.processor.answerers.check(question)
        except QuestionError as error:
            return self._no_answer(question, view, str(error))
        decision = decide(view.processor.ask_now(question), self._clock_ns())
        return replace(decision, view=view.name)

    def _no_answer(
        self, question: Question, view: ViewState, reason: str, status: str = FAULT
    ) -> Decision:
        decision = no_answer(question, reason, self._clock_ns(), status=status)
        return replace(decision, view=view.name)

    def _answer_one_offs(self) -> None:
        with self._changed:
            self._one_offs.waiting = False
        for one in self._one_offs.take():
            view = self._named(one.view)
            if view is None:
                view = self._views[0]
                one.settle(self._no_answer(one.question, view, f"view '{one.view}' is gone"))
                continue
            decision = self._answer_now(one.question, view)
            if decision is None:
                self._one_offs.put_back(one)
            else:
                one.settle(decision)

    # -- engine thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine thread, which loads the engine. Once only."""
        if self._thread is not None or self._engine is not None:
            raise RuntimeError("a runtime is started once")
        # The camera's thread shares the interpreter with the engine's: at Python's 5 ms a turn an
        # image would wait longer than its own handling takes.
        sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()
        atexit.register(self.stop)  # an engine must not be cut off in mid-computation

    def wait_ready(self, timeout_s: float | None = None) -> None:
        """Wait until the engine is loaded. Raises its load error, or NotReadyError."""
        if not self._ready.wait(timeout_s):
            raise NotReadyError(f"the engine was not loaded within {timeout_s:g} s")
        if self._load_error is not None:
            raise self._load_error

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until no group waits or is in work; return whether that came in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._has_groups() or self._busy) or self._stopping, timeout_s
            )

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the engine thread after the group in work; return whether it ended in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        atexit.unregister(self.stop)
        return True

    def step(self) -> bool:
        """Do one turn of the engine in this thread; return whether there was a group to process.

        For tests and replay faster than time, where start() was not called. The first call loads
        the engine and raises what that raises.
        """
        if self._thread is not None:
            raise RuntimeError("step() is for a runtime that was not started")
        if self._engine is None:
            self._load()
            self._ready.set()
        return self._turn()

    def _run(self) -> None:
        try:
            self._load()
        except BaseException as error:
            self._load_error = error
        self._ready.set()
        while self._load_error is None and self._wait():
            try:
                self._turn()
            except Exception:  # a fault of this program: the thread lives on
                self._error(f"a turn of the engine failed\n{traceback.format_exc().rstrip()}")
                for view in self._views:
                    view.turn = None
                time.sleep(FAILED_S)
        self._close()
        leave_thread()

    def _load(self) -> None:
        engine = self._engine_factory()
        self._encoding = Encoding(engine, self._meter, self.settings.reuse)
        with self._lock:  # from here on, what cannot be answered is not taken
            for view in self._views:
                self._begin(view, engine)
            self._encoding.share(self.views())
            for question in self.questions():
                self._check(question)
            self._engine = engine
        self._model = engine.name
        if getattr(engine, "tick_s", None) is not None:  # it is warm
            self.speed = measure(engine, self._views, self._meter.timer)

    def _begin(self, view: ViewState, engine: EngineLike) -> None:
        view.check_budget(engine)
        view.begin(engine, self._heads_for(engine, view.view), self._begun)
        self._begun += 1

    def _begin_views(self, engine: EngineLike) -> None:
        """Open the streams of views that have none yet; under the lock."""
        new = [view for view in self._views if not view.opened]
        for view in new:
            try:
                self._begin(view, engine)
            except ViewError as error:
                view.fault = str(error)
            except Exception as error:  # of the engine: the other views live on
                view.fault = (f"view '{view.name}': the model cannot open it: "
                              f"{str(error) or type(error).__name__}")
            if view.fault:
                self._error(view.fault)
        if self._shared is not self._views:
            self._shared = self._views
            self._encoding.share(self.views())
        if new:
            with self._changed:
                self._changed.notify_all()

    def _heads_for(self, engine: EngineLike, view: View) -> list[Head]:
        budget = view.pixel_budget
        if budget not in self._heads:
            heads, refused = load_heads(
                self._head_paths, engine.fingerprint, budget or engine.pixel_budget,
                language_of(engine),
            )
            self._heads[budget] = heads
            self._heads_refused[budget] = {file: str(error) for file, error in refused.items()}
            where = f"view '{view.name}': " if budget is not None else ""
            for reason in by_cause(refused):
                self._error(where + reason)
        return self._heads[budget]

    def _refused_by_view(self) -> dict[str, dict[str, str]]:
        budgets = {"" if view.view.pixel_budget is None else view.name: view.view.pixel_budget
                   for view in self._views}
        return {name: dict(refused) for name, budget in budgets.items()
                if (refused := self._heads_refused.get(budget))}

    def _wait(self) -> bool:
        """Wait for something to do; return whether to go on."""
        with self._changed:
            self._changed.wait_for(self._wanted)
            self._busy = not self._stopping
            return self._busy

    def _wanted_now(self) -> bool:
        with self._changed:
            return self._wanted()

    def _wanted(self) -> bool:
        unopened = any(not view.opened for view in self._views)
        return self._has_groups() or unopened or self._one_offs.waiting or self._stopping

    def _has_groups(self) -> bool:
        return any(view.processor and (len(view.queue) or view.turn) for view in self._views)

    def _close(self) -> None:
        """Let the engine go, in its thread, and answer those that still wait."""
        self._reused = self._encoding.reuse if self._encoding else None
        self._engine = self._encoding = None
        for view in self._views:
            view.processor = None
        with self._changed:
            self._stopping = True
            self._busy = False
            self._changed.notify_all()
        for one in self._one_offs.take():
            view = self._named(one.view) or self._views[0]
            one.settle(self._no_answer(one.question, view, "the runtime has stopped"))

    def _error(self, message: str) -> None:
        self._meter.error(message)
        # It is counted and kept; a receiver that fails must not stop the answers.
        with suppress(Exception):
            self._tell(message)

    # -- one turn of the engine ------------------------------------------------------------------

    def _turn(self) -> bool:
        """Answer one-off questions, see to all views, ask about the most urgent; then dead time."""
        self._answer_one_offs()
        with self._lock:
            self._begin_views(self._engine)
        seen = self._see()
        asked = self._ask_most_urgent()
        self._answer_one_offs()
        self._use_dead_time()
        with self._changed:
            self._busy = False
            self._changed.notify_all()
        return seen or asked

    def _see(self) -> bool:
        """Take a group of each view that has one through vision and Tier 1."""
        now_ns = self._clock_ns()
        looked_at = [view for view in self._views if view.processor and len(view.queue)]
        if any(view.turn and view.starves(now_ns) for view in self._views):
            # Time to ask is scarce: none is spent on what will not be asked about.
            waiting = [view for view in self._views if view.turn or len(view.queue)]
            first = max(waiting, key=methodcaller("urgency", now_ns))
            for view in looked_at:
                view.passed_over |= view is not first
            looked_at = [view for view in looked_at if view is first]
        for view in looked_at:
            if view.turn:
                self._ask(view, skip=True)  # the newer group is asked about instead
        taken = [view for view in looked_at if view.take(now_ns)]
        if not taken:
            return False
        for view in taken:
            if message := view.resized():
                self._tell(message)
        began_s = self._meter.timer()
        try:
            outcomes = self._encoding.encode([(view.view, view.turn.group) for view in taken])
        except Exception as error:  # a fault of this program; the views' groups go with it
            outcomes = [error] * len(taken)
            self._error(f"groups could not be encoded\n{traceback.format_exc().rstrip()}")
        share_s = (self._meter.timer() - began_s) / len(taken)
        for view, outcome in zip(taken, outcomes, strict=True):
            view.turn.spent_s = share_s
            with self._guarding(view):
                with self._lock:
                    interrupted = view.gate.interrupted(now_ns)
                    answers = self._answers(view)
                self._deliver(view, view.see(outcome, answers, self._standing, interrupted))
        for view in taken:
            if view.turn and view.turn.backlog:
                self._ask(view, skip=True)
        return True

    def _ask_most_urgent(self) -> bool:
        """Ask about the view whose answers would otherwise be oldest."""
        waiting = [view for view in self._views if view.turn]
        if not waiting:
            return False
        view = max(waiting, key=methodcaller("urgency", self._clock_ns()))
        self._ask(view)
        with self._guarding(view):
            self._take(view, view.processor.advance())
        return True

    def _ask(self, view: ViewState, skip: bool = False) -> None:
        with self._guarding(view):
            self._deliver(view, view.ask(self._clock_ns(), skip))
            if message := view.note_overload():
                self._tell(message)

    @contextmanager
    def _guarding(self, view: ViewState) -> Iterator[None]:
        """Let the thread live on whatever is raised: it is a fault of this program."""
        try:
            yield
        except Exception:
            view.abandon()
            self._error(f"a group could not be processed\n{traceback.format_exc().rstrip()}")

    def _answers(self, view: ViewState) -> dict[str, str]:
        """Return what a view's conditions may name: its own answers before those of others.

        Those of a view that a condition says are there by `view.question`, too.
        """
        answers: dict[str, str] = {}
        for other in self._views:
            own = self._placed.get(other.name, frozenset()) if other is not view else frozenset()
            named = other.name in self._views_named
            if not (own or named):
                continue
            given = other.gate.answers()
            if named:
                answers |= {in_view(other.name, name): said for name, said in given.items()}
            answers |= {name: said for name, said in given.items() if question_of(name) in own}
        return answers | view.gate.answers()

    def _deliver(self, view: ViewState, works: Iterable[Work]) -> None:
        """Publish what the gate makes of the results; tell of the faults."""
        generation = view.turn.generation
        for work in works:
            for fault in work.faults:
                self._error(fault)
            for result in work.results:
                if result.probabilities:
                    self._show(view, result)
                self._admit(view, result, generation)
                if result.probabilities:
                    view.note_outside()

    def _show(self, view: ViewState, result: Result) -> None:
        """Hand a look at the group in work to the watchers."""
        if not self._watchers or view not in self._views:
            return
        encoded, generation = view.turn.encoded, view.turn.generation
        look = Look(result, view.name, generation, encoded.t_start_ns, encoded.t_end_ns,
                    encoded.features, view.shown())
        self._watchers.tell(look)

    def _admit(self, view: ViewState, result: Result, generation: int) -> None:
        """Publish what the gate makes of a result, unless it is of another time or question."""
        with self._lock:
            question = self._standing.get(result.question.id)
            if (
                generation != view.intake.generation
                or question is None
                or not question.asks_the_same(result.question)
                or view not in self._views
            ):
                view.meter.drop("outdated")
            else:
                decides = view.processor.answerers.deciding(question)
                decisions = view.gate.result(result, decides, self._clock_ns())
                if question.implies:
                    answers = self._answers(view)
                    decisions = [
                        replace(one, contradicts=view.contradictions.of(
                            question, one, answers, self._standing))
                        for one in decisions
                    ]
                self._publish(view, decisions)

    def _use_dead_time(self) -> None:
        for _ in range(MAX_IDLE_PIECES):
            more = False
            for view in self._views:
                if self._wanted_now():
                    return
                if view.processor is None:
                    continue
                with self._guarding(view):
                    again, work = view.idle()
                    more |= again
                    self._take(view, work)
                    if not again:
                        self._look_again(view)
            try:
                more = more or self._encoding.idle()
            except Exception as error:  # the encoder starts afresh by itself
                self._error(f"engine, refresh: {str(error) or type(error).__name__}")
            if not more:
                return

    def _look_again(self, view: ViewState) -> None:
        """Ask what a view's last group left uncertain about more of the past, if there is time."""
        for where in view.processor.unsure:
            if self._wanted_now():
                return
            other = view if where == WINDOW else self._named(where)
            if other is None or other.processor is None or other.generation != view.generation:
                continue  # it has seen nothing of this time
            left_s = min(one.left_s() for one in self._views)
            self._take(view, view.processor.look_again(where, other.processor.past, left_s))

    def _take(self, view: ViewState, work: Work) -> None:
        """Publish and tell of what was done without a group in work."""
        for fault in work.faults:
            self._error(fault)
        for result in work.results:
            self._admit(view, result, view.generation)

    # -- statistics ------------------------------------------------------------------------------

    def stats(self) -> RuntimeStats:
        """Return a snapshot of counters, latencies, rates and the present condition."""
        now_ns, encoding = self._clock_ns(), self._encoding
        with self._lock:
            views = {view.name: view.stats(now_ns) for view in self._views}
        return RuntimeStats.of(
            self._meter,
            views,
            model=self._model,
            heads=tuple(head.name for head in self._heads.get(None, ())),
            heads_refused=self._refused_by_view(),
            learned={address(*one.key): one for one in self.learned()},
            reuse=encoding.reuse if encoding else self._reused,
            batch_gain=encoding.batch_gain if encoding else 1.0,
        )
