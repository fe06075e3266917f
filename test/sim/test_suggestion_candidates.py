"""Candidates for suggestions: questions without a frame, of every kind, with their meaning."""

from vlm_decisions.sim.clauses import KINDS
from vlm_decisions.sim.facts import Scene, facts_of
from vlm_decisions.sim.suggestions import candidate_choices, candidates
from vlm_decisions.sim.world import World


def facts(seed):
    world = World(seed)
    return facts_of(Scene(world.state(1.0), *world.pose(1.0)))


def test_candidates_are_questions_of_every_kind():
    found = candidates()
    assert {c.kind for c in found} == {*KINDS, "counting", "joined"}
    assert len({c.text for c in found}) == len(found) > 300
    assert all(c.text[0].isupper() and c.text.endswith("?") for c in found)
    assert any(c.text.startswith("Is there no ") and c.meaning.op == "not" for c in found)
    assert found == candidates()


def test_choices_are_right_where_they_were_drawn():
    scenes = [facts(seed) for seed in range(8)]
    found = candidate_choices(scenes)
    doors = [one for ones in found.values() for one in ones if "open" in one[1]]
    assert {options[answer] for _, options, answer in doors} >= {"open", "closed"}
    for k, options, answer in doors:
        assert (options[answer] == "open") == (scenes[k]["door_open"] > 0)
