"""Two views on one engine: what one sees and is asked changes nothing of the other's answers."""

import numpy as np
import pytest

from vlm_decisions.engine import Engine
from vlm_decisions.frames import NS, Frame
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.runtime import Runtime
from vlm_decisions.sim.script import Script
from vlm_decisions.sim.world import World

START_NS = 1_000 * NS
SECONDS, FPS = 4, 8
BOOK = """
views:
{views}
questions:
- {{id: person, text: "Is a person present?", tier: vlm}}
- {{id: cup, text: "Is there a cup?", tier: vlm}}
- {{id: activity, text: "What is the person doing?", kind: choice, tier: vlm,
    options: [typing, drinking, idle, away]}}
"""
LINES = {"a": "  a: {image: /a}", "b": "  b: {image: /b, window_groups: 3}"}


@pytest.fixture(scope="module")
def engine():
    return Engine.load("sim_desk", warm=False)


def film(engine, names, mix=False):
    """Return the probabilities by view, question and frame time, of cameras filmed in turn."""
    clock = [START_NS]
    seen = {}

    def decided(decision):
        if decision.tier == 2 and decision.answer != "unknown":
            p = decision.probabilities or (decision.p_raw,)
            seen[decision.view, decision.question_id, decision.t_end_ns] = np.array(p)

    book = QuestionBook.loads(BOOK.format(views="\n".join(LINES[name] for name in names)))
    runtime = Runtime(lambda: engine, book, on_decision=decided, clock_ns=lambda: clock[0])
    runtime.step()  # loads
    if mix:  # the control: one state for both
        one, other = (view.processor for view in runtime._views.all)
        other._stream = one._stream
    worlds = {name: World(seed, Script.demo(seed)) for seed, name in enumerate(LINES)}
    for number in range(SECONDS * FPS):
        for place, name in enumerate(names):
            # of the same moment in both runs, and never of the other camera's
            t_ns = number * NS // FPS + (NS // 17 if name == "b" else 0)
            clock[0] = START_NS + t_ns
            image = worlds[name].render(4.0 + t_ns / NS, 160, 120)
            runtime.push(Frame(image, clock[0], name), (f"/{name}", ""))
            if place == len(names) - 1:
                while runtime.step():
                    pass
    assert runtime.stats().errors == 0 or mix
    return seen


def furthest(one, other, view):
    """Return how far apart probabilities of a view are, at most, over what both have."""
    keys = [key for key in one if key[0] == view and key in other]
    assert len(keys) >= 3 * SECONDS * FPS // 2 - 3
    return max(float(np.abs(one[key] - other[key]).max()) for key in keys)


@pytest.mark.slow
def test_nothing_of_one_view_reaches_another(engine):
    both = film(engine, ["a", "b"])
    for name in ("a", "b"):
        assert furthest(film(engine, [name]), both, name) < 1e-5


@pytest.mark.slow
def test_a_state_that_both_write_to_is_seen(engine):
    mixed = film(engine, ["a", "b"], mix=True)
    apart = film(engine, ["a"])
    assert furthest(apart, mixed, "a") > 1e-2
