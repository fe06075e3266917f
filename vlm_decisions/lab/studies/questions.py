"""`vlm-decisions study questions`: whether the embedded model understands what it is asked.

Questions come from the grammar (`sim.grammar`), scenes are desks never trained on. `seen` has texts
of the kind that was trained; the other splits have forms and combinations that training left out,
of one family each; `unanswerable` asks about what the desk cannot show, in words training never
had. Every text is asked where it is true as often as where it is false, so that no text gives its
answer away: a model that reads only the text is at chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...files.columns import columns, number
from ...learn.measures import auroc, balanced_accuracy, bootstrap
from ...sim import clips as desk
from ...sim.facts import Scene, facts_of
from ...sim.grammar import SPLITS, Phrase, draw
from .clip_answers import progress

FIRST_SEED = 860_000_000
AT_ONCE = 16  # questions asked together
UNSURE = 0.25  # |p - 0.5| below this is "I do not know"


@dataclass
class AskedSample:
    """Questions of one split: scene, truth (None where unanswerable), text and P(yes) of each."""

    scene: list[int] = field(default_factory=list)
    truth: list[bool] = field(default_factory=list)
    phrases: list[Phrase] = field(default_factory=list)
    p: list[float] = field(default_factory=list)


def questions(engine: Any, clips: int = 200, each_clip: int = 6, seed: int = 0) -> dict[str, Any]:
    """Ask `each_clip` questions of every split about each of `clips` desks (on average).

    Returns:
        By split: auroc, balanced_accuracy (at 0.5), best (that of the best threshold), n, ci (95%
        bootstrap of the AUROC over clips). For `unanswerable` it is the AUROC of |p - 0.5| between
        the questions of `seen` and these, and the balanced accuracy at |p - 0.5| = 0.25. kinds: of
        the held-out splits together, AUROC by kind of fact. wrong: texts answered most wrongly.
    """
    from ...engine.readout import Query

    rng = np.random.default_rng([seed, 31])
    moments = [desk.settled_moment(FIRST_SEED + k) for k in range(clips)]
    facts = [facts_of(Scene(world.state(t), *world.pose(t))) for world, t in moments]
    asked = {split: _choose(rng, split, facts, clips * each_clip) for split in SPLITS}
    for k in progress(range(clips), clips, "clips"):
        groups = engine.encode_many(desk.window(*moments[k]).pairs)
        shown = engine.window(groups, desk.TIMES_S)
        mine = [(one, i) for one in asked.values()
                for i, at in enumerate(one.scene) if at == k]
        for first in range(0, len(mine), AT_ONCE):
            part = mine[first:first + AT_ONCE]
            readouts = shown.ask([Query(one.phrases[i].text) for one, i in part])
            for (one, i), readout in zip(part, readouts, strict=True):
                one.p[i] = readout.p
    result = {split: _measure(asked[split], clips) for split in SPLITS if split != "unanswerable"}
    result["unanswerable"] = _confidence(asked["seen"], asked["unanswerable"], clips)
    return {**result, "kinds": _by_kind(asked), "wrong": _most_wrong(asked), "clips": clips}


def print_questions(result: dict[str, Any]) -> None:
    """Print the table."""
    rows = [("split", "AUROC", "95% interval", "at 0.5", "best", "n")]
    for split in SPLITS:
        row = result[split]
        low, high = row["ci"] or (float("nan"),) * 2
        rows.append((split, number(row["auroc"]), f"{low:.3f} - {high:.3f}",
                     number(row["balanced_accuracy"]), number(row["best"]), str(row["n"])))
    print(*columns(rows), sep="\n")
    print("\nheld out, by kind of fact: " + ", ".join(
        f"{kind} {row['auroc']:.3f}" for kind, row in result["kinds"].items()
        if row["auroc"] is not None))
    for split, texts in result["wrong"].items():
        for one in texts:
            print(f"{split:<14} {one['p']:.2f} but {'yes' if one['truth'] else 'no':<3} "
                  f"{one['text']}")
    print(f"\n{result['clips']} desks of {desk.GROUPS} groups; unanswerable: |p - 0.5| against "
          "that of the seen")


def _choose(rng: np.random.Generator, split: str, facts: list[dict[str, int]],
            count: int) -> AskedSample:
    """Draw texts of a split and, by a coin for each, a scene where it is true or false."""
    chosen = AskedSample()
    table = {name: np.array([f[name] for f in facts], np.int8) for name in facts[0]}
    while len(chosen.scene) < count:
        phrase = draw(rng, split)
        if split == "unanswerable":
            chosen.scene.append(int(rng.integers(len(facts))))
            chosen.truth.append(False)
        else:
            values = phrase.meaning.value(table)
            if not (values > 0).any() or not (values < 0).any():
                continue  # true, or false, of no desk here
            truth = bool(rng.random() < 0.5)
            fit = np.flatnonzero(values > 0 if truth else values < 0)
            chosen.scene.append(int(rng.choice(fit)))
            chosen.truth.append(truth)
        chosen.phrases.append(phrase)
        chosen.p.append(float("nan"))
    return chosen


def _measure(asked: AskedSample, clips: int) -> dict[str, Any]:
    truth, p = np.array(asked.truth), np.array(asked.p)
    return {"auroc": auroc(truth, p), "balanced_accuracy": balanced_accuracy(truth, p >= 0.5),
            "best": _best(truth, p), "n": len(p), "ci": _interval(truth, p, asked.scene, clips)}


def _confidence(known: AskedSample, unknown: AskedSample, clips: int) -> dict[str, Any]:
    sure = np.abs(np.array([*known.p, *unknown.p]) - 0.5)
    truth = np.arange(len(sure)) < len(known.p)
    return {"auroc": auroc(truth, sure),
            "balanced_accuracy": balanced_accuracy(truth, sure >= UNSURE),
            "best": _best(truth, sure), "n": len(unknown.p),
            "ci": _interval(truth, sure, [*known.scene, *unknown.scene], clips)}


def _best(truth: np.ndarray, p: np.ndarray) -> float | None:
    found = [balanced_accuracy(truth, p >= t) for t in np.unique(np.quantile(
        p, np.linspace(0, 1, 201)))]
    return max((f for f in found if f is not None), default=None)


def _interval(truth: np.ndarray, p: np.ndarray, scene: list[int],
              clips: int) -> list[float] | None:
    """Bootstrap over scenes: the answers about one scene are not independent."""
    members = [np.flatnonzero(np.array(scene) == k) for k in range(clips)]

    def measure(drawn: np.ndarray) -> float | None:
        rows = np.concatenate([members[k] for k in drawn])
        return auroc(truth[rows], p[rows]) if len(rows) else None

    return bootstrap(measure, clips, np.random.default_rng(17), 200)


def _by_kind(asked: dict[str, AskedSample]) -> dict[str, Any]:
    rows: dict[str, list[tuple[bool, float]]] = {}
    for split, one in asked.items():
        if split in ("seen", "unanswerable"):
            continue
        for phrase, truth, p in zip(one.phrases, one.truth, one.p, strict=True):
            for kind in set(phrase.kinds):
                rows.setdefault(kind, []).append((truth, p))
    return {kind: {"auroc": auroc(np.array([t for t, _ in row]), np.array([p for _, p in row])),
                   "n": len(row)} for kind, row in sorted(rows.items())}


def _most_wrong(asked: dict[str, AskedSample], count: int = 4) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for split, one in asked.items():
        if split == "unanswerable":
            order = np.argsort(-np.abs(np.array(one.p) - 0.5))
        else:
            order = np.argsort(-np.abs(np.array(one.p) - np.array(one.truth)))
        found[split] = [{"text": one.phrases[i].text, "p": one.p[i], "truth": one.truth[i]}
                        for i in order[:count]]
    return found
