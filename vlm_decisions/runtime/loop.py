"""
What the engine thread does, turn by turn: the next group, the one-off questions, dead time.

Owns the engine from loading it to letting it go. Knows nothing of starting and stopping threads.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence

from ..decision import Decision
from ..frames import NS
from ..questions import Question
from .engine_protocol import EngineLike
from .gate import Answers
from .heads import load_heads
from .intake import Intake
from .one_off import Asks
from .scheduler import Scheduler
from .settings import RuntimeSettings
from .smoothing import NO_EVIDENCE, Bus, Evidence
from .statistics import Meter
from .tick import Worker

#: Pieces of dead-time work after one group; more than any stream has.
MAX_IDLE_PIECES = 64


class Loop:
    """
    The turns of one engine. All methods but `busy` and `stop` belong to one thread.

    `questions` returns the standing questions; `error` takes messages for the operator.
    `busy` is true while a turn is under way, `stopping` once the turns should end; both are read
    and written under the intake's condition.
    """

    def __init__(
        self,
        engine_factory: Callable[[], EngineLike],
        head_paths: Sequence[str | os.PathLike],
        settings: RuntimeSettings,
        intake: Intake,
        answers: Answers,
        meter: Meter,
        clock_ns: Callable[[], int],
        questions: Callable[[], Sequence[Question]],
        error: Callable[[str], None],
    ) -> None:
        """Load nothing yet."""
        self._engine_factory = engine_factory
        self._head_paths = head_paths
        self._settings = settings
        self._intake = intake
        self._answers = answers
        self._meter = meter
        self._clock_ns = clock_ns
        self._questions = questions
        self._error = error
        self.asks = Asks(intake.changed)
        self.scheduler = Scheduler(settings.tolerance_s)
        self.busy = False
        self.stopping = False
        self.model = ""
        self.heads: tuple[str, ...] = ()
        self.heads_refused: dict[str, str] = {}
        self.worker: Worker | None = None
        self._generation = 0
        self._put_off = False
        self._asked_ns = 0  # t_end of the last group whose Tier 2 was not put off

    def load(self) -> None:
        """Load the engine and the heads. Raises what the factory raises."""
        engine = self._engine_factory()
        settings = self._settings
        heads, self.heads_refused = load_heads(
            self._head_paths, engine.fingerprint, engine.pixel_budget
        )
        for reason in self.heads_refused.values():
            self._error(reason)
        self.heads = tuple(head.name for head in heads)
        self.worker = Worker(
            engine,
            heads,
            self.scheduler,
            self._meter,
            window_groups=settings.window_groups,
            mode=settings.mode,
            scene_change=settings.scene_change,
            budget_s=settings.tier2_budget_s,
        )
        self.model = engine.name

    def wait(self) -> bool:
        """Wait for something to do; return whether to go on."""
        with self._intake.changed:
            self._intake.changed.wait_for(
                lambda: len(self._intake) or self.asks.waiting or self.stopping
            )
            self.busy = not self.stopping
            return self.busy

    def stop(self) -> None:
        """Ask for the end of the turns, from any thread."""
        with self._intake.changed:
            self.stopping = True
            self._intake.changed.notify_all()

    def turn(self) -> bool:
        """Process the next group if one waits, then the one-off questions, then dead time."""
        with self._intake.changed:
            self.asks.waiting = False
        waited_ns = self._clock_ns() - self._asked_ns
        group, generation, backlog = self._intake.take(
            newest_only=self._put_off and waited_ns > self._settings.max_age_s * NS / 2
        )
        worker = self.worker
        if group is not None:
            if generation != self._generation:
                self._generation = generation
                self.scheduler.reset()
                worker.restart()
            interrupted = self._answers.interrupted(self._clock_ns())
            if interrupted:
                self.scheduler.hasten(group.t_end_ns, interrupted)
            sink = _Sink(self._answers, self._error, generation)
            try:
                put_off = worker.process(
                    group, self._questions(), sink, fit=self._intake.fit, backlog=backlog
                )
                if put_off is not None:
                    self._put_off = put_off
                if put_off is False:
                    self._asked_ns = group.t_end_ns
            except Exception:
                # Nothing an engine does ends here: it is a fault of this program. Whatever it
                # was, the thread lives on, and the next group starts afresh.
                worker.restart()
                self._error(f"a group could not be processed\n{traceback.format_exc().rstrip()}")
            self._meter.count("ticks")
        self.asks.serve(self.answer_now)
        for _ in range(MAX_IDLE_PIECES):
            waiting = len(self._intake) or self.asks.waiting or self.stopping
            if waiting or not worker.idle(self._error):
                break
        with self._intake.changed:
            self.busy = False
            self._intake.changed.notify_all()
        return group is not None

    def close(self) -> None:
        """Let the engine go, in its thread, and answer those that still wait."""
        self.worker = None
        with self._intake.changed:
            self.stopping = True
            self.busy = False
            self._intake.changed.notify_all()
        self.asks.serve(lambda question: self.no_answer(question, "the runtime has stopped"))

    def answer_now(self, question: Question) -> Decision | None:
        """Return the answer about the newest group, None if there is no fresh one."""
        newest = self.worker.newest if self.worker else None
        now_ns = self._clock_ns()
        if (
            newest is None
            or self._generation != self._intake.generation
            or self._answers.condition(now_ns)
            or now_ns - newest.t_end_ns > self._settings.max_age_s * NS
        ):
            return None
        try:
            probabilities, evidence = self.worker.ask(question)
            return Bus().update(question, probabilities, evidence, self._clock_ns())
        except Exception as error:
            return self.no_answer(question, str(error) or type(error).__name__)

    def no_answer(self, question: Question, reason: str) -> Decision:
        """Return the decision that a one-off question has no answer."""
        return Bus().unknown(question, reason, self._clock_ns(), NO_EVIDENCE)


class _Sink:
    """The worker's results of one turn, on their way to the answers."""

    def __init__(self, answers: Answers, error: Callable[[str], None], generation: int) -> None:
        self._answers = answers
        self._generation = generation
        self.error = error

    def answered(
        self, question: Question, probabilities: Sequence[float], evidence: Evidence
    ) -> None:
        self._answers.answered(question, probabilities, evidence, self._generation)

    def failed(self, question: Question, reason: str, evidence: Evidence) -> None:
        self._answers.failed(question, reason, evidence, self._generation)
