"""The desk that is taught: what is corrected is what is true, and what was learned is measured."""

import json

import numpy as np
import pytest

from vlm_decisions.engine.engine import Engine
from vlm_decisions.lab.bench.teach import (
    DECIDED,
    SPANS,
    _by_turns,
    _decided,
    _logits,
    _right,
    bench_teach,
    print_teach,
)
from vlm_decisions.lab.taught_desk import FIRST_SEED, TaughtDesk
from vlm_decisions.lab.teach import teach
from vlm_decisions.learn.span_fit import LabelledSpan, SpanFit
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.sim.world import World

PERSON = Question("person", "Is a person present?")


@pytest.fixture(scope="module")
def engine():
    return Engine.load("sim_desk")


@pytest.mark.slow
def test_spans_are_where_the_truth_stands_and_become_corrections(engine, tmp_path):
    with TaughtDesk(engine, [PERSON], tmp_path, lambda _, script: World(4, script)) as desk:
        truth = desk.watch(FIRST_SEED)
        spans = list(desk.spans(truth, PERSON))
        assert spans
        for answer, start_ns, end_ns in spans:
            for t_ns in (start_ns, end_ns - 1):
                assert truth.answer("person", t_ns) == answer
            desk.correct(PERSON, answer, start_ns, end_ns)
        assert desk.learner.wait_idle(60)
        kept = desk.corrector.store.corrections("person")
        assert [(one.answer, one.t_start_ns, one.t_end_ns) for one in kept] == spans
        assert "needed" in desk.learner.state()["waiting"]["person"]
        read = desk.read([FIRST_SEED + 1])
        assert len(read.z["person"]) == len(read.answer["person"]) > 10
        assert read.mean["person"].shape[0] == len(read.p["person"])
        assert (_right(read.z["person"], 0) == (read.p["person"][:, 0] > 0.5)).all()


def test_a_question_that_the_desk_cannot_answer_is_refused(engine):
    with pytest.raises(QuestionError, match="no fact 'rain' .*lamp"):
        teach(engine, "rain", "Does it rain?")


def test_labelled_spans_come_by_turns():
    def span(answer):
        empty = np.zeros((1, 2))
        return LabelledSpan(answer, 0, 1, np.zeros((1, 1)), empty, empty, empty)

    order = [one.answer for one in _by_turns([span(answer) for answer in (0, 0, 0, 4, 4)])]
    assert order == [0, 4, 0, 4, 0]


def test_what_is_measured_is_scale_bias_and_weights():
    z, mean = np.array([[1.0], [-2.0]]), np.array([[1.0, 0.0], [0.0, 2.0]])
    weight = np.array([[2.0, 3.0]], np.float32)
    fit = SpanFit("", (5, 5), scale=0.5, bias=(1.0,), weight=weight, pooling="mean")
    assert _logits(fit, z, mean, mean, mean).tolist() == [[3.5], [6.0]]
    head = SpanFit("", (5, 5), scale=0.0, bias=(1.0,), weight=weight, pooling="mean")
    assert _logits(head, np.full((2, 1), np.nan), mean, mean, mean).tolist() == [[3.0], [7.0]]
    assert _right(z, np.array([0, 1])).all() and not _right(z, np.array([1, 0])).any()
    assert _decided(z, np.array([0, 1]), (0.65, 0.35)) == 1.0
    assert _decided(z, np.array([0, 1]), (0.8, 0.1)) == 0.0  # both lie between
    assert _right(np.array([[0.0, 2.0, 1.0]]), np.array([1])).all()


def test_what_could_not_be_measured_is_told_and_the_rest_counts(monkeypatch):
    """The machine is too slow to answer a live camera, and one of two desks fails."""
    row = {"usual": 1.0, "before": 0.5, "after": dict.fromkeys(SPANS, 0.75), "spans": 40,
           "adopted": dict.fromkeys(SPANS, True), "change_95": (0.1, 0.3),
           "decided": dict.fromkeys(DECIDED, 0.5)}

    def one_desk(engine, questions, desk, *rest):
        if desk:
            raise RuntimeError("the desk fell over")
        return [row]

    def live(*_):
        raise RuntimeError("no group was answered in time")

    for name, fake in (("_one_desk", one_desk), ("_live", live), ("_lamp", lambda *_: 0.99)):
        monkeypatch.setattr(f"vlm_decisions.lab.bench.teach.{name}", fake)
    result = json.loads(json.dumps(bench_teach(desks=2, lamps=1)))
    assert result["missing"] == {"desk 1": "the desk fell over",
                                 "live": "no group was answered in time"}
    assert result["recovered"]["40"] == 0.5 and result["worse_questions"] == 0
    assert result["seconds_to_adopt"] is None and result["unseen_question_auroc"] == 0.99
    print_teach(result)
