"""Fit a question to labelled spans of one camera, and say whether that is better.

Three kinds of change are tried:

- `calibration`: a scale of the logits that the question is answered with now, and a bias of each;
- `correction`: these, and weights on the pooled features, or on the colours of the picture, added
  to the logits: the vision encoder has no place for all that there is, and a camera that does not
  move needs none;
- `head`: such weights alone. Tried only of yes/no, where the present answer tells nothing, or is
  not known.

Yes/no has one logit, a choice or score one for each option; an option that hardly any span shows
keeps its own. Each way (a kind of change, what is read, and how strong the penalty is) is a
logistic regression with an L2 penalty on the distance from the present answer (of a head: from
nothing), which is one with a Gaussian prior. The looks of a span share its weight, which grows with
the root of their number: what lasts is seen more often. Where the present answer does not count,
both sides weigh the same: how often somebody corrects an answer says nothing about how often it is
so.

`enter` and `exit` of a yes/no question were fitted to the P(yes) of before: those of a new question
replace them where more of the held-out spans are decided right with them, by more than chance.

The logits of all ways are averaged, by how likely each makes the held-out spans of a
cross-validation: to choose the best of so many by a few spans is to choose by chance. The average
is linear in all that is read, too. Spans that follow each other closely and say the same are one. A
fit is adopted only where on the held-out spans more are right than now and the log loss is better
by more than chance, *and* better than that of an answer that is the same for every picture:
otherwise random labels would count as learned as soon as they make a confident model less so. An
answer that is right on all spans is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..files.listing import listed
from ..frames import NS
from ..questions import Question
from ..runtime.heads import COLOURS, MEAN_MAX_COLOURS, pooled
from ..runtime.learned import HeldOut

#: Fewest spans of each of two answers.
LEAST_A_SIDE = 4

#: Fewest spans of an option for its logit to change by itself.
LEAST_OF_OPTION = 2

#: Spans closer than this, that say the same, are one, seconds.
APART_S = 1.0

#: By how much the log loss of held-out spans must be better than that of one answer for all.
MARGIN_OVER_CONSTANT = 0.08

#: By how much more of the held-out looks must be decided right than wrong for other thresholds.
MARGIN_DECIDED = 0.02

#: And by how many standard errors over spans the log loss, and what is decided, must be better.
ERRORS = 1.0

#: So many held-out spans must be right that guessing comes to that less often than this.
GUESSING = 0.005

#: A way that makes the held-out spans less likely than this share of the likeliest is left out.
LEAST_LIKELY = 0.02

#: Folds of the cross-validation, at most.
FOLDS = 8

#: Looks used of a span, evenly spread; fewer where there are many spans.
LOOKS, ALL_LOOKS = 12, 480

#: Directions of the features that are fitted, those with most variance; for each of many logits.
DIRECTIONS, DIRECTIONS_OF_MANY = 40, 12

#: The logit is made so small that its root mean square is this: a very sure answer that is wrong
#: can be changed, too. No answer changes by it.
USUAL_LOGIT = 5.0

#: A look cannot cost more: how sure a wrong answer is says little.
MOST_LOSS = 4.0

#: `enter` and `exit` of a question that says nothing of them.
USUAL_THRESHOLDS = Question.enter, Question.exit

#: Strengths of the penalties: log loss of one span per half a squared logit of change.
CALIBRATION = 0.05
WEIGHTS = (0.03, 0.1, 0.3, 1.0)
BIAS_OF_HEAD = 0.01

POOLINGS = ("mean_max", COLOURS)
"""What weights are tried on, in the order of MEAN_MAX_COLOURS."""

_NEWTON, _NEAR = 40, 1e-4

Pause = Callable[[], None]


def no_pause() -> None:
    """Go on at once."""


@dataclass(frozen=True, eq=False)
class LabelledSpan:
    """A span of time for which the right answer is known, and its N looks.

    `answer`: its number, of yes/no 0 for yes and 1 for no, else that of the option. `z`: logits as
    answered without learning, float (N, K), NaN where they are not known: K is 1, that of yes, or
    the number of options. `mean`, `max`: pooled features, float (N, D); `colours`: float (N, C), C
    may be 0. Times in nanoseconds. `seen`: looks that lie in it, of which these were kept; 0: these
    are all.
    """

    answer: int
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

    `counts`: spans of each answer. `before`, `after`: on held-out spans. `refusal`: why it is not
    adopted, empty where it is; the rest is then as nothing learned. `thresholds`: None where those
    of the question stay.
    """

    refusal: str
    counts: tuple[int, ...]
    before: HeldOut | None = None
    after: HeldOut | None = None
    scale: float = 1.0
    bias: tuple[float, ...] = (0.0,)
    weight: np.ndarray = field(default_factory=lambda: np.zeros((1, 0), np.float32))
    pooling: str = ""
    thresholds: tuple[float, float] | None = None

    @property
    def spans(self) -> int:
        """Return from how many spans."""
        return sum(self.counts)


