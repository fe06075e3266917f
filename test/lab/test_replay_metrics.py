"""Measures of timed answers, against cases worked out by hand."""

from __future__ import annotations

import math

import pytest

from vlm_decisions.lab.replay.metrics import (
    AnswerRun,
    Timed,
    credit,
    event_matches,
    readiness,
    timeliness_f1,
    timely_matches,
)


def test_credit_follows_the_definition():
    assert credit(0.5) == credit(-0.5) == credit(0.0) == 1.0
    assert credit(0.6) == pytest.approx(math.exp(-0.36 / (2 * 0.37**2)))
    assert credit(-0.6) == pytest.approx(math.exp(-0.36 / (2 * 0.74**2)))
    assert credit(0.6, from_edge=True) == pytest.approx(math.exp(-0.01 / (2 * 0.37**2)))
    assert credit(0.9, 1.0) == 1.0
    assert credit(1.2, 1.0) == pytest.approx(math.exp(-1.44 / (2 * 0.74**2)))
    with pytest.raises(KeyError):
        credit(3.0, 0.7)


def test_timeliness_by_hand():
    events = [Timed(10.0, "yes"), Timed(20.0, "no"), Timed(30.0, "yes")]
    predictions = [Timed(10.6, "yes"),   # T = 0.2685
                   Timed(20.1, "no"),    # T = 1
                   Timed(25.0, "yes")]   # matches none: 5 s early
    found = timely_matches(events, predictions)
    late = math.exp(-0.36 / (2 * 0.37**2))
    assert found.credits == pytest.approx((late, 1.0, 0.0)) and found.false == (2,)
    assert found.sums == pytest.approx((late + 1, 2, 1, 1))
    precision = recall = (late + 1) / 3
    assert timeliness_f1(found.sums) == pytest.approx(2 * precision * recall / (precision + recall))


def test_a_wrong_answer_in_time_is_false_and_missed():
    found = timely_matches([Timed(10.0, "yes")], [Timed(10.0, "no")])
    assert found.sums == (0.0, 0, 1, 1) and timeliness_f1(found.sums) == 0.0


def test_an_event_absorbs_five_and_keeps_the_best():
    events = [Timed(10.0, "yes")]
    flicker = [Timed(10.0 + late, "yes") for late in (0.7, 0.1, 0.2, 0.3, 0.4, 0.45)]
    found = timely_matches(events, flicker)
    assert found.credits == (1.0,) and found.false == (5,)
    # Each goes to the event that credits it most, not to the first.
    two = timely_matches([Timed(10.0, "yes"), Timed(11.0, "yes")], [Timed(10.8, "yes")])
    assert two.credits == (0.0, 1.0)


def test_credit_below_the_least_is_none():
    assert timely_matches([Timed(0.0, "yes")], [Timed(0.905, "yes")]).credits[0] == pytest.approx(
        0.05, abs=0.001)
    assert timely_matches([Timed(0.0, "yes")], [Timed(0.92, "yes")]).credits == (0.0,)


def test_without_events_there_is_no_score():
    assert math.isnan(timeliness_f1(timely_matches([], [Timed(1.0, "yes")]).sums))
    assert timeliness_f1(timely_matches([Timed(1.0, "yes")], []).sums) == 0.0


def test_event_matches_are_one_to_one():
    events = [Timed(10.0, "yes"), Timed(12.0, "no"), Timed(13.0, "yes")]
    predictions = [Timed(9.8, "yes"), Timed(10.3, "yes"), Timed(12.4, "no"), Timed(15.5, "yes")]
    found = event_matches(events, predictions)
    assert found.pairs == ((0, 0), (1, 2))  # 9.8 is early enough, 15.5 is 2.5 s late
    assert found.late_s == pytest.approx((-0.2, 0.4))
    # What comes after the next event is too late, whatever the tolerance.
    assert event_matches(events[:2], [Timed(12.1, "yes")]).pairs == ()


def test_readiness_by_hand():
    runs = [AnswerRun(4 * k, 4 * k + 4, "yes" if k % 2 else "no") for k in range(4)]
    # tau 4. yes 1 s late: EP 1 LP 1; no 1 s early: EP 2 sigmoid(-1.5); yes 2 s after the end:
    # EP 1, LP 1 - 2/4.
    answers = [Timed(0.2, "no"), Timed(5.0, "yes"), Timed(7.0, "no"), Timed(18.0, "yes")]
    early = 2 / (1 + math.exp(1.5))
    assert readiness(runs, answers) == pytest.approx([1.0, early, 0.5], abs=1e-5)
    # Never answered: 0. Never taken back: ready when it becomes true again.
    assert readiness(runs, answers[:1]) == pytest.approx([0.0, 1.0, 0.0])
    assert readiness(runs, []) == [0.0, 0.0, 0.0]
    assert readiness(runs[:1], answers) == [] and readiness([], []) == []
