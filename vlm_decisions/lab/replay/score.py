"""Score answers against the truth: by question, and pooled.

Every figure has a 95% confidence interval (`..._ci`), a bootstrap over the truth's scenes. Figures
without data are None. A score's answers are levels; `mae` is the mean distance of its expected
value from the value of the true level. Of an any_of the whole is right where all labels are; each
label is scored besides, as a yes/no question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...decision import (
    TIER_HEALTH,
    TIER_VLM,
    UNCERTAIN,
    UNKNOWN,
    YES,
    Decision,
    label_name,
)
from ...frames import NS
from ...kinds import YesNo, kind_of, level_values
from ...learn import measures
from ...questions import Question
from ...sources.truth import Span, Truth, truth_of_labels
from . import metrics
from .metrics import AnswerRun, Timed

#: Shorter spans are not used for event accuracy.
LEAST_SEGMENT_S = 1.0
YES_NO = YesNo.name
ROUNDS = 1000
RANK_ROUNDS = 200


@dataclass
class _Sums:
    """The sums behind the pooled figures by name, one row for each segment."""

    count: int
    by_name: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, name: str, segment: int, *values: float) -> None:
        """Add values to a segment's sums."""
        if name not in self.by_name:
            self.by_name[name] = np.zeros((self.count, len(values)))
        self.by_name[name][segment] += values

    def merge(self, other: _Sums) -> None:
        """Add the sums of another question."""
        for name, parts in other.by_name.items():
            self.by_name[name] = self.by_name.get(name, 0) + parts

    def report(self, name: str, of: Callable[[np.ndarray], float], rounds: int) -> dict[str, Any]:
        """Return the figure and its interval under `name` and `name_ci`."""
        parts = self.by_name.get(name)
        if parts is None:
            return {name: None, f"{name}_ci": None}
        return {name: _finite(of(parts.sum(axis=0))),
                f"{name}_ci": _rounded(measures.bootstrap_sums(parts, of, draws=rounds))}


def _share(sums: np.ndarray) -> float:
    return float(sums[0] / sums[1]) if sums[1] else math.nan


