"""Fit a question that is answered by P(yes): calibration, thresholds, filter, early exit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..questions import Question
from ..runtime.heads import Head, answering_head, deciding_head
from .fitted import Fitted, held_out
from .margins import least_margin
from .measures import calibration_of, log_loss
from .platt import fit_platt, log_losses, sigmoid
from .predictions import Predictions
from .thresholds import (
    Costs,
    ProbabilityTrack,
    event_cost,
    filtering,
    fit_filter,
    fit_thresholds,
    smoothing_of,
)


def fit_question(question: Question, predictions: Sequence[Predictions],
                 heads: Sequence[Head] = (), costs: Costs = Costs()) -> Fitted:
    """Fit one question that is answered by P(yes) on two thirds of the sources, and measure it.

    Of P(yes) the log loss, and of the answers the cost, are never worse on the held-out sources
    than with the question's present values. Raises CalibrationError.
    """
    name = question.id
    source = np.concatenate([p.scene[name] for p in predictions])
    truth = np.concatenate([p.truth[name] for p in predictions])
    settled = np.concatenate([p.settled[name] for p in predictions])
    held = held_out(source[settled], truth[settled] == 1)
    out = np.isin(source, held)
    head = answering_head(question, heads)
    one = Fitted(question, "heads" if head or question.tier == "heads" else "vlm",
                 sources=len(held))
    present = question.scale, question.bias
    scale, bias = present
    if question.tier == "heads":
        one.before = dict.fromkeys(("auroc", "ece", "brier", "log_loss"))
        one.after = dict(one.before)
    else:
        difference = np.concatenate([p.difference[name] for p in predictions])
        into, test = settled & ~out, settled & out
        scale, bias = fit_platt(difference[into], truth[into] == 1, source[into], *present)
        told = truth[test] == 1
        p = {pair: sigmoid(pair[0] * difference[test] + pair[1])
             for pair in (present, (scale, bias))}
        losses = {pair: log_loss(told, p[pair]) for pair in p}
        if (scale, bias) == present:
            one.kept["scale, bias"] = "no others are better by more than chance"
        elif losses[scale, bias] >= losses[present]:
            one.kept["scale, bias"] = (
                f"{scale:g}, {bias:g} would be no better on the held-out sources (log loss "
                f"{losses[present]:.4f} now, {losses[scale, bias]:.4f} with them)")
            scale, bias = present
        one.before = calibration_of(p[present], told)
        one.after = calibration_of(p[scale, bias], told)
        one.held = {"truth": told, "before": p[present], "after": p[scale, bias]}

    filters = question.smoothing == "filter"
    named = "switch_hz, enter, exit" if filters else "enter, exit"

    def cost(scale: float, bias: float, answering: tuple[float, ...]) -> float:
        *rate, enter, leave = answering
        smooth = filtering(*rate) if filters else smoothing_of(question)
        return float(event_cost(_tracks(name, predictions, head, scale, bias, out), smooth,
                                np.array([enter]), np.array([leave]), costs)[0])

    tracks = _tracks(name, predictions, head, scale, bias, ~out)
    old: tuple[float, ...] = (question.enter, question.exit)
    if filters:
        old = (question.switch_hz, *old)
        new: tuple[float, ...] = fit_filter(tracks, *old, costs)
    else:
        new = fit_thresholds(tracks, smoothing_of(question), *old, costs)
    before, after = cost(*present, old), cost(scale, bias, new)
    if new == old:
        one.kept[named] = "no others are better by more than chance"
    elif after >= (unchanged := cost(scale, bias, old)):
        one.kept[named] = (
            f"{', '.join(f'{value:g}' for value in new)} would be no better on the held-out "
            f"sources (cost per event {unchanged:.4f} now, {after:.4f} with them)")
        new, after = old, unchanged
    if after > before:  # P(yes) is better, but the answers are worse
        one.kept = dict.fromkeys(("scale, bias", named), (
            f"the answers would be worse on the held-out sources (cost per event {before:.4f} now, "
            f"{after:.4f} then)"))
        (scale, bias), new, after = present, old, before
        one.after = dict(one.before)
        one.held["after"] = one.held["before"]
    if question.tier != "heads":
        one.values |= {"scale": scale, "bias": bias}
    if one.tier == "vlm" and all(name in p.shallow for p in predictions):
        x = np.concatenate([p.shallow[name] for p in predictions])
        by_head = deciding_head(question, heads) is not None
        _fit_exit(one, x, scale * difference + bias, truth == 1, source, into, test, by_head,
                  _together(predictions))
    one.values |= dict(zip(named.split(", "), new))
    one.before["cost"], one.after["cost"] = before, after
    return one


def _fit_exit(one: Fitted, x: np.ndarray, full: np.ndarray, answer: np.ndarray,
              source: np.ndarray, into: np.ndarray, test: np.ndarray, by_head: bool,
              together: Callable[[np.ndarray], np.ndarray]) -> None:
    """Fit the calibration and the margin of an early exit.

    Args:
        one: what is fitted; its values are added to.
        x: logit at the exit before its calibration, (N,).
        full: calibrated logit at full depth, (N,).
        answer: whether yes is right, bool (N,).
        source: of each sample, (N,).
        into: samples to fit on, bool (N,).
        test: samples held out, bool (N,).
        by_head: the exit has a head, which is calibrated by itself.
        together: see `_together`.
    """
    question = one.question
    present = question.shallow_scale, question.shallow_bias
    scale, bias = present
    if not by_head:
        scale, bias = fit_platt(x[into], answer[into], source[into], *present)
        if (log_losses(x[test], answer[test], scale, bias).mean()
                >= log_losses(x[test], answer[test], *present).mean()):
            scale, bias = present
    z = x if by_head else scale * x + bias
    margin, one.stops = least_margin(together(np.abs(z)), (z > 0) == answer, (full > 0) == answer,
                                     into, test)
    one.values |= {"shallow_scale": scale, "shallow_bias": bias, "shallow_margin": margin}


def _together(predictions: Sequence[Predictions]) -> Callable[[np.ndarray], np.ndarray]:
    """Return what gives each sample of a label the least of all labels of its group.

    Labels of an any_of are predictions of one name; a question by itself has its own.
    """
    bounds = np.cumsum([0, *(len(one.t_s) for one in predictions)])
    places: dict[str, list[slice]] = {}
    for one, begin, end in zip(predictions, bounds, bounds[1:]):
        places.setdefault(one.name, []).append(slice(begin, end))

    def least(lead: np.ndarray) -> np.ndarray:
        out = np.empty(len(lead))
        for own in places.values():
            lowest = np.min([lead[part] for part in own], axis=0)
            for part in own:
                out[part] = lowest
        return out

    return least


def _tracks(name: str, predictions: Sequence[Predictions], head: Head | None, scale: float,
            bias: float, keep: np.ndarray) -> list[ProbabilityTrack]:
    """Return P(yes) of a question over each recording, with the truth of the groups to keep."""
    found, at = [], 0
    for one in predictions:
        own = keep[at:at + len(one.t_s)]
        at += len(one.t_s)
        p = one.head_p[name] if head else sigmoid(scale * one.difference[name] + bias)
        there = np.isfinite(p)  # NaN while the window is too short for a motion head
        if (own & there).any():
            fresh = one.fresh.copy()
            fresh[1:] |= there[1:] & ~there[:-1]
            found.append(ProbabilityTrack(
                one.t_s[there], p[there], np.where(own, one.truth[name], -1)[there], fresh[there],
                None if one.anew is None else one.anew[there]))
    return found
