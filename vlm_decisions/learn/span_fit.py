"""Fit a yes/no question to labelled spans of one camera, and say whether that is better.

Three ways are tried, from the least change to the most:

- `calibration`: a scale and a bias of the logit that the question is answered with now;
- `correction`: these, and weights on the pooled features, added to that logit;
- `head`: weights on the pooled features alone, or on the colours of the picture alone: the vision
  encoder has no place for all that there is, and a camera that does not move needs none. Tried only
  where the present answer tells nothing, or is not known.

Each is a logistic regression with an L2 penalty on the distance from the present answer (of a head:
from nothing), which is one with a Gaussian prior. The looks of a span share its weight, which grows
with the root of their number: what lasts is seen more often. Where the present answer does not
count, both sides weigh the same: how often somebody corrects an answer says nothing about how often
it is so.

The way and its penalty are chosen by cross-validation over spans; spans that follow each other
closely and say the same are one. A fit is adopted only where on the held-out spans more are right
than now and the log loss is better, both by more than chance, *and* better than that of an answer
that is the same for every picture: otherwise random labels would count as learned as soon as they
make a confident model less so. An answer that is right on all spans is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ..frames import NS
from ..runtime.heads import COLOURS
from ..runtime.learned import HeldOut, pooled

#: Fewest spans that say yes, and that say no.
LEAST_A_SIDE = 4

#: Spans closer than this, that say the same, are one, seconds.
APART_S = 1.0

#: By how much the log loss of held-out spans must be better than that of one answer for all.
MARGIN_OVER_CONSTANT = 0.08

#: By how much the share of held-out spans that are right must rise.
MARGIN_RIGHT = 0.03

#: And by how many standard errors over spans log loss and share must be better.
ERRORS = 1.0

#: So many held-out spans must be right that guessing comes to that less often than this.
GUESSING = 0.005

#: By how much the log loss of the next greater change must be better to be chosen.
GREATER_CHANGE = 0.01

#: Folds of the cross-validation, at most.
FOLDS = 8

#: Looks used of a span, evenly spread; fewer where there are many spans.
LOOKS, ALL_LOOKS = 6, 200

#: Directions of the features that are fitted, those with most variance.
DIRECTIONS = 40

#: The logit is made so small that its root mean square is this: a very sure answer that is wrong
#: can be changed, too. No answer changes by it.
USUAL_LOGIT = 5.0

#: A look cannot cost more: how sure a wrong answer is says little.
MOST_LOSS = 4.0

#: Strengths of the penalties: log loss of one span per half a squared logit of change.
CALIBRATION = 0.15
WEIGHTS = (0.03, 0.1, 0.3, 1.0)
BIAS_OF_HEAD = 0.01

HEADS = ("mean_max", COLOURS)
"""What heads are tried on."""

_NEWTON, _NEAR = 40, 1e-4

Pause = Callable[[], None]


def no_pause() -> None:
    """Go on at once."""


@dataclass(frozen=True, eq=False)
class LabelledSpan:
    """A span of time for which the right answer is known, and its N looks.

    `z`: logits of yes as answered without learning, float (N,), NaN where they are not known.
    `mean`, `max`: pooled features, float (N, D); `colours`: float (N, C), C may be 0. Times in
    nanoseconds. `seen`: looks that lie in it, of which these were kept; 0: these are all.
    """

    yes: bool
    start_ns: int
    end_ns: int
    z: np.ndarray
    mean: np.ndarray
    max: np.ndarray
    colours: np.ndarray
    seen: int = 0

    @property
    def count(self) -> int:
        """Return how many looks lie in it."""
        return self.seen or len(self.z)


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
    """A way to change an answer: with the present logit or not, penalty and pooling of weights."""

    present: bool
    weights: float | None = None
    pooling: str = ""


CHANGES = (Recipe(True), *(Recipe(True, one, "mean_max") for one in reversed(WEIGHTS)))
HEAD_WAYS = tuple(Recipe(False, one, pooling) for pooling in HEADS for one in reversed(WEIGHTS))


def fit_spans(spans: Sequence[LabelledSpan], *, head: bool = True, kept: bool = False,
              pause: Pause = no_pause) -> SpanFit:
    """Fit labelled spans and judge the fit on held-out ones.

    Args:
        spans: of one question at one view, any order.
        head: a head may be learned; it asks the language model no more.
        kept: what was fitted to most of them is in use: it is kept as long as it is better at all.
        pause: called between pieces of work of a few milliseconds.
    """
    spans = together(spans)
    answer = np.array([span.yes for span in spans], bool)
    count, yes = len(spans), int(answer.sum())
    if min(yes, count - yes) < LEAST_A_SIDE:
        return SpanFit(f"{yes} spans say yes and {count - yes} no, and {LEAST_A_SIDE} of each are "
                       "needed", count, yes)
    if any(np.isinf(one.z).any() or not np.isfinite([one.mean, one.max]).all()
           or not np.isfinite(one.colours).all() for one in spans):
        return SpanFit("the model's logits or features are not finite", count, yes)
    looks = LooksOfSpans.of(spans, pause)
    known = looks.known
    if known.sum() < 2 * LEAST_A_SIDE:
        return SpanFit("too few spans with an answer of the model itself: undo what was learned, "
                       "and correct again", count, yes)
    if not (head or known.all()):
        return SpanFit("the language model was not asked in all of these spans", count, yes)
    parts = list(folds(answer, FOLDS))
    found = _choose(looks, parts, CHANGES, pause) if known.all() else None
    if head and (found is None or constant(yes / count) - found.first <= MARGIN_OVER_CONSTANT):
        found = _choose(looks, parts, HEAD_WAYS, pause)
    before = looks.judged(np.nan_to_num(looks.z))
    fit = SpanFit("", count, yes, before.mean(known), found.held.mean())
    if refusal := _refusal(before, found.held, known, fit, kept):
        return replace(fit, refusal=refusal)
    scale, bias, weight = looks.plain(_fit(looks, np.arange(count), found.way, pause), found.way)
    if found.way.present and scale <= 0:
        return replace(fit, refusal="yes would be less likely the more the model says so")
    return replace(fit, scale=scale, bias=bias, weight=weight, pooling=found.way.pooling)


@dataclass(frozen=True, eq=False)
class Judged:
    """Log loss, capped, and share of right looks of each of S spans, float (S,)."""

    losses: np.ndarray
    right: np.ndarray

    def mean(self, of: np.ndarray | slice = slice(None)) -> HeldOut:
        """Return the means over some spans."""
        return HeldOut(float(self.losses[of].mean()), float(self.right[of].mean()))


@dataclass(frozen=True, eq=False)
class Chosen:
    """The way to be taken and how it does on held-out spans; `first`: log loss of the first one."""

    way: Recipe
    held: Judged
    first: float


def _refusal(before: Judged, after: Judged, known: np.ndarray, fit: SpanFit, kept: bool) -> str:
    """Return why a fit is not adopted.

    Labels may be wrong now and then, and cost a good fit much: so whether it is better than a coin
    is judged by how many spans it gets right.
    """
    numbers = f"log loss {fit.before.log_loss:.2f} now, {fit.after.log_loss:.2f} then"
    shares = f"{100 * fit.before.accuracy:.0f}% now, {100 * after.right[known].mean():.0f}% then"
    gained = (before.losses - after.losses)[known]
    more = (after.right - before.right)[known]
    yes = fit.yes / fit.spans
    if constant(yes) - fit.after.log_loss <= (0.0 if kept else MARGIN_OVER_CONSTANT):
        return f"it would be no better than one answer for all on held-out spans ({numbers})"
    if gained.mean() <= 0:
        return f"it would be no better than now on held-out spans ({numbers})"
    if more.mean() < (0.0 if kept else MARGIN_RIGHT):
        return f"it would not be right more often on held-out spans ({shares})"
    if kept:
        return ""
    right, of = fit.after.accuracy * fit.spans, fit.spans
    if by_guessing(right, of, max(yes, 1 - yes)) > GUESSING:
        return f"{right:.0f} of {of} held-out spans right may be by chance ({numbers})"
    if any(one.mean() <= ERRORS * one.std(ddof=1) / math.sqrt(len(one)) for one in (gained, more)):
        return f"it may be better than now by chance only ({numbers}; right {shares})"
    return ""


def constant(yes: float) -> float:
    """Return the log loss of an answer that is the same for all spans, of which a share is yes."""
    return -yes * math.log(yes) - (1 - yes) * math.log(1 - yes)


def by_guessing(right: float, of: int, share: float = 0.5) -> float:
    """Return how often guesses that are right with a chance of `share` are right so many times."""
    return sum(math.comb(of, k) * share ** k * (1 - share) ** (of - k)
               for k in range(math.ceil(right - 1e-9), of + 1))


def together(spans: Sequence[LabelledSpan]) -> list[LabelledSpan]:
    """Return the spans in order of time, those that follow closely and say the same made one."""
    joined: list[LabelledSpan] = []
    for span in sorted(spans, key=lambda one: (one.start_ns, one.end_ns)):
        last = joined[-1] if joined else None
        if last and last.yes == span.yes and span.start_ns - last.end_ns < APART_S * NS:
            both = {name: np.concatenate([getattr(last, name), getattr(span, name)])
                    for name in ("z", "mean", "max", COLOURS)}
            joined[-1] = replace(last, end_ns=max(last.end_ns, span.end_ns),
                                 seen=last.count + span.count, **both)
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

    `span`: of each look; `yes`: its side; `share`: of its span, `weight`: in a fit, (L,). `z`:
    (L,). `known`: whether the looks of a span have one, (S,). `x`: standardised features by
    pooling, turned into the directions with most variance, (L, P); `back`: what turns weights on x
    into those on the features, and the feature's mean.
    """

    span: np.ndarray
    yes: np.ndarray
    share: np.ndarray
    weight: np.ndarray
    z: np.ndarray
    known: np.ndarray
    x: dict[str, np.ndarray]
    back: dict[str, tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, spans: Sequence[LabelledSpan], pause: Pause = no_pause) -> LooksOfSpans:
        """Choose looks of the spans and prepare their features."""
        most = max(1, min(LOOKS, ALL_LOOKS // len(spans)))
        chosen = [np.unique(np.linspace(0, len(one.z) - 1, most).round().astype(int))
                  for one in spans]
        counts = np.array([len(one) for one in chosen])
        span = np.repeat(np.arange(len(spans)), counts)
        z, mean, peak, colours = (np.concatenate([getattr(one, name)[at] for one, at in zip(
            spans, chosen, strict=True)]).astype(float) for name in ("z", "mean", "max", COLOURS))
        x, back = {}, {}
        for pooling in HEADS:
            pause()
            features = pooled(pooling, mean, peak, colours).astype(float)
            x[pooling], back[pooling] = _turned(features)
        share, roots = 1.0 / counts[span], np.sqrt([one.count for one in spans])
        return cls(span, np.array([one.yes for one in spans])[span], share,
                   share * (roots / roots.mean())[span], z, np.isfinite(np.bincount(span, z)), x,
                   back)

    @cached_property
    def temper(self) -> float:
        """What the present logits are multiplied with beforehand: no answer changes by it."""
        return min(1.0, USUAL_LOGIT / max(1e-9, math.sqrt(np.square(self.z).mean())))

    def columns(self, way: Recipe) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return offset (L,), columns (L, P) and their penalties (P,); the last one is 1."""
        parts, penalties = [], []
        offset = np.zeros(len(self.span))
        if way.present:
            offset = self.temper * self.z
            parts.append(offset[:, None] / USUAL_LOGIT)
            penalties.append([CALIBRATION])
        if way.weights is not None:
            parts.append(self.x[way.pooling])
            penalties.append([way.weights] * self.x[way.pooling].shape[1])
        parts.append(np.ones((len(self.span), 1)))
        penalties.append([CALIBRATION if way.present else BIAS_OF_HEAD])
        return offset, np.concatenate(parts, axis=1), np.concatenate(penalties)

    def judged(self, logit: np.ndarray) -> Judged:
        """Return log loss and share right of the spans, each the mean over its looks."""
        signed = np.where(self.yes, logit, -logit)
        losses = np.minimum(np.logaddexp(0, -signed), MOST_LOSS)
        return Judged(np.bincount(self.span, losses * self.share),
                      np.bincount(self.span, (signed > 0) * self.share))

    def plain(self, w: np.ndarray, way: Recipe) -> tuple[float, float, np.ndarray]:
        """Return scale, bias and weight on z and features as they are, of a fit's weights."""
        scale = self.temper * (1 + float(w[0]) / USUAL_LOGIT) if way.present else 0.0
        if way.weights is None:
            return scale, float(w[-1]), np.zeros(0, np.float32)
        turn, middle = self.back[way.pooling]
        weight = turn @ w[int(way.present):-1]
        return scale, float(w[-1]) - float(middle @ weight), weight.astype(np.float32)


def _turned(features: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return standardised features (L, D) in DIRECTIONS at most, and the way back.

    They are divided by the root of D, so that a penalty means the same for all widths.
    """
    middle, spread = features.mean(axis=0), features.std(axis=0)
    gain = np.where(spread > 1e-9, 1.0 / np.maximum(spread, 1e-9), 0.0) / np.sqrt(len(spread))
    rows = (features - middle) * gain
    values, turn = np.linalg.eigh(rows @ rows.T)  # of the looks: there are fewer of them
    kept = [k for k in range(len(values))[::-1][:DIRECTIONS] if values[k] > 1e-9 * values[-1]]
    turn = (turn[:, kept].T @ rows) / np.sqrt(values[kept])[:, None]
    return rows @ turn.T, (gain[:, None] * turn.T, middle)


def _choose(looks: LooksOfSpans, parts: Sequence[tuple[np.ndarray, np.ndarray]],
            ways: Sequence[Recipe], pause: Pause) -> Chosen:
    """Return the way with the least log loss on held-out spans; where it is close, the first."""
    best: tuple[float, Recipe, Judged] | None = None
    first = 0.0
    for way in ways:
        logit = np.empty(len(looks.span))
        for into, out in parts:
            own = np.isin(looks.span, out)
            offset, columns, _ = looks.columns(way)
            logit[own] = offset[own] + columns[own] @ _fit(looks, into, way, pause)
        held = looks.judged(logit)
        loss = float(held.losses.mean())
        if best is None:
            first = loss
        if best is None or loss < best[0] - GREATER_CHANGE:
            best = loss, way, held
    assert best is not None
    return Chosen(best[1], best[2], first)


def _fit(looks: LooksOfSpans, into: np.ndarray, way: Recipe, pause: Pause) -> np.ndarray:
    """Return the weights on `columns` with the least log loss and penalty, by Newton's method."""
    offset, columns, penalty = looks.columns(way)
    own = np.isin(looks.span, into)
    x, offset, sign = columns[own], offset[own], np.where(looks.yes[own], 1.0, -1.0)
    weight = looks.weight[own]
    if not way.present:
        for side in (1.0, -1.0):
            weight[sign == side] *= len(into) / (2 * weight[sign == side].sum())

    def loss_at(at: np.ndarray) -> tuple[float, np.ndarray]:
        signed = sign * (offset + x @ at)
        return float(weight @ np.logaddexp(0, -signed) + (penalty * at * at).sum() / 2), signed

    w = np.zeros(x.shape[1])
    loss, signed = loss_at(w)
    for _ in range(_NEWTON):
        pause()
        p = 0.5 * (1 - np.tanh(signed / 2))  # of the wrong side
        slope = -(weight * sign * p) @ x + penalty * w
        curve = (x * (weight * p * (1 - p))[:, None]).T @ x
        curve[np.diag_indices(len(w))] += penalty
        step, size = np.linalg.solve(curve, slope), 1.0
        while True:  # a full step may go too far where the present answer is sure and wrong
            new, signed_new = loss_at(w - size * step)
            if new <= loss or size < 1e-6:
                break
            size /= 2
        gained, w, loss, signed = loss - new, w - size * step, new, signed_new
        if gained < _NEAR:
            break
    return w
