"""The forward filter: against the sum over all paths, and what it does to answers."""

import itertools
import math

import numpy as np
import pytest

from vlm_decisions.decision import NO, TIER_VLM, UNCERTAIN, YES
from vlm_decisions.frames import NS
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.runtime.evidence import Evidence
from vlm_decisions.runtime.forward_filter import LEAST_P, filtered, filtered_track, switched
from vlm_decisions.runtime.smoothing import Smoother


def by_all_paths(looks, dt_s, switch_hz):
    """Return the posterior of the last state, summed over every sequence of states."""
    count = len(looks[0])
    other = switched(switch_hz, dt_s, count)
    weights = np.zeros(count)
    for path in itertools.product(range(count), repeat=len(looks)):
        weight = looks[0][path[0]] / count
        for k in range(1, len(looks)):
            same = path[k] == path[k - 1]
            weight *= (1 - (count - 1) * other if same else other) * looks[k][path[k]]
        weights[path[-1]] += weight
    return weights / weights.sum()


@pytest.mark.parametrize("count", [2, 4])
def test_the_filter_is_the_sum_over_all_paths(count):
    looks = np.random.default_rng(count).dirichlet(np.ones(count), 5) * 0.98 + 0.01 / count
    state = filtered((1 / count,) * count, looks[0], 0.0, 0.3)
    for look in looks[1:]:
        state = filtered(state, look, 0.25, 0.3)
    assert state == pytest.approx(by_all_paths(looks, 0.25, 0.3), abs=1e-12)
    assert state != pytest.approx(by_all_paths(looks, 0.25, 3.0), abs=1e-3)  # another rate


def test_switching_grows_to_chance():
    assert switched(0.1, 0.0, 2) == 0.0
    assert switched(0.1, 0.25, 2) == pytest.approx(0.025, rel=0.05)
    assert switched(0.1, 1e6, 5) == pytest.approx(0.2)
    assert 1 - 4 * switched(0.1, 1.0, 5) == pytest.approx(  # leaving any one: the same rate
        0.2 + 0.8 * math.exp(-0.125))


def test_one_look_is_no_proof():
    assert filtered((0.5, 0.5), (1.0, 0.0), 0.0, 0.1)[0] == pytest.approx(1 / (1 + LEAST_P))
    assert filtered((1.0, 0.0), (0.0, 1.0), 0.0, 0.1)[0] == 1.0  # nor can it undo one at once


def play(question, values, dt_s=0.25):
    smoother, out = Smoother(), []
    for k, p in enumerate(values):
        t_ns = NS + round(k * dt_s * NS)
        evidence = Evidence(TIER_VLM, t_ns - NS // 8, t_ns)
        out.append(smoother.update(question, (p, 1 - p), evidence, t_ns))
    return out


def test_doubtful_looks_add_up_and_a_late_change_needs_less():
    question = Question("q", "x", smoothing="filter", switch_hz=0.1, enter=0.9, exit=0.1)
    got = play(question, [0.02, 0.02, 0.8, 0.8, 0.8, 0.8, 0.8])
    assert got[0].answer == NO and got[2].answer == NO and got[-1].answer == YES
    assert got[2].p < got[3].p < got[4].p and got[2].p_raw == 0.8
    late = play(question, [0.02, 0.02, 0.8], dt_s=20.0)
    assert late[-1].p > got[2].p
    ema = play(Question("q", "x", ema=0.7, enter=0.9, exit=0.1), [0.02, 0.02, *[0.8] * 5])
    assert ema[-1].p < 0.81 and ema[-1].answer == NO  # an average never gets sure


def test_a_choice_is_filtered():
    question = Question("q", "x", kind="choice", options=("a", "b", "c"), smoothing="filter")
    smoother = Smoother()
    for k, p in enumerate([(0.5, 0.3, 0.2)] * 3 + [(0.1, 0.8, 0.1)] * 3):
        got = smoother.update(question, p, Evidence(TIER_VLM, k, 1 + k * NS // 4), 0)
        assert sum(got.probabilities) == pytest.approx(1)
        if k == 2:
            assert got.answer == "a" and got.p > 0.6  # more than any look said
    assert got.answer == "b"


def test_labels_are_filtered_by_themselves():
    question = Question("q", "Is there a {}?", kind="any_of", options=("a", "b"),
                        smoothing="filter")
    smoother, alone = Smoother(), Smoother()
    for k, p in enumerate([0.3, 0.7, 0.7, 0.8, 0.8, 0.9]):
        evidence = Evidence(TIER_VLM, k, NS + k * NS // 4)
        got = smoother.update(question, (p, 0.1), evidence, 0)
        one = alone.update(Question("q", "x", smoothing="filter"), (p, 1 - p), evidence, 0)
    assert got.answer == "a" and got.probabilities[0] == pytest.approx(one.p)


def test_the_track_is_what_the_smoother_does():
    question = Question("q", "x", smoothing="filter", switch_hz=0.4)
    p = np.random.default_rng(0).uniform(size=12)
    t_s = 1 + np.arange(12) * 0.25
    fresh = np.zeros(12, bool)
    fresh[0] = True
    want = [one.p for one in play(question, p)]
    assert filtered_track(p, t_s, fresh, 0.4) == pytest.approx(want)
    fresh[6] = True
    assert filtered_track(p, t_s, fresh, 0.4)[6] == pytest.approx(p[6])


def test_the_track_of_a_choice_is_what_the_smoother_does():
    question = Question("q", "x", kind="choice", options=("a", "b", "c"), smoothing="filter",
                        switch_hz=0.3)
    p = np.random.default_rng(1).dirichlet((1, 1, 1), 20)
    t_s = 1 + np.arange(20) / 4
    smoother = Smoother()
    said = [smoother.update(question, row, Evidence(TIER_VLM, round(t * NS), round(t * NS)),
                            round(t * NS)).probabilities for row, t in zip(p, t_s)]
    assert filtered_track(p, t_s, np.zeros(20, bool), 0.3) == pytest.approx(np.array(said))


def test_unknown_forgets_the_filter():
    question, smoother = Question("q", "x", smoothing="filter"), Smoother()
    for k in range(4):
        smoother.update(question, (0.9, 0.1), Evidence(TIER_VLM, k, 1 + k * NS), 0)
    smoother.unknown(question, "dark", 0)
    got = smoother.update(question, (0.5, 0.5), Evidence(TIER_VLM, 9, 9 * NS), 0)
    assert got.p == pytest.approx(0.5) and got.answer == UNCERTAIN


@pytest.mark.parametrize(("line", "message"), [
    ("smoothing: kalman", "smoothing must be one of ema, filter, not 'kalman'"),
    ("switch_hz: 0", "switch_hz must be above 0 and at most 10, not 0"),
    ("switch_hz: 11", "switch_hz must be above 0 and at most 10, not 11"),
    ("switch_hz: .nan", "switch_hz must be above 0"),
])
def test_bad_settings_are_named_with_their_line(line, message):
    with pytest.raises(QuestionError, match="x:2: question 'q': " + message):
        QuestionBook.loads(f"- {{id: q, text: w,\n   {line}}}\n", "x")
