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
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Any

from ..decision import FAULT, NO_IMAGE, OK, STALE, Decision
from ..files.listing import listed, there_are
from ..frames import Frame
from ..question_book import QuestionBook
from ..questions import Question, QuestionError
from ..reuse import ReuseStats
from ..views import View, ViewError, address
from .costs import Cost
from .decision_publisher import DecisionPublisher
from .encoding import Encoding, check_region
from .engine_protocol import EngineLike
from .evidence import Look
from .head_sets import HeadSets
from .heads import language_of
from .learned import Learned, LearnedError
from .notices import Notices
from .one_off import OneOffs
from .rounds import Rounds
from .settings import RuntimeSettings
from .smoothing import decide, no_answer
from .speed import Speed, measure
from .standing_questions import StandingQuestions
from .statistics import Meter, RuntimeStats
from .threads import leave_thread
from .view_set import ViewSet
from .view_state import ViewState

#: Longest turn of one thread of the interpreter while another waits, seconds.
SWITCH_S = 0.0001

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
        self._meter = Meter(timer)
        self._notices = Notices(self._meter, on_error)
        self._changed = threading.Condition(threading.RLock())  # there is something to do
        self._one_offs = OneOffs(self._changed)
        self._views = ViewSet(self.settings, self._meter, self._changed)
        self._publisher = DecisionPublisher(self._views, self._notices, clock_ns)
        self._lock = self._publisher.lock  # guards the gates, the book and the listeners
        if on_decision is not None:
            self._publisher.listeners.add(on_decision)
        self._shared: tuple[ViewState, ...] = ()  # the views that the encoding knows of
        self._begun = 0  # streams opened so far
        self._book = book
        for view in book.views:
            self._views.add(view)
        self._book_changed()

        self._engine_factory = engine_factory
        self._engine: EngineLike | None = None
        self._encoding: Encoding | None = None
        self._rounds: Rounds | None = None
        self._reused: ReuseStats | None = None  # what it was when the engine was let go
        self._heads = HeadSets(head_paths)
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
        return self._publisher.listeners.add(listener)

    def watch(self, watcher: Callable[[Look], None]) -> Callable[[], None]:
        """Let `watcher` have every look that gave an answer; return a function that ends that.

        It is called in the engine's thread, which waits for it, before the decision is published.
        """
        return self._publisher.watchers.add(watcher)

    # -- frames ----------------------------------------------------------------------------------

    def push(self, frame: Frame, camera: tuple[str, str] | None = None) -> None:
        """Take a frame: Tier 0, sampling, queues. Returns at once; thread-safe.

        `camera`: whose it is, see View.camera; may be left out where there is one.
        """
        now_ns = self._clock_ns()
        intake, views = self._views.of_camera(camera)
        arrival = intake.push(frame, now_ns)
        with self._lock:
            for view in views:
                if arrival.reset_reason:
                    self._reset(view, arrival.reset_reason, now_ns, arrival.frame)
                if arrival.frame is None:
                    view.gate.refused(arrival.refusal, now_ns)
                    continue
                note = intake.mixture() or view.overload(now_ns)
                self._publisher.publish(
                    view,
                    view.gate.image(arrival.frame, arrival.health, note, view.questions, now_ns),
                )

    def refuse(self, reason: str, camera: tuple[str, str] | None = None) -> None:
        """Note why images do not come as they should, to be told where answers are unknown."""
        with self._lock:
            for view in self._views.of_camera(camera)[1]:
                view.gate.troubled(reason, self._clock_ns())

    def check_freshness(self, now_ns: int | None = None) -> None:
        """Publish `unknown` for every question that has no fresh answer. Call a few times a second.

        `now_ns`: the present, if not read from the clock.
        """
        now_ns = self._clock_ns() if now_ns is None else now_ns
        for intake in self._views.cameras():
            reset_reason = intake.note_clock(now_ns)
            with self._lock:
                for view in self._views.seen_by(intake):
                    if reset_reason:
                        self._reset(view, reset_reason, now_ns)
                    else:
                        self._publisher.publish(view, view.gate.refresh(view.questions, now_ns))

    def reset(self, reason: str) -> None:
        """Drop all state and answers, as if frame time had gone backwards (a clock jump)."""
        for intake in self._views.cameras():
            intake.reset()
            with self._lock:
                for view in self._views.seen_by(intake):
                    self._reset(view, reason, self._clock_ns())

    def _reset(
        self, view: ViewState, reason: str, now_ns: int, frame: Frame | None = None
    ) -> None:
        self._publisher.publish(view, view.gate.reset(reason, view.questions, now_ns, frame))

    # -- views -----------------------------------------------------------------------------------

    def views(self) -> tuple[View, ...]:
        """Return the views in order."""
        return tuple(view.view for view in self._views.all)

    def add_view(self, view: View) -> None:
        """Add a view; questions that are of each view are asked of it.

        Waits until the engine's thread has opened it, at most OPEN_S, unless a listener calls this.
        Raises QuestionError, also where the engine cannot open it or its region of what its camera
        shows now is too thin; nothing is added then.
        """
        with self._lock:
            self._check_region(view)
            self._book.add_view(view)
            added = self._views.add(view)
            self._book_changed()
            if self._thread in (None, threading.current_thread()) and self._engine is not None:
                self._begin_views(self._engine)
        fault = self._opening(added)
        if fault:
            self.remove_view(view.name)
            raise QuestionError(fault, "view")

    def _check_region(self, view: View) -> None:
        size = self._views.size(view.camera)
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
            if self._engine is None or self._publisher.is_calling:
                return view.fault  # it is opened when the engine is loaded, or at the next turn
            ended = self._changed.wait_for(lambda: view.opened or self._stopping, OPEN_S)
        return view.fault or ("" if ended else f"view '{view.name}': the engine was busy for "
                              f"{OPEN_S:g} s and did not open it: try again")

    def remove_view(self, name: str) -> View:
        """Take a view out and return it. Raises QuestionError."""
        with self._lock:
            view = self._book.remove_view(name)
            self._views.remove(name)
            self._book_changed()
        return view

    # -- questions -------------------------------------------------------------------------------

    def questions(self) -> tuple[Question, ...]:
        """Return the standing questions in order."""
        return tuple(self._standing.by_id.values())

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
            for view in self._views.all:
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
            if replace and question.id in self._standing.by_id:
                changes = {name: getattr(question, name) for name in question.__dataclass_fields__}
                self._book.replaced(question.id, **changes)
            else:
                self._book.copy().add(question)

    def _begin_question(self, question_id: str) -> None:
        """Ask a new question from the next group on, with nothing left of an old one of that id."""
        for view in self._views.all:
            view.scheduler.forget(question_id)
            view.gate.added(question_id, self._clock_ns())
            self._unlearn(view, question_id)
        self._book_changed()

    def _check(self, question: Question) -> None:
        for view in self._views.asked(question):
            if view.processor is not None:
                view.processor.answerers.check(question)

    def _book_changed(self) -> None:
        standing = self._publisher.standing = StandingQuestions.of(self._book)
        for view in self._views.all:
            view.questions = standing.at(view.name)

    @property
    def _standing(self) -> StandingQuestions:
        return self._publisher.standing

    def cost(self, question: Question) -> Cost | None:
        """Return what a question, standing or not, costs; None before the model is loaded."""
        for view in self._views.asked(question):
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
            question, view = self._book.get(learned.question_id), self._views.named(learned.view)
            if view is None or not question.is_of(view.name):
                raise ViewError(f"'{question.id}' is not asked of a view '{learned.view}'")
            learned.check(question, engine.fingerprint,
                          view.view.pixel_budget or engine.pixel_budget, language_of(engine))
            view.learned = {**view.learned, learned.name: learned}

    def unlearn(self, name: str, view_name: str) -> list[Learned]:
        """Answer as before anything was learned; return what was. Raises LearnedError.

        `name`: of a question, or of a label of an any_of (`on_desk[cup]`).
        """
        with self._lock:
            view = self._views.named(view_name)
            gone = self._unlearn(view, name) if view is not None else []
            if not gone:
                wanted = address(view_name, name)
                there = there_are((address(*one.key) for one in self.learned()), wanted)
                raise LearnedError(f"nothing was learned of '{wanted}' ({there})")
            return gone

    def learned(self) -> list[Learned]:
        """Return what was learned and is in use."""
        with self._lock:
            return [one for view in self._views.all for one in view.learned.values()]

    def _unlearn(self, view: ViewState, name: str) -> list[Learned]:
        gone = {key: one for key, one in view.learned.items() if name in (one.question_id, key)}
        if gone:
            view.learned = {key: one for key, one in view.learned.items() if key not in gone}
        return list(gone.values())

    # -- one-off questions -----------------------------------------------------------------------

    def ask(self, question: Question, timeout_s: float = 5.0) -> Decision:
        """Answer one question about now, unsmoothed; `unknown` with the reason if that fails.

        Waits for the engine thread, at most `timeout_s`; without one, asks in this thread. Raises
        QuestionError where there are several views and the question names none: see `ask_each`.
        """
        if len(self._views.asked(question)) > 1:
            names = listed(view.name for view in self._views.all)
            raise QuestionError(f"question '{question.id}': name the view to ask: {names}", "view")
        return self.ask_each(question, timeout_s)[0]

    def ask_each(self, question: Question, timeout_s: float = 5.0) -> list[Decision]:
        """Answer one question about now of each view that it is of. Raises QuestionError."""
        views = self._views.asked(question)
        if not views:
            self._book.view(question.view)  # says that there is none
        if self._thread is None:
            return [self._answer_now(question, view) or self._no_answer(
                question, view, view.unseen or "no group yet", FAULT if view.unseen else NO_IMAGE)
                for view in views]
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
                if status == OK:
                    status, reason = ((FAULT, view.unseen) if view.unseen
                                      else (STALE, "the engine is busy"))
                reason = f"no answer within {timeout_s:g} s: {reason}"
                out.append(self._no_answer(question, view, reason, status))
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
            view = self._views.named(one.view)
            if view is None:
                view = self._views.all[0]
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
                lambda: not (self._views.has_groups or self._busy) or self._stopping, timeout_s
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
                self._notices.error(
                    f"a turn of the engine failed\n{traceback.format_exc().rstrip()}")
                for view in self._views.all:
                    view.turn = None
                time.sleep(FAILED_S)
        self._close()
        leave_thread()

    def _load(self) -> None:
        engine = self._engine_factory()
        self._encoding = Encoding(engine, self._meter, self.settings.reuse)
        with self._lock:  # from here on, what cannot be answered is not taken
            for view in self._views.all:
                self._begin(view, engine)
            self._encoding.share(self.views())
            self._rounds = Rounds(self._views, self._encoding, self._publisher, self._notices,
                                  self._meter, self._clock_ns)
            for question in self.questions():
                self._check(question)
            self._engine = engine
        self._model = engine.name
        if getattr(engine, "tick_s", None) is not None:  # it is warm
            self.speed = measure(engine, self._views.all, self._meter.timer)

    def _begin(self, view: ViewState, engine: EngineLike) -> None:
        view.check_budget(engine)
        heads, refused = self._heads.load(engine, view.view)
        for reason in refused:
            self._notices.error(reason)
        view.begin(engine, heads, self._begun)
        self._begun += 1

    def _begin_views(self, engine: EngineLike) -> None:
        """Open the streams of views that have none yet; under the lock."""
        new = self._views.unopened
        for view in new:
            try:
                self._begin(view, engine)
            except ViewError as error:
                view.fault = str(error)
            except Exception as error:  # of the engine: the other views live on
                view.fault = (f"view '{view.name}': the model cannot open it: "
                              f"{str(error) or type(error).__name__}")
            if view.fault:
                self._notices.error(view.fault)
        if self._shared is not self._views.all:
            self._shared = self._views.all
            self._encoding.share(self.views())
        if new:
            with self._changed:
                self._changed.notify_all()

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
        views = self._views
        return (views.has_groups or bool(views.unopened) or self._one_offs.waiting
                or self._stopping)

    def _close(self) -> None:
        """Let the engine go, in its thread, and answer those that still wait."""
        self._reused = self._encoding.reuse if self._encoding else None
        self._engine = self._encoding = self._rounds = None
        for view in self._views.all:
            view.processor = None
        with self._changed:
            self._stopping = True
            self._busy = False
            self._changed.notify_all()
        for one in self._one_offs.take():
            view = self._views.named(one.view) or self._views.all[0]
            one.settle(self._no_answer(one.question, view, "the runtime has stopped"))

    # -- one turn of the engine ------------------------------------------------------------------

    def _turn(self) -> bool:
        """Answer one-off questions, see to all views, ask about the most urgent; then dead time."""
        self._answer_one_offs()
        with self._lock:
            self._begin_views(self._engine)
        seen = self._rounds.see()
        asked = self._rounds.ask_most_urgent()
        self._answer_one_offs()
        for _ in self._rounds.dead_time():
            if self._wanted_now():
                break
        with self._changed:
            self._busy = False
            self._changed.notify_all()
        return seen or asked

    # -- statistics ------------------------------------------------------------------------------

    def stats(self) -> RuntimeStats:
        """Return a snapshot of counters, latencies, rates and the present condition."""
        now_ns, encoding = self._clock_ns(), self._encoding
        with self._lock:
            views = {view.name: view.stats(now_ns) for view in self._views.all}
        return RuntimeStats.of(
            self._meter,
            views,
            model=self._model,
            heads=tuple(head.name for head in self._heads.shared),
            heads_refused=self._heads.refused(self.views()),
            learned={address(*one.key): one for one in self.learned()},
            reuse=encoding.reuse if encoding else self._reused,
            batch_gain=encoding.batch_gain if encoding else 1.0,
        )
