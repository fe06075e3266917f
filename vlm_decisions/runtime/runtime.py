"""Frames in, decisions out: the queue, the engine thread, and the standing questions.

Needs neither ROS nor MLX to be imported: the engine, the clock and the listeners are passed in.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

from ..decision import FAULT, NO_IMAGE, OK, STALE, UNKNOWN, Decision
from ..frames import NS, Frame, Group
from ..questions import Question, QuestionBook, QuestionError
from .engine_protocol import EngineLike
from .evidence import Result
from .gate import Gate
from .heads import load_heads
from .intake import Intake
from .one_off import OneOffs
from .scheduler import Cost, Scheduler
from .settings import RuntimeSettings
from .smoothing import decide, no_answer
from .statistics import Meter, RuntimeStats
from .threads import leave_thread
from .tick import Encoded, Processor, Work
from .withhold import withheld

#: Longest turn of one thread of the interpreter while another waits, seconds.
SWITCH_S = 0.0001

#: Pieces of dead-time work after one group; more than any stream has.
MAX_IDLE_PIECES = 64

#: A lack of time is told for so long, seconds.
OVERLOAD_S = 5.0

#: Backlogs within OVERLOAD_S from which on the machine is too slow.
BACKLOGS = 3

Listener = Callable[[Decision], None]


class NotReadyError(TimeoutError):
    """The engine has not been loaded in the time given; a loader's own timeout is another."""


