"""Waits for conditions: what holds, for how long, and what breaks it."""

import math
from dataclasses import replace

import pytest

from vlm_decisions.decision import NO, TIER_HEALTH, TIER_VLM, UNCERTAIN, UNKNOWN, YES, Decision
from vlm_decisions.frames import NS
from vlm_decisions.questions import Question
from vlm_decisions.runtime.waiting import Wait, WaitError

PERSON = Question("person", "Is there a person?")
CUP = Question("cup", "Is there a cup?")
DESK = Question("on_desk", "What is there?", kind="any_of", options=("cup", "phone"))
QUESTIONS = {question.id: question for question in (PERSON, CUP, DESK)}


def said(question_id, answer, t_s, p=0.9, tier=TIER_VLM, **fields):
    t_ns = round(t_s * NS)
    p = math.nan if answer == UNKNOWN else p
    return Decision(question_id, answer, p, p, **{
        "options": (), "probabilities": (), "tier": tier, "depth": 4, "t_start_ns": t_ns,
        "t_end_ns": t_ns, "t_decided_ns": t_ns, "changed": False, "since_ns": t_ns, "model": "m",
        **fields})


def played(wait, *decisions):
    """Return after which decisions the wait was reached."""
    return [index for index, decision in enumerate(decisions) if wait.update(decision)]


def test_a_hold_is_counted_from_the_evidence_that_made_it_true():
    wait = Wait("person", 1.0, QUESTIONS)
    assert played(wait, said("person", NO, 1.0), said("person", YES, 2.0),
                  said("person", YES, 2.9), said("person", YES, 3.0)) == [3]
    assert played(Wait("person", 0.0, QUESTIONS), said("person", YES, 1.0)) == [0]


@pytest.mark.parametrize("breaker", [
    said("person", NO, 2.5), said("person", UNCERTAIN, 2.5), said("person", UNKNOWN, 2.5)])
def test_another_answer_and_none_break_the_hold(breaker):
    wait = Wait("person", 1.0, QUESTIONS)
    got = played(wait, said("person", YES, 2.0), breaker, said("person", YES, 3.0),
                 said("person", YES, 3.9), said("person", YES, 4.0))
    assert got == [4]


def test_what_was_answered_before_the_wait_counts_from_its_evidence():
    wait = Wait("person and not cup", 1.0, QUESTIONS)
    assert not wait.begin({"person": said("person", YES, 5.0), "cup": said("cup", NO, 4.5)})
    assert played(wait, said("cup", NO, 5.5), said("person", YES, 6.0)) == [1]
    assert Wait("person", 0.0, QUESTIONS).begin({"person": said("person", YES, 5.0)})


def test_an_answer_that_does_not_matter_breaks_nothing():
    wait = Wait("person or cup", 1.0, QUESTIONS)
    assert played(wait, said("person", YES, 1.0), said("cup", UNKNOWN, 1.5),
                  said("person", YES, 2.0)) == [2]


def test_the_decisions_of_other_questions_are_no_evidence():
    wait = Wait("person", 1.0, QUESTIONS)
    assert played(wait, said("person", YES, 1.0), said("cup", YES, 9.0)) == []
    assert wait.state({}).held_s == 0.0


def test_health_alone_is_published_on_change_so_every_decision_lets_time_pass():
    wait = Wait("not camera_dark", 1.0, QUESTIONS)
    dark = said("camera_dark", NO, 1.0, tier=TIER_HEALTH)
    assert played(wait, dark, said("person", YES, 1.5), said("person", UNKNOWN, 9.0),
                  said("person", YES, 2.0)) == [3]


def test_frame_time_that_goes_backwards_starts_the_hold_anew():
    wait = Wait("person", 1.0, QUESTIONS)
    assert played(wait, said("person", YES, 100.0), said("person", YES, 1.0),
                  said("person", YES, 1.5), said("person", YES, 2.0)) == [3]


def test_state_names_answers_probabilities_and_the_oldest_evidence():
    wait = Wait("not person or on_desk[cup]", 5.0, QUESTIONS)
    latest = {"person": said("person", NO, 3.0, p=0.2),
              "on_desk": said("on_desk", "cup", 4.0, options=("cup", "phone"),
                              probabilities=(0.8, 0.3), answers=(YES, NO))}
    wait.begin(latest)
    state = wait.state(latest)
    assert (state.holds, state.names) == (True, ("person", "on_desk[cup]"))
    assert state.answers == (NO, YES) and state.p == pytest.approx((0.8, 0.8))
    assert state.end_ns == 3 * NS
    assert str(state) == "person no, on_desk[cup] yes"
    empty = Wait("person", 0.0, QUESTIONS).state({"person": said("person", UNKNOWN, 3.0)})
    assert empty.answers == (UNKNOWN,) and math.isnan(empty.p[0]) and empty.end_ns == 0


