"""`vlm-decisions study baseline`: the model against cheaper methods, on the same desks.

For each yes/no question of the desk: the model as it answers (zero-shot); a linear probe on its
decision token; a linear probe on its pooled vision features, without the language model; a small
convolutional network trained on the same clips (with PyTorch); and a linear probe on SigLIP's
embeddings of the oldest and newest frame (if a checkpoint is given). All of them are fitted on some
desks and measured on others.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ...files.columns import columns, number
from ...learn.measures import balanced_accuracy, calibration_of
from ...learn.probes import fit_probe, predict_probe
from ...questions import Question
from ...runtime.heads import motion_row
from ...sim.clips import TIMES_S, draw_clip
from . import image_models
from .clip_answers import StudyError, desk_questions, family_of, progress

FIT_SEED, TEST_SEED = 840_000_000, 842_000_000
STRENGTHS = (0.001, 0.01, 0.1, 1.0)
LEAST_CLIPS = 20


@dataclass
class ClipFeatures:
    """What the methods see of C clips, for Q questions.

    Attributes:
        p: zero-shot P(yes), (C, Q).
        hidden: states of the decision token, (C, Q, D).
        vision: pooled vision features, (C, V).
        frames: oldest and newest frame, small, uint8 (C, 2, H, W, 3).
        whole: the same frames at full size, if they are needed.
        truth: bool (C, Q).
    """

    p: np.ndarray
    hidden: np.ndarray
    vision: np.ndarray
    frames: np.ndarray
    whole: list[np.ndarray]
    truth: np.ndarray


def baseline(model: str = "sim_desk", clips: int = 400, test: int = 200, questions: str = "desk",
             cnn: bool | None = None, siglip: Path | None = None,
             engine: Any = None) -> dict[str, Any]:
    """Run the study.

    Args:
        model: embedded name, local path or hub name.
        clips: number of clips to fit on.
        test: number of clips to measure on.
        questions: set of questions about the desk.
        cnn: train the small network; None for yes if PyTorch is installed.
        siglip: folder of a SigLIP checkpoint.
        engine: loaded already, instead of `model`.

    Returns:
        methods: {name: {question: {auroc, accuracy (balanced, at 0.5), ece, brier, log_loss}}};
        left_out: {method: reason}; clips: {fit, test}; model.

    Raises:
        StudyError: too few clips.
        ImportError: PyTorch is needed and not installed.
    """
    if min(clips, test) < LEAST_CLIPS:
        raise StudyError(f"{min(clips, test)} clips are too few: take {LEAST_CLIPS} or more")
    left_out = {}
    if cnn is None:
        cnn = importlib.util.find_spec("torch") is not None
        if not cnn:
            left_out["cnn"] = "PyTorch is not installed: pip install 'vlm_decisions[train]'"
    if siglip is None:
        left_out["siglip"] = "no checkpoint was given (--siglip DIR)"
    if engine is None:
        from ...engine.engine import Engine

        engine = Engine.load(model)
    asked = [q for q in desk_questions(questions) if not q.options]
    fit = _look(engine, asked, FIT_SEED, clips, siglip is not None)
    held = _look(engine, asked, TEST_SEED, test, siglip is not None)
    names = [q.id for q in asked]
    usable = [k for k in range(len(names)) if 2 <= fit.truth[:, k].sum() <= clips - 2
              and 0 < held.truth[:, k].mean() < 1]
    for k in sorted(set(range(len(names))) - set(usable)):
        left_out[names[k]] = "these clips show (almost) one answer only: use more"
    p = {"zero_shot": held.p,
         "decision_probe": _columns(usable, lambda k: _probe(
             fit.hidden[:, k], fit.truth[:, k], held.hidden[:, k]), held.p),
         "pooled_probe": _columns(usable, lambda k: _probe(
             fit.vision, fit.truth[:, k], held.vision), held.p)}
    if cnn:
        p["cnn"] = image_models.small_cnn(fit.frames, fit.truth, held.frames)
    if siglip is not None:
        a, b = (_pairs(image_models.siglip_features(siglip, s.whole)) for s in (fit, held))
        p["siglip_probe"] = _columns(usable, lambda k: _probe(a, fit.truth[:, k], b), held.p)
    return {"model": engine.name, "clips": {"fit": clips, "test": test}, "left_out": left_out,
            "methods": {name: {names[k]: _row(values[:, k], held.truth[:, k]) for k in usable}
                        for name, values in p.items()}}


def print_baseline(result: dict[str, Any]) -> None:
    """Print AUROC by question and method, and means by family."""
    methods = list(result["methods"])
    rows = [("AUROC", *methods)]
    questions = list(result["methods"]["zero_shot"])
    for name in questions:
        rows.append((name, *(number(result["methods"][m][name]["auroc"]) for m in methods)))
    for family in dict.fromkeys(map(family_of, questions)):
        own = [q for q in questions if family_of(q) == family]
        rows.append((f"mean {family}", *(number(float(np.mean(
            [result["methods"][m][q]["auroc"] for q in own]))) for m in methods)))
    for what in ("accuracy", "ece"):
        rows.append((f"mean {what}", *(number(float(np.mean(
            [result["methods"][m][q][what] for q in questions]))) for m in methods)))
    print(*columns(rows), sep="\n")
    for name, why in result["left_out"].items():
        print(f"without {name}: {why}")
    print(f"fitted on {result['clips']['fit']} desks, measured on {result['clips']['test']} others")


def plot_baseline(result: dict[str, Any], path: str) -> None:
    """Draw AUROC by question and method."""
    from .figures import figure, save

    questions = list(result["methods"]["zero_shot"])
    drawn, axes = figure(2, f"{result['model']} against cheaper methods", rows=1)
    width = 0.8 / len(result["methods"])
    for axis, what in zip(axes, ("auroc", "ece")):
        for k, (name, rows) in enumerate(result["methods"].items()):
            axis.barh(np.arange(len(questions)) + width * k, [rows[q][what] for q in questions],
                      width, label=name)
        axis.set(xlabel=what.upper() if what == "ece" else "AUROC",
                 yticks=np.arange(len(questions)) + 0.4, yticklabels=questions)
        axis.invert_yaxis()
    axes[0].set(xlim=(0.4, 1.0))
    axes[1].legend()
    save(drawn, path)


def _look(engine: Any, asked: list[Question], seed: int, clips: int, whole: bool) -> ClipFeatures:
    plain = [Question(q.id, q.text) for q in asked]
    p, hidden, vision, frames, images, truth = [], [], [], [], [], []
    for k in progress(range(clips), clips, "fit" if seed == FIT_SEED else "test"):
        clip = draw_clip(seed + k)
        groups = engine.encode_many(clip.pairs)
        readouts = engine.window(groups, TIMES_S).ask(plain, hidden=True)
        p.append([r.p for r in readouts])
        hidden.append(np.stack([r.hidden[-1] for r in readouts]))
        means = np.stack([group.mean for group in groups])
        vision.append(np.concatenate([motion_row(means), means[-1], groups[-1].max]))
        ends = clip.frames[0], clip.frames[-1]
        frames.append([cv2.resize(f, image_models.SIDE, interpolation=cv2.INTER_AREA)
                       for f in ends])
        images += list(ends) if whole else []
        truth.append([clip.truth[q.id] == "yes" for q in asked])
    return ClipFeatures(np.array(p), np.stack(hidden), np.stack(vision), np.array(frames), images,
                np.array(truth))


def _probe(x: np.ndarray, truth: np.ndarray, test: np.ndarray) -> np.ndarray:
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(max(2, min(4, truth.sum(), (~truth).sum())))
    probe = fit_probe(x, truth, list(folds.split(x, truth)), STRENGTHS, "neg_brier_score", 500)
    return predict_probe(probe, test)


def _columns(usable: list[int], probe: Any, like: np.ndarray) -> np.ndarray:
    out = np.full(like.shape, np.nan)
    for k in usable:
        out[:, k] = probe(k)
    return out


def _pairs(features: np.ndarray) -> np.ndarray:
    """Return [newest, newest - oldest] per clip of features (oldest, newest, oldest, ...)."""
    return np.concatenate([features[1::2], features[1::2] - features[::2]], axis=1)


def _row(p: np.ndarray, truth: np.ndarray) -> dict[str, float | None]:
    return {**calibration_of(p.astype(np.float64), truth),
            "accuracy": balanced_accuracy(truth, p > 0.5)}
