"""The state that the page names: honest, with the reason and what would help."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from vlm_decisions.runtime.gate import LATE as IMAGE_LATE
from vlm_decisions.runtime.statistics import Percentiles
from vlm_decisions.runtime.system import Status, System
from vlm_decisions.viewer.state import STRAIN_S, Strain, state_of

OK = {"ok": True, "message": ""}
GOOD = System(node="/a/decision_node", state="active", model="sim_desk", topic="/a/image",
              image_rate_hz=15.0, image_age_s=0.05, group_ms=250.0,
              tick_ms={"total": Percentiles(60.0, 90.0, 9)})
LATE = "no answer for 3.0 s"


def state(system=GOOD, unknown=0, waiting=0, count=40, link=OK, **more):
    return state_of(link, system, {f"q{n}": LATE for n in range(unknown)},
                    [f"w{n}" for n in range(waiting)], count, **more)


def test_live_means_that_every_question_is_answered():
    assert state().label == "Live" and state().message == ""
    assert state(unknown=1).label == "1 of 40 unknown"
    assert state(unknown=40).label == "40 of 40 unknown"
    assert state(unknown=40).message == "No answer for 3.0 s."


def test_the_commonest_reason_is_given():
    reasons = {"a": "no answer for 2.1 s", "b": "no answer for 3.2 s", "c": "the model failed"}
    assert state_of(OK, GOOD, reasons, (), 5).message == "No answer for 2.1 s (2 of 3)."


@pytest.mark.parametrize("signs", [
    {"dropped": True}, {"put_off": True},
    {"system": replace(GOOD, tick_ms={"total": Percentiles(480.0, 560.0, 9)})}])
def test_overload_is_named_with_how_many_are_unknown(signs):
    found = state(unknown=7, **signs)
    assert (found.kind, found.label) == ("overloaded", "Overloaded, 7 of 40 unknown")
    assert "every 250 ms" in found.message and found.remedy


def test_the_remedy_names_what_takes_the_time():
    stages = {"vision": Percentiles(300.0, 400.0, 9), "ask": Percentiles(50.0, 60.0, 9),
              "total": Percentiles(360.0, 470.0, 9)}
    assert "pixel_budget" in state(replace(GOOD, tick_ms=stages), unknown=2).remedy
    stages |= {"vision": Percentiles(20.0, 30.0, 9), "ask": Percentiles(330.0, 400.0, 9)}
    assert "rates" in state(replace(GOOD, tick_ms=stages), unknown=2).remedy


def test_what_is_too_dear_is_named():
    found = state(replace(GOOD, overload="too slow for all rates: the dearest is 'pick'"))
    assert found.label == "Overloaded" and "'pick'" in found.message
    costs = {"a": (9, 3.0), "head": (0, 0.0), "b": (40, 21.6), "c": (12, 4.0), "d": (11, 3.5),
             "new": (99, math.nan)}
    found = state(replace(GOOD, costs=costs), unknown=1, dropped=True)
    assert found.remedy.endswith("The dearest: b (40 tokens, 22 ms), c (12 tokens, 4 ms), "
                                 "d (11 tokens, 4 ms).")


def test_groups_dropped_are_overload_even_while_answers_stand():
    assert state(dropped=True).label == "Overloaded"
    assert state(put_off=True).label == "Live"  # put off, but every answer is fresh


@pytest.mark.parametrize(("changes", "kind", "message", "remedy"), [
    ({"state": "configuring"}, "loading", "being loaded", ""),
    ({"state": "loading"}, "loading", "being loaded", ""),
    ({"state": ""}, "loading", "first report", ""),
    ({"state": "inactive"}, "stopped", "does not read",
     "ros2 lifecycle set /a/decision_node activate"),
    ({"state": "unconfigured"}, "stopped", "not loaded",
     "ros2 lifecycle set /a/decision_node configure"),
    ({"state": "unconfigured", "failure": "cannot configure: no model 'x'"}, "failed",
     "no model 'x'", "/a/decision_node configure"),
    ({"condition": "no image yet", "image_age_s": math.nan}, "no_camera", "No image yet",
     "ros2 topic hz /a/image"),
    ({"condition": "no image for 3.1 s", "image_age_s": 3.1, "topic": ""}, "no_camera", "3.1 s",
     "connected"),
    ({"condition": "the camera is dark"}, "unusable", "The camera is dark.", "light"),
    ({"condition": f"{IMAGE_LATE} 2.3 s old", "statuses": (
        Status("camera", 2, f"answers are unknown: {IMAGE_LATE} 2.3 s old"),)}, "unusable",
     "The newest image is 2.3 s old.", "too busy to take them in time, or the camera's clock"),
    ({"condition": "no image for 9 s", "image_age_s": 9.0,
      "statuses": (Status("image", 2, "1 publisher on /a/image, its images are lost"),)},
     "no_camera", "No image for 9 s.", "images are lost"),
    ({"condition": "no image for 9 s: 1 publisher on /a/image", "image_age_s": 9.0,
      "statuses": (Status("image", 2, "no image for 9.04 s: 1 publisher on /a/image"),)},
     "no_camera", "No image for 9 s: 1", "ros2 topic hz /a/image"),
])
def test_each_state_says_why_and_what_would_help(changes, kind, message, remedy):
    found = state(replace(GOOD, **changes), unknown=40)  # all unknown, and that is not overload
    assert found.kind == kind and message in found.message and remedy in found.remedy
    assert "unknown" not in found.label


def test_a_node_that_is_not_there_comes_first():
    found = state(unknown=3, link={"ok": False, "message": "waiting for /a/decision_node"})
    assert (found.kind, found.message) == ("no_node", "waiting for /a/decision_node")


def test_before_the_first_answers_it_is_starting():
    found = state(waiting=40)
    assert (found.kind, found.label) == ("loading", "Starting") and "40 of 40" in found.message


def test_without_questions_it_is_live():
    assert state(count=0).label == "Live"


def test_strain_is_noticed_and_passes():
    strain = Strain()

    def note(now_s, skipped=0, **dropped):
        strain.note(replace(GOOD, dropped=dropped, counts={"skipped": skipped}), now_s)

    note(0.0, queue=900)  # long ago: not of now
    assert not strain.dropped(0.0)
    note(1.0, queue=903)
    assert strain.dropped(1.0) and not strain.put_off(1.0)
    assert not strain.dropped(1.0 + STRAIN_S)
    note(9.0, skipped=4, queue=903)
    assert strain.put_off(9.0) and not strain.dropped(9.0)
    note(20.0, late=50)  # a restarted node counts from 0
    assert not strain.dropped(20.0) and not strain.put_off(20.0)
