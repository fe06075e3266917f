"""How a system does, as JSON and back."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from vlm_decisions.runtime.costs import Cost
from vlm_decisions.runtime.settings import RuntimeSettings
from vlm_decisions.runtime.statistics import Percentiles, RuntimeStats
from vlm_decisions.runtime.system import Status, System

NAN = math.nan
STATS = RuntimeStats(
    frames=100, groups=25, ticks=24, decisions=400, segments=1, scene_changes=2, skipped=3,
    errors=4, dropped={"queue": 5}, queue=1, tick_ms={"total": Percentiles(40.0, 60.0, 25)},
    age_ms={2: Percentiles(60.0, math.nan, 300)}, rates_hz={"person": 3.9}, image_rate_hz=15.0,
    image_age_s=math.inf, condition="", last_error="", model="sim_desk", heads=("person",),
    breaks={"gaps": 5}, costs={"person": Cost(0, 0.0), "cup": Cost(31, 2.5), "new": Cost(9, NAN)},
    overload="too slow")


def test_what_is_written_is_read():
    system = System.of(STATS, RuntimeSettings(fps=4.0, max_age_s=1.5), node="/a/b/node",
                       statuses=(Status("image", 1, "slow"),), memory_mb=12.5)
    read = System.from_json(system.to_json())
    assert read.to_dict() == system.to_dict()
    assert read.counts == {"frames": 100, "groups": 25, "ticks": 24, "decisions": 400,
                           "segments": 1, "scene_changes": 2, "skipped": 3, "errors": 4}
    assert read.costs["cup"] == (31, 2.5) and math.isnan(read.costs["new"][1])
    assert read.overload == "too slow"
    assert read.group_ms == 500.0 and read.max_age_s == 1.5 and read.rates_hz == {"person": 3.9}
    assert read.tick_ms["total"].p95 == 60.0 and math.isnan(read.age_ms["2"].p95)
    assert math.isnan(read.image_age_s)  # no image yet
    assert read.statuses == (Status("image", 1, "slow"),)


def test_mixed_images_are_told_without_ros_too():
    mixed = dataclasses.replace(STATS, mixture="images of two cameras", breaks={"switched": 7})
    read = System.from_json(System.of(mixed, RuntimeSettings()).to_json())
    assert read.statuses == (Status("image", 1, "images of two cameras"),)
    assert read.breaks == {"switched": 7}


def test_it_is_strict_json_whatever_is_missing():
    values = json.loads(System().to_json(), parse_constant=pytest.fail)
    assert values["image_age_s"] is None and values["group_ms"] is None
    assert System.from_json(System().to_json()).to_dict() == System().to_dict()


def test_another_version_is_read_as_far_as_it_goes():
    system = System.from_json('{"state": "active", "new": [1]}')
    assert system.state == "active" and system.model == ""


@pytest.mark.parametrize("text", [
    "", "{", "[]", "5", '{"queue": "many"}', '{"counts": 5}', '{"tick_ms": {"total": 5}}',
    '{"statuses": [{"name": "image"}]}', '{"image_rate_hz": "fast"}', "[" * 100_000])
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match="statistics that cannot be read"):
        System.from_json(text)
