"""Fit the thresholds `enter` and `exit` to the cost of wrong answers.

The cost of a question's answers is counted per event. An event is a change of the truth, or the
beginning of a recording. Being wrong (or uncertain) costs its duration beyond `tolerance_s`,
divided by `patience_s`, at most 1: an event that is answered late costs a part, a missed event
costs 1. Each change to a wrong answer while the truth stays (a flicker) costs `flicker` in
addition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..questions import Question
from ..runtime.forward_filter import filtered_track

PATIENCE_S = 2.0
FLICKER = 0.5
TOLERANCE_S = 0.5  # as much as Timeliness-F1 allows
STEP = 0.05
YES, NO, UNSURE = 1, 0, -1
#: Switching rates of a filter to try, per second.
RATES_HZ = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Costs:
    """What wrong answers cost.

    Attributes:
        patience_s: being wrong for so long (beyond the tolerance) costs as much as a missed event.
        flicker: cost of a change to a wrong answer.
        tolerance_s: being wrong for so long costs nothing.
    """

    patience_s: float = PATIENCE_S
    flicker: float = FLICKER
    tolerance_s: float = TOLERANCE_S

    def of_wrong(self, wrong_s: np.ndarray) -> np.ndarray:
        """Return the cost of having been wrong for so many seconds."""
        return np.clip((wrong_s - self.tolerance_s) / self.patience_s, 0.0, 1.0)


@dataclass(frozen=True)
class ProbabilityTrack:
    """P(yes) of a question over one recording, N groups.

    Attributes:
        t_s: when the group ends, (N,).
        p: P(yes) before smoothing, (N,), or probabilities of all answers, (N, k).
        truth: 1, 0, or -1 if it is not known, (N,).
        fresh: groups before which smoothing and answer start again (a gap), bool (N,).
        anew: groups before which the smoothing starts again, and the answer stays (a cut), bool
            (N,); None for none.
    """

    t_s: np.ndarray
    p: np.ndarray
    truth: np.ndarray
    fresh: np.ndarray
    anew: np.ndarray | None = None

    @property
    def begins(self) -> np.ndarray:
        """Groups before which the smoothing starts again, bool (N,)."""
        return self.fresh if self.anew is None else self.fresh | self.anew


#: Returns the smoothed probabilities of a track, as its `p`.
Smooth = Callable[[ProbabilityTrack], np.ndarray]


def averaging(ema: float) -> Smooth:
    """Return the smoothing by an exponential average that weighs the newest P(yes) by `ema`."""

    def smooth(track: ProbabilityTrack) -> np.ndarray:
        out, begins = np.empty(track.p.shape), track.begins
        for i, p in enumerate(track.p):
            out[i] = p if i == 0 or begins[i] else ema * p + (1.0 - ema) * out[i - 1]
        return out

    return smooth


def filtering(switch_hz: float) -> Smooth:
    """Return the smoothing by a forward filter whose answer changes `switch_hz` times a second."""
    return lambda track: filtered_track(track.p, track.t_s, track.begins, switch_hz)


def smoothing_of(question: Question) -> Smooth:
    """Return a question's own smoothing."""
    if question.smoothing == "filter":
        return filtering(question.switch_hz)
    return averaging(question.ema)


def grid() -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (enter, exit) to try, (K,) each."""
    levels = np.arange(STEP, 1.0 - STEP / 2, STEP).round(3)
    pairs = [(enter, leave) for enter in levels for leave in levels if leave < enter]
    return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def event_cost(tracks: Sequence[ProbabilityTrack], smooth: Smooth, enter: np.ndarray,
               leave: np.ndarray, costs: Costs = Costs()) -> np.ndarray:
    """Return the mean cost per event of each pair (enter, leave), (K,).

    Args:
        tracks: one per recording.
        smooth: the question's smoothing.
        enter: thresholds for yes, (K,).
        leave: thresholds for no, (K,).
        costs: what wrong answers cost.
    """
    cost, events = _costs(tracks, smooth, enter, leave, costs)
    return cost.sum(axis=0) / max(1, events.sum())


def fit_thresholds(tracks: Sequence[ProbabilityTrack], smooth: Smooth, enter: float = 0.65,
                   leave: float = 0.35, costs: Costs = Costs()) -> tuple[float, float]:
    """Return the pair (enter, exit) nearest to the present one that is as good as the best.

    The cost is first averaged over neighbouring pairs, since a pair that is good by itself is good
    by chance. A pair is as good as the best if it costs at most one standard error (over
    recordings) more. So a few recordings do not move the thresholds far.

    Args:
        tracks: one per recording.
        smooth: the question's smoothing.
        enter: the present one, by default a question's own default.
        leave: the present `exit`.
        costs: what wrong answers cost.
    """
    enters, leaves = _with(*grid(), enter, leave)
    chosen = _nearest_good(tracks, smooth, enters, leaves, (enter, leave), costs)
    return (enter, leave) if chosen is None else (
        round(float(enters[chosen]), 3), round(float(leaves[chosen]), 3))


def fit_level(tracks: Sequence[ProbabilityTrack], at: float, half: float,
              costs: Costs = Costs()) -> float:
    """Return the threshold between two levels nearest to the present one that is as good as any.

    As good: as for fit_thresholds.

    Args:
        tracks: one per recording. `p` is the smoothed expected value, 0 at the lower and 1 at the
            higher of the two levels, `truth` whether the higher one or more is right.
        at: the present threshold.
        half: of the band around it within which the answer stays.
        costs: what wrong answers cost.
    """
    levels = np.arange(STEP, 1.0 - STEP / 2, STEP).round(3)
    enters, leaves = _with(levels + half, levels - half, at + half, at - half)
    chosen = _nearest_good(tracks, smoothed_already, enters, leaves, (at + half, at - half), costs)
    return at if chosen is None else round(float(enters[chosen]) - half, 3)


def smoothed_already(track: ProbabilityTrack) -> np.ndarray:
    """Return a track's `p`."""
    return track.p


