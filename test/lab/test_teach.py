"""The desk that is taught: what is corrected is what is true, and what was learned is measured."""

import numpy as np
import pytest

from vlm_decisions.engine.engine import Engine
from vlm_decisions.lab.bench.teach import _by_turns, _logit
from vlm_decisions.lab.taught_desk import FIRST_SEED, TaughtDesk
from vlm_decisions.lab.teach import teach
from vlm_decisions.learn.span_fit import LabelledSpan, SpanFit
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.sim.world import World

PERSON = Question("person", "Is a person present?")


@pytest.fixture(scope="module")
def engine():
    return Engine.load("sim_desk")


def test_spans_are_where_the_truth_stands_and_become_corrections(engine, tmp_path):
    with TaughtDesk(engine, [PERSON], tmp_path, lambda _, script: World(4, script)) as desk:
        truth = desk.watch(FIRST_SEED)
        spans = list(desk.spans(truth, PERSON))
        assert spans
        for yes, start_ns, end_ns in spans:
            for t_ns in (start_ns, end_ns - 1):
                assert truth.answer("person", t_ns) == ("yes" if yes else "no")
            desk.correct(PERSON, yes, start_ns, end_ns)
        assert desk.learner.wait_idle(60)
        kept = desk.corrector.store.corrections("person")
        assert [(one.answer == "yes", one.t_start_ns, one.t_end_ns) for one in kept] == spans
        assert "needed" in desk.learner.state()["waiting"]["person"]
        read = desk.read([FIRST_SEED + 1])
        assert len(read.z["person"]) == len(read.yes["person"]) > 10
        assert read.mean["person"].shape[0] == len(read.p["person"])
        assert ((read.z["person"] > 0) == (read.p["person"] > 0.5)).all()


def test_a_question_that_the_desk_cannot_answer_is_refused(engine):
    with pytest.raises(QuestionError, match="no fact 'rain' .*lamp"):
        teach(engine, "rain", "Does it rain?")


def test_labelled_spans_come_by_turns():
    def span(yes):
        empty = np.zeros((1, 2))
        return LabelledSpan(yes, 0, 1, np.zeros(1), empty, empty, empty)

    order = [one.yes for one in _by_turns([span(yes) for yes in (True, True, True, False)])]
    assert order == [True, False, True, True]


def test_what_is_measured_is_scale_bias_and_weights():
    z, mean = np.array([1.0, -2.0]), np.array([[1.0, 0.0], [0.0, 2.0]])
    fit = SpanFit("", 10, 5, scale=0.5, bias=1.0, weight=np.array([2.0, 3.0], np.float32),
                  pooling="mean")
    assert _logit(fit, z, mean, mean, mean).tolist() == [3.5, 6.0]
    head = SpanFit("", 10, 5, scale=0.0, bias=1.0, weight=fit.weight, pooling="mean")
    assert _logit(head, np.array([np.nan, np.nan]), mean, mean, mean).tolist() == [3.0, 7.0]
