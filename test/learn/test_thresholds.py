"""Thresholds: the smoother's own answers, what wrong ones cost, and what is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from vlm_decisions.learn.thresholds import (
    Costs,
    ProbabilityTrack,
    answers,
    averaging,
    event_cost,
    filtering,
    fit_filter,
    fit_thresholds,
    grid,
)
from vlm_decisions.questions import Question
from vlm_decisions.runtime.evidence import Evidence
from vlm_decisions.runtime.smoothing import Smoother

DT = 0.25


def track(p, truth, fresh=()):
    p = np.asarray(p, float)
    begins = np.zeros(len(p), bool)
    begins[[0, *fresh]] = True
    return ProbabilityTrack(np.arange(len(p)) * DT, p, np.asarray(truth, np.int8), begins)


def cost(one, enter=0.65, leave=0.35, ema=1.0, tolerance_s=0.0, **kwargs):
    costs = Costs(tolerance_s=tolerance_s, **kwargs)
    return float(event_cost([one], averaging(ema), np.array([enter]), np.array([leave]), costs)[0])


def test_answers_are_those_of_the_smoother():
    rng = np.random.default_rng(0)
    p = rng.random(200)
    enter, leave = grid()
    some = slice(None, None, 17)
    said = answers(track(p, np.zeros(200), (80,)), averaging(0.4), enter[some], leave[some])
    for k, (a, b) in enumerate(zip(enter[some], leave[some])):
        question, smoother = Question("q", "?", enter=float(a), exit=float(b), ema=0.4), Smoother()
        for i, value in enumerate(p):
            if i == 80:
                smoother = Smoother()
            decision = smoother.update(question, (value, 1 - value), Evidence(2, i, i), i)
            assert said[i, k] == {"yes": 1, "no": 0, "uncertain": -1}[decision.answer], (i, k)


def test_the_grid_is_of_valid_pairs():
    enter, leave = grid()
    assert (leave < enter).all() and enter.max() < 1 and leave.min() > 0
    assert len(enter) == 171


def test_right_all_the_time_costs_nothing():
    assert cost(track([0.9] * 8 + [0.1] * 8, [1] * 8 + [0] * 8)) == 0.0


def test_a_late_answer_costs_its_part_and_a_missed_event_one():
    late = track([0.1] * 4 + [0.1] * 4 + [0.9] * 4, [0] * 4 + [1] * 8)
    assert cost(late) == pytest.approx(4 * DT / 2.0 / 2)  # 1 s of 2 s, over two events
    assert cost(late, patience_s=4.0) == pytest.approx(4 * DT / 4.0 / 2)
    assert cost(late, tolerance_s=0.25) == pytest.approx(3 * DT / 2.0 / 2)
    assert cost(late, tolerance_s=1.0) == 0.0
    missed = track([0.1] * 40, [0] * 10 + [1] * 20 + [0] * 10)
    assert cost(missed) == pytest.approx(1 / 3)


def test_a_flicker_costs_besides_the_time_it_is_wrong():
    p = [0.9] * 20
    p[10] = 0.1
    one = track(p, [1] * 20)
    assert cost(one, flicker=0.5) == pytest.approx(0.5 + DT / 2.0)
    assert cost(one, flicker=0.0) == pytest.approx(DT / 2.0)
    assert cost(one, enter=0.65, leave=0.05) == 0.0  # hysteresis rides over it


def test_what_is_not_known_costs_nothing_and_begins_anew():
    hidden = track([0.9] * 4 + [0.1] * 12 + [0.9] * 4, [1] * 4 + [-1] * 12 + [1] * 4)
    assert cost(hidden) == 0.0
    gap = track([0.9] * 4 + [0.5] * 4, [1] * 8, fresh=(4,))
    assert cost(gap) == pytest.approx(3 * DT / 2.0 / 2)  # uncertain after the gap


def test_thresholds_are_fitted_to_where_p_lies():
    """Yes looks like 0.3 and no like 0.05: the defaults would never say yes."""
    rng = np.random.default_rng(1)
    truth = np.repeat(rng.random(60) < 0.5, 8).astype(int)
    p = np.clip(np.where(truth, 0.3, 0.05) + rng.normal(0, 0.04, len(truth)), 0, 1)
    one = track(p, truth)
    enter, leave = fit_thresholds([one], averaging(0.7))
    assert 0.05 < leave < enter < 0.3
    fitted, default = cost(one, enter, leave, 0.7), cost(one, ema=0.7)
    assert fitted < 0.2 < default


def test_dear_flickers_make_it_slow_to_change():
    rng = np.random.default_rng(2)
    truth = np.repeat(rng.random(40) < 0.5, 12).astype(int)
    p = np.clip(np.where(truth, 0.6, 0.4) + rng.normal(0, 0.12, len(truth)), 0, 1)
    one = track(p, truth)
    calm, quick = (fit_thresholds([one], averaging(0.5), costs=Costs(flicker=f))
                   for f in (4.0, 0.02))
    assert calm[0] - calm[1] > quick[0] - quick[1]


def test_perfect_answers_keep_the_defaults():
    one = track([0.99] * 8 + [0.01] * 8, [1] * 8 + [0] * 8)
    assert fit_thresholds([one], averaging(1.0)) == (0.65, 0.35)


def test_few_recordings_do_not_move_the_thresholds_far():
    """The same gain from two recordings and from forty: only the forty are believed."""
    rng = np.random.default_rng(3)

    def recording():
        truth = np.repeat(rng.random(5) < 0.5, 8).astype(int)
        return track(np.clip(np.where(truth, 0.55, 0.2) + rng.normal(0, 0.2, 40), 0, 1), truth)

    many = [recording() for _ in range(40)]
    costs = Costs(tolerance_s=0.0)
    enter, _ = fit_thresholds(many, averaging(0.7), costs=costs)
    few = [fit_thresholds(many[k:k + 3], averaging(0.7), costs=costs)[0] for k in range(0, 39, 3)]
    assert enter < 0.6
    assert np.mean(few) > enter


def test_within_the_tolerance_two_groups_must_agree():
    """A single wrong group costs a flicker; a quarter of a second more costs nothing."""
    rng = np.random.default_rng(5)
    tracks = []
    for _ in range(40):
        truth = np.repeat(np.arange(8) % 2, 8)
        p = np.where(truth, 0.98, 0.02)
        p[rng.integers(3, 60, 2)] = 1.0 - p[30]  # now and then one group is wrong
        tracks.append(track(p, truth))
    enter, leave = fit_thresholds(tracks, averaging(0.7))
    assert enter >= 0.7 and leave <= 0.3  # above what one group reaches: 0.7 * 0.98 + 0.3 * 0.02
    quick = fit_thresholds(tracks, averaging(0.7), costs=Costs(tolerance_s=0.0, flicker=0.05))
    assert quick[0] - quick[1] < enter - leave


def noisy(period, seed, doubt=0.75):
    """Return a track whose truth changes every `period` groups; looks are right `doubt` times."""
    rng = np.random.default_rng(seed)
    truth = (np.arange(400) // period % 2).astype(np.int8)
    right = rng.random(400) < doubt
    return track(np.where(right == (truth == 1), doubt, 1 - doubt), truth)


@pytest.mark.slow
def test_the_switching_rate_is_fitted_to_the_truth():
    slow = fit_filter([noisy(20, seed) for seed in range(8)], 2.0, 0.65, 0.35)
    quick = fit_filter([noisy(5, seed, 0.95) for seed in range(8)], 0.02, 0.65, 0.35)
    assert slow[0] < 2.0 and quick[0] > 0.02
    # What is as good as any stays.
    assert fit_filter([noisy(40, 0, 1.0)], 0.3, 0.65, 0.35) == (0.3, 0.65, 0.35)


@pytest.mark.slow
def test_a_filter_costs_less_than_an_average_where_each_look_is_doubtful():
    tracks = [noisy(20, seed) for seed in range(8)]
    held = [noisy(20, 100 + seed) for seed in range(8)]

    def held_cost(smooth, enter, leave):
        return event_cost(held, smooth, np.array([enter]), np.array([leave]))[0]

    rate, *thresholds = fit_filter(tracks, 0.1, 0.65, 0.35)
    averaged = min(held_cost(averaging(ema), *fit_thresholds(tracks, averaging(ema)))
                   for ema in (0.2, 0.4, 0.7))
    assert held_cost(filtering(rate), *thresholds) < averaged


def test_after_a_cut_the_smoothing_begins_anew_and_the_answer_stays():
    p, fresh = np.array([0.02] * 4 + [0.5, 0.9, 0.9]), np.arange(7) == 0
    track = ProbabilityTrack(np.arange(1, 8) / 4, p, np.zeros(7, int), fresh, np.arange(7) == 4)
    for smooth in (averaging(0.3), filtering(0.1)):
        smoothed = smooth(track)
        assert smoothed[4] == pytest.approx(0.5)
        said = answers(track, smooth, np.array([0.65]), np.array([0.35]))[:, 0]
        assert said.tolist()[:5] == [0, 0, 0, 0, 0] and 1 in said.tolist()[5:]
