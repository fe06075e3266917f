"""Smoothing, hysteresis, calibration and what the smoother remembers."""

import math

import numpy as np
import pytest

from vlm_decisions.decision import NO, TIER_VLM, UNCERTAIN, UNKNOWN, YES
from vlm_decisions.frames import NS
from vlm_decisions.questions import Question
from vlm_decisions.runtime.evidence import Evidence, Result
from vlm_decisions.runtime.smoothing import Smoother, calibrated, decide, no_answer

PERSON = Question("person", "Is there a person?", enter=0.65, exit=0.35, ema=1.0)
ACTIVITY = Question("activity", "What?", kind="choice", options=("typing", "idle", "away"), ema=1.0)


def at(t_s):
    t_ns = round(t_s * NS)
    return Evidence(TIER_VLM, t_ns - NS, t_ns, depth=4, frame_id="camera", model="m")


def play(smoother, question, values):
    out = []
    for index, value in enumerate(values):
        p = (value, 1 - value) if question.kind == "yes_no" else value
        out.append(smoother.update(question, p, at(index), index * NS + 1000))
    return out


def test_hysteresis_keeps_the_present_answer_between_the_thresholds():
    got = play(Smoother(), PERSON, [0.5, 0.65, 0.5, 0.36, 0.35, 0.5, 0.64, 0.7])
    assert [d.answer for d in got] == [UNCERTAIN, YES, YES, YES, NO, NO, NO, YES]
    assert [d.changed for d in got] == [True, True, False, False, True, False, False, True]
    assert [d.since_ns / NS for d in got] == [0, 1, 1, 1, 4, 4, 4, 7]


def test_smoothing_weighs_the_new_value_by_ema():
    question = Question("q", "x", ema=0.7)
    got = play(Smoother(), question, [1.0, 0.0, 0.0])
    assert [d.p for d in got] == pytest.approx([1.0, 0.3, 0.09])
    assert [d.p_raw for d in got] == [1.0, 0.0, 0.0]


def test_a_decision_carries_the_evidence():
    decision = Smoother().update(PERSON, (0.9, 0.1), at(5), 5 * NS + 1000)
    assert (decision.t_start_ns, decision.t_end_ns) == (4 * NS, 5 * NS)
    assert decision.age_s == pytest.approx(1e-6)
    assert (decision.tier, decision.depth, decision.model) == (TIER_VLM, 4, "m")
    assert decision.frame_id == "camera"
    assert decision.options == decision.probabilities == ()


def test_a_choice_switches_with_a_margin():
    got = play(
        Smoother(),
        ACTIVITY,
        [
            (0.4, 0.3, 0.3),  # leads by 0.1 only: nothing is held yet
            (0.5, 0.3, 0.2),
            (0.4, 0.5, 0.1),  # another leads, by less than the margin
            (0.3, 0.6, 0.1),
            (0.2, 0.3, 0.5),
        ],
    )
    assert [d.answer for d in got] == [UNCERTAIN, "typing", "typing", "idle", "away"]
    # p is that of the answer, so it can be below another's while the margin holds it.
    assert [d.p for d in got] == pytest.approx([0.4, 0.5, 0.4, 0.6, 0.5])
    assert got[2].probabilities == pytest.approx((0.4, 0.5, 0.1))
    assert got[2].options == ACTIVITY.options


def test_unknown_forgets_the_smoothing_and_the_held_answer():
    smoother = Smoother()
    smooth = Question("person", "x", ema=0.5)
    smoother.update(smooth, (0.9, 0.1), at(1), NS)
    gone = smoother.unknown(smooth, "camera dark", 5 * NS)
    assert (gone.answer, gone.reason, gone.changed) == (UNKNOWN, "camera dark", True)
    assert math.isnan(gone.p)
    assert math.isnan(gone.p_raw)
    # The evidence stays the last that there was, so its age grows; it is unknown from now on.
    assert (gone.t_end_ns, gone.since_ns) == (NS, 5 * NS)
    assert gone.age_s == pytest.approx(4)
    again = smoother.unknown(smooth, "camera dark", 6 * NS)
    assert (again.changed, again.since_ns) == (False, 5 * NS)
    back = smoother.update(smooth, (0.5, 0.5), at(7), 7 * NS)
    assert (back.answer, back.p) == (UNCERTAIN, 0.5)


