"""`vlm-decisions study score`: the embedded model on desks it has never seen.

Every clip is a window of 8 groups of a random world, drawn at 640x480 and sent through the engine
as the runtime does it. Clips end at least 0.6 s after any change, so that each question has one
right answer. For motion, the same clip is also asked about in two spoilt forms (its middle group
alone; its groups in random order) and played backwards, where left and right, approaching and
receding must swap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import resources
from ..bus import calibrated
from ..questions import Question, QuestionBook
from ..sim.clips import FPS, GROUPS, MOTION, SIZE, Clip, draw_clip
from ..tiers.heads import Head, load_heads

FIRST_SEED = 800_000_000  # neither the model nor the heads were trained on worlds from here on
BINS, DRAWS = 15, 400


@dataclass
class Answers:
    """P(yes) per yes/no question and the chosen option per choice, over clips."""

    p: dict[str, list[float]] = field(default_factory=dict)
    picked: dict[str, list[str]] = field(default_factory=dict)
    heads: dict[str, list[float]] = field(default_factory=dict)
    truth: list[dict[str, str]] = field(default_factory=list)


def score(model: str = "sim_desk", clips: int = 400, questions: str = "desk") -> dict[str, Any]:
    """Ask every question of the set about `clips` held-out clips.

    Returns:
        auroc: per yes/no question {auroc, ci (95%, bootstrap over clips), yes (share of clips)}.
        activity_accuracy: of the choice question `activity`. ece (15 bins of equal mass), brier,
        log_loss: of P(yes), calibrated as the
        questions say, over all yes/no answers of the language model. heads: AUROC per Tier 1
        head. temporal_gain, shuffled_gain: balanced accuracy at 0.5 on the motion questions, full
        clip less middle group alone, and shuffled less middle group. reversal_consistency: share
        of moving clips and motion questions whose P(yes) goes the right way when the clip is
        played backwards; heads_reversal_consistency: the same of the motion heads. clips: how
        many.
    """
    from ..engine.engine import Engine

    engine = Engine.load(model)
    book = list(QuestionBook.load(resources.share_file("config", "questions", f"{questions}.yaml")))
    heads, _ = load_heads([resources.share_file("heads")], engine.fingerprint, engine.pixel_budget)
    full, single, shuffled = Answers(), Answers(), Answers()
    motion = [q for q in book if q.id in MOTION]
    turned: list[bool] = []
    heads_turned: list[bool] = []
    rng = np.random.default_rng(13)
    for k in _progress(clips):
        clip = draw_clip(FIRST_SEED + k)
        pairs = [clip.frames[2 * i:2 * i + 2] for i in range(GROUPS)]
        groups = engine.encode_many(pairs)
        _ask(engine, groups, book, clip.truth, full)
        _predict(heads, groups, full)
        if not motion:
            continue
        _ask(engine, [groups[GROUPS // 2]], motion, clip.truth, single)
        order = rng.permutation(GROUPS)
        _ask(engine, [groups[i] for i in order], motion, clip.truth, shuffled)
        if clip.moves and clip.steady:
            groups = engine.encode_many([pair[::-1] for pair in pairs[::-1]])
            back = Answers()
            _ask(engine, groups, motion, clip.truth, back)
            _predict(heads, groups, back)
            turned += _turned(full.p, back.p, {q.id: q.id for q in motion}, clip)
            heads_turned += _turned(full.heads, back.heads, {h.name: h.question for h in heads},
                                    clip)
    return {
        "auroc": {q.id: _auroc_row(full, q.id, rng) for q in book if not q.options},
        "activity_accuracy": _accuracy(full, "activity"),
        **_calibration(full),
        "heads": {name: _auroc([t[_question(heads, name)] == "yes" for t in full.truth], p)
                  for name, p in full.heads.items()},
        "temporal_gain": _motion_accuracy(full) - _motion_accuracy(single) if motion else None,
        "shuffled_gain": _motion_accuracy(shuffled) - _motion_accuracy(single) if motion else None,
        "reversal_consistency": float(np.mean(turned)) if turned else None,
        "heads_reversal_consistency": float(np.mean(heads_turned)) if heads_turned else None,
        "clips": clips,
    }


def print_score(result: dict[str, Any]) -> None:
    """Print the table."""
    print(f"{'question':<24} {'AUROC':>6}  95% interval   yes")
    for name, row in result["auroc"].items():
        if row["auroc"] is None:
            print(f"{name:<24}      -")
            continue
        low, high = row["ci"]
        print(f"{name:<24} {row['auroc']:6.3f}  {low:.3f} - {high:.3f}  {100 * row['yes']:3.0f}%")
    for name, value in result["heads"].items():
        print(f"head {name:<19} {value:6.3f}")
    for name in ("activity_accuracy", "ece", "brier", "log_loss", "temporal_gain",
                 "shuffled_gain", "reversal_consistency", "heads_reversal_consistency"):
        value = result[name]
        print(f"{name:<24} {'     -' if value is None else f'{value:6.3f}'}")
    print(f"{result['clips']} clips of {GROUPS} groups, {SIZE[0]}x{SIZE[1]}")


def _ask(engine: Any, groups: Sequence[Any], questions: Sequence[Question],
         truth: dict[str, str], into: Answers) -> None:
    times = [(2 * i + 0.5) / FPS for i in range(len(groups))]
    readouts = engine.window(groups, times).ask(questions)
    into.truth.append(truth)
    for question, readout in zip(questions, readouts, strict=True):
        if question.options:
            picked = question.options[int(np.argmax(readout.probabilities))]
            into.picked.setdefault(question.id, []).append(picked)
        else:
            p_yes = calibrated(question, readout.logits)[0]
            into.p.setdefault(question.id, []).append(float(p_yes))


def _predict(heads: Sequence[Head], groups: Sequence[Any], into: Answers) -> None:
    for head in heads:
        p = head.predict(groups[-head.window_groups:])
        into.heads.setdefault(head.name, []).append(p)


def _turned(forward: dict[str, list[float]], back: dict[str, list[float]],
            question_of: dict[str, str], clip: Clip) -> list[bool]:
    """Whether each P(yes) of the clip's axis moved the right way when it was played backwards."""
    depth = clip.truth["approaching"] == "yes" or clip.truth["receding"] == "yes"
    axis = MOTION[:2] if depth else MOTION[2:]
    moved = []
    for name, question_id in question_of.items():
        if question_id in axis:
            change = back[name][-1] - forward[name][-1]
            moved.append(change < 0 if clip.truth[question_id] == "yes" else change > 0)
    return moved


