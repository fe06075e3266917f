"""`vlm-decisions study score`: the embedded model on desks that it was not trained on.

Every clip is a window of 8 groups of a random world, drawn at 640x480 and sent through the engine
as in the runtime. Clips end at least 0.6 s after any change, so that each question has one right
answer. The figures about time (gains, reversal) are from clips of one motion each, see `temporal`.
P(yes) is calibrated as the questions file says; `vlm-decisions calibrate` fits that on other desks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...files.columns import columns, number
from ...learn.measures import BINS, auroc, bootstrap, calibration_of
from ...questions import Question
from ...runtime.heads import Head
from ...sim.clips import CONDITIONS, GROUPS, SIZE, draw_clip
from . import temporal
from .clip_answers import FAMILIES, ClipAnswers, ask_clip, desk_questions, progress, read_heads

FIRST_SEED = 800_000_000  # worlds from here on are not used in training, fitting or calibration


@dataclass(frozen=True)
class StudyScore:
    """The whole table, and what lies behind it.

    table: auroc {question or family: x, `ci`: {the same: [low, high]}} of the language model
    (a family: the mean over its questions; intervals: 95%, bootstrap over clips);
    activity_accuracy of the choice question `activity`; ece (15 bins of equal mass), brier and
    log_loss of P(yes) over all yes/no answers of the language model, calibrated; heads {name:
    auroc}; temporal_gain, shuffled_gain, reversal_consistency as in `temporal`; clips. None stands
    for what the clips cannot tell.

    details: conditions {name: {clips, share, auroc (mean over presence), activity_accuracy}};
    calibration {question: {ece, brier, log_loss}}, also uncalibrated; yes {question: share of
    clips}; temporal (its whole summary).
    """

    table: dict[str, Any]
    details: dict[str, Any]


def score(model: str = "sim_desk", clips: int = 400, questions: str = "desk",
          heads: Sequence[Head] = (), engine: Any = None) -> StudyScore:
    """Ask every question of the set about `clips` held-out clips, and about half as many of motion.

    Raises:
        StudyError: a question that is not about the desk.
    """
    if engine is None:
        from ...engine.engine import Engine

        engine = Engine.load(model)
    book = desk_questions(questions)
    said, plain = ClipAnswers(), ClipAnswers()
    conditions: list[tuple[str, ...]] = []
    for k in progress(range(clips), clips, "clips"):
        clip = draw_clip(FIRST_SEED + k)
        groups = engine.encode_many(clip.pairs)
        ask_clip(engine, groups, book, clip.truth, said)
        read_heads([head for head in heads if head.question in clip.truth], groups, said)
        conditions.append(clip.conditions)
    for question in book:
        if not question.options:
            plain.p[question.id] = _uncalibrated(question, said.p[question.id])
    moved = None
    if any(q.id in FAMILIES["motion"] for q in book):
        read = [head for head in heads if head.question in FAMILIES["motion"]]
        moved = temporal.summary(temporal.watch(engine, book, read, max(2, clips // 2)))
    return StudyScore(_table(said, heads, moved, clips), _details(said, plain, conditions, moved))


def print_score(result: StudyScore) -> None:
    """Print the table."""
    table, details = result.table, result.details
    rows = [("question", "AUROC", "95% interval", "yes", "ECE")]
    for name, value in table["auroc"].items():
        if name == "ci":
            continue
        ci = table["auroc"]["ci"][name]
        own = details["calibration"].get(name)
        rows.append((name, number(value), f"{ci[0]:.3f} - {ci[1]:.3f}" if ci else "-",
                     f"{100 * details['yes'][name]:.0f}%" if own else "(mean)",
                     number(own["ece"]) if own else ""))
    print(*columns(rows), "", sep="\n")
    print(*columns([("", ""), *((f"head {name}", number(value))
                                for name, value in table["heads"].items()),
                    *((name, number(table[name])) for name in (
                        "activity_accuracy", "ece", "brier", "log_loss", "temporal_gain",
                        "shuffled_gain", "reversal_consistency"))])[1:], "", sep="\n")
    print(*columns([("condition", "clips", "presence", "activity"),
                    *((name, str(row["clips"]), number(row["auroc"]),
                       number(row["activity_accuracy"]))
                      for name, row in details["conditions"].items())]), sep="\n")
    print(f"\n{table['clips']} clips of {GROUPS} groups, {SIZE[0]}x{SIZE[1]}; ECE over {BINS} bins "
          "of equal mass")


def _table(said: ClipAnswers, heads: Sequence[Head], moved: dict[str, Any] | None,
           clips: int) -> dict[str, Any]:
    rng = np.random.default_rng(13)
    rows: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for name in said.p:
        rows[name] = _mean_auroc(said, [name], None)
        limits[name] = bootstrap(lambda i, n=name: _mean_auroc(said, [n], i), clips, rng)
    for family, ids in FAMILIES.items():
        own = [name for name in ids if name in said.p]
        if own:
            rows[family] = _mean_auroc(said, own, None)
            limits[family] = bootstrap(lambda i, n=own: _mean_auroc(said, n, i), clips, rng, 200)
    question_of = {head.name: head.question for head in heads}
    ranks = {name: auroc(said.told(question_of[name]), np.array(p))
             for name, p in said.heads.items()}
    if moved:
        ranks |= moved["heads"]  # on clips of one motion: elsewhere a window spans a change
    pooled = {k: v for k, v in _calibration(said).items() if k != "auroc"}
    return {
        "auroc": {**rows, "ci": limits},
        "activity_accuracy": _accuracy(said, "activity", np.arange(clips)),
        **pooled,
        "heads": ranks,
        "temporal_gain": moved["temporal_gain"] if moved else None,
        "shuffled_gain": moved["shuffled_gain"] if moved else None,
        "reversal_consistency": moved["reversal_consistency"] if moved else None,
        "clips": clips,
    }


def _details(said: ClipAnswers, plain: ClipAnswers, conditions: Sequence[tuple[str, ...]],
             moved: dict[str, Any] | None) -> dict[str, Any]:
    plain.truth = said.truth
    presence = [name for name in FAMILIES["presence"] if name in said.p]
    found = {}
    for name in (*CONDITIONS, "none of these"):
        chosen = np.flatnonzero([name in here if name in CONDITIONS else not here
                                 for here in conditions])
        found[name] = {"clips": len(chosen), "share": len(chosen) / len(conditions),
                       "auroc": _mean_auroc(said, presence, chosen) if len(chosen) else None,
                       "activity_accuracy": _accuracy(said, "activity", chosen)}
    return {
        "conditions": found,
        "calibration": {name: {k: v for k, v in calibration_of(
            np.array(p), said.told(name)).items() if k != "auroc"} for name, p in said.p.items()},
        "uncalibrated": {k: v for k, v in _calibration(plain).items() if k != "auroc"},
        "yes": {name: float(said.told(name).mean()) for name in said.p},
        "temporal": moved,
    }


def _mean_auroc(said: ClipAnswers, names: Sequence[str], chosen: np.ndarray | None) -> float | None:
    found = []
    for name in names:
        truth, p = said.told(name), np.array(said.p[name])
        value = auroc(truth, p) if chosen is None else auroc(truth[chosen], p[chosen])
        if value is not None:
            found.append(value)
    return float(np.mean(found)) if found else None


def _accuracy(said: ClipAnswers, name: str, chosen: np.ndarray) -> float | None:
    if name not in said.picked or not len(chosen):
        return None
    right = [a == t[name] for a, t in zip(said.picked[name], said.truth, strict=True)]
    return float(np.mean(np.array(right)[chosen]))


def _calibration(said: ClipAnswers) -> dict[str, float | None]:
    """Return ece, brier, log_loss over the answers to all questions together."""
    names = list(said.p)
    if not names:
        return dict.fromkeys(("ece", "brier", "log_loss"))
    return calibration_of(np.concatenate([said.p[name] for name in names]),
                          np.concatenate([said.told(name) for name in names]))


def _uncalibrated(question: Question, p: Sequence[float]) -> list[float]:
    """Return P(yes) as the model gives it, from that after the question's scale and bias."""
    q = np.clip(np.array(p), 1e-12, 1 - 1e-12)
    z = (np.log(q / (1 - q)) - question.bias) / question.scale
    return list(1 / (1 + np.exp(-np.clip(z, -500, 500))))
