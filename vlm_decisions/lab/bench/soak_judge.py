"""What counts as wrong in a soak test: answers that are missing, and stale ones that look fresh.

The judge knows what the driver did to the camera, and gets every decision. All times are frame time
(ns). Camera health (Tier 0) is not judged, since it is about each image when it arrives.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from ...decision import TIER_HEALTH, UNKNOWN, Decision
from ...frames import NS
from ...questions import Question

#: Seconds after an interruption until a window must be full again.
RECOVERY_S = 2.5

#: Seconds by which an answer may be late: groups come every 0.25 s, not at the time it is due.
LATE_S = 0.2

#: Seconds until freshness is checked, and until camera health has changed its answer.
NOTICE_S = 0.6
UNUSABLE_S = 2.0


@dataclass
class _Followed:
    """What the judge knows of a standing question."""

    question: Question
    known_ns: int | None = None  # t_end of the newest answer, None if the newest is unknown
    seen_ns: int = 0  # from here on the next answer is due

    @property
    def period_s(self) -> float:
        return max(1.0 / self.question.rate_hz, 0.25)


class Judge:
    """Counts `missed` and `stale_as_fresh`. Not thread-safe.

    `missed`: answers that were due while there was no fault. `stale_as_fresh`: decisions with an
    answer from evidence older than `max_age_s`, from frames that were never sent or belong to
    another epoch, or from a camera that has been covered for long; and questions whose newest
    answer was still valid after its evidence was too old.
    """

    def __init__(self, max_age_s: float) -> None:
        """`max_age_s` is that of the runtime."""
        self.missed = 0
        self.stale_as_fresh = 0
        self.answers = 0
        self.notes: deque[str] = deque(maxlen=20)
        self._max_age_s = max_age_s
        self._now_ns = 0
        self._followed: dict[str, _Followed] = {}
        self._sent: deque[int] = deque(maxlen=400)
        self._calm_from_ns: int | None = None
        self._covered_ns: int | None = None

    # -- the driver ---------------------------------------------------------------------

    def sent(self, stamp_ns: int) -> None:
        """Record a good image."""
        self._sent.append(stamp_ns)

    def rewound(self, now_ns: int) -> None:
        """Record that time starts again: earlier evidence does not count."""
        self._sent.clear()
        self._now_ns = now_ns
        for followed in self._followed.values():
            followed.known_ns = None

    def disturbed(self) -> None:
        """Record the beginning of a fault that may cost answers, until `calm`."""
        for name, followed in self._followed.items():
            self._waited(name, followed, self._now_ns)
        self._calm_from_ns = None

    def calm(self, now_ns: int) -> None:
        """Record the end of a fault; answers are due after the recovery time."""
        self._calm_from_ns = now_ns + round(RECOVERY_S * NS)
        for followed in self._followed.values():
            followed.seen_ns = self._calm_from_ns

    def covered(self, now_ns: int | None) -> None:
        """Record that the camera is covered from now on, or not any more (None)."""
        self._covered_ns = now_ns

    def standing(self, questions: Mapping[str, Question], now_ns: int) -> None:
        """Record the present questions."""
        for gone in self._followed.keys() - questions.keys():
            self._waited(gone, self._followed[gone], now_ns)
            del self._followed[gone]
        for name in questions.keys() - self._followed.keys():
            # A new question's first answer is due with the next group, whatever its rate.
            first_ns = round((0.25 - self._period_s(questions[name])) * NS)
            begin_ns = max(now_ns, self._calm_from_ns or 0)
            self._followed[name] = _Followed(questions[name], seen_ns=begin_ns + first_ns)

    # -- the decisions -------------------------------------------------------------------------

    def decided(self, decision: Decision, now_ns: int) -> None:
        """Judge a decision that was published at `now_ns`."""
        followed = self._followed.get(decision.question_id)
        if decision.tier == TIER_HEALTH and followed is None:
            return
        if followed is None:
            return  # the driver has not recorded it yet
        if decision.answer == UNKNOWN:
            followed.known_ns = None
            return
        self.answers += 1
        t_end_ns = decision.t_end_ns
        age_s = (now_ns - t_end_ns) / NS
        covered_ns = self._covered_ns
        if not -self._max_age_s <= age_s <= self._max_age_s + 1e-3:
            self._stale(f"{decision.question_id}: an answer {age_s:.2f} s old")
        elif t_end_ns not in self._sent:
            self._stale(f"{decision.question_id}: an answer on frames of another time")
        elif covered_ns is not None and t_end_ns > covered_ns + UNUSABLE_S * NS:
            self._stale(f"{decision.question_id}: an answer about a covered camera")
        self._waited(decision.question_id, followed, t_end_ns)
        followed.known_ns = t_end_ns
        followed.seen_ns = max(followed.seen_ns, t_end_ns)

    def tick(self, now_ns: int) -> None:
        """Judge the answers that are valid now. Call it after freshness was checked."""
        self._now_ns = now_ns
        for name, followed in self._followed.items():
            if followed.known_ns is None:
                continue
            limit_s = max(self._max_age_s, 2.0 / followed.question.rate_hz) + NOTICE_S
            age_s = (now_ns - followed.known_ns) / NS
            if age_s > limit_s:
                self._stale(f"{name}: stands, {age_s:.2f} s old")
                followed.known_ns = None  # once for each

    def _waited(self, name: str, followed: _Followed, until_ns: int) -> None:
        """Count the answers that are missing between the last answer and now."""
        if self._calm_from_ns is None or until_ns < self._calm_from_ns:
            return
        waited_s = (until_ns - followed.seen_ns) / NS
        if waited_s > followed.period_s + LATE_S:
            # An answer at the end of the wait is one that came; counted from the ones before.
            lost = max(1, math.ceil((waited_s - LATE_S) / followed.period_s) - 1)
            self.missed += lost
            self.notes.append(f"missed: {name}: nothing for {waited_s:.2f} s")
            followed.seen_ns = until_ns

    @staticmethod
    def _period_s(question: Question) -> float:
        return max(1.0 / question.rate_hz, 0.25)

    def _stale(self, note: str) -> None:
        self.stale_as_fresh += 1
        self.notes.append(f"stale: {note}")