def _question(heads: Sequence[Head], name: str) -> str:
    return next(head.question for head in heads if head.name == name)


def _auroc(truth: Sequence[bool], p: Sequence[float]) -> float | None:
    from sklearn.metrics import roc_auc_score

    if all(truth) or not any(truth):
        return None
    return float(roc_auc_score(truth, p))


def _auroc_row(answers: Answers, name: str, rng: np.random.Generator) -> dict[str, Any]:
    truth = np.array([t.get(name) == "yes" for t in answers.truth])
    p = np.array(answers.p[name])
    draws = []
    for _ in range(DRAWS):
        chosen = rng.integers(len(truth), size=len(truth))
        value = _auroc(list(truth[chosen]), list(p[chosen]))
        if value is not None:
            draws.append(value)
    interval = [float(x) for x in np.percentile(draws, (2.5, 97.5))] if draws else None
    return {"auroc": _auroc(list(truth), list(p)), "ci": interval, "yes": float(truth.mean())}


def _accuracy(answers: Answers, name: str) -> float | None:
    if name not in answers.picked:
        return None
    return float(np.mean([a == t[name]
                          for a, t in zip(answers.picked[name], answers.truth, strict=True)]))


def _motion_accuracy(answers: Answers) -> float:
    """Return the mean over motion questions of the mean accuracy on yes clips and on no clips."""
    each = []
    for name in (name for name in MOTION if name in answers.p):
        truth = np.array([t[name] == "yes" for t in answers.truth])
        right = (np.array(answers.p[name]) > 0.5) == truth
        if truth.any() and not truth.all():
            each.append((right[truth].mean() + right[~truth].mean()) / 2)
    return float(np.mean(each))


def _calibration(answers: Answers) -> dict[str, float]:
    from sklearn.metrics import brier_score_loss, log_loss

    names = list(answers.p)
    p = np.concatenate([answers.p[name] for name in names])
    truth = np.concatenate([[t[name] == "yes" for t in answers.truth] for name in names])
    order = np.argsort(p, kind="stable")
    error = sum(abs(p[part].mean() - truth[part].mean()) * len(part)
                for part in np.array_split(order, BINS) if len(part)) / len(p)
    return {"ece": float(error), "brier": float(brier_score_loss(truth, p)),
            "log_loss": float(log_loss(truth, p))}


def _progress(count: int) -> Any:
    from tqdm import tqdm

    return tqdm(range(count), desc="clips", unit="clip", disable=None)
