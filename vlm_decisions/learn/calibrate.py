"""`vlm-decisions calibrate`: fit questions to a user's recordings, or to the simulated desk.

A model's P(yes) ranks well but is often badly calibrated. Platt scaling of the yes/no logit
difference corrects the language model, per question: P(yes) = sigmoid(scale * difference + bias).
(Heads have a temperature of their own, and are not changed.) Then `enter` and `exit` are fitted to
the cost of late, missed and false answers (see `thresholds`), on the smoothed P(yes) of the tier
that answers; with `smoothing: filter` its switching rate, too. Of `depth: auto`, the calibration of
the early exit and the margin from which on its answer stands are fitted: the least margin with
which no more answers are wrong than at full depth (see `margins`).

An any_of is fitted as a yes/no question that is asked of all its labels: they share scale, bias,
enter and exit, and stop early together. Of a choice or score `scale` is fitted, to the log loss of
the right option, and the early exit; of a score the `thresholds` between its levels, too, as those
of yes/no questions are. Its enter and exit stay.

Each question is fitted on two thirds of the sources. Both fits are regularised towards the
question's present values, the more so the less data there is. Values that do not improve the
results on the other third of the sources are not changed. A question that cannot be fitted keeps
its values; the others are fitted all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..decision import YES
from ..files.atomic import write_text
from ..kinds import Score, kind_of, level_values
from ..questions import Question, QuestionBook
from ..runtime.heads import Head, answering_head, deciding_head
from ..sources.labels import LabelError, check_sources, questions_of, read_labels
from ..sources.truth import Truth
from .margins import least_margin
from .measures import calibration_of, log_loss
from .predictions import (
    SETTLED_S,
    LabelledRecording,
    Predictions,
    labelled,
    predict,
    simulated_desks,
)
from .probes import folds_of
from .question_file import rewrite
from .recordings import Recording
from .thresholds import (
    Costs,
    ProbabilityTrack,
    event_cost,
    filtering,
    fit_filter,
    fit_level,
    fit_thresholds,
    smoothed_already,
    smoothing_of,
)

LEAST_SCALE = 0.05  # a model that cannot tell yes from no would get 0
MOST_SCALE, MOST_BIAS = 1000.0, 1000.0  # limits of a question
PULL = 0.01  # of a choice's or score's scale: log loss per squared logarithm of its change
#: Strengths of the regularisation to try: log loss per (logit squared / 2).
STRENGTHS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
NOT_FINITE = "the model's logits are not finite (NaN or infinite): load it in float32"
TOO_SHORT = f"no label lasts long enough ({SETTLED_S:g} s after a change, and a second of history)"


class CalibrationError(ValueError):
    """Questions or labels that nothing can be fitted on. The message says what to change."""


class AnswersError(CalibrationError):
    """A question whose answers are too few sources' for a part of them to be held out."""


@dataclass
class Fitted:
    """What was fitted to one question, and its results on held-out sources.

    Attributes:
        question: as it was.
        tier: `heads` or `vlm`, who answers.
        values: scale and bias (if the language model is asked), switch_hz (if it is filtered),
            enter and exit, as they are now. Of a choice or score scale and, of a score, thresholds;
            of each with an early exit the values of that.
        stops: share of the held-out samples that stop at the early exit, None without one.
        kept: names of values that were not changed ("scale, bias"; "enter, exit") and why.
        before: auroc, ece, brier and log_loss of the language model's P(yes), None if it is not
            asked, and the `cost` per event of the answers, with the question's values. Of a choice
            or score: ece and brier of the likeliest option, log_loss of the right one, `accuracy`,
            and of a score `mae`, the mean error of the expected value, and `cost`, the mean over
            its thresholds of the cost of being on the wrong side; the others are None.
        after: the same with the fitted values.
        sources: how many were held out.
        held: truth, and P(yes) before and after, of the held-out samples.
    """

    question: Question
    tier: str
    values: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    before: dict[str, float | None] = field(default_factory=dict)
    after: dict[str, float | None] = field(default_factory=dict)
    sources: int = 0
    held: dict[str, np.ndarray] = field(default_factory=dict)
    stops: float | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """Values that differ from the question's."""
        return {k: v for k, v in self.values.items() if v != getattr(self.question, k)}


