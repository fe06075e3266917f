"""When an answer began: the change point over the last groups."""

import math

import pytest

from vlm_decisions.decision import NO, TIER_VLM, YES
from vlm_decisions.events import EventBook, EventSpec, Transition
from vlm_decisions.frames import NS
from vlm_decisions.questions import Question
from vlm_decisions.runtime.evidence import Evidence
from vlm_decisions.runtime.onset import REACH, UNSEEN, change_point
from vlm_decisions.runtime.smoothing import Smoother

SLOW = Question("q", "x", ema=0.3)


def looks(values, dt_s=0.25):
    return [(NS + round(k * dt_s * NS), math.log(p / (1 - p))) for k, p in enumerate(values)]


def play(question, values, smoother=None, first=0):
    smoother, out = smoother or Smoother(), []
    for k, p in enumerate(values, first):
        t_ns = NS + k * NS // 4
        out.append(smoother.update(question, (p, 1 - p), Evidence(TIER_VLM, t_ns, t_ns), t_ns))
    return out


def test_the_change_lies_in_the_middle_of_its_gap():
    onset = change_point(looks([0.01, 0.01, 0.01, 0.99, 0.99]))
    assert onset.t_ns == NS + round(2.5 * 0.25 * NS)
    assert onset.sd_s == pytest.approx(0.25 / math.sqrt(12), rel=0.2)  # the gap's own width


def test_doubt_makes_it_wider_and_one_bad_look_does_not_move_it():
    sure = change_point(looks([0.01, 0.01, 0.01, 0.99, 0.99, 0.99]))
    doubtful = change_point(looks([0.01, 0.3, 0.4, 0.6, 0.7, 0.99]))
    assert doubtful.sd_s > 2 * sure.sd_s
    blip = change_point(looks([0.01, 0.8, 0.01, 0.01, 0.99, 0.99]))
    assert blip.t_ns == NS + round(3.5 * 0.25 * NS)


def test_nothing_to_look_back_on():
    assert change_point(looks([0.9])) == UNSEEN


def test_an_answer_begins_before_it_is_given():
    got = play(SLOW, [0.02] * 4 + [0.95] * 8)
    began = next(d for d in got if d.answer == YES)
    assert began.changed and began.since_ns == NS + 7 * NS // 4  # three groups late
    assert began.t_onset_ns == NS + round(3.5 * NS / 4)
    assert 0 < began.t_onset_sd_s < 0.2
    assert got[3].answer == NO and got[3].t_onset_ns == 0  # so from the first look on
    assert {d.t_onset_ns for d in got[7:]} == {began.t_onset_ns}  # it stays
    assert got[-1].since_ns == began.since_ns


def test_it_settles_and_then_no_later_look_moves_it():
    got = play(SLOW, [0.02] * 4 + [0.95] * 7 + [0.4, 0.3, 0.6, *[0.9] * REACH])
    assert len({d.t_onset_ns for d in got if d.answer == YES}) == 1


def test_an_unknown_hides_what_was_before():
    smoother = Smoother()
    play(SLOW, [0.02] * 4, smoother)
    unknown = smoother.unknown(SLOW, "dark", 3 * NS)
    assert (unknown.t_onset_ns, unknown.t_onset_sd_s) == (0, 0.0)
    got = play(SLOW, [0.95] * 4, smoother, first=9)
    assert got[-1].answer == YES and got[-1].t_onset_ns == 0


def test_a_choice_has_an_onset():
    question = Question("q", "x", kind="choice", options=("a", "b", "c"), ema=0.4)
    smoother = Smoother()
    values = [(0.9, 0.05, 0.05)] * 4 + [(0.05, 0.05, 0.9)] * 4
    for k, p in enumerate(values):
        t_ns = NS + k * NS // 4
        got = smoother.update(question, p, Evidence(TIER_VLM, t_ns, t_ns), t_ns)
    assert got.answer == "c" and got.t_onset_ns == NS + round(3.5 * NS / 4)


@pytest.mark.parametrize("between", [1, 2, 3])
def test_an_answer_that_comes_back_begins_after_the_one_between(between):
    got = play(Question("q", "x", ema=1.0), [0.01] * 3 + [0.99] * between + [0.01] * 2)
    back = got[3 + between :]
    assert {d.answer for d in back} == {NO}
    assert {d.t_onset_ns for d in back} == {NS + round((2.5 + between) * NS / 4)}
    assert all(d.t_onset_sd_s < 0.1 for d in back)


def test_labels_and_levels_have_onsets():
    labels = Question("q", "Is there a {}?", kind="any_of", options=("cup", "pen"), ema=0.4)
    levels = Question("q", "x", kind="score", options=("0", "1", "2"), ema=0.4)
    for question, old, new in ((labels, (0.95, 0.02), (0.95, 0.97)),
                               (levels, (0.9, 0.08, 0.02), (0.02, 0.08, 0.9))):
        smoother = Smoother()
        for k, p in enumerate([old] * 4 + [new] * 5):
            t_ns = NS + k * NS // 4
            got = smoother.update(question, p, Evidence(TIER_VLM, t_ns, t_ns), t_ns)
        assert got.answer in ("cup, pen", "2")
        # A score goes over the level between: that one began with the same group.
        assert got.t_onset_ns == NS + round(3.5 * NS / 4) < got.since_ns


def test_an_event_says_when_its_cause_began():
    book = EventBook([EventSpec("e", ("off", "on"), (Transition("off", "on", {"q": ("yes",)}),))])
    decisions = play(SLOW, [0.02] * 4 + [0.95] * 8)
    event = next(event for d in decisions for event in book.update(d))
    assert event.t_onset_ns == NS + round(3.5 * NS / 4) < event.t_start_ns
    assert event.t_onset_sd_s > 0
    assert event.to_dict()["t_onset"] == event.t_onset_ns / NS


def test_a_second_look_at_the_same_frame_hides_nothing_of_what_was_before():
    smoother, got = Smoother(), []
    for k in range(10):
        evidence = Evidence(TIER_VLM, NS + k * NS // 4, NS + k * NS // 4)
        for p in (0.02,) if k < 5 else (0.5, 0.98):
            got.append(smoother.update(SLOW, (p, 1 - p), evidence, evidence.t_end_ns))
    assert got[-1].answer == YES and got[-1].t_onset_ns == NS + round(4.5 * NS / 4)
