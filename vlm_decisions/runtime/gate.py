"""The gate between evidence and the world: nothing stale passes as an answer.

Every decision is made here, with the same checks: is the evidence fresh, is the camera fit to be
asked about? If not, the answer is `unknown`, with the reason. Publishing is the caller's.
"""

from __future__ import annotations

from collections.abc import Collection

from ..decision import (
    CAMERA_UNUSABLE,
    NO_IMAGE,
    NOT_ASKED,
    NOT_ENOUGH_EVIDENCE,
    OK,
    STALE,
    TIER_HEALTH,
    UNKNOWN,
    Decision,
)
from ..frames import NS, Frame
from ..questions import Question
from .evidence import Evidence, Result
from .health import HealthReporter, HealthState
from .settings import RuntimeSettings
from .smoothing import Smoother

#: Why an answer is unknown: its status and its reason.
Cause = tuple[str, str]

#: How the reason begins where images come, and are older than answers may be.
LATE = "the newest image is"


class Gate:
    """What may be published, and when. Not thread-safe: the owner serialises the calls.

    Methods return the decisions to publish, in order. `questions` are always the standing ones.
    """

    def __init__(self, settings: RuntimeSettings) -> None:
        """Start without an image: every answer is unknown."""
        self._settings = settings
        self._max_age_ns = round(settings.max_age_s * NS)
        self._period_ns = round(settings.unknown_period_s * NS)
        self._smoother = Smoother()
        self._reporter = HealthReporter(settings.health_period_s)
        self._arrived_ns: int | None = None
        self._stamp_ns = 0
        self._unusable = ""
        self._absence = "no image yet"
        self._refusal: tuple[str, int] | None = None  # why an image was left out, and when
        self._trouble: tuple[str, int] | None = None  # why images come badly, and when last told
        self._note = ""  # what else is wrong with the images
        self._clear_since_ns: int | None = None
        self._added_ns: dict[str, int] = {}
        self._published_ns: dict[str, int] = {}
        self._said: dict[str, str] = {}  # status of the last unknown
        self._withheld_ns: dict[str, int] = {}  # newest group a question was held back for
        self._health_unknown_ns: int | None = None
        self._interrupted: set[str] = set()  # unknown because of a condition, not asked since

    def condition(self, now_ns: int) -> str:
        """Return why no question can be answered at `now_ns`; empty if they can."""
        return self.cause(now_ns)[1]

    def cause(self, now_ns: int) -> Cause:
        """Return why no question can be answered, as status and reason; OK and "" if they can."""
        absent = self._absent(now_ns)
        if absent:
            return NO_IMAGE, absent
        status, misplaced = self._misplaced(now_ns)
        if misplaced:
            return status, misplaced
        return (CAMERA_UNUSABLE, self._unusable) if self._unusable else (OK, "")

    def image_age_s(self, now_ns: int) -> float:
        """Return seconds since the last image arrived, inf before the first."""
        arrived_ns = self._arrived_ns
        return float("inf") if arrived_ns is None else (now_ns - arrived_ns) / NS

    def frame_time_ns(self, now_ns: int) -> int | None:
        """Return what frame time is at `now_ns`, as if images went on; None before the first."""
        arrived_ns = self._arrived_ns
        return None if arrived_ns is None else self._stamp_ns + now_ns - arrived_ns

    def image(
        self,
        frame: Frame,
        health: HealthState,
        note: str,
        questions: Collection[Question],
        now_ns: int,
    ) -> list[Decision]:
        """Take an image that arrived at `now_ns`, the camera's state, and what else is wrong."""
        self._arrived_ns, self._stamp_ns = now_ns, frame.stamp_ns
        self._unusable, self._note = health.reason, note
        reported: list[Decision] = []
        if not self._old(now_ns)[1]:  # else the camera's state was that, and is not known now
            self._health_unknown_ns = None
            reported = self._reporter.report(frame, health, now_ns)
        return [*reported, *self.refresh(questions, now_ns)]

    def refused(self, reason: str, now_ns: int) -> None:
        """Record that an image which cannot be used arrived at `now_ns`."""
        self._refusal = reason, now_ns

    def troubled(self, reason: str, now_ns: int) -> None:
        """Record why images do not come as they should; holds for a while, or until told again."""
        self._trouble = reason, now_ns

    def refresh(self, questions: Collection[Question], now_ns: int) -> list[Decision]:
        """Answer `unknown` where there is no fresh answer: at once, then at a slow rate."""
        out: list[Decision] = []
        absent = self._absent(now_ns)
        unseen = absent or self._old(now_ns)[1]
        if unseen and self._waited(self._health_unknown_ns, now_ns):
            self._health_unknown_ns = now_ns
            out += self._reporter.unknown(unseen, now_ns, NO_IMAGE if absent else STALE)
        status, condition = self.cause(now_ns)
        if condition:
            self._clear_since_ns = None
        elif self._clear_since_ns is None:
            self._clear_since_ns = now_ns
        for question in questions:
            reason = condition or self._overdue(question, now_ns)
            if reason:
                cause = (status if condition else STALE, reason)
                out += self._repeat_unknown(question, cause, now_ns)
            if condition:
                self._interrupted.add(question.id)
        return out

    def answers(self) -> dict[str, str]:
        """Return the present answers by id, those about the camera's health included."""
        return {**self._reporter.answers, **self._smoother.answers()}

    def interrupted(self, now_ns: int) -> frozenset[str]:
        """Return the questions that a condition, now over, made unknown; they should not wait."""
        over = bool(self._interrupted) and not self.condition(now_ns)
        return frozenset(self._interrupted) if over else frozenset()

    def result(self, result: Result, question: Question, now_ns: int) -> list[Decision]:
        """Take a look's result for a standing question, as it is defined at present.

        Nothing is returned where the answer is unknown and that was said a short while ago.
        """
        if not result.probabilities:
            self._interrupted.discard(question.id)
            cause = result.status, result.reason
            if result.status in (NOT_ASKED, NOT_ENOUGH_EVIDENCE):  # it may last
                self._withheld_ns[question.id] = result.evidence.t_end_ns
                return self._repeat_unknown(question, cause, now_ns, result.evidence)
            return [self._unknown(question, cause, now_ns, result.evidence)]
        status, condition = self.cause(now_ns)
        if not condition:
            self._interrupted.discard(question.id)
        reason = condition or self._outlived(result.evidence, now_ns)
        if reason:
            cause = (status if condition else STALE, reason)
            return self._repeat_unknown(question, cause, now_ns, result.evidence)
        decision = self._smoother.update(question, result.probabilities, result.evidence, now_ns)
        self._published_ns[question.id] = now_ns
        return [decision]

    def reset(
        self, reason: str, questions: Collection[Question], now_ns: int, frame: Frame | None
    ) -> list[Decision]:
        """Forget all evidence (frame time or the clock started anew) and say so."""
        self._smoother.reset()
        self._reporter.reset()
        self._clear_since_ns = None
        self._health_unknown_ns = None
        self._added_ns.clear()  # of a time that may lie ahead now
        self._arrived_ns = None
        self._unusable = self._note = ""
        self._refusal = self._trouble = None
        self._absence = f"no image since {reason}"
        evidence = None
        if frame is not None:
            stamp_ns = frame.stamp_ns
            evidence = Evidence(TIER_HEALTH, stamp_ns, stamp_ns, frame_id=frame.frame_id)
        self._withheld_ns.clear()
        cause = NO_IMAGE, reason
        return [self._unknown(question, cause, now_ns, evidence) for question in questions]

    def added(self, question_id: str, now_ns: int) -> None:
        """Note that a question is new, or means something new."""
        self.removed(question_id)
        self._added_ns[question_id] = now_ns

    def removed(self, question_id: str) -> None:
        """Drop all that is kept of a question."""
        self._smoother.forget(question_id)
        self._published_ns.pop(question_id, None)
        self._said.pop(question_id, None)
        self._withheld_ns.pop(question_id, None)
        self._added_ns.pop(question_id, None)
        self._interrupted.discard(question_id)

    def _absent(self, now_ns: int) -> str:
        if self._arrived_ns is None:
            return self._absence + self._refused(now_ns)
        silent_ns = now_ns - self._arrived_ns
        return self._silence(silent_ns, now_ns) if silent_ns > self._max_age_ns else ""

    def _silence(self, silent_ns: int, now_ns: int) -> str:
        return f"no image for {silent_ns / NS:.1f} s{self._refused(now_ns)}"

    def _refused(self, now_ns: int) -> str:
        """Return what to add where no image comes that can be used."""
        return self._troubled(now_ns) or self._recent(self._refusal, now_ns)

    def _troubled(self, now_ns: int) -> str:
        """Return what to add where images come, but not as they should."""
        return self._recent(self._trouble, now_ns)

    def _recent(self, told: tuple[str, int] | None, now_ns: int) -> str:
        return f": {told[0]}" if told and 0 <= now_ns - told[1] <= self._max_age_ns else ""

    def _old(self, now_ns: int) -> Cause:
        age_ns = now_ns - self._stamp_ns
        if age_ns <= self._max_age_ns:
            return OK, ""
        silent_ns = now_ns - self._arrived_ns
        if silent_ns > age_ns / 2:  # it was young when it came
            return NO_IMAGE, self._silence(silent_ns, now_ns)
        return STALE, f"{LATE} {age_ns / NS:.1f} s old{self._troubled(now_ns)}"

    def _misplaced(self, now_ns: int) -> Cause:
        old = self._old(now_ns)
        if old[1]:
            return old
        age_ns = now_ns - self._stamp_ns
        if age_ns < -self._max_age_ns and now_ns == 0:
            return STALE, "the clock stands at 0: simulated time has not begun"
        if age_ns < -self._max_age_ns:
            return STALE, f"image stamps are {-age_ns / NS:.1f} s ahead of the clock"
        return OK, ""

    def _outlived(self, evidence: Evidence, now_ns: int) -> str:
        age_ns = now_ns - evidence.t_end_ns
        if age_ns <= self._max_age_ns:
            return ""
        return f"the evidence is {age_ns / NS:.1f} s old{self._troubled(now_ns)}"

    def _overdue(self, question: Question, now_ns: int) -> str:
        """Return the reason if the answers to a question have stopped, else empty."""
        since_ns = max(
            self._smoother.evidence(question.id).t_end_ns,
            self._added_ns.get(question.id, 0),
            self._withheld_ns.get(question.id, 0),
            now_ns if self._clear_since_ns is None else self._clear_since_ns,
        )
        silent_s = (now_ns - since_ns) / NS
        rate_hz = min(question.rate_hz, self._settings.fps / 2)  # a group is two frames
        limit_s = max(self._settings.max_age_s, 2.0 / rate_hz)
        if silent_s <= limit_s:
            return ""
        note = f": {self._note}" if self._note else self._troubled(now_ns)
        return f"no answer for {silent_s:.1f} s{note}"

    def _waited(self, published_ns: int | None, now_ns: int) -> bool:
        return published_ns is None or not 0 <= now_ns - published_ns < self._period_ns

    def _repeat_unknown(
        self, question: Question, cause: Cause, now_ns: int, evidence: Evidence | None = None
    ) -> list[Decision]:
        known = self._smoother.answer(question.id) != UNKNOWN
        other = self._said.get(question.id) != cause[0]
        if known or other or self._waited(self._published_ns.get(question.id), now_ns):
            return [self._unknown(question, cause, now_ns, evidence)]
        return []

    def _unknown(
        self, question: Question, cause: Cause, now_ns: int, evidence: Evidence | None
    ) -> Decision:
        status, reason = cause
        self._published_ns[question.id], self._said[question.id] = now_ns, status
        return self._smoother.unknown(question, reason, now_ns, evidence, status)