def test_unknown_without_any_evidence_is_infinitely_old():
    decision = Smoother().unknown(PERSON, "no image yet", 5 * NS)
    assert (decision.t_start_ns, decision.t_end_ns) == (0, 0)
    assert decision.age_s == math.inf


def test_unknown_about_frames_that_could_not_be_judged():
    decision = Smoother().unknown(PERSON, "too long", 5 * NS, at(4))
    assert (decision.t_end_ns, decision.since_ns, decision.tier) == (4 * NS, 4 * NS, TIER_VLM)


def test_questions_are_independent_and_forgotten_one_by_one():
    smoother = Smoother()
    other = Question("other", "y")
    play(smoother, PERSON, [0.9])
    play(smoother, other, [0.1])
    assert (smoother.answer("person"), smoother.answer("other")) == (YES, NO)
    smoother.forget("person")
    assert smoother.answer("person") is None
    assert smoother.update(PERSON, (0.5, 0.5), at(3), 3 * NS).answer == UNCERTAIN
    assert smoother.answer("other") == NO


def test_reset_restarts_the_smoothing_but_knows_what_was_published():
    smoother = Smoother()
    smooth = Question("person", "x", ema=0.5)
    play(smoother, smooth, [0.9, 0.9])
    smoother.reset()
    decision = smoother.update(smooth, (0.7, 0.3), at(0), 1)
    assert decision.p == 0.7
    assert not decision.changed  # yes before, yes now


def test_other_options_restart_the_smoothing():
    smoother = Smoother()
    two = Question("activity", "What?", kind="choice", options=("a", "b"), ema=0.5)
    smoother.update(two, (1.0, 0.0), at(0), 1)
    three = Question("activity", "What?", kind="choice", options=("b", "c", "d"), ema=0.5)
    assert smoother.update(three, (0.8, 0.1, 0.1), at(1), 2).answer == "b"


@pytest.mark.parametrize("p", [(0.5,), (0.2, 0.3, 0.5), (math.nan, 0.5), (1.5, -0.5)])
def test_what_is_no_probability_is_refused_and_changes_nothing(p):
    smoother = Smoother()
    play(smoother, PERSON, [0.9])
    with pytest.raises(ValueError, match="probabilities"):
        smoother.update(PERSON, p, at(1), 1)
    assert smoother.update(PERSON, (0.5, 0.5), at(2), 2).answer == YES


def test_calibration_scales_and_shifts_the_logits():
    plain = Question("q", "x")
    assert calibrated(plain, (2.0, -1.0))[0] == pytest.approx(1 / (1 + math.exp(-3)))
    fitted = Question("q", "x", scale=0.5, bias=-1.0)
    p = calibrated(fitted, (2.0, -1.0))
    assert p[0] == pytest.approx(1 / (1 + math.exp(-(0.5 * 3 - 1))))
    assert sum(p) == pytest.approx(1)
    sharp = Question("q", "x", kind="choice", options=("a", "b", "c"), scale=2.0)
    z = np.exp(2 * np.array([1.0, 0.0, -1.0]))
    assert calibrated(sharp, (1.0, 0.0, -1.0)) == pytest.approx(z / z.sum())
    assert calibrated(plain, (2000.0, -2000.0)) == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize("logits", [
    (math.inf, 0.0), (0.0, -math.inf), (math.nan, 0.0), (math.inf, math.inf)])
def test_logits_that_are_not_finite_give_no_probability(logits):
    assert np.isnan(calibrated(Question("q", "?"), logits)).all()


