"""`vlm-decisions study ladder`: the depth at which each kind of question can be read.

The state of the decision token is taken after every layer of the language model, for every yes/no
question about held-out desks. For each family of questions and layer, one linear probe is fitted on
some clips and tested on others. Two baselines have less information: the text of the question alone
(mean of its token embeddings), and the image alone (pooled vision features, one probe per question,
no language model).

The study also shows the cost and gain of an early exit: the model's own answers at each depth
(final norm and output rows on the state of that layer, no probe), and the milliseconds of a tick
that computes no further layer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...files.columns import columns, number
from ...learn.measures import auroc, balanced_accuracy
from ...learn.probes import fit_probe, predict_probe
from ...questions import Question
from ...runtime.heads import motion_row
from ...sim.clips import TIMES_S, draw_clip
from .clip_answers import FAMILIES, StudyError, desk_questions, family_of, progress

FIRST_SEED = 830_000_000
FIT_SHARE = 0.6
STRENGTHS = (0.001, 0.01, 0.1, 1.0)
LEAST_CLIPS = 20
TICKS = 20  # timed at each depth


@dataclass
class LayerStates:
    """What a model computes for C clips and Q questions.

    Attributes:
        questions: their ids.
        hidden: states of the decision token after each layer, float32 (C, Q, L, D).
        difference: the model's own logit(yes) - logit(no) at each depth, (C, Q, L).
        words: mean embedding of a question's tokens, (Q, E).
        vision: pooled features, (C, V).
        truth: bool (C, Q).
    """

    questions: list[str]
    hidden: np.ndarray
    difference: np.ndarray
    words: np.ndarray
    vision: np.ndarray
    truth: np.ndarray


def look(engine: Any, questions: Sequence[Question], clips: int) -> LayerStates:
    """Run clips through the model and return the decision states of all layers."""
    asked = [q for q in questions if not q.options]
    if not asked:
        raise StudyError("the set has no yes/no question")
    answers = [engine.question(q).answer_ids for q in asked]
    hidden, difference, vision, truth = [], [], [], []
    for k in progress(range(clips), clips, "ladder"):
        clip = draw_clip(FIRST_SEED + k)
        groups = engine.encode_many(clip.pairs)
        # All layers for all questions: this study measures the effect of `depth`.
        full = [Question(q.id, q.text) for q in asked]
        readouts = engine.window(groups, TIMES_S).ask(full, hidden=True)
        hidden.append(np.stack([r.hidden for r in readouts]))
        difference.append(exits(engine, hidden[-1], answers))
        means = np.stack([group.mean for group in groups])
        vision.append(np.concatenate([motion_row(means), means[-1], groups[-1].max]))
        truth.append([clip.truth[q.id] == "yes" for q in asked])
    words = [np.array(engine.decoder.embed(np.array(engine.question(q).ids))) for q in asked]
    return LayerStates([q.id for q in asked], np.stack(hidden), np.stack(difference),
                np.stack([word.mean(axis=0) for word in words]), np.stack(vision),
                np.array(truth))


def exits(engine: Any, hidden: np.ndarray, answers: Sequence[Sequence[int]]) -> np.ndarray:
    """Return logit(yes) - logit(no) of states (Q, L, D) at each depth, (Q, L)."""
    count, depths, width = hidden.shape
    ids = np.repeat(np.array(answers), depths, axis=0)
    states = hidden.reshape(count * depths, width)
    logits = np.array(engine.decoder.answer_logits(states, ids))
    return (logits[:, 0] - logits[:, 1]).reshape(count, depths)


def probes(seen: LayerStates) -> dict[str, Any]:
    """Fit and test the probes.

    Returns:
        families: {name: {layers: [auroc per layer], text_only, vision_only, questions: {id:
        [auroc per layer]}, exits: [auroc per depth], exit_accuracy: [balanced, per depth]}}.
    """
    clips = len(seen.truth)
    fit = np.arange(clips) < round(clips * FIT_SHARE)
    out = {}
    for family in dict.fromkeys(map(family_of, seen.questions)):
        own = np.array([k for k, q in enumerate(seen.questions) if family_of(q) == family])
        own = own[[0 < seen.truth[fit][:, k].mean() < 1 and 0 < seen.truth[~fit][:, k].mean() < 1
                   for k in own]]
        if not len(own):
            continue  # these clips show one answer only
        truth = seen.truth[:, own]
        layers, by_question = [], {seen.questions[k]: [] for k in own}
        for layer in range(seen.hidden.shape[2]):
            p = _probe(seen.hidden[:, own, layer], truth, fit)
            layers.append(auroc(truth[~fit].ravel(), p.ravel()))
            for j, k in enumerate(own):
                by_question[seen.questions[k]].append(auroc(truth[~fit][:, j], p[:, j]))
        words = np.broadcast_to(seen.words[own], (clips, len(own), seen.words.shape[1]))
        image = np.stack([_probe(seen.vision[:, None], truth[:, [j]], fit)[:, 0]
                          for j in range(len(own))], axis=1)
        depths = range(seen.difference.shape[2])
        out[family] = {
            "layers": layers,
            "text_only": auroc(truth[~fit].ravel(), _probe(words, truth, fit).ravel()),
            "vision_only": auroc(truth[~fit].ravel(), image.ravel()),
            "questions": by_question,
            "exits": [float(np.mean([auroc(truth[~fit][:, j], seen.difference[~fit][:, k, d])
                                     for j, k in enumerate(own)])) for d in depths],
            "exit_accuracy": [float(np.mean([_exit_accuracy(seen.difference[:, k, d], truth[:, j],
                                                            fit)
                                             for j, k in enumerate(own)])) for d in depths],
        }
    if not out:
        raise StudyError(f"{clips} clips show only one answer to every question: take more --clips")
    return out


def cost(engine: Any, questions: Sequence[Question]) -> list[float]:
    """Return milliseconds (median of TICKS) of a stream's tick at each depth: append and ask."""
    asked = [Question(q.id, q.text) for q in questions if not q.options]
    clip = draw_clip(FIRST_SEED)
    groups = engine.encode_many(clip.pairs)
    out = []
    for depth in range(1, engine.n_layers + 1):
        stream = engine.stream(8, "stream", depth=depth)
        spent = []
        for k in range(8 + TICKS):
            began = time.perf_counter()
            stream.append(groups[k % len(groups)], 0.0625 + 0.25 * k)
            stream.ask(asked)
            if k >= 8:  # a window of history, as at any time in a run
                spent.append((time.perf_counter() - began) * 1e3)
            while stream.idle():
                pass
        out.append(float(np.median(spent)))
    return out


