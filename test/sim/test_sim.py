"""The simulated desk: what is drawn follows from seed and script, and the truth from the script."""

from __future__ import annotations

import numpy as np
import pytest

from vlm_decisions.files.resources import share_file
from vlm_decisions.kinds import KINDS, kind_of, split_labels
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.sim.script import COUNTS, MOTIONS, SCALE_RANGE, X_RANGE, Script, Segment, State
from vlm_decisions.sim.world import World, truth_of

SIZES = ((96, 96), (160, 120), (640, 480), (1280, 720), (97, 131))


@pytest.mark.parametrize("size", SIZES)
def test_same_seed_same_pixels(size):
    first = World(3).render(1.25, *size)
    assert first.shape == (size[1], size[0], 3) and first.dtype == np.uint8
    assert np.array_equal(first, World(3).render(1.25, *size))
    assert not np.array_equal(first, World(4).render(1.25, *size))


@pytest.mark.parametrize("size", [(95, 200), (200, 95), (1281, 720), (0, 0)])
def test_sizes_outside_the_range_are_refused(size):
    with pytest.raises(ValueError, match="96 to 1280"):
        World(0).render(0.0, *size)


def test_the_demo_asks_of_every_question_both_answers():
    world = World(0, Script.demo(0))
    told = [world.truth(t) for t in np.arange(0.05, world.duration_s, 0.25)]
    for question in QuestionBook.load(share_file("config", "questions", "desk.yaml")):
        answers = {truth[question.id] for truth in told}
        wanted = set(question.options) if question.options else {"yes", "no"}
        assert answers == wanted, question.id


def test_demo_lasts_half_a_minute_and_repeats():
    world = World(1, Script.demo(1))
    assert world.duration_s == 30.0
    assert np.array_equal(world.render(2.0), World(1, Script.demo(1)).render(2.0))
    assert world.truth(2.0) == world.truth(32.0)


@pytest.mark.parametrize("seed", range(20))
def test_random_scripts_stay_drawable(seed):
    script = Script.random(seed, 30.0)
    assert script.duration_s == pytest.approx(30.0)
    for segment in script.segments:
        x, scale = segment.state.at(segment.duration_s)
        if segment.state.person and segment.state.motion != "still":
            assert X_RANGE[0] - 1e-6 <= x <= X_RANGE[1] + 1e-6
            assert SCALE_RANGE[0] - 1e-6 <= scale <= SCALE_RANGE[1] + 1e-6
        places = list(segment.state.desk.values())
        if segment.state.holding:
            places.append(segment.state.x)
        gaps = np.diff(sorted(places))
        assert (gaps > 0.05).all()  # left-of and right-of are never a matter of a pixel


def test_a_motion_moves_the_person_its_way():
    for motion in MOTIONS[1:]:
        state = State(motion=motion, rate=0.2)
        (x0, s0), (x1, s1) = state.at(0.0), state.at(1.0)
        moved = {"approaching": s1 > s0, "receding": s1 < s0, "left": x1 < x0, "right": x1 > x0}
        assert moved[motion]
        facts = truth_of(state, x0)
        ids = ("approaching", "receding", "moving_left", "moving_right")
        assert [facts[name] for name in ids].count("yes") == 1


def test_what_the_truth_names_is_drawn():
    """Each fact changes the picture, by more than the noise of the same state."""
    base = State(desk={"laptop": 0.5})
    plain = World(2, Script((Segment(5.0, base),)), shake=False).render(1.0)
    changes = {
        "cup": State(desk={"laptop": 0.5, "cup": 0.8}),
        "pen": State(desk={"laptop": 0.5, "pen": .2}),
        "nobody": State(person=False, activity="away", desk={"laptop": 0.5}),
        "door": State(door_open=True, desk={"laptop": 0.5}),
        "second": State(second_person=True, desk={"laptop": 0.5}),
        "holding": State(holding="phone", desk={"laptop": 0.5}),
        "drinking": State(activity="drinking", holding="cup", desk={"laptop": 0.5}),
    }
    for name, state in changes.items():
        other = World(2, Script((Segment(5.0, state),)), shake=False).render(1.0)
        assert np.count_nonzero(np.abs(plain.astype(int) - other) > 20) > 150, name


@pytest.mark.parametrize(("bad", "message"), [
    ({"activity": "flying"}, "activity"), ({"motion": "up"}, "motion"),
    ({"holding": "laptop"}, "holding"), ({"person": False}, "away"),
    ({"desk": {"lamp": 0.5}}, "objects")])
def test_impossible_states_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        State(**bad)


def test_a_script_needs_time():
    with pytest.raises(ValueError, match="longer than 0"):
        Script((Segment(0.0, State()),))


def test_the_set_of_all_kinds_is_about_the_desk():
    book = QuestionBook.load(share_file("config", "questions", "kinds.yaml"))
    assert {question.kind for question in book} == set(KINDS)
    world = World(3, Script.demo(3))
    told = [world.truth(t_s) for t_s in np.arange(0.05, world.duration_s, 0.25)]
    for question in book:
        given = {facts[question.id] for facts in told}
        assert len(given) > 1, question.id
        assert all(kind_of(question).canonical(question, one) == one for one in given)
    named = [set(split_labels(facts["on_desk"])) for facts in told]
    assert all(len(labels) == COUNTS.index(facts["things"])
               for labels, facts in zip(named, told, strict=True))
