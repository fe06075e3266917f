"""`smoothing: filter`: the probability of each answer, given all that was seen so far.

A hidden Markov model with one state for each answer. Between two looks the state may have switched
to any other one, at the question's switching rate; a look's calibrated probabilities are taken for
its likelihoods, all answers being equally likely beforehand. One look without doubt so outweighs
several doubtful ones, and a quick change needs more evidence than a late one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

#: A look's probabilities are kept this far from 0 and 1: no single look is proof.
LEAST_P = 1e-3


def switched(switch_hz: float, dt_s: float, count: int) -> float:
    """Return the probability that the state is a certain other one `dt_s` later, of `count`."""
    rate = switch_hz * count / (count - 1)
    return -math.expm1(-rate * max(0.0, dt_s)) / count


def filtered(
    before: Sequence[float], looked: Sequence[float], dt_s: float, switch_hz: float
) -> tuple[float, ...]:
    """Return the posterior probabilities (k,) after a look.

    Args:
        before: posterior after the look before, (k,), summing to 1.
        looked: calibrated probabilities of this look alone, (k,).
        dt_s: frame time between the two, seconds.
        switch_hz: how often the answer changes, per second.
    """
    other = switched(switch_hz, dt_s, len(before))
    stay = 1.0 - len(before) * other
    weights = [(stay * old + other) * max(p, LEAST_P)
               for old, p in zip(before, looked, strict=True)]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def filtered_track(
    p: np.ndarray, t_s: np.ndarray, fresh: np.ndarray, switch_hz: float
) -> np.ndarray:
    """Return the posterior of each look of a recording, as `p`.

    Args:
        p: calibrated P(yes) of each look, (N,), or probabilities of all answers, (N, k).
        t_s: its time, (N,).
        fresh: looks before which the filter starts again, bool (N,).
        switch_hz: how often the answer changes, per second.
    """
    looks = p if p.ndim == 2 else np.stack([p, 1.0 - p], axis=1)
    out = np.empty(looks.shape)
    for i, looked in enumerate(looks.tolist()):
        begins = i == 0 or fresh[i]
        before = (1.0 / len(looked),) * len(looked) if begins else tuple(out[i - 1])
        out[i] = filtered(before, looked, 0.0 if begins else float(t_s[i] - t_s[i - 1]), switch_hz)
    return out if p.ndim == 2 else out[:, 0]