def ladder(model: str = "sim_desk", clips: int = 300, questions: str = "desk",
           engine: Any = None) -> dict[str, Any]:
    """Run the study.

    Returns:
        families as in `probes`; ms: tick per depth; n_layers; clips; model.

    Raises:
        StudyError: too few clips to fit and test on.
    """
    if clips < LEAST_CLIPS:
        raise StudyError(f"{clips} clips are too few to fit and test probes: take {LEAST_CLIPS} or "
                         "more")
    if engine is None:
        from ...engine.engine import Engine

        engine = Engine.load(model)
    book = desk_questions(questions)
    return {"model": engine.name, "n_layers": engine.n_layers, "clips": clips,
            "ms": cost(engine, book), "families": probes(look(engine, book, clips))}


def print_ladder(result: dict[str, Any]) -> None:
    """Print the tables."""
    layers = [f"L{depth}" for depth in range(1, result["n_layers"] + 1)]
    print("probe per layer, AUROC", *columns([("family", "text", "image", *layers), *(
        (name, *map(number, (row["text_only"], row["vision_only"], *row["layers"])))
        for name, row in result["families"].items())]), "", sep="\n")
    print("exit at each depth, balanced accuracy", *columns([("family", *layers), *(
        (name, *map(number, row["exit_accuracy"])) for name, row in result["families"].items()),
        ("milliseconds of a tick", *(number(x, 1) for x in result["ms"]))]), sep="\n")
    print(f"{result['clips']} clips of held-out desks, {FIT_SHARE:.0%} to fit, the rest to test")


def plot_ladder(result: dict[str, Any], path: str) -> None:
    """Draw AUROC by layer, and accuracy against milliseconds."""
    from .figures import figure, save

    drawn, (left, right) = figure(2, f"The ladder of {result['model']}")
    depths = np.arange(1, result["n_layers"] + 1)
    for k, (name, row) in enumerate(result["families"].items()):
        left.plot(depths, row["layers"], "o-", color=f"C{k}", label=name)
        left.axhline(row["vision_only"], color=f"C{k}", linestyle="--", linewidth=0.9)
        left.axhline(row["text_only"], color=f"C{k}", linestyle=":", linewidth=0.9)
        right.plot(result["ms"], row["exit_accuracy"], "o-", color=f"C{k}", label=name)
    left.set(xlabel="layers (dashed: image alone, dotted: wording alone)", ylabel="probe, AUROC",
             xticks=depths)
    right.set(xlabel="milliseconds of a tick", ylabel="balanced accuracy at that exit")
    left.legend()
    save(drawn, path)


def _probe(x: np.ndarray, truth: np.ndarray, fit: np.ndarray) -> np.ndarray:
    """Fit on x (C, Q, D) and truth (C, Q) of the clips `fit`; return P(yes) of the others."""
    from sklearn.model_selection import GroupKFold

    clips, count = truth.shape
    clip = np.repeat(np.arange(clips), count).reshape(clips, count)
    told = truth[fit].ravel()
    folds = list(GroupKFold(3).split(told, told, clip[fit].ravel()))
    folds = [(a, b) for a, b in folds if 0 < told[a].mean() < 1] or folds
    probe = fit_probe(x[fit].reshape(-1, x.shape[-1]), told, folds, STRENGTHS, "neg_brier_score",
                      300)
    return predict_probe(probe, x[~fit].reshape(-1, x.shape[-1])).reshape(-1, count)


def _exit_accuracy(difference: np.ndarray, truth: np.ndarray, fit: np.ndarray) -> float:
    """Return balanced accuracy with a threshold fitted on the clips `fit`."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=10.0, class_weight="balanced")
    model.fit(difference[fit][:, None], truth[fit])
    return balanced_accuracy(truth[~fit], model.predict(difference[~fit][:, None]))


__all__ = ["FAMILIES", "cost", "exits", "ladder", "look", "plot_ladder", "print_ladder", "probes"]