def _with(enters: np.ndarray, leaves: np.ndarray, enter: float,
          leave: float) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs to try with the present one among them."""
    if (np.isclose(enters, enter) & np.isclose(leaves, leave)).any():
        return enters, leaves
    return np.append(enters, enter), np.append(leaves, leave)


def _nearest_good(tracks: Sequence[ProbabilityTrack], smooth: Smooth, enters: np.ndarray,
                  leaves: np.ndarray, present: tuple[float, float], costs: Costs) -> int | None:
    """Return the index of the pair as good as the best that is nearest to the present one.

    None where that is the present one.
    """
    by_track, events = _costs(tracks, smooth, enters, leaves, costs)
    cost = by_track.sum(axis=0) / max(1, events.sum())
    near = ((np.abs(enters[:, None] - enters) < 1.5 * STEP)
            & (np.abs(leaves[:, None] - leaves) < 1.5 * STEP))
    level = (near * cost).sum(axis=1) / near.sum(axis=1)
    best = int(np.argmin(level))
    error = _paired_error(by_track, events, best)
    off = np.abs(enters - present[0]) + np.abs(leaves - present[1])
    chosen = int(np.argmin(np.where(level <= level[best] + error + 1e-9, off, np.inf)))
    return None if off[chosen] < 1e-9 else chosen


def fit_filter(tracks: Sequence[ProbabilityTrack], switch_hz: float, enter: float, leave: float,
               costs: Costs = Costs()) -> tuple[float, float, float]:
    """Return (switch_hz, enter, exit): the rate nearest to the present one that is as good as any.

    Each rate has the thresholds that fit it best. As good: as for fit_thresholds.

    Args:
        tracks: one per recording.
        switch_hz: the present rate.
        enter: the present threshold.
        leave: the present `exit`.
        costs: what wrong answers cost.
    """
    rates = sorted({*RATES_HZ, switch_hz})
    pairs = [fit_thresholds(tracks, filtering(rate), enter, leave, costs) for rate in rates]
    parts = [_costs(tracks, filtering(rate), *(np.array([one]) for one in pair), costs)
             for rate, pair in zip(rates, pairs)]
    by_track, events = np.concatenate([cost for cost, _ in parts], axis=1), parts[0][1]
    cost = by_track.sum(axis=0) / max(1, events.sum())
    best = int(np.argmin(cost))
    good = cost <= cost[best] + _paired_error(by_track, events, best) + 1e-9
    off = np.abs(np.log(np.array(rates) / switch_hz))
    chosen = int(np.argmin(np.where(good, off, np.inf)))
    return rates[chosen], *pairs[chosen]


def _paired_error(by_track: np.ndarray, events: np.ndarray, best: int) -> np.ndarray:
    """Return the standard error over recordings of how much more than the best each costs, (K,)."""
    count = len(by_track)
    if count < 2:
        return np.zeros(by_track.shape[1])
    rest = by_track - by_track.sum(axis=0) / max(1, events.sum()) * events[:, None]
    apart = rest - rest[:, [best]]  # paired: what they share is not an error
    return np.sqrt((apart ** 2).sum(axis=0) * count / (count - 1)) / max(1, events.sum())


def answers(track: ProbabilityTrack, smooth: Smooth, enter: np.ndarray,
            leave: np.ndarray) -> np.ndarray:
    """Return the runtime's answers under each pair, int8 (N, K): 1 yes, 0 no, -1 uncertain."""
    out = np.empty((len(track.p), len(enter)), np.int8)
    answer = np.full(len(enter), UNSURE, np.int8)
    for i, p in enumerate(smooth(track)):
        if track.fresh[i]:
            answer = np.full(len(enter), UNSURE, np.int8)
        answer = np.where(p >= enter, YES, np.where(p <= leave, NO, answer))
        out[i] = answer
    return out


def _costs(tracks: Sequence[ProbabilityTrack], smooth: Smooth, enter: np.ndarray, leave: np.ndarray,
           costs: Costs) -> tuple[np.ndarray, np.ndarray]:
    """Return the cost of each recording under each pair, (R, K), and its number of events, (R,)."""
    found = [_track_cost(track, smooth, enter, leave, costs) for track in tracks]
    return (np.array([cost for cost, _ in found]).reshape(len(found), len(enter)),
            np.array([count for _, count in found], int))


def _track_cost(track: ProbabilityTrack, smooth: Smooth, enter: np.ndarray, leave: np.ndarray,
                costs: Costs) -> tuple[np.ndarray, int]:
    said = answers(track, smooth, enter, leave)
    cost, wrong_s = np.zeros(len(enter)), np.zeros(len(enter))
    events = 0
    before: int | None = None  # the truth of the group before, None if it is not known
    for i, truth in enumerate(track.truth):
        if truth < 0 or track.fresh[i]:
            cost += costs.of_wrong(wrong_s)
            wrong_s[:], before = 0.0, None
            if truth < 0:
                continue
        wrong = said[i] != truth
        if before is None or truth != before:
            events += 1
            cost += costs.of_wrong(wrong_s)  # the event before was never answered
            wrong_s[:] = 0.0
        else:
            cost += costs.flicker * ((said[i] != said[i - 1]) & wrong)
            right = ~wrong
            cost[right] += costs.of_wrong(wrong_s[right])
            wrong_s[right] = 0.0
        if i + 1 < len(track.t_s):
            wrong_s += np.where(wrong, track.t_s[i + 1] - track.t_s[i], 0.0)
        before = int(truth)
    return cost + costs.of_wrong(wrong_s), events