@pytest.mark.parametrize("condition, for_s, why", [
    ("nobody", 0.0, "there is no question 'nobody'"),
    ("person ==", 0.0, "cannot be read"),
    ("on_desk", 0.0, "name one of its labels"),
    ("person == \"perhaps\"", 0.0, "never answers 'perhaps'"),
    ("person", -1.0, "for_s must be seconds from 0 on, not -1"),
    ("person", math.nan, "for_s must be seconds from 0 on, not nan"),
])
def test_what_cannot_be_waited_for_is_refused_by_name(condition, for_s, why):
    with pytest.raises(WaitError, match=why):
        Wait(condition, for_s, QUESTIONS)


def test_a_question_that_is_gone_or_asks_something_else_counts_no_longer():
    wait = Wait("person", 1.0, QUESTIONS)
    wait.update(said("person", YES, 1.0))
    assert wait.follow(QUESTIONS | {"person": replace(PERSON, rate_hz=2.0)}) == ""
    assert wait.state({}).holds
    assert wait.follow(QUESTIONS | {"person": replace(PERSON, text="Is a dog there?")}) == ""
    assert not wait.state({}).holds
    assert played(wait, said("person", YES, 2.0), said("person", YES, 3.0)) == [1]
    assert "no question 'person'" in wait.follow({"cup": CUP})


def test_with_several_views_the_answers_of_one_count():
    views = ("front", "door")
    door = replace(CUP, id="open", view="door")
    questions = {"person": PERSON, "open": door}
    with pytest.raises(WaitError, match="'person' is answered of several views, name one: front"):
        Wait("person", 0.0, questions, views)
    with pytest.raises(WaitError, match="no view 'back' \\(there are: front, door\\)"):
        Wait("person", 0.0, questions, views, "back")
    with pytest.raises(WaitError, match="'camera_dark' is answered of several views"):
        Wait("not camera_dark", 0.0, questions, views)
    assert Wait("open", 0.0, questions, views).sources == {"open": ("door", "open")}
    wait = Wait("person and open", 0.0, questions, views, "front")
    assert wait.sources == {"person": ("front", "person"), "open": ("door", "open")}
    assert played(wait, said("open", YES, 1.0, view="door"), said("person", YES, 1.0, view="door"),
                  said("person", YES, 1.0, view="front")) == [2]
    assert "no view 'front'" in wait.follow(questions, ("door",))


def test_two_views_that_disagree_are_told_apart_in_one_condition():
    views = ("front", "door")
    front = [said("person", YES, t, view="front") for t in (1.0, 2.0)]
    door = [said("person", NO, t, view="door", p=0.2) for t in (1.0, 2.0)]
    apart = Wait("front.person and not door.person", 1.0, QUESTIONS, views)
    assert played(apart, front[0], door[0], front[1], door[1]) == [2, 3]
    for never in ("front.person and door.person", "not front.person", "door.person"):
        assert played(Wait(never, 0.0, QUESTIONS, views), *front, *door) == []
    latest = {"front.person": front[1], "door.person": door[1]}
    state = apart.state(latest)
    assert state.names == ("front.person", "door.person") and state.answers == (YES, NO)
    assert state.p == pytest.approx((0.9, 0.8))
    assert Wait("front.person and not door.person", 0.0, QUESTIONS, views).begin(latest)
    # The action's view is of the names that say none.
    mixed = Wait("person and not door.person", 0.0, QUESTIONS, views, "front")
    assert played(mixed, door[0], front[0]) == [1]


def test_a_label_of_a_view_is_not_that_of_another():
    seen = {"options": ("cup", "phone"), "probabilities": (0.9, 0.1), "answers": (YES, NO)}
    wait = Wait("door.on_desk[cup]", 0.0, QUESTIONS, ("front", "door"))
    assert played(wait, said("on_desk", "cup", 1.0, view="front", **seen),
                  said("on_desk", "cup", 1.0, view="door", **seen)) == [1]


def test_a_view_that_comes_changes_no_wait_and_one_that_goes_ends_its_own():
    wait = Wait("person", 1.0, QUESTIONS, ("front",))
    wait.update(said("person", YES, 1.0, view="front"))
    assert wait.follow(QUESTIONS, ("front", "door")) == ""
    assert played(wait, said("person", NO, 1.5, view="door"),
                  said("person", YES, 2.0, view="front")) == [1]
    assert wait.follow(QUESTIONS, ("door",)) == "there is no view 'front' any more"


def test_the_frame_time_of_other_views_does_not_count_for_health():
    wait = Wait("not front.camera_dark", 1.0, QUESTIONS, ("front", "door"))
    dark = said("camera_dark", NO, 1.0, tier=TIER_HEALTH, view="front")
    assert played(wait, dark, said("person", YES, 900.0, view="door"),
                  said("person", YES, 2.0, view="front")) == [2]
