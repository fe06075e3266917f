"""The summary of a demo: decisions against the truth of the simulated desk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..decision import TIER_HEALTH, UNKNOWN, Decision
from ..files.columns import columns
from ..frames import NS
from ..questions import Question
from ..runtime.statistics import percentiles
from ..sources.truth import Truth
from .replay.score import Scorer

MARGIN_S = 0.5  # answers this close to a change of the truth are not judged


def summarise(decisions: Iterable[Decision], truth: Truth,
              questions: Iterable[Question]) -> dict[str, Any]:
    """Score Tier 1 and 2 decisions against the truth.

    Args:
        decisions: all that were published.
        truth: of the desk.
        questions: those that were asked.

    Returns:
        decisions: how many there were, of every tier. accuracy: share of right answers over Tier
        1 and 2 answers that are outside MARGIN_S of a change of their truth; `uncertain` is
        wrong, `unknown` is no answer and counted apart. judged: how many answers those are.
        unknown: how many decisions of these tiers were. age_ms: p50, p95 of all answers of these
        tiers. questions: per id accuracy, judged, rate_hz (answers per second of frame time) and
        unknown. Figures that nothing supports are None.
    """
    everything = list(decisions)
    answers = [d for d in everything if d.tier != TIER_HEALTH]
    scored = Scorer(truth, rounds=0, margin_s=MARGIN_S).score(answers, list(questions))
    rows: dict[str, dict[str, Any]] = {}
    for name in sorted({d.question_id for d in answers}):
        own = [d for d in answers if d.question_id == name]
        stamps = sorted({d.t_end_ns for d in own if d.answer != UNKNOWN})
        span_s = (stamps[-1] - stamps[0]) / NS if len(stamps) > 1 else 0.0
        row = scored["questions"].get(name, {})
        rows[name] = {
            "accuracy": row.get("accuracy"),
            "judged": row.get("judged", 0),
            "rate_hz": round((len(stamps) - 1) / span_s, 3) if span_s else 0.0,
            "unknown": sum(d.answer == UNKNOWN for d in own),
        }
    ages = percentiles([d.age_s * 1e3 for d in answers if d.answer != UNKNOWN])
    known = ages.count > 0
    return {
        "decisions": len(everything),
        "accuracy": scored["accuracy"],
        "judged": sum(row["judged"] for row in rows.values()),
        "unknown": sum(row["unknown"] for row in rows.values()),
        "age_ms": {"p50": ages.p50 if known else None, "p95": ages.p95 if known else None},
        "questions": rows,
    }


def print_summary(summary: dict[str, Any]) -> None:
    """Print the table of a summary."""
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.0f}%"

    rows = [(name, percent(row["accuracy"]), str(row["judged"]), f"{row['rate_hz']:.1f} Hz")
            for name, row in summary["questions"].items()]
    print("", *columns([("question", "accuracy", "judged", "rate"), *rows]), sep="\n")
    age = summary["age_ms"]
    print(f"\n{summary['decisions']} decisions; right in {percent(summary['accuracy'])} of "
          f"{summary['judged']} judged (answers within 0.5 s of a change of the truth are not); "
          f"{summary['unknown']} unknown")
    if age["p50"] is not None:
        print(f"age of the evidence: p50 {age['p50']:.0f} ms, p95 {age['p95']:.0f} ms")
