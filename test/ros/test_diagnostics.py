"""Diagnostics: levels and words for what can go wrong."""

import math
import mmap
import sys
import types
from collections import Counter

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from diagnostic_states import GOOD, having

from vlm_decisions.reuse import ReuseStats
from vlm_decisions.ros.diagnostics import ERROR, OK, WARN, Diagnostics, NodeState, rss_mb
from vlm_decisions.ros.matching import Link
from vlm_decisions.runtime.costs import Cost
from vlm_decisions.runtime.statistics import Percentiles


def report(*states):
    """Return the statuses after the last of some states, by part."""
    diagnostics = Diagnostics("/a/eyes", "/a/image")
    for state in states:
        statuses = diagnostics.report(state)
    return {status.name.removeprefix("/a/eyes: "): status for status in statuses}


def test_all_is_well():
    parts = report(GOOD, having(queue=2))
    assert list(parts) == ["model", "image", "camera", "runtime", "questions"]
    assert all(status.level == OK for status in parts.values())
    values = {pair.key: pair.value for status in parts.values() for pair in status.values}
    assert values["rate"] == "15 Hz" and values["person"] == "3.9 of 4 Hz"
    assert values["queue"] == "2" and values["age"] == "0.05 s"
    assert values["model"] == "sim_desk" and float(values["memory"].split()[0]) > 10
    assert values["tick total"] == "p50 40 ms, p95 60 ms" and values["heads"] == "person"


def test_what_broke_windows_off_is_shown():
    status = report(GOOD, having(breaks={"gaps": 3, "switched": 7}))["runtime"]
    values = {pair.key: pair.value for pair in status.values}
    assert values["windows broken off, gaps"] == "3"
    assert values["windows broken off, switched"] == "7"


def test_what_questions_cost_is_shown_and_which_are_too_dear():
    costs = {"person": Cost(121, 24.04)}
    status = report(GOOD, having(costs=costs))["questions"]
    assert status.values[0].value == "3.9 of 4 Hz, 121 tokens, 24.0 ms"
    status = report(GOOD, having(costs=costs, overload="too slow for all rates"))["questions"]
    assert (status.level, status.message) == (WARN, "too slow for all rates")


def test_they_say_whose_they_are():
    """Two nodes on one machine must not be taken for each other."""
    diagnostics = Diagnostics("/a/eyes", "/a/image")
    for state, camera in ((NodeState("unconfigured"), "/a/image"),
                          (having(topic="/a/front", frame_id="lens"), "/a/front"),
                          (having(state="inactive", topic=""), "/a/front")):
        statuses = diagnostics.report(state)
        assert {status.hardware_id for status in statuses} == {camera}
        assert all(status.name.startswith("/a/eyes: ") for status in statuses)
    assert report(having(frame_id="lens"))["image"].values[1].value == "lens"


LINK = Link("/image", 1, False, 9, 91, "")
TROUBLE = "1 publisher on /image, its images are lost in the middleware (91 of the last 100): ..."


@pytest.mark.parametrize(("part", "level", "text", "state"), [
    ("image", WARN, TROUBLE, having(link=LINK, trouble=TROUBLE)),
    ("image", ERROR, f"no image for 3.5 s: {TROUBLE}", having(image_age_s=3.5, trouble=TROUBLE)),
    ("image", WARN, "no image for 1.53 s",
     having(image_age_s=1.53, image_rate_hz=0.652, silent=True)),
    ("image", ERROR, "no image yet on /image: nobody publishes /image",
     having(image_age_s=math.inf, trouble="nobody publishes /image")),
    ("image", WARN, "images of several cameras come in turn: frame_id 'a' and 'b'",
     having(mixture="images of several cameras come in turn: frame_id 'a' and 'b'")),
    ("model", ERROR, "no such model", NodeState("unconfigured", failure="no such model")),
    ("model", OK, "unconfigured", NodeState("unconfigured")),
    ("model", WARN, "1 head refused", having(heads_refused={"": {"a.npz": "another model"}})),
    ("model", WARN, "2 heads refused in view 'far'", having(
        heads_refused={"far": {"a.npz": "another budget", "b.npz": "another budget"}})),
    ("image", ERROR, "no image yet on /image", having(frames=0, image_age_s=math.inf)),
    ("image", ERROR, "no image for 3.5 s", having(image_age_s=3.5)),
    ("image", ERROR, "refused 2: depth",
     having(refused={"encoding": 2}, received=102, last_refusal="depth")),
    ("image", WARN, "refused 2: depth",  # and ten good ones in the same second
     having(refused={"encoding": 2}, received=112, last_refusal="depth")),
    ("image", ERROR, "no image yet on /image", having(image_age_s=math.inf)),  # since a reset
    ("image", ERROR, "nothing publishes /clock", having(clock_ns=0)),
    ("image", WARN, "the clock stands", having(clock_ns=5)),
    ("image", WARN, "0.5 Hz is too slow", having(image_rate_hz=0.5)),
    ("image", WARN, "60 s behind the clock", having(stamp_offset_s=60.0)),
    ("image", WARN, "60 s ahead of the clock", having(stamp_offset_s=-60.0)),
    ("image", OK, "15 Hz", having(stamp_offset_s=60.0, by_arrival=True)),  # as was advised
    ("image", OK, "not subscribed", having(state="inactive", image_age_s=99.0)),
    ("camera", WARN, "blurred, dark", having(conditions=("camera_blurred", "camera_dark"))),
    ("camera", ERROR, "answers are unknown: too dark", having(condition="too dark")),
    ("camera", OK, "not seen yet", having(state="inactive")),
    ("runtime", ERROR, "vision: boom", having(errors=1, last_error="vision: boom")),
    ("runtime", WARN, "too slow: 3 groups", having(dropped={"queue": 3})),
    ("runtime", WARN, "too slow: 5 groups", having(dropped={"queue": 3, "catch_up": 2})),
    ("questions", WARN, "unknown: person (person: too long)",
     having(unknown={"person": "too long"})),
    ("questions", OK, "1 question", having(unknown={"person": "dark"}, condition="dark")),
    ("model", OK, "configuring", having(state="configuring", model=""))])
