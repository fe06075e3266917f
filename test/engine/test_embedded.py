"""The embedded model and the shipped heads, on desks that neither was trained on.

All bars are in BARS: those of the full study, less what CLIPS clips leave to chance.
"""

from __future__ import annotations

import pytest

from vlm_decisions.engine import Engine
from vlm_decisions.engine.self_check import self_check
from vlm_decisions.files.resources import share_file
from vlm_decisions.lab.studies.questions import questions
from vlm_decisions.lab.studies.score import score
from vlm_decisions.runtime.heads import Head

pytestmark = pytest.mark.slow
CLIPS = 30
BARS = {
    "auroc": {"person": 0.99, "second_person": 0.97, "cup": 0.97, "phone": 0.97, "laptop": 0.97,
              "pen": 0.95, "door_open": 0.97, "holding_cup": 0.97, "holding_phone": 0.97,
              "cup_left_of_laptop": 0.95, "phone_right_of_laptop": 0.95, "motion": 0.97},
    "heads": {"person": 0.98, "second_person": 0.97, "cup": 0.97, "phone": 0.97, "laptop": 0.97,
              "pen": 0.97, "door_open": 0.97, "approaching": 0.97, "receding": 0.97,
              "moving_left": 0.97, "moving_right": 0.97},
    "at least": {"activity_accuracy": 0.95, "temporal_gain": 0.4, "reversal_consistency": 0.93},
    "at most": {"ece": 0.015, "shuffled_gain": 0.25},
    "language": {"seen": 0.97, "template": 0.96, "synonym": 0.96, "negation": 0.96,
                 "composition": 0.96, "counting": 0.96, "unanswerable": 0.97},
}
ASKED = {"clips": 12, "each_clip": 10}  # of every split of the grammar
HEADS_REVERSAL = 0.95


@pytest.fixture(scope="module")
def heads():
    return [Head.load(path) for path in sorted(share_file("heads").glob("*.npz"))]


@pytest.fixture(scope="module")
def result(heads):
    return score(clips=CLIPS, heads=heads)


@pytest.mark.parametrize("question", BARS["auroc"])
def test_ranking_on_held_out_desks(result, question):
    assert result.table["auroc"][question] >= BARS["auroc"][question]


@pytest.fixture(scope="module")
def understood():
    return questions(Engine.load("sim_desk"), **ASKED)


def test_the_self_check_at_load_passes():
    report = self_check(Engine.load("sim_desk"))
    assert report.ok, report


@pytest.mark.parametrize("split", BARS["language"])
def test_questions_that_were_never_taught_are_understood(understood, split):
    assert understood[split]["auroc"] >= BARS["language"][split]


@pytest.mark.parametrize("name", BARS["at least"])
def test_at_least(result, name):
    assert result.table[name] >= BARS["at least"][name]


@pytest.mark.parametrize("name", BARS["at most"])
def test_at_most(result, name):
    assert result.table[name] <= BARS["at most"][name]


@pytest.mark.parametrize("name", BARS["heads"])
def test_heads(result, name):
    assert result.table["heads"][name] >= BARS["heads"][name]


def test_every_shipped_head_has_a_bar(heads):
    assert {head.name for head in heads} <= set(BARS["heads"])


def test_motion_heads_read_time(result):
    """The control that appearance cannot pass: played backwards, the answer must turn."""
    assert result.details["temporal"]["heads_reversal_consistency"] >= HEADS_REVERSAL