_FIGURES: dict[str, Callable[[np.ndarray], float]] = {
    "accuracy": _share,
    "mae": _share,
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


class Effort:
    """What was asked of the language model, by scene."""

    def __init__(self, asked: np.ndarray, layers: np.ndarray, rounds: int) -> None:
        """Take askings and the layers that they used, (scenes,) each."""
        self._asked, self._layers, self._rounds = asked, layers, rounds

    def share(self, of: Effort) -> dict[str, Any]:
        """Return `asked_share`, of the askings of another run, with its interval."""
        return self._figure("asked_share", self._asked, of._asked)

    def layers(self, n_layers: int) -> dict[str, Any]:
        """Return `layer_share` with its interval; None where nothing was asked."""
        return self._figure("layer_share", self._layers, n_layers * self._asked)

    def _figure(self, name: str, part: np.ndarray, whole: np.ndarray) -> dict[str, Any]:
        sums = _Sums(len(part), {name: np.stack([part, whole], axis=1)})
        return sums.report(name, _share, self._rounds)


class Scorer:
    """Scores decisions against the truth, on frame time."""

    def __init__(self, truth: Truth, *, rounds: int = ROUNDS, margin_s: float = 0.0) -> None:
        """Store the truth.

        Args:
            truth: of the recording.
            rounds: draws of the bootstrap, 0 for no intervals.
            margin_s: answers closer than this to a change of their truth are not judged.
        """
        self.truth = truth
        self._rounds, self._margin_s = rounds, margin_s
        self._segments = {scene: index for index, scene in enumerate(truth.scenes)}
        self._origin_ns = truth.start_ns

    @property
    def segments(self) -> int:
        """Number of scenes, the units of the bootstrap."""
        return len(self._segments)

    def score(self, decisions: Sequence[Decision], questions: Sequence[Question]) -> dict[str, Any]:
        """Return the pooled figures and, under `questions`, those of each question.

        Decisions of Tier 1 and 2 on questions with truth are scored. Those of the labels of an
        any_of are under `labels` of its row, by their names.
        """
        pooled = _Sums(self.segments)
        rows: dict[str, dict[str, Any]] = {}
        for question in questions:
            if question.id not in self.truth.ids:
                continue
            own = [d for d in decisions
                   if d.question_id == question.id and d.tier != TIER_HEALTH]
            sums, row = self._question(question.id, question.kind, own)
            self._levels(question, own, sums)
            row |= sums.report("mae", _share, self._rounds)
            if not kind_of(question).exclusive:
                row["labels"] = self._labels(question, own)
            pooled.merge(sums)
            rows[question.id] = row
        result: dict[str, Any] = {}
        for name in _POOLED:
            result.update(pooled.report(name, _FIGURES[name], self._rounds))
        accuracy, ars = result["event_accuracy"], result["ars"]
        self._onsets(result, [one for row in rows.values() for one in row.pop("onsets")])
        result["effective_accuracy"] = None if None in (accuracy, ars) else accuracy * ars
        result["questions"] = rows
        return result

    def effort(self, decisions: Sequence[Decision], questions: Sequence[Question]) -> Effort:
        """Return what the language model was asked about the questions with truth."""
        asked, layers = np.zeros(self.segments), np.zeros(self.segments)
        ids = {question.id for question in questions}
        for decision in decisions:
            if (
                decision.question_id in ids
                and decision.tier == TIER_VLM
                and decision.t_asked_ns == decision.t_end_ns > 0
                and (span := self.truth.at(decision.question_id, decision.t_end_ns)) is not None
            ):
                asked[self._segments[span.scene]] += 1
                layers[self._segments[span.scene]] += decision.depth
        return Effort(asked, layers, self._rounds)

    # -- one question ----------------------------------------------------------------------------

    def _levels(
        self, question: Question, decisions: Sequence[Decision], sums: _Sums
    ) -> None:
        """Add the distance of a score's expected value from the truth."""
        judged = [(d, self._span(question.id, d)) for d in decisions if math.isfinite(d.value)]
        values = dict(zip(question.options, level_values(question.options)))
        for decision, span in judged:
            if span is not None:
                away = abs(decision.value - values[span.answer])
                sums.add("mae", self._segments[span.scene], away, 1)

    def _labels(
        self, question: Question, decisions: Sequence[Decision]
    ) -> dict[str, dict[str, Any]]:
        """Return the row of each label of an any_of, as of a yes/no question."""
        truth = truth_of_labels(question, self.truth)
        apart = Scorer(truth, rounds=self._rounds, margin_s=self._margin_s)
        rows = {}
        for index, label in enumerate(question.options):
            name = label_name(question.id, label)
            own = [replace(d, question_id=name, answer=d.answers[index],
                           p=d.probabilities[index] if d.probabilities else math.nan,
                           options=(), probabilities=(), answers=())
                   for d in decisions if d.answers]
            rows[name] = apart._question(name, YES_NO, own)[1]
            del rows[name]["onsets"]
        return rows

    def _span(self, name: str, decision: Decision) -> Span | None:
        """Return what is true where a decision is judged, None where it is not."""
        span, margin_s = self.truth.at(name, decision.t_end_ns), self._margin_s
        if margin_s and not self.truth.settled(name, decision.t_end_ns, margin_s, margin_s):
            return None
        return span

    def _question(
        self, name: str, kind: str, decisions: Sequence[Decision]
    ) -> tuple[_Sums, dict[str, Any]]:
        sums = _Sums(self.segments)
        known = [d for d in decisions if d.answer != UNKNOWN]
        judged = [(d, span) for d in known if (span := self._span(name, d)) is not None]
        segments = [self._segments[span.scene] for _, span in judged]
        right = [d.answer == span.answer for d, span in judged]
        for good, segment in zip(right, segments):
            sums.add("accuracy", segment, good, 1)
        self._events(name, known, sums)
        self._finals(name, judged, sums)
        for span in self.truth.spans[name]:
            segment = self._segments[span.scene]
            sums.add("rate_hz", segment, 0, span.end_s - span.start_s)
            sums.add("flips_per_min", segment, 0, (span.end_s - span.start_s) / 60)
        for segment in {d.t_end_ns: segment for (d, _), segment in zip(judged, segments)}.values():
            sums.add("rate_hz", segment, 1, 0)

        row: dict[str, Any] = {"kind": kind, "decisions": len(decisions),
                               "unknown": len(decisions) - len(known), "judged": len(judged)}
        for figure, of in _FIGURES.items():
            row.update(sums.report(figure, of, self._rounds))
        row.update(self._probabilities(kind, judged, right, segments))
        ages = [d.age_s * 1e3 for d, _ in judged]
        for share in (50, 95):
            self._quantile(row, f"age_ms_p{share}", ages, segments, share)
        self._latency(name, known, row)
        return sums, row

    def _events(self, name: str, known: Sequence[Decision], sums: _Sums) -> None:
        """Score the changes of the answer as predictions of the changes of the truth."""
        runs = self.truth.runs(name, over_gaps=True)
        events, predictions = self._timed(name, known)
        for event in events:
            sums.add("event_recall", event.segment, 0, 1)
        for prediction in predictions:
            sums.add("event_precision", prediction.segment, 0, 1)
            sums.add("flips_per_min", prediction.segment, 1, 0)
        for number, index in metrics.event_matches(events, predictions).pairs:
            sums.add("event_recall", events[number].segment, 1, 0)
            sums.add("event_precision", predictions[index].segment, 1, 0)
        for figure, offset_s, from_edge in (("timeliness_f1", 0.5, False),
                                            ("timeliness_f1_at1", 1.0, False),
                                            ("timeliness_f1_edge", 0.5, True)):
            found = metrics.timely_matches(events, predictions, offset_s, from_edge=from_edge)
            for event, value in zip(events, found.credits):
                sums.add(figure, event.segment, value, value > 0, 0, value == 0)
            for index in found.false:
                sums.add(figure, predictions[index].segment, 0, 0, 1, 0)
        timed = [AnswerRun(self._since_start_s(run.start_ns), self._since_start_s(run.end_ns),
                     run.answer) for run in runs]
        answers = self._answers(name, known)
        for run, value in zip(runs[1:], metrics.readiness(timed, answers)):
            sums.add("ars", self._segments[run.scene], value, 1)

    def _timed(
        self, name: str, known: Sequence[Decision]
    ) -> tuple[list[Timed], list[Timed]]:
        """Return the changes of the truth, and those of the answer (without the first answer)."""
        runs = self.truth.runs(name, over_gaps=True)
        events = [Timed(self._since_start_s(run.start_ns), run.answer, self._segments[run.scene])
                  for run in runs[1:]]
        return events, self._answers(name, known)[1:]

    def _answers(self, question_id: str, known: Sequence[Decision]) -> list[Timed]:
        """Return the changes of the answer at their decision times, without `uncertain`."""
        return [Timed(self._since_start_s(d.t_decided_ns), d.answer,
                      self._segments[self.truth.before(question_id, d.t_end_ns).scene])
                for d, _ in self._changed(known)]

    @staticmethod
    def _changed(known: Sequence[Decision]) -> list[tuple[Decision, Decision]]:
        """Return the first and the last decision of each answer, in order, without `uncertain`."""
        found: list[tuple[Decision, Decision]] = []
        for decision in known:
            if decision.answer == UNCERTAIN:
                continue
            if found and found[-1][0].answer == decision.answer:
                found[-1] = found[-1][0], decision
            else:
                found.append((decision, decision))
        return found

    def _since_start_s(self, t_ns: int) -> float:
        return (t_ns - self._origin_ns) / NS

    def _finals(self, question_id: str, judged: Sequence[tuple[Decision, Span]],
                sums: _Sums) -> None:
        """Score the last answer on each span that is long enough."""
        last = {span.start_ns: decision for decision, span in judged}
        for span in self.truth.spans[question_id]:
            if span.end_s - span.start_s >= LEAST_SEGMENT_S:
                given = last.get(span.start_ns)
                right = given is not None and given.answer == span.answer
                sums.add("event_accuracy", self._segments[span.scene], right, 1)

    def _probabilities(self, kind: str, judged: Sequence[tuple[Decision, Any]],
                       right: Sequence[bool], segments: Sequence[int]) -> dict[str, Any]:
        """Return ranking and calibration of the published p (with options: of the answer)."""
        yes_no = kind == YES_NO
        p = np.array([d.p for d, _ in judged])
        truth = (np.array([span.answer == YES for _, span in judged], bool) if yes_no
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

    def _latency(self, name: str, known: Sequence[Decision], row: dict[str, Any]) -> None:
        events, predictions = self._timed(name, known)
        found = metrics.event_matches(events, predictions)
        segments = [events[number].segment for number, _ in found.pairs]
        self._quantile(row, "event_latency_s", found.late_s, segments, 50)
        row["events"] = len(events)
        changes = self._changed(known)[1:]
        row["onsets"] = [(self._since_start_s(first.t_onset_ns) - events[number].t_s,
                          self._since_start_s(last.t_onset_ns) - events[number].t_s,
                          self._since_start_s(first.since_ns) - events[number].t_s,
                          events[number].segment)
                         for number, index in found.pairs
                         for first, last in [changes[index]] if first.t_onset_ns]
        self._onsets(row, row["onsets"])

    def _onsets(self, row: dict[str, Any], found: Sequence[tuple[float, float, float, int]]
                ) -> None:
        """Add the median distances of onsets from the events: as told at first, and at last.

        Beside them that of `since`, when the answer was first given.
        """
        segments = [segment for *_, segment in found]
        for k, name in enumerate(("onset_error_s", "onset_settled_error_s", "since_error_s")):
            self._quantile(row, name, [abs(one[k]) for one in found], segments, 50)
        row["onsets_told"] = len(found)

    def _resampled(self, segments: Sequence[int],
                   of: Callable[[np.ndarray], float | None]) -> list[float] | None:
        """Return the interval of a figure that is not a function of sums, over resampled scenes."""
        if len(set(segments)) < 2:
            return None
        order = np.argsort(segments, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(np.asarray(segments)[order])) + 1)
        return _rounded(measures.bootstrap(
            lambda drawn: of(np.concatenate([parts[k] for k in drawn])), len(parts),
            np.random.default_rng(0), min(RANK_ROUNDS, self._rounds)))


def truth_line(truth: Truth, question_id: str) -> list[list[Any]]:
    """Return [start, end, answer] of the truth, seconds since its beginning."""
    return [[(run.start_ns - truth.start_ns) / NS, (run.end_ns - truth.start_ns) / NS, run.answer]
            for run in truth.runs(question_id)]


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 6)


def _rounded(pair: list[float] | None) -> list[float] | None:
    return None if pair is None else [round(value, 6) for value in pair]
