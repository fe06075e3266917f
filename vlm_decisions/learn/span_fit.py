"""Fit a yes/no question to labelled spans of one camera, and say whether that is better.

Three ways are tried, from the least change to the most:

- `calibration`: a scale and a bias of the logit that the question is answered with now;
- `correction`: these, and weights on the pooled features, added to that logit;
- `head`: weights on the pooled features alone, or on the colours of the picture alone: the vision
  encoder has no place for all that there is, and a camera that does not move needs none.

Each is a logistic regression with an L2 penalty on the distance from the present answer (of a head:
from nothing). The looks of a span share its weight, and both sides weigh the same: how often
somebody corrects an answer says nothing about how often it is so.

The way and its penalty are chosen by cross-validation over spans. What that choice is worth is
measured on spans which neither it nor the fit has seen, in an outer cross-validation. Spans that
follow each other closely and say the same are one. A fit is adopted only where on the held-out
spans its log loss is better by a margin than that of the present answer, and by more than chance,
*and* better than that of an answer that is the same for every picture: otherwise random labels
would count as learned as soon as they make a confident model less so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..frames import NS
from ..runtime.heads import COLOURS
from ..runtime.learned import HeldOut, pooled

#: Fewest spans that say yes, and that say no.
LEAST_A_SIDE = 4

#: Spans closer than this, that say the same, are one, seconds.
APART_S = 1.0

#: By how much a held-out log loss must be better than the present one, and than a constant's.
MARGIN, MARGIN_OVER_CONSTANT = 0.03, 0.1

#: And by how many standard errors over spans.
ERRORS = 2.0

#: So many held-out spans must be right that guessing comes to that less often than this.
GUESSING = 0.0005

#: By how much the log loss of the next greater change must be better to be chosen.
GREATER_CHANGE = 0.01

#: Outer and inner folds, at most.
FOLDS, INNER_FOLDS = 8, 4

#: LooksOfSpans used of a span, evenly spread; fewer where there are many spans.
LOOKS, ALL_LOOKS = 4, 96

CALIBRATIONS = (0.003, 0.03, 0.3)
WEIGHTS = (0.001, 0.005, 0.02, 0.1)
"""Strengths of the penalties to try: log loss per half a squared logit of change."""

HEADS = ("mean", "mean_max", COLOURS)
"""What heads are tried on."""

LEAST_SCALE = 0.05
CONSTANT = float(np.log(2))  # log loss of an answer that is the same for all, both sides alike
_NEWTON, _NEAR = 30, 1e-6


@dataclass(frozen=True, eq=False)
class LabelledSpan:
    """A span of time for which the right answer is known, and its N looks.

    `z`: logits of yes as answered without learning, float (N,), NaN where they are not known.
    `mean`, `max`: pooled features, float (N, D); `colours`: float (N, C), C may be 0. Times in
    nanoseconds.
    """

    yes: bool
    start_ns: int
    end_ns: int
    z: np.ndarray
    mean: np.ndarray
    max: np.ndarray
    colours: np.ndarray


@dataclass(frozen=True, eq=False)
class SpanFit:
    """What a fit comes to: see Learned for scale, bias, weight and pooling.

    `spans`: that count, `yes` of them say yes. `before`, `after`: on held-out spans. `refusal`: why
    it is not adopted, empty where it is.
    """

    refusal: str
    spans: int
    yes: int
    before: HeldOut | None = None
    after: HeldOut | None = None
    scale: float = 1.0
    bias: float = 0.0
    weight: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    pooling: str = ""


@dataclass(frozen=True)
class Recipe:
    """A way to change an answer, and its penalties; a calibration of None: without z."""

    calibration: float | None
    weights: float | None = None
    pooling: str = ""


def ways(head: bool = True, z: bool = True) -> list[list[Recipe]]:
    """Return the ways to try, from the least change to the most, each with its strengths.

    head: a head may answer. z: the present logit is known.
    """
    changes = [[Recipe(one) for one in CALIBRATIONS],
               [Recipe(CALIBRATIONS[1], one, "mean") for one in WEIGHTS]] if z else []
    heads = [[Recipe(None, one, pooling) for one in WEIGHTS] for pooling in HEADS]
    return changes + (heads if head else [])


def fit_spans(spans: Sequence[LabelledSpan], *, head: bool = True, kept: bool = False) -> SpanFit:
    """Fit labelled spans and judge the fit on held-out ones.

    Args:
        spans: of one question at one view, any order.
        head: a head may be learned; it asks the language model no more.
        kept: what was fitted to most of them is in use: it is kept as long as it is better at all.
    """
    spans = together(spans)
    answer = np.array([span.yes for span in spans], bool)
    count, yes = len(spans), int(answer.sum())
    few = min(yes, count - yes)
    if few < LEAST_A_SIDE:
        return SpanFit(f"{yes} spans say yes and {count - yes} no, and {LEAST_A_SIDE} of each are "
                       "needed", count, yes)
    if any(np.isinf(one.z).any() or not np.isfinite([one.mean, one.max]).all()
           or not np.isfinite(one.colours).all() for one in spans):
        return SpanFit("the model's logits or features are not finite", count, yes)
    looks = LooksOfSpans.of(spans)
    known = np.isfinite(looks.present)
    if known.sum() < 2 * LEAST_A_SIDE:
        return SpanFit("too few spans with an answer of the model itself: undo what was learned, "
                       "and correct again", count, yes)
    all_ways = ways(head, bool(known.all()))
    if not all_ways:
        return SpanFit("the language model was not asked in all of these spans", count, yes)
    losses, right = np.empty(count), np.empty(count)
    for into, test in folds(answer, FOLDS):
        chosen = _choose(looks, into, all_ways)
        losses[test], right[test] = looks.judged(_fit(looks, into, chosen), chosen, test)
    sides = _sides(answer)
    before_losses, before_right = looks.judged_present()
    before = HeldOut(_mean(before_losses, sides, known), _mean(before_right, sides, known))
    after = HeldOut(_mean(losses, sides), _mean(right, sides))
    found = SpanFit("", count, yes, before, after)
    if refusal := _refusal(before_losses - losses, known, answer, found,
                           _mean(right, sides, known), kept):
        return replace(found, refusal=refusal)
    chosen = _choose(looks, np.arange(count), all_ways)
    scale, bias, weight = looks.plain(_fit(looks, np.arange(count), chosen), chosen)
    if chosen.calibration is not None and scale < LEAST_SCALE:
        return replace(found, refusal="yes would be less likely the more the model says so")
    return replace(found, scale=scale, bias=bias, weight=weight, pooling=chosen.pooling)


def _refusal(gain: np.ndarray, known: np.ndarray, answer: np.ndarray, found: SpanFit,
             accuracy: float, kept: bool) -> str:
    """Return why a fit is not adopted. `accuracy`: of it, on the spans with a present answer.

    Labels may be wrong now and then, and cost a good fit much: so whether it is better than a coin
    is judged by how many spans it gets right.
    """
    before, after = found.before, found.after
    numbers = f"log loss {before.log_loss:.2f} now, {after.log_loss:.2f} then"
    if CONSTANT - after.log_loss <= (0.0 if kept else MARGIN_OVER_CONSTANT):
        return f"it would be no better than one answer for all on held-out spans ({numbers})"
    gained = _mean(gain, _sides(answer), known)
    if gained <= (0.0 if kept else MARGIN):
        return f"it would be no better than now on held-out spans ({numbers})"
    right = after.accuracy * len(answer)
    if not kept and by_guessing(right, len(answer)) > GUESSING:
        return f"{right:.0f} of {len(answer)} held-out spans right may be by chance ({numbers})"
    if not kept and gained <= ERRORS * _error(gain[known], answer[known]):
        return f"it may be better than now by chance only ({numbers})"
    if accuracy < before.accuracy:
        return (f"it would be right less often on held-out spans ({100 * before.accuracy:.0f}% "
                f"now, {100 * accuracy:.0f}% then)")
    return ""


def by_guessing(right: float, of: int) -> float:
    """Return how often a coin is right at least so many times."""
    return sum(math.comb(of, k) for k in range(math.ceil(right - 1e-9), of + 1)) / 2 ** of


def together(spans: Sequence[LabelledSpan]) -> list[LabelledSpan]:
    """Return the spans in order of time, those that follow closely and say the same made one."""
    joined: list[LabelledSpan] = []
    for span in sorted(spans, key=lambda one: (one.start_ns, one.end_ns)):
        last = joined[-1] if joined else None
        if last and last.yes == span.yes and span.start_ns - last.end_ns < APART_S * NS:
            both = {name: np.concatenate([getattr(last, name), getattr(span, name)])
                    for name in ("z", "mean", "max", COLOURS)}
            joined[-1] = replace(last, end_ns=max(last.end_ns, span.end_ns), **both)
        else:
            joined.append(span)
    return joined


def folds(answer: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (in, out) indices of spans, as many folds as leave both answers in and out of each."""
    rng = np.random.default_rng(0)
    sides = [rng.permutation(np.flatnonzero(answer == side)) for side in (True, False)]
    count = min(most, *map(len, sides))
    if count < 2:
        return
    for k in range(count):
        out = np.concatenate([side[k::count] for side in sides])
        yield np.setdiff1d(np.arange(len(answer)), out), out


