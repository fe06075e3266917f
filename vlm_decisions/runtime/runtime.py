"""
Frames in, decisions out: the queue, the engine thread, and the standing questions.

Needs neither ROS nor MLX to be imported: the engine, the clock and the outlets are passed in.
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
from contextlib import suppress
from typing import Any

from ..decision import Decision
from ..frames import Frame
from ..questions import Question, QuestionBook
from .engine_protocol import EngineLike
from .gate import Answers
from .intake import Intake
from .loop import Loop
from .settings import RuntimeSettings
from .statistics import Meter, RuntimeStats
from .threads import leave_thread

__all__ = ["EngineLike", "NotReadyError", "Runtime", "RuntimeSettings", "RuntimeStats"]

#: Longest turn of one thread of the interpreter while another waits, seconds.
SWITCH_S = 0.0001

Listener = Callable[[Decision], None]


class NotReadyError(TimeoutError):
    """The engine has not been loaded in the time given; a loader's own timeout is another."""


class Runtime:
    """
    Answers standing questions about the frames pushed into it.

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
        """
        Load nothing yet.

        `book` belongs to the runtime from here on: change it through the runtime. `on_decision`
        is the first listener (see `listen`). `head_paths`: npz files, or folders of them.
        `clock_ns`: the clock that the frames' stamps are on. `timer`: seconds, for durations.
        `on_error` gets messages for the operator, unthrottled.
        """
        self.settings = settings or RuntimeSettings()
        self._clock_ns = clock_ns
        self._tell = on_error or (lambda message: None)
        self._meter = Meter(timer)
        self._listeners: tuple[Listener, ...] = () if on_decision is None else (on_decision,)
        self._listeners_lock = threading.Lock()

        self._book = book
        self._book_lock = threading.Lock()
        self._standing: dict[str, Question] = {question.id: question for question in book}

        self._intake = Intake(self.settings, self._meter)
        self._answers = Answers(
            self.settings,
            self._meter,
            clock_ns,
            standing=lambda: self._standing,
            generation=lambda: self._intake.generation,
            on_decision=self._decided,
            on_error=self._error,
        )
        self._loop = Loop(
            engine_factory,
            tuple(head_paths),
            self.settings,
            self._intake,
            self._answers,
            self._meter,
            clock_ns,
            questions=self.questions,
            error=self._error,
        )
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._load_error: BaseException | None = None

    # -- decisions -------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> Callable[[], None]:
        """
        Let `listener` have every decision from now on; return a function that ends that.

        A listener that raises is reported and stops neither the answers nor the other listeners.
        One that is slow delays both.
        """
        with self._listeners_lock:
            self._listeners = (*self._listeners, listener)

        def end() -> None:
            with self._listeners_lock:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

        return end

    def _decided(self, decision: Decision) -> None:
        for listener in self._listeners:
            try:
                listener(decision)
            except OSError as error:  # a full disk, say: the message has it all
                self._error(f"'{decision.question_id}' could not be handed on: {error}")
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
        if arrival.reset_reason:
            self._answers.reset(arrival.reset_reason, now_ns, frame)
        if arrival.health is not None:
            self._answers.image(frame, arrival.health, now_ns)

    def check_freshness(self, now_ns: int | None = None) -> None:
        """
        Publish `unknown` for every question that has no fresh answer. Call a few times a second.

        `now_ns`: the present, if not read from the clock.
        """
        now_ns = self._clock_ns() if now_ns is None else now_ns
        reset_reason = self._intake.note_clock(now_ns)
        if reset_reason:
            self._answers.reset(reset_reason, now_ns, None)
        else:
            self._answers.refresh(now_ns)

    def reset(self, reason: str) -> None:
        """Drop all state and answers, as if frame time had gone backwards (a clock jump)."""
        self._intake.reset()
        self._answers.reset(reason, self._clock_ns(), None)

    # -- questions -------------------------------------------------------------------------------

    def questions(self) -> tuple[Question, ...]:
        """Return the standing questions in order."""
        return tuple(self._standing.values())

    def add_question(self, question: Question) -> None:
        """Add a standing question, asked on the next group. Raises QuestionError."""
        with self._book_lock:
            self._book.add(question)
        self._begin_question(question.id)

    def remove_question(self, question_id: str) -> Question:
        """Take a question out and return it. Raises QuestionError."""
        with self._book_lock:
            question = self._book.remove(question_id)
            self._standing = {question.id: question for question in self._book}
        self._loop.scheduler.forget(question_id)
        self._answers.removed(question_id)
        return question

    def replace_question(self, question_id: str, **changes: Any) -> Question:
        """
        Change fields of a question, all or none. Raises QuestionError.

        Rates, thresholds and smoothing change in passing; another text, kind, set of options or
        calibration starts it anew.
        """
        with self._book_lock:
            old = self._book.get(question_id)
            new = self._book.replace(question_id, **changes)
        if new.asks_the_same(old):
            self._publish_book()
        else:
            self._begin_question(question_id)
        return new

    def save_questions(self, path: str | os.PathLike) -> None:
        """Write the standing questions as YAML, atomically. Raises QuestionError."""
        with self._book_lock:
            book = self._book.copy()
        book.save(path)

    def ask(self, question: Question, timeout_s: float = 5.0) -> Decision:
        """
        Answer one question about now, unsmoothed; `unknown` with the reason if that fails.

        Waits for the engine thread, at most `timeout_s`; without one, asks in this thread.
        """
        if self._thread is None:
            return self._loop.answer_now(question) or self._no_answer(question, "no group yet")
        if threading.current_thread() is self._thread:
            raise RuntimeError("ask() would wait for the thread that it is called from")
        with self._intake.changed:
            if self._loop.stopping:
                return self._no_answer(question, "the runtime has stopped")
            future = self._loop.asks.put(question)
        try:
            return future.result(timeout_s)
        except FutureTimeout:
            future.cancel()
            reason = self._answers.condition(self._clock_ns()) or "the engine is busy"
            return self._no_answer(question, f"no answer within {timeout_s:g} s: {reason}")

    def _begin_question(self, question_id: str) -> None:
        """Let a new question stand, with nothing left of an old one of that id."""
        self._loop.scheduler.forget(question_id)
        self._answers.added(question_id, self._clock_ns())
        self._publish_book()

    def _publish_book(self) -> None:
        with self._book_lock:
            self._standing = {question.id: question for question in self._book}

    def _no_answer(self, question: Question, reason: str) -> Decision:
        return self._loop.no_answer(question, reason)

    # -- engine thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine thread, which loads the engine. Once only."""
        if self._thread is not None or self._loop.worker is not None:
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
                lambda: not (len(self._intake) or self._loop.busy) or self._loop.stopping,
                timeout_s,
            )

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the engine thread after the group in work; return whether it ended in time."""
        self._loop.stop()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        atexit.unregister(self.stop)
        return True

    def step(self) -> bool:
        """
        Process at most one waiting group in this thread; return whether there was one.

        For tests and replay faster than time, where start() was not called. The first call loads
        the engine and raises what that raises.
        """
        if self._thread is not None:
            raise RuntimeError("step() is for a runtime that was not started")
        if self._loop.worker is None:
            self._loop.load()
            self._ready.set()
        return self._loop.turn()

    def _run(self) -> None:
        try:
            self._loop.load()
        except BaseException as error:
            self._load_error = error
        self._ready.set()
        while self._load_error is None and self._loop.wait():
            self._loop.turn()
        self._loop.close()  # the engine's state belongs to this thread
        leave_thread()

    def _error(self, message: str) -> None:
        self._meter.error(message)
        # It is counted and kept; an outlet that fails must not stop the answers.
        with suppress(Exception):
            self._tell(message)

    # -- statistics ------------------------------------------------------------------------------

    def stats(self) -> RuntimeStats:
        """Return a snapshot of counters, latencies, rates and the present condition."""
        now_ns = self._clock_ns()
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
            queue=len(self._intake),
            tick_ms=meter.tick_ms(),
            age_ms=meter.age_ms(),
            rates_hz=self._loop.scheduler.rates(),
            image_rate_hz=self._intake.image_rate_hz(),
            image_age_s=self._answers.image_age_s(now_ns),
            condition=self._answers.condition(now_ns),
            last_error=meter.last_error,
            model=self._loop.model,
            heads=self._loop.heads,
            heads_refused=dict(self._loop.heads_refused),
        )