class Runtime:
    """Answers standing questions about the frames pushed into it.

    Loading fails with QuestionError where a standing question can never be answered by the model.
    One engine thread owns the engine: it calls `engine_factory`, processes the groups that `push`
    samples, and lets the engine go. Listeners are called from the engine's, the pushing and the
    checking thread, decisions one at a time and in order; they may call back, except `ask`.

    Each group goes: vision, Tier 1, append, Tier 2. While groups wait, Tier 2 is skipped; when its
    last evidence is half of `max_age_s` old, those waiting are dropped but for the newest, so that
    it gets its turn before answers expire (`catch_up` in the statistics).
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
        self._listeners: tuple[Listener, ...] = () if on_decision is None else (on_decision,)
        # Guards the gate, the book and the listeners, and is held while decisions are published:
        # one at a time, in order. Taken before the intake's.
        self._lock = threading.RLock()
        self._book = book
        self._standing = {question.id: question for question in book}  # read without the lock

        self._meter = Meter(timer)
        self._intake = Intake(self.settings, self._meter)
        self._gate = Gate(self.settings)
        self._scheduler = Scheduler(self.settings.tolerance_s)
        self._one_offs = OneOffs(self._intake.changed)

        self._engine_factory = engine_factory
        self._head_paths = tuple(head_paths)
        self._processor: Processor | None = None
        self._model = ""
        self._heads: tuple[str, ...] = ()
        self._heads_refused: dict[str, str] = {}
        self._generation = 0  # of frame time, that the processor's window belongs to
        self._put_off = False
        self._overloaded_ns: int | None = None  # t_end of the last group not all was asked about
        self._backlogs: deque[int] = deque(maxlen=BACKLOGS)  # t_end where each of the last began
        self._asked_ns = 0  # t_end of the last group whose Tier 2 was not put off

        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._load_error: BaseException | None = None
        self._busy = False  # a turn is under way; this and the next under the intake's condition
        self._stopping = False

    # -- decisions -------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Let `listener` have every decision from now on; return a function that ends that.

        A listener that raises is reported and stops neither the answers nor the other listeners.
        One that is slow delays both.
        """
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def end() -> None:
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

        return end

    def _publish(self, decisions: Iterable[Decision]) -> None:
        """Hand decisions to the listeners; under the lock."""
        for decision in decisions:
            known = decision.answer != UNKNOWN
            self._meter.published(decision.tier, decision.age_s if known else None)
            for listener in self._listeners:
                try:
                    listener(decision)
                except OSError as error:  # a full disk, say: the message has it all
                    self._error(f"decisions could not be handed on: {error}")
                except Exception:
                    self._error(
                        f"'{decision.question_id}' could not be handed on\n"
                        f"{traceback.format_exc().rstrip()}"
                    )

    # -- frames ----------------------------------------------------------------------------------

    def push(self, frame: Frame) -> None:
        """Take a camera frame: Tier 0, sampling, queue. Returns at once; thread-safe."""
        now_ns = self._clock_ns()
        arrival = self._intake.push(frame, now_ns)
        with self._lock:
            if arrival.reset_reason:
                self._reset(arrival.reset_reason, now_ns, arrival.frame)
            if arrival.frame is None:
                self._gate.refused(arrival.refusal, now_ns)
            else:
                self._publish(
                    self._gate.image(
                        arrival.frame,
                        arrival.health,
                        self._intake.mixture() or self._overload(now_ns),
                        self.questions(),
                        now_ns,
                    )
                )

    def refuse(self, reason: str) -> None:
        """Note that an image arrived and cannot be used, to be told where no other arrives."""
        with self._lock:
            self._gate.refused(reason, self._clock_ns())

    def check_freshness(self, now_ns: int | None = None) -> None:
        """Publish `unknown` for every question that has no fresh answer. Call a few times a second.

        `now_ns`: the present, if not read from the clock.
        """
        now_ns = self._clock_ns() if now_ns is None else now_ns
        reset_reason = self._intake.note_clock(now_ns)
        with self._lock:
            if reset_reason:
                self._reset(reset_reason, now_ns)
            else:
                self._publish(self._gate.refresh(self.questions(), now_ns))

    def reset(self, reason: str) -> None:
        """Drop all state and answers, as if frame time had gone backwards (a clock jump)."""
        self._intake.reset()
        with self._lock:
            self._reset(reason, self._clock_ns())

    def _reset(self, reason: str, now_ns: int, frame: Frame | None = None) -> None:
        self._publish(self._gate.reset(reason, self.questions(), now_ns, frame))

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
            self._scheduler.forget(question_id)
            self._gate.removed(question_id)
        return question

    def replace_question(self, question_id: str, **changes: Any) -> Question:
        """Change fields of a question, all or none. Raises QuestionError.

        Rates, thresholds and smoothing change in passing; another text, kind, set of options or
        calibration starts it anew.
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
        self._scheduler.forget(question_id)
        self._gate.added(question_id, self._clock_ns())
        self._book_changed()

    def _check(self, question: Question) -> None:
        if self._processor is not None:
            self._processor.check(question)

    def _book_changed(self) -> None:
        self._standing = {question.id: question for question in self._book}

    def cost(self, question: Question) -> Cost | None:
        """Return what a question, standing or not, costs; None before the model is loaded."""
        processor = self._processor
        return None if processor is None else processor.cost(question)

    def _costs(self) -> dict[str, Cost]:
        costs = {question.id: self.cost(question) for question in self.questions()}
        return {name: cost for name, cost in costs.items() if cost is not None}

    def _backlog_lasts(self, now_ns: int) -> bool:
        """Return whether groups queue up again and again: once may be a hiccup."""
        began = self._backlogs
        return len(began) == BACKLOGS and 0 <= now_ns - began[0] < OVERLOAD_S * NS

    def _overload(self, now_ns: int) -> str:
        """Return what to say where lately not all questions could be asked in time, else empty."""
        if self._overloaded_ns is None or not 0 <= now_ns - self._overloaded_ns < OVERLOAD_S * NS:
            return ""
        costs = {name: cost for name, cost in self._costs().items() if cost.tokens}
        if not costs:
            return ""
        name, dearest = max(costs.items(), key=lambda item: item[1].tokens)
        total_ms = sum(cost.ms for cost in costs.values())
        return (
            f"too slow for all rates, which are lowered: {len(costs)} questions take "
            f"{total_ms:.0f} ms, the dearest is '{name}' ({dearest})"
        )

    # -- one-off questions -----------------------------------------------------------------------

    def ask(self, question: Question, timeout_s: float = 5.0) -> Decision:
        """Answer one question about now, unsmoothed; `unknown` with the reason if that fails.

        Waits for the engine thread, at most `timeout_s`; without one, asks in this thread.
        """
        if self._thread is None:
            return self._answer_now(question) or self._no_answer(
                question, "no group yet", NO_IMAGE
            )
        if threading.current_thread() is self._thread:
            raise RuntimeError("ask() would wait for the thread that it is called from")
        with self._intake.changed:
            if self._stopping:
                return self._no_answer(question, "the runtime has stopped")
            future = self._one_offs.put(question)
        try:
            return future.result(timeout_s)
        except FutureTimeout:
            future.cancel()
            with self._lock:
                status, reason = self._gate.cause(self._clock_ns())
            reason = f"no answer within {timeout_s:g} s: {reason or 'the engine is busy'}"
            return self._no_answer(question, reason, STALE if status == OK else status)

    def _answer_now(self, question: Question) -> Decision | None:
        """Return the answer about the newest group, None if there is no fresh one."""
        newest_ns = self._processor.newest_ns if self._processor else None
        now_ns = self._clock_ns()
        if (
            newest_ns is None
            or self._generation != self._intake.generation
            or self._condition(now_ns)
            or now_ns - newest_ns > self.settings.max_age_s * NS
        ):
            return None
        try:
            self._processor.check(question)
        except QuestionError as error:
            return self._no_answer(question, str(error))
        return decide(self._processor.ask_now(question), self._clock_ns())

    def _no_answer(self, question: Question, reason: str, status: str = FAULT) -> Decision:
        return no_answer(question, reason, self._clock_ns(), status=status)

    def _condition(self, now_ns: int) -> str:
        with self._lock:
            return self._gate.condition(now_ns)

    # -- engine thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine thread, which loads the engine. Once only."""
        if self._thread is not None or self._processor is not None:
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
        with self._intake.changed:
            return self._intake.changed.wait_for(
                lambda: not (len(self._intake) or self._busy) or self._stopping, timeout_s
            )

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the engine thread after the group in work; return whether it ended in time."""
        with self._intake.changed:
            self._stopping = True
            self._intake.changed.notify_all()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        atexit.unregister(self.stop)
        return True

    def step(self) -> bool:
        """Process at most one waiting group in this thread; return whether there was one.

        For tests and replay faster than time, where start() was not called. The first call loads
        the engine and raises what that raises.
        """
        if self._thread is not None:
            raise RuntimeError("step() is for a runtime that was not started")
        if self._processor is None:
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
            self._turn()
        self._close()
        leave_thread()

    def _load(self) -> None:
        engine = self._engine_factory()
        heads, self._heads_refused = load_heads(
            self._head_paths, engine.fingerprint, engine.pixel_budget
        )
        for reason in self._heads_refused.values():
            self._error(reason)
        processor = Processor(engine, heads, self.settings, self._meter)
        with self._lock:  # from here on, what cannot be answered is not taken
            for question in self.questions():
                processor.check(question)
            self._processor = processor
        self._heads = tuple(head.name for head in heads)
        self._model = engine.name

    def _wait(self) -> bool:
        """Wait for something to do; return whether to go on."""
        with self._intake.changed:
            self._intake.changed.wait_for(self._wanted)
            self._busy = not self._stopping
            return self._busy

    def _wanted(self) -> bool:
        return bool(len(self._intake) or self._one_offs.waiting or self._stopping)

    def _close(self) -> None:
        """Let the engine go, in its thread, and answer those that still wait."""
        self._processor = None
        with self._intake.changed:
            self._stopping = True
            self._busy = False
            self._intake.changed.notify_all()
        for one in self._one_offs.take():
            one.settle(self._no_answer(one.question, "the runtime has stopped"))

    def _error(self, message: str) -> None:
        self._meter.error(message)
        # It is counted and kept; a receiver that fails must not stop the answers.
        with suppress(Exception):
            self._tell(message)

    # -- one turn of the engine ------------------------------------------------------------------

    def _turn(self) -> bool:
        """Process the next group if one waits, then the one-off questions, then dead time."""
        with self._intake.changed:
            self._one_offs.waiting = False
        waited_ns = self._clock_ns() - self._asked_ns
        group, generation, backlog = self._intake.take(
            newest_only=self._put_off and waited_ns > self.settings.max_age_s * NS / 2
        )
        if group is not None:
            try:
                with self._meter.stage("total"):
                    self._process(group, generation, backlog)
            except Exception:
                # Nothing an engine does ends here: it is a fault of this program. Whatever it
                # was, the thread lives on, and the next group starts afresh.
                self._processor.restart()
                self._error(f"a group could not be processed\n{traceback.format_exc().rstrip()}")
            self._meter.count("ticks")
        for one in self._one_offs.take():
            decision = self._answer_now(one.question)
            if decision is None:
                self._one_offs.put_back(one)
            else:
                one.settle(decision)
        self._use_dead_time()
        with self._intake.changed:
            self._busy = False
            self._intake.changed.notify_all()
        return group is not None

    def _process(self, group: Group, generation: int, backlog: bool) -> None:
        """Take one group through the processor; gate and publish what comes back."""
        processor, scheduler, meter = self._processor, self._scheduler, self._meter
        began_s = meter.timer()
        if generation != self._generation:
            self._generation = generation
            scheduler.reset()
            processor.restart()
        with self._lock:
            interrupted = self._gate.interrupted(self._clock_ns())
        questions = self.questions()
        encoded = processor.encode(group)
        # A group is encoded while Tier 0 looks at it, but nothing is made of it before.
        if not encoded.fault and not self._intake.fit(group):
            meter.drop("unusable")
            processor.restart()
            return
        if encoded.scene_change:
            scheduler.hasten(group.t_end_ns)
        elif interrupted:
            scheduler.hasten(group.t_end_ns, interrupted)
        questions = self._withhold(questions, encoded, generation)
        due = scheduler.due(questions, group.t_end_ns)
        self._deliver(processor.tier1(encoded, due), group, generation, began_s)
        meter.note("tier_1", meter.timer() - began_s)
        tier_2_s, was_put_off, self._put_off = meter.timer(), self._put_off, False
        age_s = (self._clock_ns() - group.t_end_ns) / NS
        for work in processor.tier2(encoded, questions, due, age_s=age_s, skip=backlog):
            self._deliver(work, group, generation, began_s)
            meter.count("skipped", work.put_off)
            self._put_off |= backlog and work.put_off > 0
        if self._put_off and not was_put_off:
            self._backlogs.append(group.t_end_ns)
        if processor.overloaded or self._put_off and self._backlog_lasts(group.t_end_ns):
            new = not self._overload(group.t_end_ns)
            self._overloaded_ns = group.t_end_ns
            if new and (message := self._overload(group.t_end_ns)):
                self._tell(message)
        if processor.asks_model:
            meter.note("tier_2", meter.timer() - tier_2_s)
        if not self._put_off:
            self._asked_ns = group.t_end_ns

    def _withhold(
        self, questions: Sequence[Question], encoded: Encoded, generation: int
    ) -> tuple[Question, ...]:
        """Return the questions that may be asked about a group; say of the others why not."""
        processor, asked = self._processor, []
        with self._lock:
            answers = self._gate.answers()
        for question in questions:
            status, reason = withheld(question, answers, processor.seen_s(encoded))
            if status == OK:
                asked.append(question)
            else:
                self._admit(processor.withhold(encoded, question, status, reason), generation)
        return tuple(asked)

    def _admit(self, result: Result, generation: int) -> None:
        """Publish what the gate makes of a result, unless it is of another time or question."""
        with self._lock:
            question = self._standing.get(result.question.id)
            if (
                generation != self._intake.generation
                or question is None
                or not question.asks_the_same(result.question)
            ):
                self._meter.drop("outdated")
            else:
                self._publish(self._gate.result(result, question, self._clock_ns()))

    def _deliver(self, work: Work, group: Group, generation: int, began_s: float) -> None:
        """Publish what the gate makes of the results; tell of the faults."""
        for fault in work.faults:
            self._error(fault)
        for result in work.results:
            self._scheduler.asked(result.question, group.t_end_ns)
        for result in work.results:
            self._admit(result, generation)
            if result.probabilities:
                spent_s = self._meter.timer() - began_s
                self._meter.note("outside", spent_s - self._processor.model_s)

    def _use_dead_time(self) -> None:
        for _ in range(MAX_IDLE_PIECES):
            with self._intake.changed:
                if self._wanted():
                    return
            more, work = self._processor.idle()
            for fault in work.faults:
                self._error(fault)
            if not more:
                return

    # -- statistics ------------------------------------------------------------------------------

    def stats(self) -> RuntimeStats:
        """Return a snapshot of counters, latencies, rates and the present condition."""
        now_ns = self._clock_ns()
        with self._lock:
            condition, age_s = self._gate.condition(now_ns), self._gate.image_age_s(now_ns)
            frame_ns = self._gate.frame_time_ns(now_ns)
        meter = self._meter
        return RuntimeStats(
            frames=meter.total("frames"),
            groups=meter.total("groups"),
            ticks=meter.total("ticks"),
            decisions=meter.total("decisions"),
            segments=meter.total("segments"),
            scene_changes=meter.total("scene_changes"),
            skipped=meter.total("skipped"),
            errors=meter.total("errors"),
            dropped=meter.dropped(),
            breaks=self._intake.breaks(),
            mixture=self._intake.mixture(),
            overload=self._overload(now_ns),
            asked=meter.total("asked"),
            reused=meter.total("reused"),
            costs=self._costs(),
            queue=len(self._intake),
            tick_ms=meter.tick_ms(),
            age_ms=meter.age_ms(),
            rates_hz=self._scheduler.rates(frame_ns),
            image_rate_hz=self._intake.image_rate_hz(age_s) if frame_ns else 0.0,
            image_age_s=age_s,
            condition=condition,
            last_error=meter.last_error,
            model=self._model,
            heads=self._heads,
            heads_refused=dict(self._heads_refused),
        )
