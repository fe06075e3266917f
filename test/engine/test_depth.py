"""Depth by tier: a question's `depth` goes from its YAML to the engine, and stops there early."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import encoded, moving_frames, tiny_engine

from vlm_decisions.frames import Frame
from vlm_decisions.lab.studies import ladder
from vlm_decisions.lab.studies.ladder import exits
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.runtime import Runtime
from vlm_decisions.runtime.smoothing import calibrated

YAML = """\
- {id: shallow, text: "Is there a cup?", depth: 2, ema: 1.0}
- {id: deep, text: "Is there a cup?", ema: 1.0}
"""
TOO_DEEP = YAML + '- {id: too_deep, text: "Is there a cup?", depth: 99}\n'


def test_depth_goes_from_yaml_to_the_engine():
    engine = tiny_engine()
    decisions, clock = [], [10**9]
    runtime = Runtime(lambda: engine, QuestionBook.loads(YAML), on_decision=decisions.append,
                      clock_ns=lambda: clock[0])
    images = moving_frames(4)
    for k, image in enumerate(images):
        clock[0] = 10**9 + k * 125_000_000
        runtime.push(Frame(image, clock[0]))
        while runtime.step():
            pass
    last = {d.question_id: d for d in decisions if d.tier == 2}
    assert last["shallow"].depth == 2 and last["deep"].depth == engine.n_layers
    groups = [engine.encode(images[:2]), engine.encode(images[2:])]
    asked = [Question("a", "Is there a cup?", depth=d) for d in (2, None)]
    plain = engine.window(groups, (0.0625, 0.3125)).ask(asked)
    for decision, question, readout in zip((last["shallow"], last["deep"]), asked, plain):
        assert decision.p == pytest.approx(calibrated(question, readout.logits)[0], abs=1e-4)
    # The control: an exit that ran all layers would give the other's answer.
    assert abs(plain[0].p - plain[1].p) > 1e-3
    runtime = Runtime(lambda: engine, QuestionBook.loads(TOO_DEEP), clock_ns=lambda: clock[0])
    with pytest.raises(QuestionError, match="'too_deep': depth 99: .* layers 1 to 6"):
        runtime.step()


def test_the_ladders_exits_are_the_engines():
    engine = tiny_engine()
    groups, times = encoded(engine, 4)
    texts = ("Is there a cup?", "Is the door open?")
    full = engine.window(groups, times).ask([Question("q", t) for t in texts], hidden=True)
    answers = [engine.question(Question("q", t)).answer_ids for t in texts]
    found = exits(engine, np.stack([r.hidden for r in full]), answers)
    assert found.shape == (2, engine.n_layers)
    for depth in range(1, engine.n_layers + 1):
        early = engine.window(groups, times).ask([Question("q", t, depth=depth) for t in texts])
        for k, readout in enumerate(early):
            assert found[k, depth - 1] == pytest.approx(
                readout.logits[0] - readout.logits[1], abs=1e-3)
    assert abs(found[0, 0] - found[0, -1]) > 1e-2


@pytest.mark.slow
def test_cost_has_a_time_for_each_depth(monkeypatch):
    monkeypatch.setattr(ladder, "TICKS", 2)
    engine = tiny_engine()
    ms = ladder.cost(engine, [Question("q", "Is there a cup?")])
    assert len(ms) == engine.n_layers and min(ms) > 0
