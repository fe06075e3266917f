"""Tier 1 heads for the simulated desk: linear probes on the features of exactly the running path.

Frames are drawn at camera sizes and go through `Engine.encode`, so that a head is trained on what
it will read. Worlds are split three ways and never shared: weights are fitted on the first part
(L2 strength and pooling by cross-validation over worlds), the temperature on the second, and the
metrics come from the third.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..sim.script import Script
from ..sim.world import World
from ..tiers.heads import FEATURE_PATH, Head, write_head
from .scenes import FPS, GROUP_S

PRESENCE = ("person", "cup", "phone", "laptop", "door_open")
CAMERAS = ((640, 480), (320, 240), (1280, 720), (480, 480))
FIRST_SEED = 700_000_000  # no world that the model was trained on
STRENGTHS = (0.01, 0.1, 1.0, 10.0)
LEAST_AUROC = 0.97  # a weaker head is not written


@dataclass(frozen=True)
class Samples:
    """Pooled features of groups: mean and max (N, D), world of each (N,), truth by question."""

    mean: np.ndarray
    max: np.ndarray
    world: np.ndarray
    truth: dict[str, np.ndarray]

    def features(self, pooling: str) -> np.ndarray:
        return self.mean if pooling == "mean" else np.concatenate([self.mean, self.max], axis=1)


def draw_samples(engine: Any, clips: int, per_clip: int = 4) -> Samples:
    """Encode settled moments of `clips` random worlds with the engine."""
    from tqdm import tqdm

    mean, peak, world_of, truth = [], [], [], []
    for k in tqdm(range(clips), desc="worlds", unit="world"):
        rng = np.random.default_rng([FIRST_SEED + k, 11])
        world = World(FIRST_SEED + k, Script.random(FIRST_SEED + k, per_clip * 2.0, (1.6, 2.4)))
        size = CAMERAS[int(rng.choice(len(CAMERAS), p=(0.5, 0.3, 0.1, 0.1)))]
        begun = [0.0, *world.script.changes_s]
        for start in begun[:per_clip]:
            t = start + float(rng.uniform(0.02, 1.6 - GROUP_S))
            group = engine.encode([world.render(t, *size), world.render(t + 1 / FPS, *size)])
            mean.append(group.mean)
            peak.append(group.max)
            world_of.append(k)
            truth.append(world.truth(t + 1 / FPS))
    ids = truth[0]
    return Samples(np.stack(mean), np.stack(peak), np.array(world_of),
                   {i: np.array([t[i] == "yes" for t in truth]) for i in ids if i != "activity"})


def fit_head(samples: Samples, name: str, engine: Any, trained_on: str) -> Head:
    """Fit one presence head.

    Raises:
        ValueError: the worlds show only one answer, or the features are not finite.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GroupKFold, cross_val_score

    answer = samples.truth[name]
    if answer.all() or not answer.any():
        raise ValueError(f"head {name!r}: every sample says {'yes' if answer.all() else 'no'}; "
                         "both answers are needed")
    if not (np.isfinite(samples.mean).all() and np.isfinite(samples.max).all()):
        raise ValueError(f"head {name!r}: the features are not finite")
    worlds = int(samples.world.max()) + 1
    fit = samples.world < worlds * 0.6
    warm = (samples.world >= worlds * 0.6) & (samples.world < worlds * 0.8)
    test = samples.world >= worlds * 0.8
    best: tuple[float, str, float] | None = None
    for pooling in ("mean", "mean_max"):
        x, _, _ = _standard(samples.features(pooling), fit)
        for strength in STRENGTHS:
            model = LogisticRegression(C=strength, max_iter=400)
            score = float(np.mean(cross_val_score(
                model, x[fit], answer[fit], groups=samples.world[fit], cv=GroupKFold(4),
                scoring="neg_log_loss")))
            if best is None or score > best[0] + 1e-3:  # the simpler one on a tie
                best = score, pooling, strength
    assert best is not None
    _, pooling, strength = best
    x, centre, scale = _standard(samples.features(pooling), fit)
    model = LogisticRegression(C=strength, max_iter=1000).fit(x[fit], answer[fit])
    weight = (model.coef_[0] / scale).astype(np.float32)
    bias = float(model.intercept_[0] - centre @ weight)
    logits = samples.features(pooling) @ weight + bias
    temperature = _temperature(logits[warm], answer[warm])
    p = 1 / (1 + np.exp(-logits[test] / temperature))
    metrics = {"auroc": float(roc_auc_score(answer[test], p)),
               "accuracy": float(np.mean((p > 0.5) == answer[test])),
               "brier": float(np.mean((p - answer[test]) ** 2)), "samples": int(test.sum())}
    return Head(name=name, question=name, pooling=pooling, weight=weight,
                bias=bias, temperature=temperature,
                fingerprint=engine.fingerprint, pixel_budget=engine.pixel_budget,
                feature_path=FEATURE_PATH, metrics=metrics, trained_on=trained_on)


def train_desk_heads(model: str, out: Path, clips: int,
                     names: Sequence[str] = PRESENCE) -> list[Head]:
    """Train the heads `names` for `model` and write those that are good enough to `out`."""
    from ..engine.engine import Engine

    engine = Engine.load(model)
    samples = draw_samples(engine, clips)
    trained_on = f"{len(samples.world)} moments of {clips} simulated desks"
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        head = fit_head(samples, name, engine, trained_on)
        path = out / f"{name}.npz"
        if head.metrics["auroc"] < LEAST_AUROC:
            print(f"{name}: AUROC {head.metrics['auroc']:.3f} on held-out worlds is below "
                  f"{LEAST_AUROC}: not written")
            path.unlink(missing_ok=True)
            continue
        write_head(path, head)
        written.append(Head.load(path))
    return written


def _standard(x: np.ndarray, fit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x centred and scaled by the rows `fit`, with the centre and the scale."""
    centre, scale = x[fit].mean(axis=0), x[fit].std(axis=0) + 1e-6
    return (x - centre) / scale, centre, scale


def _temperature(logits: np.ndarray, answer: np.ndarray) -> float:
    from scipy.optimize import minimize_scalar

    def loss(log_t: float) -> float:
        z = logits / np.exp(log_t) * np.where(answer, 1, -1)
        return float(np.mean(np.logaddexp(0, -z)))

    return float(np.exp(minimize_scalar(loss, bounds=(-2, 4), method="bounded").x))
