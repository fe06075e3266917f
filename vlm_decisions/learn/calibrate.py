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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..decision import YES
from ..files.atomic import write_text
from ..files.columns import by_row, number
from ..files.listing import listed
from ..kinds import kind_of
from ..question_book import QuestionBook
from ..questions import Question
from ..runtime.heads import Head, answering_head
from ..sources.labels import LabelError, questions_of, read_labels
from ..sources.truth import Truth
from .fit_distribution import fit_distribution
from .fit_yes_no import fit_question
from .fitted import AnswersError, CalibrationError, Fitted, check_answers, check_options
from .measures import calibration_of
from .predictions import (
    SETTLED_S,
    LabelledRecording,
    Predictions,
    labelled,
    predict,
    simulated_desks,
)
from .question_file import rewrite
from .recordings import Recording, check_labels
from .thresholds import Costs


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
        from ..engine import load

        engine = load(model)
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
    rows = [("question", "tier", "scale", "bias", "enter", "exit", "ECE", "after", "cost", "after")]
    for name, row in result["questions"].items():
        b, a = row["before"], row["after"]
        rows.append((name, row["tier"], number(row.get("scale")), number(row.get("bias")),
                     number(row.get("enter"), 2), number(row.get("exit"), 2), number(b["ece"]),
                     number(a["ece"]), number(b["cost"]), number(a["cost"])))
    heading, *lines = by_row(rows, left=(0, 1))
    print("ECE and cost per event: on held-out sources, before and after", *heading, sep="\n")
    for own, row in zip(lines, result["questions"].values(), strict=True):
        print(*own, sep="\n")
        for note in _notes(row):
            print(f"    {note}")
    for when in ("before", "after"):
        if when in result:
            print(f"all questions, {when:<6}: " + ", ".join(
                f"{name} {value:.4f}" for name, value in result[when].items()))
    for name, why in result["unfitted"].items():
        print(f"{name} keeps its values: {why}")
    if result["untouched"]:
        print(f"not calibrated: {', '.join(result['untouched'])}")


def _notes(row: dict[str, Any]) -> Iterator[str]:
    """Yield what is to be said of a question beside its numbers."""
    if row["stops"] is not None:
        bias = f", bias {row['shallow_bias']:g}" if "shallow_bias" in row else ""
        yield (f"early exit: scale {row['shallow_scale']:g}{bias}, margin "
               f"{row['shallow_margin']:g}: {100 * row['stops']:.0f}% stop there")
    if "switch_hz" in row:
        yield f"switch_hz {row['switch_hz']:g}"
    if row.get("thresholds"):  # without, they are half way
        yield f"thresholds {', '.join(f'{at:g}' for at in row['thresholds'])}"
    for names, why in row["kept"].items():
        yield f"{names} not changed: {why}"
    if row["before"]["auroc"] is not None and row["before"]["auroc"] < 0.6:
        yield (f"the model hardly tells yes from no here (AUROC {row['before']['auroc']:.2f}): "
               "change the wording, or train a head")


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
    check_labels(labels, recordings, skip_unlabelled=skip_unlabelled)
    named = questions_of(labels)
    for name in named:
        line = min(span.line for truth in labels.values() for span in truth.spans.get(name, ()))
        if name not in book:
            raise LabelError(f"{labels_file}:{line}: there is no question {name!r} in the file; "
                             f"it has: {listed(q.id for q in book)}")
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


def _check_truth(question: Question, truths: Sequence[Truth]) -> None:
    """Raise AnswersError where the truth alone shows that a question cannot be fitted."""
    kind = kind_of(question)
    spans = [span for truth in truths for name in kind.names(question)
             for span in truth.spans.get(name, ()) if span.end_s - span.start_s > SETTLED_S]
    if question.options and kind.exclusive:
        check_options({span.answer for span in spans})
    else:
        yes = {span.scene for span in spans if span.answer == YES}
        check_answers(yes, {span.scene for span in spans if span.answer != YES})


def _pooled(done: Sequence[Fitted], when: str) -> dict[str, float | None]:
    p = np.concatenate([one.held[when] for one in done])
    told = np.concatenate([one.held["truth"] for one in done])
    return {k: v for k, v in calibration_of(p, told).items() if k != "auroc"}
