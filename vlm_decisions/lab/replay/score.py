"""
Score what was answered against what was true: by question, by tier, and pooled.

Every figure has a 95% interval (`..._ci`), a bootstrap over the truth's segments. Figures that
nothing supports are None.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...decision import TIER_HEALTH, UNCERTAIN, UNKNOWN, YES, Decision
from ...frames import NS
from ...learn import measures
from ...questions import Question
from ...sources.truth import Truth
from . import metrics
from .metrics import Timed

#: A segment shorter than this is no test of a question's answer.
LEAST_SEGMENT_S = 1.0
ROUNDS = 1000
RANK_ROUNDS = 200


@dataclass
class _Sums:
    """What each segment adds to the sums behind the pooled figures, by name."""

    count: int
    by_name: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, name: str, segment: int, *values: float) -> None:
        """Add to a segment's sums."""
        if name not in self.by_name:
            self.by_name[name] = np.zeros((self.count, len(values)))
        self.by_name[name][segment] += values

    def merge(self, other: _Sums) -> None:
        """Add another question's."""
        for name, parts in other.by_name.items():
            self.by_name[name] = self.by_name.get(name, 0) + parts

    def report(self, name: str, of: Callable[[np.ndarray], float], rounds: int) -> dict[str, Any]:
        """Return the figure and its interval under `name` and `name_ci`."""
        parts = self.by_name.get(name)
        if parts is None:
            return {name: None, f"{name}_ci": None}
        return {name: _finite(of(parts.sum(axis=0))),
                f"{name}_ci": _rounded(metrics.bootstrap(parts, of, rounds=rounds))}


def _share(sums: np.ndarray) -> float:
    return float(sums[0] / sums[1]) if sums[1] else math.nan


_FIGURES: dict[str, Callable[[np.ndarray], float]] = {
    "accuracy": _share,
    "event_accuracy": _share,
    "event_precision": _share,
    "event_recall": _share,
    "timeliness_f1": metrics.timeliness_f1,
    "timeliness_f1_at1": metrics.timeliness_f1,
    "timeliness_f1_edge": metrics.timeliness_f1,
    "ars": _share,
    "rate_hz": _share,
    "flips_per_min": _share,
}
_POOLED = ("event_accuracy", "accuracy", "timeliness_f1", "timeliness_f1_at1",
           "timeliness_f1_edge", "ars", "event_precision", "event_recall")


