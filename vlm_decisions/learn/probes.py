"""Linear probes: logistic regressions on features, for heads and for studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .measures import auroc, brier

TRIES = 50  # splits drawn until each part shows both answers

#: Indices to fit on, and indices held out.
Fold = tuple[np.ndarray, np.ndarray]


def folds_of(source: np.ndarray, answer: np.ndarray, most: int) -> list[Fold]:
    """Return as many folds of whole sources as have both answers in and out of each, up to `most`.

    None at all where not even two can be made.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    for count in range(most, 1, -1):
        if count > len(np.unique(source)):
            continue
        for seed in range(TRIES):
            folds = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
            parts = list(folds.split(source, answer, source))
            if all(0 < answer[side].mean() < 1 for part in parts for side in part):
                return parts
    return []


def fit_probe(x: np.ndarray, answer: np.ndarray, folds: Sequence[Fold],
              strengths: Sequence[float] = (0.001, 0.01, 0.1, 1.0, 10.0),
              scoring: str = "neg_log_loss", max_iter: int = 1000) -> Any:
    """Fit a probe on standardised features, its L2 strength chosen by cross-validation.

    Args:
        x: features, (N, D).
        answer: (N,) bool.
        folds: of the cross-validation.
        strengths: inverses of the L2 penalty to try.
        scoring: what they are chosen by.
        max_iter: of the solver.

    Returns:
        scikit-learn's search: `best_score_`, and `best_estimator_`, a pipeline of the scaler and
        the regression.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=max_iter)),
        {"logisticregression__C": list(strengths)}, scoring=scoring, cv=list(folds),
        error_score="raise")
    return search.fit(x.astype(np.float64), answer)


def predict_probe(probe: Any, x: np.ndarray) -> np.ndarray:
    """Return P(yes) of features, (N,)."""
    return probe.predict_proba(x.astype(np.float64))[:, 1]


def probe_metrics(answer: np.ndarray, p: np.ndarray) -> dict[str, float | None]:
    """Return auroc, accuracy (at 0.5) and brier of P(yes)."""
    return {"auroc": auroc(answer, p), "accuracy": float(np.mean((p > 0.5) == answer)),
            "brier": brier(answer, p)}
