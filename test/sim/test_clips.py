"""Clips of the desk: one right answer each, and what makes them hard."""

from __future__ import annotations

import pytest

from vlm_decisions.sim import clips
from vlm_decisions.sim.clips import CONDITIONS, MOTION, conditions_of, draw_clip, draw_motion_clip
from vlm_decisions.sim.script import Script, Segment, State
from vlm_decisions.sim.world import World


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(clips, "SIZE", (96, 96))


def test_a_clip_is_a_window_with_its_truth():
    clip = draw_clip(5)
    assert len(clip.frames) == 16 and len(clip.pairs) == 8
    assert clip.pairs[1][0] is clip.frames[2]
    assert set(clip.truth) >= {"person", "activity"} and set(clip.conditions) <= set(CONDITIONS)
    again = draw_clip(5)
    assert (again.frames[3] == clip.frames[3]).all() and again.truth == clip.truth


def test_motion_clips_show_one_motion_from_end_to_end():
    drawn = [draw_motion_clip(900 + k) for k in range(30)]
    assert all(clip.steady for clip in drawn)
    assert 0.5 < sum(clip.moves for clip in drawn) / 30 < 1.0
    for name in MOTION:
        assert 0 < sum(clip.truth[name] == "yes" for clip in drawn) < 15, name


def test_conditions_are_what_the_world_draws():
    def at(**state):
        world = World(3, Script((Segment(5.0, State(**state)),)))
        world._noise, world._blur, world._clutter = noise, blur, []
        return conditions_of(world, 1.0)

    noise, blur = 2.0, 0.0
    assert at() == ()
    assert at(second_person=True) == ("two_people",)
    assert at(light=0.5) == ("dark",)
    desk = {"cup": 0.1, "phone": 0.3, "laptop": 0.5, "pen": 0.7}
    assert at(desk=desk) == ()
    assert at(desk=desk, holding="book") == ("crowded",)
    noise, blur = 7.0, 0.003
    assert at() == ("noisy", "blurred")


def test_every_condition_is_in_the_test_set_of_the_score():
    from vlm_decisions.lab.studies.score import FIRST_SEED

    found = [name for k in range(40) for name in draw_clip(FIRST_SEED + k).conditions]
    for name in CONDITIONS:
        assert found.count(name) >= 3, name


def test_another_drawing_has_another_digest(monkeypatch):
    one = clips.drawing()
    assert one == clips.drawing()
    monkeypatch.setattr(World, "render", lambda self, t, w, h: __import__("numpy").zeros(3))
    assert clips.drawing() != one
