"""Measures: against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from vlm_decisions.learn.measures import (
    auroc,
    balanced_accuracy,
    bootstrap,
    bootstrap_sums,
    brier,
    calibration_bins,
    calibration_of,
    ece,
    log_loss,
)


def test_ranking():
    from sklearn.metrics import roc_auc_score  # slow to import

    truth = [True, True, False, False]
    assert auroc(truth, np.array([0.9, 0.4, 0.6, 0.1])) == 0.75
    assert auroc([True, False], [0.5, 0.5]) == 0.5
    assert auroc([True, True], np.array([0.1, 0.2])) is None
    rng = np.random.default_rng(0)
    told, p = rng.random(300) < 0.3, rng.random(300).round(1)  # with ties
    assert auroc(told, p) == pytest.approx(roc_auc_score(told, p))
    assert balanced_accuracy(truth, [True, False, False, False]) == 0.75
    assert balanced_accuracy([True], [True]) is None


def test_calibration():
    truth = np.array([True] * 7 + [False] * 3)
    assert ece(truth, np.full(10, 0.7), bins=1) == pytest.approx(0.0)
    assert ece(truth, np.full(10, 0.9), bins=1) == pytest.approx(0.2)
    rng = np.random.default_rng(0)
    p = rng.random(60_000)
    right = rng.random(60_000) < p
    assert ece(right, p) < 0.01 < ece(right, p**3)
    p, truth = [0.1, 0.3, 0.7, 0.9], [False, True, True, True]
    assert calibration_bins(truth, p, 2) == [(pytest.approx(0.2), 0.5, 2),
                                             (pytest.approx(0.8), 1.0, 2)]
    assert ece(truth, p, 2) == pytest.approx((0.3 * 2 + 0.2 * 2) / 4)
    assert brier(truth, p) == pytest.approx((0.01 + 0.49 + 0.09 + 0.01) / 4)
    assert log_loss([True], [0.0]) == pytest.approx(-np.log(1e-6))
    found = calibration_of(np.array([0.8, 0.3]), np.array([True, False]))
    assert found["brier"] == pytest.approx((0.04 + 0.09) / 2)
    assert found["log_loss"] == pytest.approx(-(np.log(0.8) + np.log(0.7)) / 2)


def test_interval_holds_the_value_and_narrows():
    rng = np.random.default_rng(0)
    values = rng.random(400)
    low, high = bootstrap(lambda i: float(values[i].mean()), 400, rng)
    assert low < values.mean() < high and high - low < 0.08
    few = bootstrap(lambda i: float(values[:25][i].mean()), 25, rng)
    assert few[1] - few[0] > 2 * (high - low)
    assert bootstrap(lambda i: None, 10, rng) is None


def test_an_interval_of_sums_covers_the_share():
    rng = np.random.default_rng(1)
    hits = rng.random(200) < 0.8
    low, high = bootstrap_sums(np.stack([hits, np.ones(200)], axis=1), lambda s: s[0] / s[1])
    share = hits.mean()
    sigma = np.sqrt(share * (1 - share) / 200)
    assert low == pytest.approx(share - 1.96 * sigma, abs=0.01)
    assert high == pytest.approx(share + 1.96 * sigma, abs=0.01)
    assert bootstrap_sums(np.stack([hits, np.ones(200)], 1), lambda s: s[0] / s[1]) == [low, high]
    assert bootstrap_sums(np.array([[1.0, 1.0]]), lambda s: s[0] / s[1]) is None
