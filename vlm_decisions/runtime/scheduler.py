"""Which questions are due at a group, on frame time.

The decision comes a good while after its frames; a rate measured on decision times would skip
every other group (seen, and measured, by those who tried). So all times here are stamps.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..frames import NS
from ..questions import Question

#: Achieved rates are counted over this much frame time.
RATE_WINDOW_S = 5.0


@dataclass
class _Entry:
    """When a question was asked last, and when it is next due (frame time, ns)."""

    question: Question
    last_ns: int
    due_ns: int
    first_ns: int
    asked_ns: deque[int] = field(default_factory=deque)


class Scheduler:
    """Rates on frame time, each question at most once per group.

    A question is due when its next time has come, `tolerance_s` early counting as on time: group
    times jitter. The next time is one period after the previous one that was due, so that mean
    rates hold (3 Hz out of 4 groups a second); after a delay it is at least half a period after
    the asking, so that nothing is made up for in a burst. New questions are due at once.
    Thread-safe.
    """

    def __init__(self, tolerance_s: float = 0.05) -> None:
        """`tolerance_s`: how early a group may be, seconds of frame time."""
        self.tolerance_ns = round(tolerance_s * NS)
        self._entries: dict[str, _Entry] = {}
        self._now_ns = 0
        self._lock = threading.Lock()

    def due(self, questions: Sequence[Question], t_ns: int) -> list[Question]:
        """Return the questions due at the group that ends at `t_ns`, the least asked lately first.

        `questions` are all there are: others are forgotten. Where not all can be asked, so the
        highest rates are lowered first, and every question keeps its turn. Among equals the one
        that was asked longest ago comes first.
        """
        with self._lock:
            for gone in self._entries.keys() - {question.id for question in questions}:
                del self._entries[gone]
            self._now_ns = t_ns
            found = []
            for question in questions:
                overdue_ns = self._overdue_ns(question, t_ns)
                if overdue_ns >= -self.tolerance_ns:
                    entry = self._entry(question)
                    if entry is None:
                        found.append(((0, -math.inf), question))
                    else:
                        self._trim(entry)
                        found.append(((len(entry.asked_ns), entry.last_ns), question))
        found.sort(key=lambda item: item[0])  # stable: the book's order among equals
        return [question for _, question in found]

    def asked(self, question: Question, t_ns: int) -> None:
        """Note that the group that ends at `t_ns` has answered the question."""
        period = round(NS / question.rate_hz)
        with self._lock:
            entry = self._entry(question)
            if entry is None:
                entry = _Entry(question, t_ns, t_ns + period, t_ns)
                self._entries[question.id] = entry
            else:
                entry.due_ns = max(entry.due_ns + period, t_ns + period // 2)
                entry.last_ns = t_ns
            entry.asked_ns.append(t_ns)
            self._trim(entry)

    def hasten(self, t_ns: int, question_ids: Collection[str] | None = None) -> None:
        """Make questions due at the group that ends at `t_ns` (scene change: all, by default)."""
        with self._lock:
            for question_id, entry in self._entries.items():
                if question_ids is None or question_id in question_ids:
                    entry.due_ns = min(entry.due_ns, t_ns)

    def forget(self, question_id: str) -> None:
        """Drop a question: it is due at once if it comes back."""
        with self._lock:
            self._entries.pop(question_id, None)

    def reset(self) -> None:
        """Drop all (frame time started anew): every question is due at the next group."""
        with self._lock:
            self._entries.clear()

    def rates(self, now_ns: int | None = None) -> dict[str, float]:
        """Return answers per second of frame time of each question, over the last 5 s.

        `now_ns`: the present in frame time, where it is later than the newest group.
        """
        with self._lock:
            now_ns = max(self._now_ns, now_ns or 0)
            rates = {}
            for question_id, entry in self._entries.items():
                given = sum(t_ns > now_ns - RATE_WINDOW_S * NS for t_ns in entry.asked_ns)
                # The time since the first asking holds one answer less than were given.
                span = (now_ns - entry.first_ns) / NS + 1 / entry.question.rate_hz
                rates[question_id] = given / min(RATE_WINDOW_S, max(span, 1e-9))
            return rates

    def _overdue_ns(self, question: Question, t_ns: int) -> float:
        """Return ns past due: negative if early, inf if never asked, -inf if asked just now."""
        entry = self._entry(question)
        if entry is None:
            return math.inf
        if entry.last_ns >= t_ns:
            return -math.inf
        if entry.question.rate_hz != question.rate_hz:
            entry.due_ns = entry.last_ns + round(NS / question.rate_hz)
        entry.question = question
        return t_ns - entry.due_ns

    def _entry(self, question: Question) -> _Entry | None:
        """Return what is kept of a question: nothing of another that had its id before."""
        entry = self._entries.get(question.id)
        if entry is None:
            return None
        same = entry.question is question or entry.question.asks_the_same(question)
        return entry if same else None

    def _trim(self, entry: _Entry) -> None:
        while entry.asked_ns and entry.asked_ns[0] <= self._now_ns - RATE_WINDOW_S * NS:
            entry.asked_ns.popleft()
