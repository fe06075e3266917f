"""Compare decisions with the truth of the simulated desk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..decision import TIER_HEALTH, UNKNOWN, Decision
from ..frames import NS
from ..runtime.statistics import percentiles

MARGIN_S = 0.5  # answers this close to a change of the truth are not judged


@dataclass
class Truth:
    """Answers over frame time, one entry per camera frame, in order of their stamps."""

    stamps_ns: list[int] = field(default_factory=list)
    facts: list[Mapping[str, str]] = field(default_factory=list)

    def add(self, stamp_ns: int, facts: Mapping[str, str]) -> None:
        """Append what is true at `stamp_ns`; a stamp that does not rise is ignored."""
        if not self.stamps_ns or stamp_ns > self.stamps_ns[-1]:
            self.stamps_ns.append(stamp_ns)
            self.facts.append(facts)

    def at(self, question_id: str, t_ns: int) -> str | None:
        """Return the truth at `t_ns`, that of the newest frame not after it; None if unknown."""
        index = bisect_right(self.stamps_ns, t_ns) - 1
        return self.facts[index].get(question_id) if index >= 0 else None

    def settled(self, question_id: str, t_ns: int, margin_s: float = MARGIN_S) -> bool:
        """Whether the truth of the question is one and the same within `margin_s` of `t_ns`."""
        margin = round(margin_s * NS)
        first = max(0, bisect_right(self.stamps_ns, t_ns - margin) - 1)
        last = bisect_left(self.stamps_ns, t_ns + margin)
        around = {self.facts[i].get(question_id) for i in range(first, min(last, len(self.facts)))}
        return len(around) == 1


def summarise(decisions: Iterable[Decision], truth: Truth,
              margin_s: float = MARGIN_S) -> dict[str, Any]:
    """Score Tier 1 and 2 decisions against the truth.

    Returns:
        decisions: how many there were, of every tier. accuracy: share of right answers over Tier
        1 and 2 answers that are outside `margin_s` of a change of their truth; `uncertain` is
        wrong, `unknown` is no answer and counted apart. judged: how many answers those are.
        unknown: how many decisions of these tiers were. age_ms: p50, p95 of all answers of these
        tiers. questions: per id accuracy, judged, rate_hz (answers per second of frame time) and
        unknown. Figures that nothing supports are None.
    """
    everything = list(decisions)
    answers = [d for d in everything if d.tier != TIER_HEALTH]
    questions: dict[str, dict[str, Any]] = {}
    right = judged = 0
    for question_id in sorted({d.question_id for d in answers}):
        own = [d for d in answers if d.question_id == question_id]
        scored = [d.answer == truth.at(question_id, d.t_end_ns) for d in own
                  if d.answer != UNKNOWN and truth.at(question_id, d.t_end_ns) is not None
                  and truth.settled(question_id, d.t_end_ns, margin_s)]
        stamps = sorted({d.t_end_ns for d in own if d.answer != UNKNOWN})
        span_s = (stamps[-1] - stamps[0]) / NS if len(stamps) > 1 else 0.0
        questions[question_id] = {
            "accuracy": sum(scored) / len(scored) if scored else None,
            "judged": len(scored),
            "rate_hz": round((len(stamps) - 1) / span_s, 3) if span_s else 0.0,
            "unknown": sum(d.answer == UNKNOWN for d in own),
        }
        right, judged = right + sum(scored), judged + len(scored)
    ages = percentiles([d.age_s * 1e3 for d in answers if d.answer != UNKNOWN])
    known = ages.count > 0
    return {
        "decisions": len(everything),
        "accuracy": right / judged if judged else None,
        "judged": judged,
        "unknown": sum(row["unknown"] for row in questions.values()),
        "age_ms": {"p50": ages.p50 if known else None, "p95": ages.p95 if known else None},
        "questions": questions,
    }


def print_summary(summary: dict[str, Any]) -> None:
    """Print what `run_demo` returned, for people."""
    def percent(value: float | None) -> str:
        return "    -" if value is None else f"{100 * value:4.0f}%"

    print(f"\n{'question':<24} {'accuracy':>8} {'judged':>7} {'rate':>8}")
    for name, row in summary["questions"].items():
        print(f"{name:<24} {percent(row['accuracy']):>8} {row['judged']:>7}"
              f" {row['rate_hz']:>5.1f} Hz")
    age = summary["age_ms"]
    print(f"\n{summary['decisions']} decisions; right in {percent(summary['accuracy']).strip()} of "
          f"{summary['judged']} judged (answers within 0.5 s of a change of the truth are not); "
          f"{summary['unknown']} unknown")
    if age["p50"] is not None:
        print(f"age of the evidence: p50 {age['p50']:.0f} ms, p95 {age['p95']:.0f} ms")
