"""The margin of an early exit: from which lead of its answer on that answer may stand."""

from __future__ import annotations

import numpy as np

#: Margins to try, logits.
MARGINS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 12.0)


def least_margin(lead: np.ndarray, early: np.ndarray, full: np.ndarray, into: np.ndarray,
                 test: np.ndarray) -> tuple[float, float]:
    """Return the least margin with which no more answers are wrong than at full depth.

    That must be so in both parts; where it is with none, it is the largest.

    Args:
        lead: of the highest calibrated logit at the exit over the next, (N,).
        early: whether the answer at the exit is right, bool (N,).
        full: whether that at full depth is, bool (N,).
        into: samples to fit on, bool (N,).
        test: samples held out, bool (N,).

    Returns:
        The margin, and the share of the samples held out that stop at the exit with it.
    """
    lost = full.astype(int) - early  # 1 where only full depth is right, -1 where only the exit is
    good = (margin for margin in MARGINS
            if all(lost[part & (lead >= margin)].sum() <= 0 for part in (into, test)))
    margin = next(good, MARGINS[-1])
    return margin, float((lead[test] >= margin).mean())
