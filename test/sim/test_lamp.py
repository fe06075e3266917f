"""The lamp and the strange camera of the simulated desk, which are off unless asked for."""

import numpy as np
import pytest

from vlm_decisions.sim.script import Script
from vlm_decisions.sim.style import STRANGE, Style
from vlm_decisions.sim.world import World

SCRIPT = Script.random(5, 12.0)


def test_without_them_nothing_changes():
    plain = World(3, SCRIPT)
    assert "lamp" not in plain.truth(1.0)
    with_lamp = World(3, SCRIPT, lamp=True)
    assert {name: with_lamp.truth(1.0)[name] for name in plain.truth(1.0)} == plain.truth(1.0)
    assert plain.changes_s == SCRIPT.changes_s


def test_the_lamp_is_seen_and_its_truth_is_what_is_drawn():
    world = World(3, SCRIPT, lamp=True, shake=False)
    times = np.arange(0.25, 12.0, 0.5)
    on = [t for t in times if world.truth(t)["lamp"] == "yes"]
    off = [t for t in times if world.truth(t)["lamp"] == "no"]
    assert on and off and set(SCRIPT.changes_s) < set(world.changes_s)
    plain = World(3, SCRIPT, shake=False)

    def added(t):
        return world.render(t, 160, 120).astype(int) - plain.render(t, 160, 120)

    assert min(added(t).max() for t in on) > 60 > max(np.abs(added(t)).mean() for t in off) * 10
    assert min(added(t).sum() for t in on) > 5 * max(abs(added(t).sum()) for t in off)


def test_a_lamp_hangs_in_one_place_and_is_switched_by_the_script():
    other = Script.random(6, 12.0)
    one, two = (World(3, script, lamp=True) for script in (SCRIPT, other))
    assert one.changes_s != two.changes_s
    again = World(3, SCRIPT, lamp=True)
    assert again.changes_s == one.changes_s
    assert (again.render(2.0, 160, 120) == one.render(2.0, 160, 120)).all()


@pytest.mark.parametrize("field, value", (
    ("hue_deg", 140.0), ("saturation", 0.5), ("gamma", 1.5), ("barrel", 0.18), ("vignette", 0.5),
    ("veil", 0.3), ("noise", 14.0), ("blur", 0.002)))
def test_each_part_of_a_style_changes_the_picture(field, value):
    image = World(3, SCRIPT).render(2.0, 160, 120)
    plain = Style().show(image, 1)
    assert np.abs(plain.astype(int) - image).mean() < 2
    shown = Style(**{field: value}).show(image, 1)
    assert shown.shape == image.shape and shown.dtype == np.uint8
    assert np.abs(shown.astype(int) - plain).mean() > 0.01


def test_a_style_is_drawn_alike_each_time_and_not_with_the_same_noise():
    world = World(3, SCRIPT, style=STRANGE)
    first = world.render(2.0, 160, 120)
    assert (World(3, SCRIPT, style=STRANGE).render(2.0, 160, 120) == first).all()
    noise = Style(noise=10.0)
    grey = np.full((120, 160, 3), 128, np.uint8)
    assert (noise.show(grey, 1) != noise.show(grey, 2)).any()