@dataclass(frozen=True)
class Recipe:
    """A way to change an answer: with the present logit or not, penalty and pooling of weights."""

    present: bool
    weights: float | None = None
    pooling: str = ""


CHANGES = (Recipe(True), *(Recipe(True, one, pooling)
                           for pooling in POOLINGS for one in reversed(WEIGHTS)))
HEAD_WAYS = tuple(Recipe(False, one, pooling) for pooling in POOLINGS for one in reversed(WEIGHTS))


def fit_spans(spans: Sequence[LabelledSpan], options: Sequence[str] = (), *, head: bool = True,
              thresholds: tuple[float, float] = USUAL_THRESHOLDS, kept: bool = False,
              pause: Pause = no_pause) -> SpanFit:
    """Fit labelled spans and judge the fit on held-out ones.

    Args:
        spans: of one question at one view, any order.
        options: of the question; none for yes/no.
        head: a head may be learned of yes/no; it asks the language model no more.
        thresholds: `enter` and `exit` of the question.
        kept: what was fitted to most of them is in use: it is kept as long as it is better at all.
        pause: called between pieces of work of a few milliseconds.
    """
    spans = together(spans)
    answer = np.array([span.answer for span in spans], int)
    counts = np.bincount(answer, minlength=len(options) or 2)
    empty = SpanFit("", tuple(counts.tolist()))
    if np.sort(counts)[-2] < LEAST_A_SIDE:
        return replace(empty, refusal=_too_few(counts, options))
    if any(np.isinf(one.z).any() or not np.isfinite([one.mean, one.max]).all()
           or not np.isfinite(one.colours).all() for one in spans):
        return replace(empty, refusal="the model's logits or features are not finite")
    looks = LooksOfSpans.of(spans, pause)
    known = looks.known
    if known.sum() < 2 * LEAST_A_SIDE:
        return replace(empty, refusal="too few spans with an answer of the model itself: undo what "
                                      "was learned, and correct again")
    head = head and not options
    if not (head or known.all()):
        return replace(empty, refusal="the language model was not asked in all of these spans")
    parts = list(folds(answer, FOLDS))
    found = _mix(looks, parts, CHANGES, pause) if known.all() else None
    if head and (found is None
                 or constant(counts) - found.first <= MARGIN_OVER_CONSTANT):
        found = _mix(looks, parts, HEAD_WAYS, pause)
    before = looks.judged(np.nan_to_num(looks.z))
    fit = replace(empty, before=before.mean(known), after=found.held.mean())
    if refusal := _refusal(before, found.held, known, fit, kept):
        return replace(fit, refusal=refusal)
    fit = replace(fit, **_plain(looks, found, pause))
    if fit.scale <= 0 and any(way.present for way in found.shares):
        return replace(empty, before=fit.before, after=fit.after, refusal=(
            "an answer would be less likely the more the model says so"))
    return fit if options else replace(
        fit, thresholds=_thresholds(looks, found.logits, thresholds))


def _thresholds(looks: LooksOfSpans, logits: np.ndarray, present: tuple[float, float]
                ) -> tuple[float, float] | None:
    """Return the thresholds of a new question where they decide better, else None."""
    gained = looks.decided(logits, USUAL_THRESHOLDS) - looks.decided(logits, present)
    better = gained.mean() >= MARGIN_DECIDED and _surely(gained)
    return USUAL_THRESHOLDS if better else None


def _surely(gained: np.ndarray) -> bool:
    """Tell whether spans gain by more than chance, (S,)."""
    return bool(gained.mean() > ERRORS * gained.std(ddof=1) / math.sqrt(len(gained)))


def _too_few(counts: np.ndarray, options: Sequence[str]) -> str:
    if not options:
        return (f"{counts[0]} spans say yes and {counts[1]} no, and {LEAST_A_SIDE} of each are "
                "needed")
    there = listed(f"{name}: {count}" for name, count in zip(options, counts, strict=True))
    return f"{LEAST_A_SIDE} spans of each of two answers are needed at least, and there are {there}"


@dataclass(frozen=True, eq=False)
class Judged:
    """Log loss, capped, and share of right looks of each of S spans, float (S,)."""

    losses: np.ndarray
    right: np.ndarray

    def mean(self, of: np.ndarray | slice = slice(None)) -> HeldOut:
        """Return the means over some spans."""
        return HeldOut(float(self.losses[of].mean()), float(self.right[of].mean()))


