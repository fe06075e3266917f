"""
Which questions are due at a group, on frame time.

The decision comes a good while after its frames; a rate measured on decision times would skip
every other group (seen, and measured, by those who tried). So all times here are stamps.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

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
    """
    Rates on frame time, each question at most once per group.

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
        """
        Return the questions due at the group that ends at `t_ns`, the most overdue first.

        `questions` are all there are: others are forgotten. Overdue is measured in the question's
        own periods; a question never asked is the most overdue of all.
        """
        with self._lock:
            for gone in self._entries.keys() - {question.id for question in questions}:
                del self._entries[gone]
            self._now_ns = t_ns
            found = []
            for question in questions:
                overdue_ns = self._overdue_ns(question, t_ns)
                if overdue_ns >= -self.tolerance_ns:
                    found.append((overdue_ns * question.rate_hz, question))
        found.sort(key=lambda item: -item[0])  # stable: the book's order among equals
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

    def rates(self) -> dict[str, float]:
        """Return answers per second of frame time of each question, over the last 5 s."""
        with self._lock:
            rates = {}
            for question_id, entry in self._entries.items():
                self._trim(entry)
                # The time since the first asking holds one answer less than were given.
                span = (self._now_ns - entry.first_ns) / NS + 1 / entry.question.rate_hz
                rates[question_id] = len(entry.asked_ns) / min(RATE_WINDOW_S, max(span, 1e-9))
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


class CostModel:
    """
    How many questions fit into a budget, learnt from the batches asked.

    Fits seconds = fixed + each * n to the last batches. While all had the same size, cost is taken
    to be proportional: a guess that the next batch, of another size, corrects.
    """

    def __init__(self, memory: int = 32) -> None:
        """`memory`: batches that are remembered."""
        self._batches: deque[tuple[int, float]] = deque(maxlen=memory)

    def note(self, count: int, seconds: float) -> None:
        """Remember that a batch of `count` questions took `seconds`."""
        if count > 0 and seconds >= 0:
            self._batches.append((count, seconds))

    def fitting(self, budget_s: float) -> int:
        """Return how many questions can be expected to take at most `budget_s`; at least 1."""
        if not self._batches:
            return 1
        counts, seconds = np.array(self._batches, np.float64).T
        fixed = 0.0
        each = float((seconds / counts).mean())
        if np.ptp(counts) > 0:
            slope, intercept = np.polyfit(counts, seconds, 1)
            if slope > 0 and intercept > 0:
                each, fixed = float(slope), float(intercept)
        return max(1, int((budget_s - fixed) / max(each, 1e-9) + 1e-6))


def within_budget(
    due: Sequence[Question], budget_s: float | None, cost: CostModel
) -> list[Question]:
    """Return the first of the due questions that fit into the budget (None: all of them)."""
    return list(due) if budget_s is None else list(due[: cost.fitting(budget_s)])