@dataclass(frozen=True, eq=False)
class LooksOfSpans:
    """The looks of all spans, L of S spans, ready to be fitted.

    `span`: of each look; `yes`: its side; `share`: of its span's weight, (L,). `z`: (L,), `present`
    their mean by span, (S,). `x`: standardised features by pooling, turned into as many directions
    as there are looks at most (the penalty does not see it), (L, P); `back`: what turns weights on
    x into those on the features, and the feature's mean.
    """

    span: np.ndarray
    yes: np.ndarray
    share: np.ndarray
    z: np.ndarray
    present: np.ndarray
    x: dict[str, np.ndarray]
    back: dict[str, tuple[np.ndarray, np.ndarray]]
    _columns: dict[Recipe, tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=dict)

    @classmethod
    def of(cls, spans: Sequence[LabelledSpan]) -> LooksOfSpans:
        most = max(1, min(LOOKS, ALL_LOOKS // len(spans)))
        chosen = [np.unique(np.linspace(0, len(one.z) - 1, most).round().astype(int))
                  for one in spans]
        counts = np.array([len(one) for one in chosen])
        span = np.repeat(np.arange(len(spans)), counts)
        z, mean, peak, colours = (np.concatenate([getattr(one, name)[at] for one, at in zip(
            spans, chosen, strict=True)]).astype(float) for name in ("z", "mean", "max", COLOURS))
        x, back = {}, {}
        for pooling in HEADS:
            features = pooled(pooling, mean, peak, colours).astype(float)
            x[pooling], back[pooling] = _turned(features)
        return cls(span, np.array([one.yes for one in spans])[span], 1.0 / counts[span], z,
                   np.bincount(span, z) / counts, x, back)

    def columns(self, way: Recipe) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return offset (L,), columns (L, P) and their penalties (P,); the last one is 1."""
        if way not in self._columns:
            self._columns[way] = self._make_columns(way)
        return self._columns[way]

    def _make_columns(self, way: Recipe) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts, penalties = [], []
        if way.calibration is not None:
            spread = self.z.std() or 1.0
            parts.append(((self.z - self.z.mean()) / spread)[:, None])
            penalties.append([way.calibration])
        if way.weights is not None:
            parts.append(self.x[way.pooling])
            penalties.append([way.weights] * self.x[way.pooling].shape[1])
        parts.append(np.ones((len(self.span), 1)))
        penalties.append([1e-4 if way.calibration is None else way.calibration])
        offset = np.zeros(len(self.span)) if way.calibration is None else self.z
        return offset, np.concatenate(parts, axis=1), np.concatenate(penalties)

    def judged(self, w: np.ndarray, way: Recipe, spans: np.ndarray
               ) -> tuple[np.ndarray, np.ndarray]:
        """Return log loss and share right of spans, each the mean over its looks."""
        own = np.isin(self.span, spans)
        offset, columns, _ = self.columns(way)
        logit = np.zeros(len(own))
        logit[own] = offset[own] + columns[own] @ w
        return self._by_span(logit, spans)

    def judged_present(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the same of the present answers; NaN where they are not known."""
        return self._by_span(self.z, np.arange(len(self.present)))

    def _by_span(self, logit: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        signed = np.where(self.yes, logit, -logit)  # of NaN the loss is NaN, and nobody reads it
        count = len(self.present)
        with np.errstate(invalid="ignore"):
            losses = np.bincount(self.span, np.logaddexp(0, -signed) * self.share, count)
        right = np.bincount(self.span, (signed > 0) * self.share, count)
        return losses[spans], right[spans]

    def plain(self, w: np.ndarray, way: Recipe) -> tuple[float, float, np.ndarray]:
        """Return scale, bias and weight on z and features as they are, of a fit's weights."""
        scale, bias, at = 0.0, float(w[-1]), 0
        if way.calibration is not None:
            spread, at = float(self.z.std()) or 1.0, 1
            scale = 1.0 + float(w[0]) / spread
            bias -= float(w[0]) * float(self.z.mean()) / spread
        if way.weights is None:
            return scale, bias, np.zeros(0, np.float32)
        turn, middle = self.back[way.pooling]
        weight = turn @ w[at:-1]
        return scale, bias - float(middle @ weight), weight.astype(np.float32)


def _turned(features: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return standardised features (L, D) in at most L directions, and the way back.

    They are divided by the root of D, so that a penalty means the same for all widths.
    """
    middle, spread = features.mean(axis=0), features.std(axis=0)
    gain = np.where(spread > 1e-9, 1.0 / np.maximum(spread, 1e-9), 0.0) / np.sqrt(len(spread))
    _, sizes, turn = np.linalg.svd((features - middle) * gain, full_matrices=False)
    turn = turn[sizes > 1e-9 * (sizes[0] if len(sizes) else 1.0)]
    return (features - middle) * gain @ turn.T, (gain[:, None] * turn.T, middle)


def _choose(looks: LooksOfSpans, into: np.ndarray, all_ways: Sequence[Sequence[Recipe]]) -> Recipe:
    """Return the way with the least held-out log loss among these spans; a tie: least change."""
    answer = np.zeros(len(looks.present), bool)
    answer[looks.span] = looks.yes
    sides = _sides(answer[into])
    best: tuple[float, Recipe] | None = None
    by_head = any(way.calibration is None for strengths in all_ways for way in strengths)
    parts = [(into[fit], into[test], test) for fit, test in folds(answer[into], INNER_FOLDS)]
    for strengths in all_ways:
        if strengths[0].weights and strengths[0].calibration and by_head and (
                best[0] > CONSTANT - MARGIN_OVER_CONSTANT):
            continue  # the present answer tells nothing: it need not be asked for
        tried = []
        for way in strengths:
            losses = np.empty(len(into))
            for fit, test, at in parts:
                losses[at] = looks.judged(_fit(looks, fit, way), way, test)[0]
            tried.append((_mean(losses, sides), way))
        least = min(tried, key=lambda one: one[0])
        if best is None or least[0] < best[0] - GREATER_CHANGE:
            best = least
    assert best is not None
    return best[1]


def _fit(looks: LooksOfSpans, into: np.ndarray, way: Recipe) -> np.ndarray:
    """Return the weights on `columns` with the least log loss and penalty, by Newton's method."""
    offset, columns, penalty = looks.columns(way)
    own = np.isin(looks.span, into)
    x, offset, sign = columns[own], offset[own], np.where(looks.yes[own], 1.0, -1.0)
    weight = looks.share[own].copy()
    for side in (1.0, -1.0):
        weight[sign == side] /= 2 * weight[sign == side].sum()
    w, loss = np.zeros(x.shape[1]), np.inf

    def loss_at(at: np.ndarray) -> tuple[float, np.ndarray]:
        signed = sign * (offset + x @ at)
        return float(weight @ np.logaddexp(0, -signed) + (penalty * at * at).sum() / 2), signed

    loss, signed = loss_at(w)
    for _ in range(_NEWTON):
        p = 0.5 * (1 - np.tanh(signed / 2))  # of the wrong side
        slope = -(weight * sign * p) @ x + penalty * w
        curve = (x * (weight * p * (1 - p))[:, None]).T @ x
        curve[np.diag_indices(len(w))] += penalty
        step, size = np.linalg.solve(curve, slope), 1.0
        while True:  # a full step may go too far where the present answer is sure and wrong
            new, signed_new = loss_at(w - size * step)
            if new <= loss or size < 1e-3:
                break
            size /= 2
        gained, w, loss, signed = loss - new, w - size * step, new, signed_new
        if gained < _NEAR:
            break
    return w


def _sides(answer: np.ndarray) -> np.ndarray:
    """Return weights of spans with which both sides weigh the same."""
    return np.where(answer, 1.0 / max(1, answer.sum()), 1.0 / max(1, (~answer).sum()))


def _mean(values: np.ndarray, weights: np.ndarray, of: np.ndarray | None = None) -> float:
    if of is not None:
        values, weights = values[of], weights[of]
    return float(values @ weights / weights.sum())


def _error(values: np.ndarray, answer: np.ndarray) -> float:
    """Return the standard error of the mean over both sides alike."""
    parts = [values[answer == side] for side in (True, False)]
    return 0.5 * float(np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts
                                   if len(part) > 1)))
