"""Runtime settings are refused with their name."""

import dataclasses

import pytest

from vlm_decisions.runtime.settings import RANGES, RuntimeSettings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fps": 0.0}, "fps must be 0.5 to 60"),
        ({"fps": float("nan")}, "fps must be"),
        ({"fps": "8"}, "fps must be a number"),
        ({"fps": True}, "fps must be a number"),
        ({"window_groups": 8.0}, "window_groups must be a whole number"),
        ({"window_groups": 0}, "window_groups must be 1 to 64"),
        ({"queue_groups": 0}, "queue_groups"),
        ({"mode": "both"}, "mode must be one of auto, stream, window, image"),
        ({"max_age_s": 0}, "max_age_s"),
        ({"max_age_s": None}, "max_age_s must be a number"),
        ({"scene_change": -0.1}, "scene_change"),
        ({"tier2_budget_s": 0}, "tier2_budget_s"),
    ],
)
def test_senseless_settings_are_refused_by_name(changes, words):
    with pytest.raises(ValueError, match=words):
        RuntimeSettings(**changes)


def test_optional_settings_may_be_none():
    settings = RuntimeSettings(scene_change=None, tier2_budget_s=None, max_age_s=1)
    assert settings.scene_change is None


def test_every_number_has_a_range_that_holds_its_default():
    fields = {field.name for field in dataclasses.fields(RuntimeSettings)} - {"mode", "reuse"}
    assert fields == set(RANGES)
