"""Decisions of a demo against the truth."""

from __future__ import annotations

import pytest

from vlm_decisions.decision import Decision
from vlm_decisions.lab.demo_summary import summarise
from vlm_decisions.questions import Question
from vlm_decisions.sources.truth import Truth, TruthRow, truth_of_rows

S = 1_000_000_000
ASKED = [Question("cup", "Is there a cup?")]


def decision(t_s: float, answer: str, tier: int = 2, age_s: float = 0.1,
             question_id: str = "cup") -> Decision:
    t = round(t_s * S)
    return Decision(question_id, answer, 0.9, 0.9, (), (), tier, 4, t, t, t + round(age_s * S),
                    False, t, "m")


@pytest.fixture
def truth() -> Truth:
    # 10 s at 10 Hz, the answer changes at 5 s.
    return truth_of_rows(TruthRow(round(k * 0.1 * S), {"cup": "no" if k < 50 else "yes"})
                         for k in range(100))


def test_answers_near_a_change_are_not_judged(truth):
    made = [decision(4.0, "no"), decision(4.7, "yes"), decision(5.3, "no"), decision(6.0, "yes"),
            decision(7.0, "no")]
    summary = summarise(made, truth, ASKED)
    assert summary["judged"] == 3
    assert summary["accuracy"] == pytest.approx(2 / 3)


def test_uncertain_is_wrong_unknown_is_no_answer_and_health_is_left_out(truth):
    made = [decision(1.0, "no"), decision(2.0, "uncertain"), decision(3.0, "unknown"),
            decision(3.0, "no", tier=0, question_id="camera_dark")]
    summary = summarise(made, truth, ASKED)
    assert summary["decisions"] == 4
    assert summary["accuracy"] == pytest.approx(1 / 2)
    assert summary["judged"] == 2 and summary["unknown"] == 1
    assert list(summary["questions"]) == ["cup"]
    assert summary["questions"]["cup"]["unknown"] == 1


def test_rate_and_age(truth):
    summary = summarise([decision(1 + 0.25 * k, "no", age_s=0.05) for k in range(9)], truth,
                        ASKED)
    assert summary["questions"]["cup"]["rate_hz"] == pytest.approx(4.0)
    assert summary["age_ms"]["p50"] == pytest.approx(50)


def test_nothing_to_score_gives_none_not_a_number(truth):
    summary = summarise([], truth, ASKED)
    assert summary["accuracy"] is None and summary["age_ms"]["p50"] is None
