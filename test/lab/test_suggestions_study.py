"""The study that finds what may be suggested, with engines whose understanding is known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vlm_decisions.engine.engine import Engine
from vlm_decisions.engine.readout import Query
from vlm_decisions.lab.studies import suggestions as study
from vlm_decisions.lab.studies.suggestions import print_suggestions, suggestions
from vlm_decisions.sim import clips as desk
from vlm_decisions.sim import suggestions as drawn
from vlm_decisions.sim.facts import Scene, facts_of
from vlm_decisions.viewer.suggestions import known

CLIPS = 24


class Reader:
    """Understands `kinds`, says yes to the rest, and takes the first of all options."""

    def __init__(self, kinds):
        self.known = {c.text: c.meaning for c in drawn.candidates() if c.kind in kinds}
        self.scene = -1

    def encode_many(self, groups):
        self.scene += 1
        return groups

    def window(self, groups, times_s):
        world, t = desk.settled_moment(study.FIRST_SEED + self.scene)
        facts = facts_of(Scene(world.state(t), *world.pose(t)))

        def answer(query):
            if query.options:
                return SimpleNamespace(probabilities=[1.0, *[0.0] * (len(query.options) - 1)])
            meaning = self.known.get(query.text)
            return SimpleNamespace(p=0.9 if meaning is None else (1 + meaning.value(facts)) / 2)

        return SimpleNamespace(ask=lambda queries: [answer(query) for query in queries])


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(desk, "SIZE", (96, 96))
    monkeypatch.setattr(drawn, "EACH", 12)


def test_what_is_understood_is_suggested_and_nothing_else(small, capsys):
    result = suggestions(Reader({"desk", "relation"}), CLIPS)
    assert {one["kind"] for one in result["suggestions"]} == {"desk", "relation"}
    assert len(result["suggestions"]) < result["asked"] < result["of"]
    print_suggestions(result)
    assert "desk" in capsys.readouterr().out


def test_nothing_is_suggested_of_who_says_yes_to_everything(small):
    assert suggestions(Reader(()), CLIPS)["suggestions"] == []


@pytest.mark.slow
def test_the_shipped_list_is_of_the_shipped_weights():
    """On other desks than those that chose it; a list of other weights is mostly wrong."""
    engine = Engine.load("sim_desk")
    meanings = {c.text: c.meaning for c in drawn.candidates()}
    asked = [s.text for s in known("sim_desk") if s.text in meanings][::4]
    assert len(asked) > 20
    right = []
    for seed in range(8):
        world, t = desk.settled_moment(study.FIRST_SEED + 9_000 + seed)
        facts = facts_of(Scene(world.state(t), *world.pose(t)))
        shown = engine.window(engine.encode_many(desk.window(world, t).pairs), desk.TIMES_S)
        for text, readout in zip(asked, shown.ask([Query(text) for text in asked]), strict=True):
            value = meanings[text].value(facts)
            if value:
                right.append((readout.p >= 0.5) == (value > 0))
    assert len(right) > 100 and sum(right) / len(right) > 0.95
