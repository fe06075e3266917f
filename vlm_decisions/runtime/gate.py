"""
The gate between evidence and the world: nothing stale passes as an answer.

Every decision goes out through here, one at a time, with the same checks: is the evidence still
of this run of frame time, is it fresh, is the camera fit to be asked about? If not, the answer is
`unknown`, with the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from ..decision import TIER_HEALTH, UNKNOWN, Decision
from ..frames import NS, Frame
from ..questions import Question
from .health import HealthState
from .health_report import HealthReporter
from .settings import RuntimeSettings
from .smoothing import Bus, Evidence
from .statistics import Meter


class Answers:
    """
    Bus, freshness and publishing. Thread-safe.

    `on_decision` is called under its lock, in order, and must not raise. `standing` returns the
    standing questions by id; `generation` returns the present run of frame time: evidence of an
    older one is outdated and dropped.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        meter: Meter,
        clock_ns: Callable[[], int],
        standing: Callable[[], Mapping[str, Question]],
        generation: Callable[[], int],
        on_decision: Callable[[Decision], None],
        on_error: Callable[[str], None],
    ) -> None:
        """Start without an image: every answer is unknown."""
        self._settings = settings
        self._max_age_ns = round(settings.max_age_s * NS)
        self._period_ns = round(settings.unknown_period_s * NS)
        self._meter = meter
        self._clock_ns = clock_ns
        self._standing = standing
        self._generation = generation
        self._on_decision = on_decision
        self._on_error = on_error
        self._lock = threading.RLock()
        self._bus = Bus()
        self._reporter = HealthReporter(settings.health_period_s)
        self._arrived_ns: int | None = None
        self._stamp_ns = 0
        self._unusable = ""
        self._absence = "no image yet"
        self._clear_since_ns: int | None = None
        self._added_ns: dict[str, int] = {}
        self._published_ns: dict[str, int] = {}
        self._health_unknown_ns: int | None = None
        self._interrupted: set[str] = set()  # unknown because of a condition, not asked since

    def condition(self, now_ns: int) -> str:
        """Return why no question can be answered at `now_ns`; empty if they can."""
        with self._lock:
            return self._absent(now_ns) or self._misplaced(now_ns) or self._unusable

    def image_age_s(self, now_ns: int) -> float:
        """Return seconds since the last image arrived, inf before the first."""
        arrived_ns = self._arrived_ns
        return float("inf") if arrived_ns is None else (now_ns - arrived_ns) / NS

    def image(self, frame: Frame, health: HealthState, now_ns: int) -> None:
        """Take an image that arrived at `now_ns` and the camera's state; report health."""
        with self._lock:
            self._arrived_ns, self._stamp_ns = now_ns, frame.stamp_ns
            self._unusable = health.reason
            self._health_unknown_ns = None
            for decision in self._reporter.report(frame, health, now_ns):
                self._publish(decision)
            self.refresh(now_ns)

    def refresh(self, now_ns: int) -> None:
        """Publish `unknown` for what has no fresh answer: at once, then at a slow rate."""
        with self._lock:
            absent = self._absent(now_ns)
            if absent and self._waited(self._health_unknown_ns, now_ns):
                self._health_unknown_ns = now_ns
                for decision in self._reporter.unknown(absent, now_ns):
                    self._publish(decision)
            condition = self.condition(now_ns)
            if condition:
                self._clear_since_ns = None
            elif self._clear_since_ns is None:
                self._clear_since_ns = now_ns
            for question in self._standing().values():
                reason = condition or self._overdue(question, now_ns)
                if reason:
                    self._repeat_unknown(question, reason, now_ns)
                if condition:
                    self._interrupted.add(question.id)

    def interrupted(self, now_ns: int) -> frozenset[str]:
        """Return the questions that a condition, now over, made unknown; they should not wait."""
        with self._lock:
            over = bool(self._interrupted) and not self.condition(now_ns)
            return frozenset(self._interrupted) if over else frozenset()

    def answered(
        self,
        question: Question,
        probabilities: Sequence[float],
        evidence: Evidence,
        generation: int,
    ) -> None:
        """Take an answer's probabilities and publish the decision that follows."""
        with self._lock:
            current = self._current(question, generation)
            if current is None:
                return
            now_ns = self._clock_ns()
            condition = self.condition(now_ns)
            if not condition:
                self._interrupted.discard(question.id)
            reason = condition or self._outlived(evidence, now_ns)
            if reason:
                self._repeat_unknown(current, reason, now_ns, evidence)
                return
            try:
                decision = self._bus.update(current, probabilities, evidence, now_ns)
            except ValueError as error:  # the engine's numbers are none
                self._on_error(str(error))
                decision = self._bus.unknown(current, str(error), now_ns, evidence)
            self._publish(decision)

    def failed(self, question: Question, reason: str, evidence: Evidence, generation: int) -> None:
        """Take that a question could not be answered; publish `unknown` with the reason."""
        with self._lock:
            current = self._current(question, generation)
            if current is not None:
                now_ns = self._clock_ns()
                self._interrupted.discard(question.id)
                self._publish(self._bus.unknown(current, reason, now_ns, evidence))

    def reset(self, reason: str, now_ns: int, frame: Frame | None) -> None:
        """Forget all evidence (frame time or the clock started anew) and say so."""
        with self._lock:
            self._bus.reset()
            self._reporter.reset()
            self._clear_since_ns = None
            self._health_unknown_ns = None
            self._added_ns.clear()  # of a time that may lie ahead now
            self._arrived_ns = None
            self._unusable = ""
            self._absence = f"no image since {reason}"
            evidence = None
            if frame is not None:
                stamp_ns = frame.stamp_ns
                evidence = Evidence(TIER_HEALTH, stamp_ns, stamp_ns, frame_id=frame.frame_id)
            for question in self._standing().values():
                self._publish(self._bus.unknown(question, reason, now_ns, evidence))

    def added(self, question_id: str, now_ns: int) -> None:
        """Note that a question is new, or means something new."""
        with self._lock:
            self._bus.forget(question_id)
            self._published_ns.pop(question_id, None)
            self._added_ns[question_id] = now_ns

    def removed(self, question_id: str) -> None:
        """Drop all that is kept of a question."""
        with self._lock:
            self._bus.forget(question_id)
            self._published_ns.pop(question_id, None)
            self._added_ns.pop(question_id, None)
            self._interrupted.discard(question_id)

    def _absent(self, now_ns: int) -> str:
        if self._arrived_ns is None:
            return self._absence
        silent_ns = now_ns - self._arrived_ns
        return f"no image for {silent_ns / NS:.1f} s" if silent_ns > self._max_age_ns else ""

    def _misplaced(self, now_ns: int) -> str:
        age_ns = now_ns - self._stamp_ns
        if age_ns > self._max_age_ns:
            silent_ns = now_ns - self._arrived_ns
            if silent_ns > age_ns / 2:  # it was young when it came
                return f"no image for {silent_ns / NS:.1f} s"
            return f"the newest image is {age_ns / NS:.1f} s old"
        if age_ns < -self._max_age_ns:
            return f"image stamps are {-age_ns / NS:.1f} s ahead of the clock"
        return ""

    def _outlived(self, evidence: Evidence, now_ns: int) -> str:
        age_ns = now_ns - evidence.t_end_ns
        return f"the evidence is {age_ns / NS:.1f} s old" if age_ns > self._max_age_ns else ""

    def _overdue(self, question: Question, now_ns: int) -> str:
        """Return what to say of a question whose answers have stopped coming, else empty."""
        since_ns = max(
            self._bus.evidence(question.id).t_end_ns,
            self._added_ns.get(question.id, 0),
            now_ns if self._clear_since_ns is None else self._clear_since_ns,
        )
        silent_s = (now_ns - since_ns) / NS
        limit_s = max(self._settings.max_age_s, 2.0 / question.rate_hz)
        return f"no answer for {silent_s:.1f} s" if silent_s > limit_s else ""

    def _current(self, question: Question, generation: int) -> Question | None:
        """Return the standing question that an answer belongs to, None if it is outdated."""
        current = self._standing().get(question.id)
        if (
            generation != self._generation()
            or current is None
            or not current.asks_the_same(question)
        ):
            self._meter.drop("outdated")
            return None
        return current

    def _waited(self, published_ns: int | None, now_ns: int) -> bool:
        return published_ns is None or not 0 <= now_ns - published_ns < self._period_ns

    def _repeat_unknown(
        self, question: Question, reason: str, now_ns: int, evidence: Evidence | None = None
    ) -> None:
        known = self._bus.answer(question.id) != UNKNOWN
        if known or self._waited(self._published_ns.get(question.id), now_ns):
            self._publish(self._bus.unknown(question, reason, now_ns, evidence))

    def _publish(self, decision: Decision) -> None:
        self._published_ns[decision.question_id] = decision.t_decided_ns
        age_s = None if decision.answer == UNKNOWN else decision.age_s
        self._meter.published(decision.tier, age_s)
        self._on_decision(decision)