def calibrate(model: str, questions: Path, out: Path, *, recordings: Sequence[Recording] = (),
              labels_file: Path | None = None, clips: int = 100, heads: Sequence[Head] = (),
              skip: Sequence[str] = (), costs: Costs = Costs(),
              cache: Path | None = None, skip_unlabelled: bool = False,
              engine: Any = None) -> dict[str, Any]:
    """Fit the questions of a file and write it, otherwise unchanged, to `out`.

    Args:
        model: embedded name, local path or hub name.
        questions: YAML file of questions.
        out: YAML file to write; may be the same.
        recordings: a user's own; without them the simulated desk is used.
        labels_file: CSV of their labels.
        clips: number of simulated desks.
        heads: those that the runtime will have.
        skip: ids of questions that are not changed.
        costs: what wrong answers cost.
        cache: folder where predictions are cached.
        skip_unlabelled: leave out recordings that have no label.
        engine: loaded already, instead of `model`.

    Returns:
        questions: by id the tier, the values now, `kept` (which were not changed and why), `before`
        and `after` on held-out sources. before, after: ece, brier, log_loss over all questions.
        unfitted: by id why a question could not be fitted; it keeps its values.
        untouched: ids of the other questions that were not calibrated.

    Raises:
        CalibrationError, LabelError, QuestionError: what is wrong, by name; where no question can
            be fitted, before the model is asked as far as the truth tells.
    """
    text = questions.read_text(encoding="utf-8-sig")
    book = QuestionBook.loads(text, str(questions))
    for name in skip:
        book.get(name)
    known, fit = _known(book, recordings, labels_file, clips, skip, skip_unlabelled)
    for question in fit:
        if question.tier == "heads" and answering_head(question, heads) is None:
            raise CalibrationError(
                f"question {question.id!r} is answered by heads only and there is no head "
                f"{question.head or question.id!r} for this model: train one, or --skip it")
    advice = ("add recordings that show more (parts of one long recording may be told apart by a "
              "column `clip`)" if recordings else
              f"these {clips} simulated desks do not show enough of it; more --clips may")

    def each(work: Callable[[Question], Any]) -> tuple[list[Any], dict[str, str]]:
        """Return what `work` makes of each question to fit, and by id why it could not."""
        done, failed = [], {}
        for question in fit:
            try:
                done.append(work(question))
            except CalibrationError as error:
                few = isinstance(error, AnswersError)
                failed[question.id] = f"{error}: {advice}" if few else str(error)
        if fit and not done:
            name, why = next(iter(failed.items()))
            raise CalibrationError(f"no question can be fitted: question {name!r}: {why}, or leave "
                                   f"it out with --skip {name}")
        return done, failed

    each(lambda question: _check_truth(question, [one.truth for one in known]))
    if engine is None:
        from ..engine.engine import Engine

        engine = Engine.load(model)
    # All are asked, so that the cache can be used whatever is skipped the next time.
    told = {name for one in known for name in one.truth.ids}
    asked = [q for q in book if not q.options or q.id in told]
    predictions = predict(engine, known, asked, heads, cache)
    done, unfitted = each(lambda question: fit_any(question, predictions, heads, costs))
    changes = {one.question.id: one.changes for one in done}
    write_text(out, rewrite(text, changes, str(questions)))
    asked = [one for one in done if one.held]
    pooled = {when: _pooled(asked, when) for when in ("before", "after")} if asked else {}
    return {
        "questions": {one.question.id: {
            "tier": one.tier, **one.values, "kept": one.kept, "before": one.before,
            "after": one.after, "stops": one.stops, "held_out_sources": one.sources}
            for one in done},
        **pooled,
        "unfitted": unfitted,
        "untouched": [q.id for q in book if q.id not in changes and q.id not in unfitted],
    }


