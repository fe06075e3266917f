"""Platt scaling: P(yes) = sigmoid(scale * logit difference + bias), fitted with regularisation.

Source: J. Platt, Probabilistic outputs for support vector machines, 1999. Here the fit is pulled
towards the present values, so that few sources change little.
"""

from __future__ import annotations

import numpy as np

from .fitted import NOT_FINITE, CalibrationError
from .probes import folds_of

LEAST_SCALE = 0.05  # a model that cannot tell yes from no would get 0
MOST_SCALE, MOST_BIAS = 1000.0, 1000.0  # limits of a question
#: Strengths of the regularisation to try: log loss per (logit squared / 2).
STRENGTHS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)


def fit_platt(difference: np.ndarray, answer: np.ndarray, source: np.ndarray,
              scale: float = 1.0, bias: float = 0.0) -> tuple[float, float]:
    """Return scale and bias of sigmoid(scale * difference + bias), rounded to 3 places.

    The fit is regularised towards the present values. The strength is found by cross-validation
    over whole sources: the strongest that costs at most one standard error (over sources) of log
    loss more than the best. With few sources that often means no change.

    Args:
        difference: logit(yes) - logit(no), (N,).
        answer: whether yes is right, bool (N,).
        source: source of each sample, (N,); samples of one source are not independent.
        scale: the present value.
        bias: the present value.

    Raises:
        CalibrationError: numbers that are not finite.
    """
    if not np.isfinite(difference).all():
        raise CalibrationError(NOT_FINITE)
    folds = folds_of(source, answer, 4)
    if not folds:
        return scale, bias
    loss = np.empty((len(STRENGTHS) + 1, len(answer)))  # the last row: no change
    loss[-1] = log_losses(difference, answer, scale, bias)
    for into, test in folds:
        for k, strength in enumerate(STRENGTHS):
            fit = _least(difference[into], answer[into], scale, bias, strength)
            loss[k, test] = log_losses(difference[test], answer[test], *fit)
    of = [source == one for one in np.unique(source)]
    losses = np.array([[row[own].mean() for own in of] for row in loss])  # (strengths, sources)
    best = int(np.argmin(losses.mean(axis=1)))
    worse = losses - losses[best]
    error = worse.std(axis=1, ddof=1) / np.sqrt(len(of))
    strongest = int(np.flatnonzero(worse.mean(axis=1) <= error)[-1])
    if strongest == len(STRENGTHS):
        return scale, bias
    fitted = _least(difference, answer, scale, bias, STRENGTHS[strongest])
    return round(fitted[0], 3), round(fitted[1], 3)


def _least(difference: np.ndarray, answer: np.ndarray, scale: float, bias: float,
           strength: float) -> tuple[float, float]:
    """Return scale and bias with the least log loss + strength / 2 * (distance from the present)^2.

    The distance is measured on differences of mean 0 and deviation 1, so that it is in logits.
    """
    from scipy.optimize import minimize

    mean, deviation = difference.mean(), difference.std() or 1.0
    x, sign = (difference - mean) / deviation, np.where(answer, 1.0, -1.0)
    start = np.array([scale * deviation, bias + scale * mean])

    def loss(at: np.ndarray) -> tuple[float, np.ndarray]:
        z = sign * (at[0] * x + at[1])
        slope = -sign * sigmoid(-z)
        gradient = np.array([(slope * x).mean(), slope.mean()]) + strength * (at - start)
        return np.logaddexp(0, -z).mean() + strength / 2 * ((at - start) ** 2).sum(), gradient

    bounds = [(LEAST_SCALE * deviation, MOST_SCALE * deviation), (None, None)]
    slope, level = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    scale = slope / deviation
    return float(scale), float(np.clip(level - scale * mean, -MOST_BIAS, MOST_BIAS))


def log_losses(difference: np.ndarray, answer: np.ndarray, scale: float,
                bias: float) -> np.ndarray:
    return np.logaddexp(0, np.where(answer, -1.0, 1.0) * (scale * difference + bias))


def sigmoid(z: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-z))."""
    from scipy.special import expit

    return expit(z)