class Scorer:
    """Scores decisions on the recording's frame time against its truth."""

    def __init__(self, truth: Truth, *, rounds: int = ROUNDS) -> None:
        """Take the truth; `rounds` are the draws of the bootstrap."""
        self.truth = truth
        self._rounds = rounds
        numbers = sorted({one.segment for one in truth.stretches})
        self._segments = {number: index for index, number in enumerate(numbers)}
        self._starts = [one.start_ns for one in truth.stretches]
        self._origin_ns = self._starts[0]

    @property
    def segments(self) -> int:
        """Number of segments, the units of the bootstrap."""
        return len(self._segments)

    def score(self, decisions: Sequence[Decision], questions: Sequence[Question]) -> dict[str, Any]:
        """
        Return the pooled figures and, under `questions`, those of each question.

        Tier 1 and 2 decisions count; those on questions without truth are left out. `ages_ms`,
        `calibration` and the lines over time are for the report.
        """
        pooled = _Sums(self.segments)
        rows: dict[str, dict[str, Any]] = {}
        for question in questions:
            if question.id not in self.truth.ids:
                continue
            own = [d for d in decisions
                   if d.question_id == question.id and d.tier != TIER_HEALTH]
            sums, row = self._question(question, own)
            pooled.merge(sums)
            rows[question.id] = row
        result: dict[str, Any] = {}
        for name in _POOLED:
            result.update(pooled.report(name, _FIGURES[name], self._rounds))
        accuracy, ars = result["event_accuracy"], result["ars"]
        result["effective_accuracy"] = None if None in (accuracy, ars) else accuracy * ars
        result["questions"] = rows
        return result

    # -- one question ----------------------------------------------------------------------------

    def _question(
        self, question: Question, decisions: Sequence[Decision]
    ) -> tuple[_Sums, dict[str, Any]]:
        sums = _Sums(self.segments)
        known = [d for d in decisions if d.answer != UNKNOWN]
        judged = [(d, one) for d in known if (one := self._at(d.t_end_ns)) is not None
                  and question.id in one.facts]
        segments = [self._segments[one.segment] for _, one in judged]
        right = [d.answer == one.facts[question.id] for d, one in judged]
        for good, segment in zip(right, segments):
            sums.add("accuracy", segment, good, 1)
        self._events(question, known, sums)
        self._finals(question.id, judged, sums)
        for stretch in self.truth.stretches:
            if question.id in stretch.facts:
                seconds = (stretch.end_ns - stretch.start_ns) / NS
                segment = self._segments[stretch.segment]
                sums.add("rate_hz", segment, 0, seconds)
                sums.add("flips_per_min", segment, 0, seconds / 60)
        for stamp_ns in {d.t_end_ns for d, _ in judged}:
            segment = self._segments[self._at(stamp_ns).segment]
            sums.add("rate_hz", segment, 1, 0)

        row: dict[str, Any] = {"kind": question.kind, "decisions": len(decisions),
                               "unknown": len(decisions) - len(known), "judged": len(judged)}
        for name, figure in _FIGURES.items():
            row.update(sums.report(name, figure, self._rounds))
        row.update(self._probabilities(question, judged, right, segments))
        ages = [d.age_s * 1e3 for d, _ in judged]
        for share in (50, 95):
            self._quantile(row, f"age_ms_p{share}", ages, segments, share)
        self._latency(question, known, row)
        return sums, row

    def _events(self, question: Question, known: Sequence[Decision], sums: _Sums) -> None:
        """Add what the changes of answer are worth as predictions of the changes of truth."""
        runs = self.truth.runs(question.id, self._origin_ns)
        events, predictions = self._timed(question, known)
        for event in events:
            sums.add("event_recall", event.segment, 0, 1)
        for prediction in predictions:
            sums.add("event_precision", prediction.segment, 0, 1)
            sums.add("flips_per_min", prediction.segment, 1, 0)
        for number, index in metrics.event_matches(events, predictions).pairs:
            sums.add("event_recall", events[number].segment, 1, 0)
            sums.add("event_precision", predictions[index].segment, 1, 0)
        for name, offset_s, from_edge in (("timeliness_f1", 0.5, False),
                                          ("timeliness_f1_at1", 1.0, False),
                                          ("timeliness_f1_edge", 0.5, True)):
            found = metrics.timely_matches(events, predictions, offset_s, from_edge=from_edge)
            for event, value in zip(events, found.credits):
                sums.add(name, event.segment, value, value > 0, 0, value == 0)
            for index in found.false:
                sums.add(name, predictions[index].segment, 0, 0, 1, 0)
        for run, value in zip(runs[1:], metrics.readiness(runs, self._answers(known))):
            sums.add("ars", self._segments[run.segment], value, 1)

    def _timed(
        self, question: Question, known: Sequence[Decision]
    ) -> tuple[list[Timed], list[Timed]]:
        """Return the truth's changes and the answer's; the first answer is none."""
        runs = self.truth.runs(question.id, self._origin_ns)
        events = [Timed(run.start_s, run.answer, self._segments[run.segment]) for run in runs[1:]]
        return events, self._answers(known)[1:]

    def _answers(self, known: Sequence[Decision]) -> list[Timed]:
        """Return the changes of answer at the times they were decided, `uncertain` left out."""
        return metrics.changes([
            Timed((d.t_decided_ns - self._origin_ns) / NS, d.answer, self._segment_of(d))
            for d in known if d.answer != UNCERTAIN])

    def _segment_of(self, decision: Decision) -> int:
        """Return the segment of the evidence; in a gap, that before it."""
        index = max(0, bisect_right(self._starts, decision.t_end_ns) - 1)
        return self._segments[self.truth.stretches[index].segment]

    def _finals(self, question_id: str, judged: Sequence[tuple[Decision, Any]],
                sums: _Sums) -> None:
        """Add, of each long enough stretch, whether the last answer on it was right."""
        last: dict[int, Decision] = {}
        for decision, stretch in judged:
            last[stretch.start_ns] = decision
        previous = None
        spans: list[list[Any]] = []
        for one in self.truth.stretches:  # joined where only other facts changed
            answer = one.facts.get(question_id)
            if (previous is not None and answer == previous.facts.get(question_id)
                    and one.segment == previous.segment and one.start_ns == previous.end_ns):
                spans[-1].append(one)
            else:
                spans.append([one])
            previous = one
        for span in spans:
            answer = span[0].facts.get(question_id)
            if answer is None or (span[-1].end_ns - span[0].start_ns) / NS < LEAST_SEGMENT_S:
                continue
            given = next((last[one.start_ns].answer for one in reversed(span)
                          if one.start_ns in last), None)
            sums.add("event_accuracy", self._segments[span[0].segment], given == answer, 1)

    def _probabilities(self, question: Question, judged: Sequence[tuple[Decision, Any]],
                       right: Sequence[bool], segments: Sequence[int]) -> dict[str, Any]:
        """Return ranking and calibration of the published p; of a choice, of its leader."""
        yes_no = question.kind == "yes_no"
        p = np.array([d.p for d, _ in judged])
        truth = (np.array([one.facts[question.id] == YES for _, one in judged], bool) if yes_no
                 else np.array(right, bool))
        row: dict[str, Any] = {}
        for name, of in (("auroc", measures.auroc if yes_no else None), ("ece", measures.ece),
                         ("brier", measures.brier), ("log_loss", measures.log_loss)):
            row[name] = _finite(of(truth, p)) if of and len(p) else None
            row[f"{name}_ci"] = None
            if row[name] is not None:
                row[f"{name}_ci"] = self._resampled(
                    segments, lambda index, of=of: of(truth[index], p[index]))
        row["calibration"] = [[_finite(a), _finite(b), n]
                              for a, b, n in measures.calibration_bins(truth, p)]
        return row

    def _quantile(self, row: dict[str, Any], name: str, values: Sequence[float],
                  segments: Sequence[int], share: float) -> None:
        numbers = np.array(values)
        row[name] = _finite(np.percentile(numbers, share)) if len(numbers) else None
        row[f"{name}_ci"] = None
        if len(numbers):
            row[f"{name}_ci"] = self._resampled(
                segments, lambda index: float(np.percentile(numbers[index], share)))

    def _latency(self, question: Question, known: Sequence[Decision], row: dict[str, Any]) -> None:
        events, predictions = self._timed(question, known)
        found = metrics.event_matches(events, predictions)
        segments = [events[number].segment for number, _ in found.pairs]
        self._quantile(row, "event_latency_s", found.late_s, segments, 50)
        row["events"] = len(events)

    def _resampled(self, segments: Sequence[int],
                   of: Callable[[np.ndarray], float | None]) -> list[float] | None:
        """Return the interval of a figure that no sums give, over segments drawn anew."""
        if len(set(segments)) < 2:
            return None
        order = np.argsort(segments, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(np.asarray(segments)[order])) + 1)
        rng = np.random.default_rng(0)
        values = [of(np.concatenate([parts[k] for k in rng.integers(len(parts), size=len(parts))]))
                  for _ in range(min(RANK_ROUNDS, self._rounds))]
        return _rounded(metrics.interval(np.array(values, float)))

    def _at(self, t_ns: int) -> Any:
        index = bisect_right(self._starts, t_ns) - 1
        if index < 0 or t_ns >= self.truth.stretches[index].end_ns:
            return None
        return self.truth.stretches[index]


def truth_line(truth: Truth, question_id: str) -> list[list[Any]]:
    """Return [start, end, answer] of the truth, seconds since its beginning."""
    origin_ns = truth.stretches[0].start_ns
    line: list[list[Any]] = []
    for one in truth.stretches:
        answer = one.facts.get(question_id)
        start, end = (one.start_ns - origin_ns) / NS, (one.end_ns - origin_ns) / NS
        if answer is None:
            continue
        if line and line[-1][2] == answer and abs(line[-1][1] - start) < 1e-9:
            line[-1][1] = end
        else:
            line.append([start, end, answer])
    return line


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 6)


def _rounded(pair: tuple[float, float] | None) -> list[float] | None:
    return None if pair is None else [round(value, 6) for value in pair]