def print_calibration(result: dict[str, Any]) -> None:
    """Print the result as a table."""
    print(f"{'question':<24} {'tier':<5} {'scale':>7} {'bias':>7} {'enter':>5} {'exit':>5}"
          f"   {'ECE':^13}   cost per event   (held out: before, after)")

    def number(value: float | None, form: str) -> str:
        return "-".rjust(int(form.split(".")[0])) if value is None else f"{value:{form}}"

    for name, row in result["questions"].items():
        b, a = row["before"], row["after"]
        print(f"{name:<24} {row['tier']:<5} {number(row.get('scale'), '7.3f')} "
              f"{number(row.get('bias'), '7.3f')} {number(row.get('enter'), '5.2f')} "
              f"{number(row.get('exit'), '5.2f')}   "
              f"{number(b['ece'], '6.3f')} {number(a['ece'], '6.3f')}   "
              f"{number(b['cost'], '6.3f')} {number(a['cost'], '6.3f')}")
        if row["stops"] is not None:
            print(f"{'':<24} early exit: scale {row['shallow_scale']:g}, bias "
                  f"{row['shallow_bias']:g}, margin {row['shallow_margin']:g}: "
                  f"{100 * row['stops']:.0f}% stop there")
        if "switch_hz" in row:
            print(f"{'':<24} switch_hz {row['switch_hz']:g}")
        if "thresholds" in row:
            print(f"{'':<24} thresholds {', '.join(f'{at:g}' for at in row['thresholds'])}")
        for names, why in row["kept"].items():
            print(f"{'':<24} {names} not changed: {why}")
        if row["before"]["auroc"] is not None and row["before"]["auroc"] < 0.6:
            print(f"{'':<24} the model hardly tells yes from no here (AUROC "
                  f"{row['before']['auroc']:.2f}): change the wording, or train a head")
    for when in ("before", "after"):
        if when in result:
            print(f"all questions, {when:<6}: " + ", ".join(
                f"{name} {value:.4f}" for name, value in result[when].items()))
    for name, why in result["unfitted"].items():
        print(f"{name} keeps its values: {why}")
    if result["untouched"]:
        print(f"not calibrated: {', '.join(result['untouched'])}")


def _known(book: QuestionBook, recordings: Sequence[Recording], labels_file: Path | None,
           clips: int, skip: Sequence[str], skip_unlabelled: bool) -> tuple[
               list[LabelledRecording], list[Question]]:
    """Return the sources and the questions to fit on them."""
    able = [q for q in book if q.id not in skip]
    if labels_file is None:
        if recordings:
            raise CalibrationError("recordings without labels: give labels with --labels FILE")
        known = simulated_desks(clips)
        strange = [q.id for q in able if known and q.id not in known[0].truth.ids]
        if strange:
            raise CalibrationError(
                f"no facts of the simulated desk: {', '.join(strange)}; give recordings and "
                "--labels for them, or leave them out with --skip")
        if able:
            known = [replace(one, truth=one.truth.check(able, ignore_unknown=True))
                     for one in known]
        return known, able
    if not recordings:
        raise CalibrationError(f"{labels_file} labels recordings: give them with --videos, --dir "
                               "or --bag")
    labels = read_labels(labels_file, book)
    check_sources(labels, [r.name for r in recordings], skip_unlabelled=skip_unlabelled)
    named = questions_of(labels)
    for name in named:
        line = min(span.line for truth in labels.values() for span in truth.spans.get(name, ()))
        if name not in book:
            raise LabelError(f"{labels_file}:{line}: there is no question {name!r} in the file; "
                             f"it has: {', '.join(q.id for q in book)}")
    fit = [q for q in able if q.id in named]
    if not fit:
        raise CalibrationError(f"{labels_file} labels none of the questions to calibrate")
    return labelled(recordings, labels), fit