@pytest.mark.parametrize("gap", [0.0, 1e-9, -3.0, 700.0, -800.0])
def test_probabilities_of_two_answers_are_exact_and_add_up(gap):
    p = calibrated(Question("q", "?", scale=2.0, bias=0.5), (gap, 0.0))
    x = np.longdouble(2.0) * np.longdouble(gap) + np.longdouble(0.5)
    assert p[0] == pytest.approx(float(1 / (1 + np.exp(-x))), rel=1e-12)
    assert sum(p) == 1.0


def test_a_decision_by_itself_is_unsmoothed_and_keeps_nothing():
    one = decide(Result(PERSON, at(5), (0.9, 0.1)), 5 * NS + 1000)
    assert (one.answer, one.p, one.p_raw) == (YES, 0.9, 0.9)
    assert one.changed and one.since_ns == 5 * NS
    again = decide(Result(PERSON, at(6), (0.5, 0.5)), 6 * NS + 1000)
    assert (again.answer, again.p, again.t_end_ns) == (UNCERTAIN, 0.5, 6 * NS)  # nothing was held
    nothing = decide(Result(PERSON, at(5), reason="too long"), 5 * NS + 1000)
    assert (nothing.answer, nothing.reason, nothing.t_end_ns) == (UNKNOWN, "too long", 5 * NS)
    never = no_answer(PERSON, "the runtime has stopped", 7 * NS)
    assert (never.answer, never.t_end_ns, never.since_ns) == (UNKNOWN, 0, 7 * NS)


THINGS = Question("things", "How many?", kind="score", options=("none", "one", "two"), ema=0.5)
ON_DESK = Question("on_desk", "Is there a {}?", kind="any_of", options=("cup", "pen"), ema=0.5)


def test_the_value_of_a_score_is_of_the_smoothed_distribution():
    got = play(Smoother(), THINGS, [(1, 0, 0), (0, 0, 1), (0, 0, 1), (0, 0, 1)])
    assert [d.value for d in got] == pytest.approx([0, 1, 1.5, 1.75])
    assert [d.answer for d in got] == ["none", "one", "one", "two"]
    assert [d.p for d in got] == pytest.approx([1, 0, 0, 0.875])  # of the level that is given
    assert got[1].probabilities == pytest.approx((0.5, 0, 0.5))
    assert sum(got[1].probabilities) == pytest.approx(1)


def test_labels_are_smoothed_and_held_one_by_one():
    got = play(Smoother(), ON_DESK, [(1, 0), (0.2, 0), (0.2, 1), (0.2, 1)])
    assert [d.answers for d in got] == [(YES, NO), (YES, NO), (YES, NO), (NO, YES)]
    assert [d.answer for d in got] == ["cup", "cup", "cup", "pen"]
    assert [d.changed for d in got] == [True, False, False, True]
    assert got[2].probabilities == pytest.approx((0.4, 0.5))
    assert got[2].p == pytest.approx(0.4)


def test_a_label_that_changes_is_a_change_though_the_whole_stays_uncertain():
    smoother = Smoother()
    got = play(smoother, ON_DESK, [(1, 0.5), (0, 0.5), (0, 0.5)])
    assert [d.answer for d in got] == [UNCERTAIN] * 3
    assert [d.answers[0] for d in got] == [YES, YES, NO]
    assert [d.changed for d in got] == [True, False, True]
    assert smoother.answers() == {
        "on_desk": UNCERTAIN, "on_desk[cup]": NO, "on_desk[pen]": UNCERTAIN}


def test_unknown_labels_are_said_one_by_one():
    smoother = Smoother()
    play(smoother, ON_DESK, [(1, 0)])
    decision = smoother.unknown(ON_DESK, "dark", 2 * NS)
    assert decision.answers == (UNKNOWN, UNKNOWN)
    assert math.isnan(decision.value)
    assert smoother.answers()["on_desk[cup]"] == UNKNOWN
    after = smoother.update(ON_DESK, (0.5, 0.5), at(3), 3 * NS)
    assert after.answers == (UNCERTAIN, UNCERTAIN)  # nothing is held over an unknown