@dataclass(frozen=True, eq=False)
class Mix:
    """The ways to be averaged, with their shares, and how that does on held-out spans.

    `logits`: of held-out looks, (L, K). `first`: log loss of the first way.
    """

    shares: dict[Recipe, float]
    held: Judged
    logits: np.ndarray
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
    if constant(fit.counts) - fit.after.log_loss <= (0.0 if kept else MARGIN_OVER_CONSTANT):
        return f"it would be no better than one answer for all on held-out spans ({numbers})"
    if gained.mean() <= 0:
        return f"it would be no better than now on held-out spans ({numbers})"
    if more.mean() < 0 or (more.mean() < 1e-9 and not kept):
        return f"it would not be right more often on held-out spans ({shares})"
    if kept:
        return ""
    right, of = fit.after.accuracy * fit.spans, fit.spans
    if by_guessing(right, of, max(fit.counts) / of) > GUESSING:
        return f"{right:.0f} of {of} held-out spans right may be by chance ({numbers})"
    if not _surely(gained):
        return f"it may be better than now by chance only ({numbers}; right {shares})"
    return ""


def constant(counts: Sequence[int] | np.ndarray) -> float:
    """Return the log loss of probabilities that are the same for all spans, so many an answer."""
    share = np.asarray(counts, float) / np.sum(counts)
    return float(-sum(one * math.log(one) for one in share if one))


def by_guessing(right: float, of: int, share: float = 0.5) -> float:
    """Return how often guesses that are right with a chance of `share` are right so many times."""
    return sum(math.comb(of, k) * share ** k * (1 - share) ** (of - k)
               for k in range(math.ceil(right - 1e-9), of + 1))


def together(spans: Sequence[LabelledSpan]) -> list[LabelledSpan]:
    """Return the spans in order of time, those that follow closely and say the same made one."""
    joined: list[LabelledSpan] = []
    for span in sorted(spans, key=lambda one: (one.start_ns, one.end_ns)):
        last = joined[-1] if joined else None
        if last and last.answer == span.answer and span.start_ns - last.end_ns < APART_S * NS:
            both = {name: np.concatenate([getattr(last, name), getattr(span, name)])
                    for name in ("z", "mean", "max", COLOURS)}
            joined[-1] = replace(last, end_ns=max(last.end_ns, span.end_ns),
                                 seen=last.count + span.count, **both)
        else:
            joined.append(span)
    return joined