def fit_any(question: Question, predictions: Sequence[Predictions], heads: Sequence[Head] = (),
            costs: Costs = Costs()) -> Fitted:
    """Fit a question of any kind: see `fit_question` and `fit_distribution`."""
    if not kind_of(question).exclusive:
        apart = [label for one in predictions for label in one.of_labels(question)]
        return fit_question(question, apart, heads, costs)
    return fit_distribution(question, predictions, costs) if question.options else fit_question(
        question, predictions, heads, costs)


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
    _check_options({question.options[k] for k in np.unique(right)})
    apart = _held_out(source, right == np.bincount(right).argmax())
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
    held = _held_out(source[settled], truth[settled] == 1)
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
        p = {pair: _sigmoid(pair[0] * difference[test] + pair[1])
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
        if (_log_losses(x[test], answer[test], scale, bias).mean()
                >= _log_losses(x[test], answer[test], *present).mean()):
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
        p = one.head_p[name] if head else _sigmoid(scale * one.difference[name] + bias)
        there = np.isfinite(p)  # NaN while the window is too short for a motion head
        if (own & there).any():
            fresh = one.fresh.copy()
            fresh[1:] |= there[1:] & ~there[:-1]
            found.append(ProbabilityTrack(
                one.t_s[there], p[there], np.where(own, one.truth[name], -1)[there], fresh[there],
                None if one.anew is None else one.anew[there]))
    return found


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
    loss[-1] = _log_losses(difference, answer, scale, bias)
    for into, test in folds:
        for k, strength in enumerate(STRENGTHS):
            fit = _platt(difference[into], answer[into], scale, bias, strength)
            loss[k, test] = _log_losses(difference[test], answer[test], *fit)
    of = [source == one for one in np.unique(source)]
    losses = np.array([[row[own].mean() for own in of] for row in loss])  # (strengths, sources)
    best = int(np.argmin(losses.mean(axis=1)))
    worse = losses - losses[best]
    error = worse.std(axis=1, ddof=1) / np.sqrt(len(of))
    strongest = int(np.flatnonzero(worse.mean(axis=1) <= error)[-1])
    if strongest == len(STRENGTHS):
        return scale, bias
    fitted = _platt(difference, answer, scale, bias, STRENGTHS[strongest])
    return round(fitted[0], 3), round(fitted[1], 3)


def _platt(difference: np.ndarray, answer: np.ndarray, scale: float, bias: float,
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
        slope = -sign * _sigmoid(-z)
        gradient = np.array([(slope * x).mean(), slope.mean()]) + strength * (at - start)
        return np.logaddexp(0, -z).mean() + strength / 2 * ((at - start) ** 2).sum(), gradient

    bounds = [(LEAST_SCALE * deviation, MOST_SCALE * deviation), (None, None)]
    slope, level = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    scale = slope / deviation
    return float(scale), float(np.clip(level - scale * mean, -MOST_BIAS, MOST_BIAS))


def _log_losses(difference: np.ndarray, answer: np.ndarray, scale: float,
                bias: float) -> np.ndarray:
    return np.logaddexp(0, np.where(answer, -1.0, 1.0) * (scale * difference + bias))


def _held_out(source: np.ndarray, answer: np.ndarray) -> np.ndarray:
    """Return the sources of the third that is held out. Raises AnswersError."""
    _check_answers(set(source[answer]), set(source[~answer]))
    folds = folds_of(source, answer, 3)
    if not folds:
        raise AnswersError("there is no part of the sources to hold out such that it and the rest "
                           "both have yes and no")
    return np.unique(source[folds[0][1]])


def _check_truth(question: Question, truths: Sequence[Truth]) -> None:
    """Raise AnswersError where the truth alone shows that a question cannot be fitted."""
    kind = kind_of(question)
    spans = [span for truth in truths for name in kind.names(question)
             for span in truth.spans.get(name, ()) if span.end_s - span.start_s > SETTLED_S]
    if question.options and kind.exclusive:
        _check_options({span.answer for span in spans})
    else:
        yes = {span.scene for span in spans if span.answer == YES}
        _check_answers(yes, {span.scene for span in spans if span.answer != YES})


def _check_answers(yes: set[Any], no: set[Any]) -> None:
    """Take the sources that show yes, and those that show no. Raises AnswersError."""
    if not yes and not no:
        raise AnswersError(TOO_SHORT)
    if not yes or not no:
        raise AnswersError(f"everything says {'yes' if yes else 'no'} and both answers are needed")
    if min(len(yes), len(no)) < 2:
        raise AnswersError(f"yes is seen in {len(yes)} of the sources and no in {len(no)}, and "
                           "each is needed in two or more, so that one can be held out")


def _check_options(answers: set[str]) -> None:
    """Take the options that are right somewhere. Raises AnswersError."""
    if not answers:
        raise AnswersError(TOO_SHORT)
    if len(answers) == 1:
        raise AnswersError(f"everything says {answers.pop()!r} and another option is needed, too")


def _pooled(done: Sequence[Fitted], when: str) -> dict[str, float | None]:
    p = np.concatenate([one.held[when] for one in done])
    told = np.concatenate([one.held["truth"] for one in done])
    return {k: v for k, v in calibration_of(p, told).items() if k != "auroc"}


def _sigmoid(z: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return expit(z)
