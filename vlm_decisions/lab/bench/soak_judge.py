"""
What a soak calls wrong: answers that did not come, and stale ones that pass as fresh.

The judge knows what the driver did to the camera and hears every decision. All times are frame
time (ns); camera health (Tier 0) is not judged, it is about each image as it arrives.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from ...decision import TIER_HEALTH, UNKNOWN, Decision
from ...frames import NS
from ...questions import Question

#: Seconds after an interruption in which a window must have filled again.
RECOVERY_S = 2.5

#: Seconds by which an answer may be late: groups come every 0.25 s and need not fall on its time.
LATE_S = 0.2

#: Seconds in which freshness is checked, and in which camera health makes up its mind.
NOTICE_S = 0.6
UNUSABLE_S = 2.0


@dataclass
class _Followed:
    """A standing question as the judge knows it."""

    question: Question
    known_ns: int | None = None  # t_end of the newest answer, None if the newest is unknown
    seen_ns: int = 0  # from here on the next answer is waited for

    @property
    def period_s(self) -> float:
        return max(1.0 / self.question.rate_hz, 0.25)


class Judge:
    """
    Counts `missed` and `stale_as_fresh`. Not thread-safe.

    `missed`: answers that were due while nothing was wrong. `stale_as_fresh`: decisions with an
    answer on evidence older than `max_age_s`, on frames that were never sent or belong to another
    run of time, or on a camera covered for long; and questions whose newest answer outlived its
    evidence without being called unknown.
    """

    def __init__(self, max_age_s: float) -> None:
        """`max_age_s`: as the runtime's."""
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

    # -- what the driver did ---------------------------------------------------------------------

    def sent(self, stamp_ns: int) -> None:
        """Note a good image."""
        self._sent.append(stamp_ns)

    def rewound(self, now_ns: int) -> None:
        """Note that time begins anew: no evidence of before counts."""
        self._sent.clear()
        self._now_ns = now_ns
        for followed in self._followed.values():
            followed.known_ns = None

    def disturbed(self) -> None:
        """Note that something was done which may cost answers, until `calm`."""
        for name, followed in self._followed.items():
            self._waited(name, followed, self._now_ns)
        self._calm_from_ns = None

    def calm(self, now_ns: int) -> None:
        """Note that all is well from here on; service is due after the recovery."""
        self._calm_from_ns = now_ns + round(RECOVERY_S * NS)
        for followed in self._followed.values():
            followed.seen_ns = self._calm_from_ns

    def covered(self, now_ns: int | None) -> None:
        """Note that the camera is covered from now on, or not any more (None)."""
        self._covered_ns = now_ns

    def standing(self, questions: Mapping[str, Question], now_ns: int) -> None:
        """Note which questions stand now."""
        for gone in self._followed.keys() - questions.keys():
            self._waited(gone, self._followed[gone], now_ns)
            del self._followed[gone]
        for name in questions.keys() - self._followed.keys():
            # A new question's first answer is due with the next group, whatever its rate.
            first_ns = round((0.25 - self._period_s(questions[name])) * NS)
            begin_ns = max(now_ns, self._calm_from_ns or 0)
            self._followed[name] = _Followed(questions[name], seen_ns=begin_ns + first_ns)

    # -- what came of it -------------------------------------------------------------------------

    def decided(self, decision: Decision, now_ns: int) -> None:
        """Take a decision published at `now_ns`."""
        followed = self._followed.get(decision.question_id)
        if decision.tier == TIER_HEALTH and followed is None:
            return
        if followed is None:
            return  # the driver has not told yet that it stands
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
        """Look at what stands published now; call after freshness was checked."""
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
        """Count what should have come between the last answer and now."""
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