def folds(answer: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (in, out) indices of spans, as many folds as leave two answers in and out of each."""
    rng = np.random.default_rng(0)
    sides = [rng.permutation(np.flatnonzero(answer == side)) for side in np.unique(answer)]
    count = min(most, sorted(map(len, sides))[-2])
    if count < 2:
        return
    for k in range(count):
        out = np.concatenate([side[k::count] for side in sides])
        yield np.setdiff1d(np.arange(len(answer)), out), out


@dataclass(frozen=True, eq=False)
class Design:
    """What a fit is linear in: logits = offset + columns @ w, with a penalty on each of w.

    offset: (L, K); columns: (L, K, M); penalty: (M,). `even`: all answers weigh the same.
    """

    offset: np.ndarray
    columns: np.ndarray
    penalty: np.ndarray
    even: bool


@dataclass(frozen=True, eq=False)
class LooksOfSpans:
    """The looks of all spans, L of S spans, ready to be fitted.

    `span`: of each look; `right`: which of the K logits is that of the right answer, float (L, K),
    none for no; `share`: of its span, `weight`: in a fit, (L,). `z`: (L, K), of many their mean
    taken off. `known`: whether the looks of a span have one, (S,). `moves`: logits that may change
    by themselves, (K,). `x`: standardised features by pooling, turned into the directions with most
    variance, (L, P); `back`: what turns weights on x into those on the features, and the feature's
    mean.
    """

    span: np.ndarray
    right: np.ndarray
    share: np.ndarray
    weight: np.ndarray
    z: np.ndarray
    known: np.ndarray
    moves: np.ndarray
    x: dict[str, np.ndarray]
    back: dict[str, tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, spans: Sequence[LabelledSpan], pause: Pause = no_pause) -> LooksOfSpans:
        """Choose looks of the spans and prepare their features."""
        most = max(1, min(LOOKS, ALL_LOOKS // len(spans)))
        chosen = [np.unique(np.linspace(0, len(one.z) - 1, most).round().astype(int))
                  for one in spans]
        numbers = np.array([len(one) for one in chosen])
        span = np.repeat(np.arange(len(spans)), numbers)
        z, mean, peak, colours = (np.concatenate([getattr(one, name)[at] for one, at in zip(
            spans, chosen, strict=True)]).astype(float) for name in ("z", "mean", "max", COLOURS))
        x, back = {}, {}
        for pooling in POOLINGS:
            pause()
            features = pooled(pooling, mean, peak, colours).astype(float)
            most = DIRECTIONS if z.shape[1] == 1 else DIRECTIONS_OF_MANY
            x[pooling], back[pooling] = _turned(features, most)
        share, roots = 1.0 / numbers[span], np.sqrt([one.count for one in spans])
        answer = np.array([one.answer for one in spans])
        right = np.arange(z.shape[1]) == answer[span, None]
        moves = np.ones(1, bool)
        if z.shape[1] > 1:
            z = z - z.mean(axis=1, keepdims=True)
            moves = np.bincount(answer, minlength=z.shape[1]) >= LEAST_OF_OPTION
        return cls(span, right.astype(float), share, share * (roots / roots.mean())[span], z,
                   np.isfinite(np.bincount(span, z.sum(axis=1))), moves, x, back)

    @cached_property
    def temper(self) -> float:
        """What the present logits are multiplied with beforehand: no answer changes by it."""
        return min(1.0, USUAL_LOGIT / max(1e-9, math.sqrt(np.square(self.z).mean())))

    def design(self, way: Recipe) -> Design:
        """Return what a way is linear in: scale, weights of each logit, bias of each, as wanted."""
        own = np.diag(self.moves.astype(float))  # (K, K)
        offset = self.temper * self.z if way.present else np.zeros(self.z.shape)
        parts, penalties = [], []
        if way.present:
            parts.append(offset[..., None] / USUAL_LOGIT)
            penalties.append([CALIBRATION])
        if way.weights is not None:
            x = self.x[way.pooling]
            parts.append((own[None, :, :, None] * x[:, None, None]).reshape(*self.z.shape, -1))
            penalties.append([way.weights] * parts[-1].shape[2])
        parts.append(np.broadcast_to(own, (len(self.z), *own.shape)))
        penalties.append([CALIBRATION if way.present else BIAS_OF_HEAD] * len(own))
        return Design(offset, np.concatenate(parts, axis=2), np.concatenate(penalties),
                      not way.present)

    def judged(self, logits: np.ndarray) -> Judged:
        """Return log loss and share right of the spans, each the mean over its looks."""
        losses = np.minimum(_losses(logits, self.right), MOST_LOSS)
        said = logits > 0 if logits.shape[1] == 1 else logits == logits.max(axis=1, keepdims=True)
        right = (said == (self.right > 0)).all(axis=1)
        return Judged(np.bincount(self.span, losses * self.share),
                      np.bincount(self.span, right * self.share))

    def decided(self, logits: np.ndarray, thresholds: tuple[float, float]) -> np.ndarray:
        """Return the share of looks decided right less that decided wrong, of each span (S,).

        Of yes/no, by `enter` and `exit`; what lies between them is not decided.
        """
        p = 1 / (1 + np.exp(-np.clip(logits[:, 0], -50, 50)))
        said = (p >= thresholds[0]).astype(float) - (p <= thresholds[1])
        return np.bincount(self.span, said * (2 * self.right[:, 0] - 1) * self.share)

    def plain(self, w: np.ndarray, way: Recipe) -> tuple[float, tuple[float, ...], np.ndarray]:
        """Return scale, bias and weight on z and features as they are, of a fit's weights."""
        count = self.z.shape[1]
        scale = self.temper * (1 + float(w[0]) / USUAL_LOGIT) if way.present else 0.0
        bias = w[-count:]
        if way.weights is None:
            return scale, tuple(bias.tolist()), np.zeros((count, 0), np.float32)
        turn, middle = self.back[way.pooling]
        weight = w[int(way.present):-count].reshape(count, -1) @ turn.T
        return scale, tuple((bias - weight @ middle).tolist()), weight.astype(np.float32)


def _losses(logits: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the log loss of each look (L,), of logits and which is right (L, K); see LooksOfSpans.

    One logit is that of yes, beside a 0 for no.
    """
    top = (np.logaddexp(0, logits[:, 0]) if logits.shape[1] == 1
           else np.logaddexp.reduce(logits, axis=1))
    return top - (logits * right).sum(axis=1)


def _turned(features: np.ndarray, most: int) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return standardised features (L, D) in so many directions at most, and the way back.

    They are divided by the root of D, so that a penalty means the same for all widths.
    """
    middle, spread = features.mean(axis=0), features.std(axis=0)
    gain = np.where(spread > 1e-9, 1.0 / np.maximum(spread, 1e-9), 0.0) / np.sqrt(len(spread))
    rows = (features - middle) * gain
    few = len(rows) < rows.shape[1]  # the same directions follow from the smaller of the two
    values, turn = np.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
    kept = [k for k in range(len(values))[::-1][:most] if values[k] > 1e-9 * values[-1]]
    turn = turn[:, kept].T
    if few:
        turn = turn @ rows / np.sqrt(values[kept])[:, None]
    return rows @ turn.T, (gain[:, None] * turn.T, middle)


def _mix(looks: LooksOfSpans, parts: Sequence[tuple[np.ndarray, np.ndarray]],
         ways: Sequence[Recipe], pause: Pause) -> Mix:
    """Fit each way, and return their average: by how likely they make the held-out spans."""
    ways = [way for way in ways if not way.pooling or looks.x[way.pooling].size]
    logits = np.empty((len(ways), *looks.z.shape))
    for way, own in zip(ways, logits, strict=True):
        design = looks.design(way)
        for into, out in parts:
            held = np.isin(looks.span, out)
            w = _fit(looks, design, into, pause)
            own[held] = design.offset[held] + design.columns[held] @ w
    losses = np.array([looks.judged(own).losses.mean() for own in logits])
    share = np.exp(-len(looks.known) * (losses - losses.min()))
    share[share < LEAST_LIKELY] = 0.0
    share /= share.sum()
    mean = np.tensordot(share, logits, 1)
    return Mix({way: one for way, one in zip(ways, share.tolist(), strict=True) if one},
               looks.judged(mean), mean, float(losses[0]))


def _plain(looks: LooksOfSpans, mix: Mix, pause: Pause) -> dict[str, Any]:
    """Return scale, bias, weight and pooling of ways fitted to all spans, and averaged."""
    count = looks.z.shape[1]
    scale, bias, weights = 0.0, np.zeros(count), dict[str, np.ndarray]()
    everything = np.arange(len(looks.known))
    for way, share in mix.shares.items():
        w = _fit(looks, looks.design(way), everything, pause)
        own_scale, own_bias, own_weight = looks.plain(w, way)
        scale, bias = scale + share * own_scale, bias + share * np.array(own_bias)
        if way.pooling:
            weights[way.pooling] = weights.get(way.pooling, 0.0) + share * own_weight
    read = [name for name in POOLINGS if name in weights]
    weight = np.concatenate([np.zeros((count, 0)), *(weights[name] for name in read)], axis=1)
    return {"scale": scale, "bias": tuple(bias.tolist()), "weight": weight.astype(np.float32),
            "pooling": MEAN_MAX_COLOURS if len(read) > 1 else "".join(read)}


def _fit(looks: LooksOfSpans, design: Design, into: np.ndarray, pause: Pause) -> np.ndarray:
    """Return the weights on the columns with the least log loss and penalty, by Newton's method."""
    own = np.isin(looks.span, into)
    x, offset, right, weight = (one[own] for one in (
        design.columns, design.offset, looks.right, looks.weight))
    penalty, flat = design.penalty, x.reshape(-1, x.shape[2])
    if design.even:
        for side in (0.0, 1.0):
            weight[right[:, 0] == side] *= len(into) / (2 * weight[right[:, 0] == side].sum())

    def loss_at(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        logits = offset + x @ at
        losses = _losses(logits, right)
        return float(weight @ losses + (penalty * at * at).sum() / 2), logits, losses

    w = np.zeros(x.shape[2])
    loss, logits, losses = loss_at(w)
    for _ in range(_NEWTON):
        pause()
        p = np.exp(logits - (losses + (logits * right).sum(axis=1))[:, None])
        slope = penalty * w - ((right - p) * weight[:, None]).reshape(-1) @ flat
        mean = (p[..., None] * x).sum(axis=1)
        curve = (flat * (p * weight[:, None]).reshape(-1, 1)).T @ flat
        curve -= (mean * weight[:, None]).T @ mean
        curve[np.diag_indices(len(w))] += penalty
        step, size = np.linalg.solve(curve, slope), 1.0
        while True:  # a full step may go too far where the present answer is sure and wrong
            new, *rest = loss_at(w - size * step)
            if new <= loss or size < 1e-6:
                break
            size /= 2
        gained, w, loss, (logits, losses) = loss - new, w - size * step, new, rest
        if gained < _NEAR:
            break
    return w
