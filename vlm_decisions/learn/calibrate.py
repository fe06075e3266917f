"""`vlm-decisions calibrate`: fit questions to what a camera shows, or to the simulated desk.

A model's P(yes) ranks better than it decides. Platt scaling on the yes/no logit difference puts
the language model's right, per question: P(yes) = sigmoid(scale * difference + bias). (Heads have a
temperature of their own, and are left alone.) Then `enter` and `exit` are fitted on the cost of
late, missed and false answers (see `thresholds`), on the smoothed P(yes) of whatever tier answers.

Each question is fitted on two thirds of the sources and measured on the third that was held out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..questions import Question, QuestionBook
from ..runtime.heads import Head, answering_head
from .heads import folds_of
from .labels import LabelError, check_sources, read_labels
from .listening import Heard, Watched, desks, labelled, listen
from .measures import calibration_of
from .question_file import rewrite
from .recordings import Recording
from .thresholds import FLICKER, PATIENCE_S, Track, event_cost, fit_thresholds

LEAST_SCALE = 0.05  # a model that does not tell yes from no would get a scale of 0


class CalibrationError(ValueError):
    """Questions or labels that nothing can be fitted on; the message says what to change."""


@dataclass
class Fitted:
    """What was fitted to one question and how it does on held-out sources.

    before, after: auroc, ece, brier, log_loss of the language model's P(yes), and the `cost` per
    event of the answers; None where the language model is not asked. sources, events: held out.
    """

    question: Question
    tier: str
    changes: dict[str, float] = field(default_factory=dict)
    before: dict[str, float | None] = field(default_factory=dict)
    after: dict[str, float | None] = field(default_factory=dict)
    sources: int = 0
    held: dict[str, np.ndarray] = field(default_factory=dict)


def calibrate(model: str, questions: Path, out: Path, *, recordings: Sequence[Recording] = (),
              labels_file: Path | None = None, clips: int = 100, heads: Sequence[Head] = (),
              skip: Sequence[str] = (), patience_s: float = PATIENCE_S, flicker: float = FLICKER,
              cache: Path | None = None, skip_unlabelled: bool = False,
              engine: Any = None) -> dict[str, Any]:
    """Fit the yes/no questions of a file and write it, otherwise unchanged, to `out`.

    Args:
        model: embedded name, local path or hub name.
        questions: YAML file of them.
        out: YAML file to write; may be the same.
        recordings: a user's own; the simulated desk without them.
        labels_file: CSV of their labels.
        clips: desks to ask about.
        heads: those that the runtime will have.
        skip: ids to leave as they are.
        patience_s: wrong for so long costs as much as a missed event.
        flicker: cost of a change to a wrong answer.
        cache: folder where answers are kept between runs.
        skip_unlabelled: leave out recordings that no label names.
        engine: loaded already, instead of `model`.

    Returns:
        questions: by id the tier, what was changed, before and after, on held-out sources.
        before, after: ece, brier, log_loss over all questions. untouched: ids left as they were.

    Raises:
        CalibrationError, LabelError, QuestionError: what is wrong, by name.
    """
    text = questions.read_text(encoding="utf-8-sig")
    book = QuestionBook.loads(text, str(questions))
    for name in skip:
        book.get(name)
    watched, fit = _watched(book, recordings, labels_file, clips, skip, skip_unlabelled)
    if engine is None:
        from ..engine.engine import Engine

        engine = Engine.load(model)
    # All are asked, so that what is kept on disk serves whatever is skipped the next time.
    heard = listen(engine, watched, [q for q in book if q.kind == "yes_no"], heads, cache)
    done = [_fit(question, heard, heads, patience_s, flicker) for question in fit]
    changes = {one.question.id: one.changes for one in done}
    _write(out, rewrite(text, changes, str(questions)))
    asked = [one for one in done if one.held]
    pooled = {when: _pooled(asked, when) for when in ("before", "after")} if asked else {}
    return {
        "questions": {one.question.id: {
            "tier": one.tier, **one.changes, "before": one.before, "after": one.after,
            "held_out_sources": one.sources} for one in done},
        **pooled,
        "untouched": [q.id for q in book if q.id not in changes],
    }


def print_calibration(result: dict[str, Any]) -> None:
    """Print the table."""
    print(f"{'question':<24} {'tier':<5} {'scale':>7} {'bias':>7} {'enter':>5} {'exit':>5}"
          f"   {'ECE':^13}   cost per event   (held out: before, after)")

    def number(value: float | None, form: str) -> str:
        return "-".rjust(int(form.split(".")[0])) if value is None else f"{value:{form}}"

    for name, row in result["questions"].items():
        b, a = row["before"], row["after"]
        print(f"{name:<24} {row['tier']:<5} {number(row.get('scale'), '7.3f')} "
              f"{number(row.get('bias'), '7.3f')} {row['enter']:5.2f} {row['exit']:5.2f}   "
              f"{number(b['ece'], '6.3f')} {number(a['ece'], '6.3f')}   "
              f"{b['cost']:6.3f} {a['cost']:6.3f}")
        if row["before"]["auroc"] is not None and row["before"]["auroc"] < 0.6:
            print(f"{'':<24} the model hardly tells yes from no here (AUROC "
                  f"{row['before']['auroc']:.2f}): word the question otherwise, or train a head")
    for when in ("before", "after"):
        if when in result:
            print(f"all questions, {when:<6}: " + ", ".join(
                f"{name} {value:.4f}" for name, value in result[when].items()))
    if result["untouched"]:
        print(f"left as they were: {', '.join(result['untouched'])}")


def _watched(book: QuestionBook, recordings: Sequence[Recording], labels_file: Path | None,
             clips: int, skip: Sequence[str], skip_unlabelled: bool) -> tuple[
                 list[Watched], list[Question]]:
    """Return the sources and the questions to fit on them."""
    able = [q for q in book if q.kind == "yes_no" and q.id not in skip]
    if labels_file is None:
        if recordings:
            raise CalibrationError("recordings without labels: give them with --labels FILE")
        watched = desks(clips)
        strange = [q.id for q in able if watched and watched[0].truth(q.id, 0.0)[0] is None]
        if strange:
            raise CalibrationError(
                f"no facts of the simulated desk: {', '.join(strange)}; give recordings and "
                "--labels for them, or leave them out with --skip")
        return watched, able
    if not recordings:
        raise CalibrationError(f"{labels_file} labels recordings: give them with --videos, --dir "
                               "or --bag")
    labels = read_labels(labels_file)
    check_sources(labels, [r.name for r in recordings], skip_unlabelled=skip_unlabelled)
    for label in labels:
        if label.question not in book:
            raise LabelError(f"{labels_file}:{label.line}: there is no question "
                             f"{label.question!r} in the file; it has: "
                             f"{', '.join(q.id for q in book)}")
        if book.get(label.question).kind != "yes_no":
            raise LabelError(f"{labels_file}:{label.line}: {label.question!r} is a choice; only "
                             "yes_no questions are calibrated")
    named = {label.question for label in labels}
    fit = [q for q in able if q.id in named]
    if not fit:
        raise CalibrationError(f"{labels_file} labels none of the questions to calibrate")
    sources = {label.source for label in labels}
    return labelled([r for r in recordings if r.name in sources], labels), fit


def _fit(question: Question, heard: Sequence[Heard], heads: Sequence[Head], patience_s: float,
         flicker: float) -> Fitted:
    name = question.id
    unit = np.concatenate([h.unit[name] for h in heard])
    truth = np.concatenate([h.truth[name] for h in heard])
    settled = np.concatenate([h.settled[name] for h in heard])
    held = _held_out(name, unit[settled], truth[settled] == 1)
    out = np.isin(unit, held)
    head = answering_head(question, heads)
    one = Fitted(question, "heads" if head or question.tier == "heads" else "vlm",
                 sources=len(held))
    before = after = {}
    if question.tier != "heads":
        difference = np.concatenate([h.difference[name] for h in heard])
        scale, bias = fit_platt(name, difference[settled & ~out], truth[settled & ~out] == 1)
        one.changes |= {"scale": scale, "bias": bias}
        told = truth[settled & out] == 1
        before, after = ({k: _sigmoid(z * difference[settled & out] + b)} for k, z, b in
                         (("p", question.scale, question.bias), ("p", scale, bias)))
        one.held = {"truth": told, "before": before["p"], "after": after["p"]}
        one.before = calibration_of(before["p"], told)
        one.after = calibration_of(after["p"], told)
    else:
        one.before = one.after = dict.fromkeys(("auroc", "ece", "brier", "log_loss"))
    if one.tier == "heads" and head is None:
        raise CalibrationError(f"question {name!r} is answered by heads only and there is no head "
                               f"{question.head or name!r} for this model: train one, or --skip it")

    def tracks(scale: float, bias: float, keep: np.ndarray) -> list[Track]:
        found, at = [], 0
        for h in heard:
            own = keep[at:at + len(h.t_s)]
            at += len(h.t_s)
            p = (h.head_p[name] if head is not None
                 else _sigmoid(scale * h.difference[name] + bias))
            there = np.isfinite(p)  # a window that has just begun is too short for a motion head
            if (own & there).any():
                fresh = h.fresh.copy()
                fresh[1:] |= there[1:] & ~there[:-1]
                found.append(Track(h.t_s[there], p[there],
                                   np.where(own, h.truth[name], -1)[there], fresh[there]))
        return found

    scale, bias = one.changes.get("scale", 1.0), one.changes.get("bias", 0.0)
    enter, leave = fit_thresholds(tracks(scale, bias, ~out), question.ema, patience_s=patience_s,
                                  flicker=flicker)
    one.changes |= {"enter": round(enter, 3), "exit": round(leave, 3)}
    for into, z, b, pair in ((one.before, question.scale, question.bias,
                              (question.enter, question.exit)), (one.after, scale, bias,
                                                                 (enter, leave))):
        into["cost"] = float(event_cost(
            tracks(z, b, out), question.ema, np.array(pair[:1]), np.array(pair[1:]),
            patience_s=patience_s, flicker=flicker)[0])
    return one


def fit_platt(name: str, difference: np.ndarray, answer: np.ndarray) -> tuple[float, float]:
    """Return scale and bias of sigmoid(scale * difference + bias), rounded to 3 places.

    Raises CalibrationError for numbers that are not finite.
    """
    from sklearn.linear_model import LogisticRegression

    if not np.isfinite(difference).all():
        raise CalibrationError(f"question {name!r}: the model's logits are not finite (NaN or "
                               "infinite): load it in float32")
    fit = LogisticRegression(C=10.0).fit(difference[:, None], answer)
    scale, bias = float(fit.coef_[0, 0]), float(fit.intercept_[0])
    if scale < LEAST_SCALE:  # ranked the wrong way round, or not at all: say the share of yes
        scale, share = LEAST_SCALE, float(np.clip(answer.mean(), 0.01, 0.99))
        bias = float(np.log(share / (1 - share)) - scale * difference.mean())
    return round(scale, 3), round(bias, 3)


def _held_out(name: str, unit: np.ndarray, answer: np.ndarray) -> np.ndarray:
    """Return the sources of the third that is held out. Raises CalibrationError."""
    if not len(answer):
        raise CalibrationError(f"question {name!r}: no label lasts long enough (0.6 s, and a "
                               "second of history) to be sure of")
    if answer.all() or not answer.any():
        only, other = ("yes", "no") if answer.all() else ("no", "yes")
        raise CalibrationError(
            f"question {name!r}: everything says {only}; both answers are needed: add recordings "
            f"where it is {other} (or more --clips), or leave it out with --skip {name}")
    folds = folds_of(unit, answer, 3)
    if not folds:
        raise CalibrationError(
            f"question {name!r}: yes and no must each be seen in two sources or more, so that one "
            "can be held out (parts of one long recording may be told apart by a column `clip`)")
    return np.unique(unit[folds[0][1]])


def _pooled(done: Sequence[Fitted], when: str) -> dict[str, float | None]:
    p = np.concatenate([one.held[when] for one in done])
    told = np.concatenate([one.held["truth"] for one in done])
    return {k: v for k, v in calibration_of(p, told).items() if k != "auroc"}


def _sigmoid(z: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return expit(z)


def _write(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.resolve().parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path.resolve())
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
