"""The decision's derived values and its JSON."""

import dataclasses
import json
import math

import pytest

from vlm_decisions.decision import TIER_VLM, UNKNOWN, YES, Decision

DECISION = Decision(
    question_id="person",
    answer=YES,
    p=0.91,
    p_raw=0.95,
    options=(),
    probabilities=(),
    tier=TIER_VLM,
    depth=24,
    t_start_ns=1_700_000_000_000_000_001,
    t_end_ns=1_700_000_001_875_000_000,
    t_decided_ns=1_700_000_002_000_000_000,
    changed=True,
    since_ns=1_700_000_001_000_000_000,
    model="sim_desk",
    frame_id="camera",
)


def test_age_is_from_the_newest_frame_to_the_decision():
    assert DECISION.age_s == pytest.approx(0.125)


def test_no_evidence_is_infinitely_old():
    assert dataclasses.replace(DECISION, t_start_ns=0, t_end_ns=0).age_s == math.inf


def test_json_holds_every_field_in_seconds_on_one_line():
    line = DECISION.to_json()
    assert "\n" not in line
    values = json.loads(line)
    assert values["t_end"] == pytest.approx(1_700_000_001.875)
    assert values["t_decided"] - values["t_end"] == pytest.approx(values["age"])
    fields = {field.name.removesuffix("_ns") for field in dataclasses.fields(Decision)}
    assert set(values) == fields | {"age"}


def test_json_stays_strict_where_there_is_no_probability():
    unknown = dataclasses.replace(
        DECISION, answer=UNKNOWN, p=math.nan, p_raw=math.nan, t_end_ns=0, reason="no image — yet\n"
    )
    values = json.loads(unknown.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert values["p"] is None
    assert values["age"] is None
    assert values["reason"] == "no image — yet\n"
    assert "\n" not in unknown.to_json()


def test_a_decision_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DECISION.answer = "no"
