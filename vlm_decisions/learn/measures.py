"""Measures of probabilities: ranking, calibration, and confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

BINS = 15


def auroc(truth: np.ndarray, p: np.ndarray) -> float | None:
    """Return the area under the ROC curve, ties counting half, or None if there is one answer only.

    It is computed as the Mann-Whitney statistic, in a tenth of the time that a curve takes:
    bootstraps need it often.
    """
    truth = np.asarray(truth, bool)
    yes, no = int(truth.sum()), int((~truth).sum())
    if not yes or not no:
        return None
    _, inverse, counts = np.unique(np.asarray(p, float), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # the mean rank of equal values
    return float((ranks[truth].sum() - yes * (yes + 1) / 2) / (yes * no))


def balanced_accuracy(truth: np.ndarray, said: np.ndarray) -> float | None:
    """Return the mean of the accuracies for yes and for no, or None if one is missing."""
    truth, said = np.asarray(truth, bool), np.asarray(said, bool)
    if truth.all() or not truth.any():
        return None
    right = said == truth
    return float((right[truth].mean() + right[~truth].mean()) / 2)


def calibration_bins(truth: np.ndarray, p: np.ndarray,
                     bins: int = BINS) -> list[tuple[float, float, int]]:
    """Return (mean p, share true, count) of bins of equal mass, in order of p."""
    truth, p = np.asarray(truth, float), np.asarray(p, float)
    order = np.argsort(p, kind="stable")
    return [(float(p[part].mean()), float(truth[part].mean()), len(part))
            for part in np.array_split(order, bins) if len(part)]


def ece(truth: np.ndarray, p: np.ndarray, bins: int = BINS) -> float:
    """Return the expected calibration error of P(yes) over bins of equal mass."""
    return sum(abs(mean - share) * count
               for mean, share, count in calibration_bins(truth, p, bins)) / len(p)


def brier(truth: np.ndarray, p: np.ndarray) -> float:
    """Return the mean squared error of the probability."""
    return float(np.mean((np.asarray(p, float) - np.asarray(truth, float)) ** 2))


def log_loss(truth: np.ndarray, p: np.ndarray) -> float:
    """Return the mean negative log likelihood, p clipped to [1e-6, 1 - 1e-6]."""
    p, truth = np.clip(np.asarray(p, float), 1e-6, 1 - 1e-6), np.asarray(truth, bool)
    return float(-np.mean(np.log(np.where(truth, p, 1 - p))))


def calibration_of(p: np.ndarray, truth: np.ndarray) -> dict[str, float | None]:
    """Return auroc, ece (15 equal-mass bins), brier and log_loss of P(yes)."""
    return {of.__name__: of(truth, p) for of in (auroc, ece, brier, log_loss)}


def bootstrap(measure: Callable[[np.ndarray], float | None], count: int,
              rng: np.random.Generator, draws: int = 400) -> list[float] | None:
    """Return the 95% interval of `measure(indices)` over `count` independent units.

    Args:
        measure: gets indices of units drawn with replacement; None where it cannot be measured.
        count: number of units (clips, segments).
        rng: draws the units.
        draws: how often.

    Returns:
        [low, high]; None where no draw can be measured.
    """
    return percentiles_95([measure(rng.integers(count, size=count)) for _ in range(draws)])


def bootstrap_sums(parts: np.ndarray, statistic: Callable[[np.ndarray], float], *,
                   draws: int = 1000, seed: int = 0) -> list[float] | None:
    """Return the 95% interval of a statistic of sums over units drawn with replacement.

    Args:
        parts: what each unit adds to the sums, (units, k).
        statistic: takes the sums (k,).
        draws: how often.
        seed: of the draws.

    Returns:
        [low, high]; None where fewer than two units add anything, or no draw can be measured.
    """
    parts = np.asarray(parts, float)
    if len(parts) < 2 or (np.abs(parts).sum(axis=1) > 0).sum() < 2:
        return None
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(len(parts), np.full(len(parts), 1 / len(parts)), size=draws)
    return percentiles_95([statistic(sums) for sums in weights @ parts])


def percentiles_95(values: Sequence[float | None]) -> list[float] | None:
    """Return the 2.5 and 97.5 percentiles of what is known and finite; None where nothing is."""
    known = np.array(values, float)
    known = known[np.isfinite(known)]
    return [float(x) for x in np.percentile(known, (2.5, 97.5))] if len(known) else None
