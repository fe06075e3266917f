"""Measures of timed answers, on plain numbers: no ROS, no model, no files.

A *run* is an interval in which one answer is true. An *event* is the beginning of a run that
follows another. A *prediction* is a change of the given answer. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Timeliness (SPOT-Bench): by the offset (seconds of full credit around an event), the standard
#: deviations of the credit before and after it.
TIMELINESS = {0.5: (0.74, 0.37), 1.0: (1.48, 0.74), 1.5: (2.22, 1.11)}
LEAST_CREDIT = 0.05
MOST_ABSORBED = 5

#: A prediction matches an event from EARLY_S before it to LATE_S after it (StreamingBench's
#: proactive task allows 2 s).
EARLY_S, LATE_S = 0.5, 2.0

EPSILON_S = 1e-6


@dataclass(frozen=True)
class Timed:
    """An answer at a time, and the segment that it counts for."""

    t_s: float
    answer: str
    segment: int = 0


@dataclass(frozen=True)
class AnswerRun:
    """An interval in which one answer is true."""

    start_s: float
    end_s: float
    answer: str


def credit(late_s: float, offset_s: float = 0.5, *, from_edge: bool = False) -> float:
    """Return the timeliness T of a prediction.

    T is 1 within the offset, and exp(-d^2 / 2 sigma^2) beyond it, where d is the distance from the
    event.

    Args:
        late_s: time of the prediction after its event; negative before it.
        offset_s: key of TIMELINESS.
        from_edge: count d from the end of the offset, a milder reading of the definition.
    """
    if abs(late_s) <= offset_s + 1e-9:
        return 1.0
    early, late = TIMELINESS[offset_s]
    sigma = late if late_s > 0 else early
    distance = abs(late_s) - (offset_s if from_edge else 0.0)
    return float(np.exp(-(distance**2) / (2 * sigma**2)))


@dataclass(frozen=True)
class Timeliness:
    """The result of timely_matches.

    Attributes:
        credits: T of each event, 0 if it was missed.
        false: indices of the predictions that match no event.
    """

    credits: tuple[float, ...]
    false: tuple[int, ...]

    @property
    def sums(self) -> tuple[float, int, int, int]:
        """Return (sum of T, matched events, false predictions, missed events)."""
        matched = sum(value > 0 for value in self.credits)
        return sum(self.credits), matched, len(self.false), len(self.credits) - matched


def timely_matches(
    events: Sequence[Timed], predictions: Sequence[Timed], offset_s: float = 0.5, *,
    from_edge: bool = False
) -> Timeliness:
    """Match predictions to events of the same answer by timeliness.

    Each prediction goes to the event that gives it the most credit, if that is at least 0.05. An
    event absorbs its first five predictions and keeps the best; the others are false.
    """
    credits = [0.0] * len(events)
    absorbed = [0] * len(events)
    false = []
    for index, prediction in enumerate(predictions):
        best, most = -1, LEAST_CREDIT
        for number, event in enumerate(events):
            if event.answer == prediction.answer:
                value = credit(prediction.t_s - event.t_s, offset_s, from_edge=from_edge)
                if value > most or (value == most and best < 0):
                    best, most = number, value
        if best < 0 or absorbed[best] >= MOST_ABSORBED:
            false.append(index)
            continue
        absorbed[best] += 1
        credits[best] = max(credits[best], most)
    return Timeliness(tuple(credits), tuple(false))


def timeliness_f1(sums: Sequence[float]) -> float:
    """Return Timeliness-F1 of the sums (T, matched, false, missed); NaN without events."""
    total, matched, false, missed = sums
    if matched + missed == 0:
        return float("nan")
    precision = total / (matched + false) if matched + false else 0.0
    recall = total / (matched + missed)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@dataclass(frozen=True)
class Matches:
    """The result of event_matches.

    Attributes:
        pairs: (event, prediction) as indices.
        late_s: lateness of each pair.
    """

    pairs: tuple[tuple[int, int], ...]
    late_s: tuple[float, ...]


def event_matches(
    events: Sequence[Timed], predictions: Sequence[Timed], early_s: float = EARLY_S,
    late_s: float = LATE_S
) -> Matches:
    """Pair events with predictions, one to one, in order of time.

    An event takes the first free prediction of its answer from `early_s` before it to `late_s`
    after it, and before the next event.
    """
    taken: set[int] = set()
    pairs, late = [], []
    for number, event in enumerate(events):
        end_s = event.t_s + late_s
        if number + 1 < len(events):
            end_s = min(end_s, events[number + 1].t_s)
        for index, prediction in enumerate(predictions):
            fits = event.t_s - early_s <= prediction.t_s <= end_s
            if fits and index not in taken and prediction.answer == event.answer:
                taken.add(index)
                pairs.append((number, index))
                late.append(prediction.t_s - event.t_s)
                break
    return Matches(tuple(pairs), tuple(late))


def readiness(
    runs: Sequence[AnswerRun], answers: Sequence[Timed], tau_s: float | None = None
) -> list[float]:
    """Return EP x LP of each run but the first (the Answer Readiness Score is their mean).

    t_a of a run is the time at which its answer was given. It is the start of the run if the answer
    was already given then; else the time of the first such prediction from the start of the run
    before it to `tau` after its end. A run without such a prediction scores 0. With s the start and
    e the end of the run: EP = min(1, 2 sigmoid(6 (t_a - s) / tau)), LP = min(1, max(0, 1 - (t_a -
    e) / tau)). The published formula smooths min and max with constants that it does not give; here
    they are hard.

    Args:
        runs: of the truth, in order.
        answers: predictions in order; the first one is the first answer given.
        tau_s: tau; by default the median duration of the runs.
    """
    if tau_s is None:
        tau_s = float(np.median([run.end_s - run.start_s for run in runs])) if runs else 0.0
    scores = []
    for before, run in zip(runs, runs[1:]):
        standing = None
        t_a = None
        for answer in answers:
            if answer.t_s <= run.start_s:
                standing = answer
            elif answer.answer == run.answer and answer.t_s <= run.end_s + tau_s:
                t_a = answer.t_s
                break
        if standing is not None and standing.answer == run.answer:
            # Given early, in the run before it; or never taken back, and so ready at the start.
            early = before.start_s < standing.t_s and before.answer != run.answer
            t_a = standing.t_s if early else run.start_s
        if t_a is None:
            scores.append(0.0)
            continue
        scale = tau_s + EPSILON_S
        early_part = min(1.0, 2 / (1 + np.exp(-6 * (t_a - run.start_s) / scale)))
        late_part = min(1.0, max(0.0, 1 - (t_a - run.end_s) / scale))
        scores.append(float(early_part * late_part))
    return scores
