"""What probabilities are worth: ranking, calibration, intervals. scikit-learn does the sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

BINS = 15


def auroc(truth: np.ndarray, p: np.ndarray) -> float | None:
    """Return the area under the ROC curve; None where there is one answer only."""
    from scipy.stats import rankdata

    truth = np.asarray(truth, bool)
    yes, no = int(truth.sum()), int((~truth).sum())
    if not yes or not no:
        return None
    # The Mann-Whitney statistic: a tenth of the time of sklearn's curve, for bootstraps.
    return float((rankdata(p)[truth].sum() - yes * (yes + 1) / 2) / (yes * no))


def balanced_accuracy(truth: np.ndarray, said: np.ndarray) -> float | None:
    """Return the mean of the accuracy where it is yes and where it is no; None without either."""
    truth, said = np.asarray(truth, bool), np.asarray(said, bool)
    if truth.all() or not truth.any():
        return None
    right = said == truth
    return float((right[truth].mean() + right[~truth].mean()) / 2)


def ece(truth: np.ndarray, p: np.ndarray, bins: int = BINS) -> float:
    """Return the expected calibration error of P(yes) over bins of equal mass."""
    truth, p = np.asarray(truth, float), np.asarray(p, float)
    order = np.argsort(p, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(abs(p[part].mean() - truth[part].mean()) * len(part) for part in parts)
                 / len(p))


def calibration_of(p: np.ndarray, truth: np.ndarray) -> dict[str, float | None]:
    """Return auroc, ece (15 equal-mass bins), brier and log_loss of P(yes)."""
    from sklearn.metrics import brier_score_loss, log_loss

    truth = np.asarray(truth, bool)
    return {"auroc": auroc(truth, p), "ece": ece(truth, p),
            "brier": float(brier_score_loss(truth, p, pos_label=True)),
            "log_loss": float(log_loss(truth, p, labels=[False, True]))}


def interval(measure: Callable[[np.ndarray], float | None], count: int, rng: np.random.Generator,
             draws: int = 400) -> list[float] | None:
    """Return the 95% bootstrap interval of `measure(indices)` over `count` clips.

    None where no draw can be measured.
    """
    values: list[Any] = [measure(rng.integers(count, size=count)) for _ in range(draws)]
    known = [value for value in values if value is not None]
    return [float(x) for x in np.percentile(known, (2.5, 97.5))] if known else None
