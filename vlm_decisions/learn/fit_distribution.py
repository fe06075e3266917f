"""Fit a choice or a score: scale of its logits, thresholds between levels, early exit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..kinds import Score, kind_of, level_values
from ..questions import Question
from .fitted import NOT_FINITE, CalibrationError, Fitted, check_options, held_out
from .margins import least_margin
from .measures import calibration_of
from .platt import LEAST_SCALE, MOST_SCALE
from .predictions import Predictions
from .thresholds import (
    Costs,
    ProbabilityTrack,
    event_cost,
    fit_level,
    smoothed_already,
    smoothing_of,
)

PULL = 0.01  # of the scale: log loss per squared logarithm of its change


def fit_distribution(question: Question, predictions: Sequence[Predictions],
                     costs: Costs = Costs()) -> Fitted:
    """Fit a choice or score on two thirds of the sources, and measure it.

    Of the right option the log loss, and of a score the cost, are never worse there. Raises
    CalibrationError.
    """
    name = question.id
    whole = np.concatenate([p.settled[name] for p in predictions])
    sources = np.concatenate([p.scene[name] for p in predictions])
    source = sources[whole]
    right = np.concatenate([p.truth[name] for p in predictions])[whole]
    logits = np.concatenate([p.logits[name] for p in predictions])[whole]
    if not np.isfinite(logits).all():
        raise CalibrationError(NOT_FINITE)
    check_options({question.options[k] for k in np.unique(right)})
    apart = held_out(source, right == np.bincount(right).argmax())
    held = np.isin(source, apart)
    one = Fitted(question, "vlm", sources=len(apart))
    scale = _scale(logits, right, held, question.scale)
    losses = [_loss_of_right(logits[held], right[held], at) for at in (question.scale, scale)]
    if losses[1] >= losses[0]:
        one.kept["scale"] = (f"{scale:g} would be no better on the held-out sources (log loss "
                             f"{losses[0]:.4f} now, {losses[1]:.4f} then)")
        scale, losses[1] = question.scale, losses[0]
    one.values = {"scale": scale}
    for into, at, loss in ((one.before, question.scale, losses[0]), (one.after, scale, losses[1])):
        into |= _of_options(question, logits[held], right[held], at)
        into["log_loss"] = loss
    if kind_of(question).has_thresholds:
        _fit_levels(one, predictions, scale, np.isin(sources, apart), costs)
    if all(name in p.shallow for p in predictions):
        early = np.concatenate([p.shallow[name] for p in predictions])[whole]
        shallow = _scale(early, right, held, question.shallow_scale)
        if (_loss_of_right(early[held], right[held], shallow)
                >= _loss_of_right(early[held], right[held], question.shallow_scale)):
            shallow = question.shallow_scale
        now = replace(question, thresholds=one.values.get("thresholds", question.thresholds))
        first, second = np.sort(shallow * early, axis=1)[:, -1:-3:-1].T
        margin, one.stops = least_margin(
            first - second, _chosen(now, early, shallow) == right,
            _chosen(now, logits, scale) == right, ~held, held)
        one.values |= {"shallow_scale": shallow, "shallow_margin": margin}
    return one


def _scale(logits: np.ndarray, right: np.ndarray, held: np.ndarray, present: float) -> float:
    """Return the scale with the least log loss of the right option where it is not held out.

    Pulled towards the present scale: where all samples are right, the loss alone has no end.
    """
    from scipy.optimize import minimize_scalar

    def loss(log: float) -> float:
        own = _loss_of_right(logits[~held], right[~held], np.exp(log))
        return own + PULL * (log - np.log(present)) ** 2

    found = minimize_scalar(loss, bounds=(np.log(LEAST_SCALE), np.log(MOST_SCALE)),
                            method="bounded")
    return round(float(np.exp(found.x)), 3)


def _loss_of_right(logits: np.ndarray, right: np.ndarray, scale: float) -> float:
    """Return the log loss of the right option; not of probabilities, which round to 0."""
    from scipy.special import logsumexp

    z = scale * logits
    return float((logsumexp(z, axis=1) - z[np.arange(len(z)), right]).mean())


def _chosen(question: Question, logits: np.ndarray, scale: float) -> np.ndarray:
    """Return the index of the option answered, without hysteresis, (N,)."""
    kind = kind_of(question)
    if not isinstance(kind, Score):
        return logits.argmax(axis=1)
    values = _distribution(question, logits, scale) @ np.array(level_values(question.options))
    return (values[:, None] >= np.array(kind.thresholds(question))).sum(axis=1)


def _fit_levels(one: Fitted, predictions: Sequence[Predictions], scale: float, held: np.ndarray,
                costs: Costs) -> None:
    """Fit the thresholds of a score: each as that of the question whether more is right.

    Args:
        one: what is fitted; its values, `kept` and costs are added to.
        predictions: on each recording.
        scale: of the logits, as it is now.
        held: groups of the sources that are held out, bool (N,).
        costs: what wrong answers cost.
    """
    question, kind = one.question, kind_of(one.question)
    levels, half = level_values(question.options), (question.enter - question.exit) / 2
    steps = list(zip(levels, levels[1:]))
    present = kind.thresholds(question)

    def tracks(number: int, scale: float, part: np.ndarray) -> list[ProbabilityTrack]:
        (low, high), found, at = steps[number], [], 0
        for p in predictions:
            own, at = part[at:at + len(p.t_s)], at + len(p.t_s)
            if not own.any():
                continue
            track = ProbabilityTrack(
                p.t_s, _distribution(question, p.logits[question.id], scale),
                np.where(own & (p.truth[question.id] >= 0), p.truth[question.id] > number, -1),
                p.fresh, p.anew)
            value = smoothing_of(question)(track) @ np.array(levels)
            found.append(replace(track, p=(value - low) / (high - low)))
        return found

    def cost(scale: float, thresholds: Sequence[float]) -> float:
        found = []
        for number, ((low, high), at) in enumerate(zip(steps, thresholds, strict=True)):
            place = (at - low) / (high - low)
            found.append(event_cost(
                tracks(number, scale, held), smoothed_already, np.array([place + half]),
                np.array([place - half]), costs)[0])
        return float(np.mean(found))

    fitted = tuple(
        round(low + (high - low) * fit_level(tracks(number, scale, ~held),
                                             (at - low) / (high - low), half, costs), 4)
        for number, ((low, high), at) in enumerate(zip(steps, present)))
    before, unchanged, after = (cost(question.scale, present), cost(scale, present),
                                cost(scale, fitted))
    shown = ", ".join(f"{at:g}" for at in fitted)
    if np.allclose(fitted, present):
        one.kept["thresholds"] = "no others are better by more than chance"
    elif any(low >= high for low, high in zip(fitted, fitted[1:])):
        one.kept["thresholds"] = f"{shown} would not rise"
    elif after >= unchanged:
        one.kept["thresholds"] = (f"{shown} would be no better on the held-out sources (cost per "
                                  f"event {unchanged:.4f} now, {after:.4f} with them)")
    else:
        one.values["thresholds"] = fitted
        unchanged = after
    one.values.setdefault("thresholds", question.thresholds)
    one.before["cost"], one.after["cost"] = before, unchanged


def _distribution(question: Question, logits: np.ndarray, scale: float) -> np.ndarray:
    return np.array([kind_of(question).probabilities(row, scale) for row in logits])


def _of_options(question: Question, logits: np.ndarray, right: np.ndarray,
                scale: float) -> dict[str, float | None]:
    p = _distribution(question, logits, scale)
    chosen = p.argmax(axis=1)
    measured = dict(calibration_of(p.max(axis=1), chosen == right), auroc=None, cost=None)
    measured["accuracy"] = float((chosen == right).mean())
    kind = kind_of(question)
    if isinstance(kind, Score):
        values = np.array(level_values(question.options))
        measured["mae"] = float(np.abs(p @ values - values[right]).mean())
    return measured
