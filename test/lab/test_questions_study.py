"""The study of questions with engines whose understanding is known."""

from __future__ import annotations

from types import SimpleNamespace
from zlib import crc32

import pytest

from vlm_decisions.lab.studies import questions as study
from vlm_decisions.lab.studies.questions import print_questions, questions
from vlm_decisions.sim import clips as desk
from vlm_decisions.sim.facts import Scene, facts_of
from vlm_decisions.sim.grammar import SPLITS, draw

CLIPS = 12


class Reader:
    """Answers by `p(text, facts)`; facts are those of the desk that was encoded last."""

    def __init__(self, p):
        self.p, self.scene = p, -1

    def encode_many(self, groups):
        self.scene += 1
        return groups

    def window(self, groups, times_s):
        world, t = desk.settled_moment(study.FIRST_SEED + self.scene)
        facts = facts_of(Scene(world.state(t), *world.pose(t)))
        return SimpleNamespace(ask=lambda queries: [
            SimpleNamespace(p=self.p(query.text, facts)) for query in queries])


@pytest.fixture
def meanings(monkeypatch):
    """Return what every drawn text means, filled while they are drawn."""
    monkeypatch.setattr(desk, "SIZE", (96, 96))
    found = {}

    def drawing(rng, split):
        phrase = draw(rng, split)
        found[phrase.text] = phrase.meaning
        return phrase

    monkeypatch.setattr(study, "draw", drawing)
    return found


def test_who_knows_the_truth_is_right_and_says_what_it_does_not_know(meanings, capsys):
    result = questions(Reader(lambda text, facts: (1 + int(meanings[text].value(facts))) / 2),
                       CLIPS, 4)
    for split in SPLITS:
        row = result[split]
        assert row["auroc"] == row["balanced_accuracy"] == 1.0 and row["n"] == 4 * CLIPS
        assert row["ci"] == [1.0, 1.0]
    print_questions(result)
    assert "negation" in capsys.readouterr().out


@pytest.mark.slow
def test_who_reads_only_the_text_is_at_chance(meanings):
    result = questions(Reader(lambda text, facts: crc32(text.encode()) / 2**32), CLIPS, 24)
    for split in SPLITS[:-1]:
        assert abs(result[split]["auroc"] - 0.5) < 0.14


@pytest.mark.slow
def test_who_overhears_every_denial_gets_them_the_wrong_way_round(meanings):
    def deaf(text, facts):
        meaning = meanings[text]
        return (1 - int(meaning.value(facts))) / 2 if meaning.op == "not" else (
            1 + int(meaning.value(facts))) / 2

    result = questions(Reader(deaf), CLIPS, 8)
    assert result["negation"]["auroc"] < 0.2
    assert result["template"]["auroc"] > result["negation"]["auroc"] + 0.2