def test_what_is_wrong_is_said(part, level, text, state):
    before = GOOD if state.runtime else NodeState("unconfigured")
    status = report(before, state)[part]
    assert (status.level, text in status.message) == (level, True), status.message


def test_rates_are_of_now():
    values = {pair.key: pair.value for part in report(
        GOOD, having(image_age_s=3.5, image_rate_hz=1 / 3.5,
                     condition="no image for 3.5 s")).values()
        for pair in part.values}
    assert values["rate"] == "0.286 Hz" and values["person"] == "0 of 4 Hz"


def test_old_troubles_are_counted_but_not_alarming():
    state = having(refused={"encoding": 2}, last_refusal="depth", errors=1, dropped={"queue": 3})
    parts = report(GOOD, state, having(state))
    assert all(status.level == OK for status in parts.values())
    values = {pair.key: pair.value for status in parts.values() for pair in status.values}
    assert values["refused, encoding"] == "2" and values["dropped, queue"] == "3"


def test_slow_questions_alarm_after_a_while():
    slow = having(rates_hz={"person": 1.0})
    assert report(*[slow] * 5)["questions"].level == OK
    status = report(*[slow] * 7)["questions"]
    assert status.level == WARN and "person" in status.message
    assert report(*[slow] * 7, having())["questions"].level == OK
    assert report(*[having(slow, condition="dark")] * 7)["questions"].level == OK


def test_questions_that_just_came_back_do_not_alarm():
    dark = having(unknown={"person": "dark"}, condition="dark")
    assert report(dark, having(unknown={"person": "dark"}))["questions"].level == OK
    assert report(dark, GOOD, having(unknown={"person": "no head"}))["questions"].level == WARN


def test_latencies_are_told_by_tier():
    state = having(tick_ms={"health": Percentiles(1.0, 2.0, 9), "tier_1": Percentiles(30, 40, 9),
                            "tier_2": Percentiles(60, 80, 9), "ask": Percentiles(50, 70, 9)})
    values = {pair.key: pair.value for pair in report(state)["runtime"].values}
    assert values["tick tier 0"] == "p50 1 ms, p95 2 ms"
    assert values["tick tier 1"] == "p50 30 ms, p95 40 ms"
    assert values["tick tier 2"] == "p50 60 ms, p95 80 ms" and "tick ask" in values


def test_the_models_memory_is_told_where_it_is_loaded(monkeypatch):
    mlx = types.SimpleNamespace(get_active_memory=lambda: 5e6)
    monkeypatch.setitem(sys.modules, "mlx.core", mlx)
    values = {pair.key: pair.value for pair in report(GOOD)["model"].values}
    assert values["model memory"] == "5 MB"
    monkeypatch.setitem(sys.modules, "mlx.core", types.SimpleNamespace())  # half imported
    assert "model memory" not in {pair.key for pair in report(GOOD)["model"].values}


def test_memory_is_this_process():
    before_mb = rss_mb()
    held = mmap.mmap(-1, 80_000_000)  # not malloc's, which may have freed memory at hand
    for at in range(0, len(held), 4096):
        held[at] = 1
    assert 60 < rss_mb() - before_mb < 120
    assert 20 < before_mb < 8000 and len(held) == 80_000_000


def test_what_is_to_be_known_of_the_model_is_told():
    """What was assumed, and a model that cannot keep up: the message says it, not only values."""
    told = {"device": "cpu", "dtype": "bfloat16", "checked": "self-check passed",
            "notes": "the model cannot keep up: one group with three questions took 0.90 s"}
    status = report(GOOD, having(engine=told))["model"]
    assert status.level == WARN and "cannot keep up" in status.message
    values = {pair.key: pair.value for pair in status.values}
    assert values["checked"] == "self-check passed" and values["dtype"] == "bfloat16"
    assert report(GOOD, having(engine={"device": "cpu"}))["model"].level == OK


def test_a_slow_start_is_forgotten_where_the_rates_hold():
    slow = {"measured at start": "the machine cannot keep up: a group takes 254 ms"}
    for ticks, overload, level in ((20, "", WARN), (100, "", OK), (100, "too slow", WARN)):
        status = report(GOOD, having(engine=slow, ticks=ticks, overload=overload))["model"]
        assert status.level == level
        assert ("cannot keep up" in status.message) == (level == WARN)


def test_what_was_reused_is_shown():
    values = {pair.key: pair.value for pair in report(GOOD)["runtime"].values}
    assert not any("reuse" in key for key in values)
    reuse = ReuseStats(Counter({"first": 1, "pixels": 9}), 200, 50, 3, 2, 0.0123, 0.05)
    status = report(GOOD, having(reuse=reuse, still=4))["runtime"]
    values = {pair.key: pair.value for pair in status.values}
    assert values["reuse, share of tokens encoded"] == "0.25"
    assert values["reuse, groups, pixels"] == "9" and values["reuse, still groups"] == "4"
    assert values["reuse, refreshes"] == "3, 2 of them in dead time"
    assert values["reuse, drift"] == "0.012 at the last refresh, 0.05 at most"
