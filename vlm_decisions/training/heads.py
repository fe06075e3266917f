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
MOTION = ("approaching", "receding", "moving_left", "moving_right")
MOTION_GROUPS = 4  # a second: long enough to see a motion, short enough to notice its end
CAMERAS = ((640, 480), (320, 240), (1280, 720), (480, 480))
FIRST_SEED = 700_000_000  # no world that the model was trained on
STRENGTHS = (0.01, 0.1, 1.0, 10.0)
LEAST_AUROC = 0.97  # a weaker head is not written


@dataclass(frozen=True)
class Samples:
    """What heads are fitted on.

    features: by pooling, (N, D) or (N, 2D). world: of each sample, (N,); clips of one world, and a
    clip and its reversal, are of one world and never split. truth: by question, (N,) bool.
    window_groups: groups that the features were pooled over.
    """

    features: dict[str, np.ndarray]
    world: np.ndarray
    truth: dict[str, np.ndarray]
    window_groups: int = 1


def draw_presence(engine: Any, clips: int, per_clip: int = 4) -> Samples:
    """Encode single groups, at settled moments of `clips` random worlds."""
    mean, peak, world_of, truth = [], [], [], []
    for k in _progress(clips, "presence"):
        world, size, rng = _world(k, per_clip * 2.0, (1.6, 2.4))
        for start in [0.0, *world.script.changes_s][:per_clip]:
            t = start + float(rng.uniform(0.02, 1.6 - GROUP_S))
            group = engine.encode([world.render(t, *size), world.render(t + 1 / FPS, *size)])
            mean.append(group.mean)
            peak.append(group.max)
            world_of.append(k)
            truth.append(world.truth(t + 1 / FPS))
    features = {"mean": np.stack(mean),
                "mean_max": np.concatenate([np.stack(mean), np.stack(peak)], axis=1)}
    return Samples(features, np.array(world_of), _truth(truth, PRESENCE))


def draw_motion(engine: Any, clips: int, window: int = MOTION_GROUPS) -> Samples:
    """Encode windows of `window` groups, each inside one segment, forwards and backwards.

    Played backwards the same places and sizes go with the opposite answer, so that only change
    over time can tell.
    """
    rows, world_of, truth = [], [], []
    length_s = (2 * window - 1) / FPS
    for k in _progress(clips, "motion"):
        world, size, rng = _world(100_000 + k, 8 * (length_s + 0.4),
                                  (length_s + 0.1, length_s + 0.6))
        begun = [0.0, *world.script.changes_s]
        moving = [s for s in begun if world.truth(s + 0.01)["activity"] == "idle"] or begun
        for start in (begun[int(rng.integers(len(begun)))], moving[int(rng.integers(len(moving)))]):
            times = start + float(rng.uniform(0.0, 0.09)) + np.arange(2 * window) / FPS
            frames = [world.render(float(t), *size) for t in times]
            told = world.truth(float(times[-1]))
            for images, facts in ((frames, told), (frames[::-1], _swapped(told))):
                groups = engine.encode_many([images[2 * i:2 * i + 2] for i in range(window)])
                means = np.stack([group.mean for group in groups])
                rows.append(np.concatenate([means[-1] - means[0], means.mean(axis=0)]))
                world_of.append(k)
                truth.append(facts)
    return Samples({"motion": np.stack(rows)}, np.array(world_of), _truth(truth, MOTION), window)


def fit_head(samples: Samples, name: str, engine: Any, trained_on: str) -> Head:
    """Fit one head; pooling and L2 strength are chosen by cross-validation over worlds.

    Raises:
        ValueError: the worlds show only one answer, or the features are not finite.
    """
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GroupKFold, cross_val_score

    answer = samples.truth[name]
    if answer.all() or not answer.any():
        raise ValueError(f"head {name!r}: every sample says {'yes' if answer.all() else 'no'}; "
                         "both answers are needed")
    if not all(np.isfinite(x).all() for x in samples.features.values()):
        raise ValueError(f"head {name!r}: the features are not finite")
    worlds = int(samples.world.max()) + 1
    fit = samples.world < worlds * 0.6
    warm = (samples.world >= worlds * 0.6) & (samples.world < worlds * 0.8)
    test = samples.world >= worlds * 0.8
    best: tuple[float, str, float] | None = None
    for pooling, features in samples.features.items():
        x, _, _ = _standard(features, fit)
        for strength in STRENGTHS:
            model = LogisticRegression(C=strength, max_iter=400)
            score = float(np.mean(cross_val_score(
                model, x[fit], answer[fit], groups=samples.world[fit], cv=GroupKFold(4),
                scoring="neg_log_loss")))
            if best is None or score > best[0] + 1e-3:  # the simpler one on a tie
                best = score, pooling, strength
    assert best is not None
    _, pooling, strength = best
    x, centre, scale = _standard(samples.features[pooling], fit)
    model = LogisticRegression(C=strength, max_iter=1000).fit(x[fit], answer[fit])
    weight = (model.coef_[0] / scale).astype(np.float32)
    bias = float(model.intercept_[0] - centre @ weight)
    logits = samples.features[pooling] @ weight + bias
    temperature = _temperature(logits[warm], answer[warm])
    p = expit(logits[test] / temperature)
    metrics = {"auroc": float(roc_auc_score(answer[test], p)),
               "accuracy": float(np.mean((p > 0.5) == answer[test])),
               "brier": float(np.mean((p - answer[test]) ** 2)), "samples": int(test.sum())}
    return Head(name=name, question=name, pooling=pooling, weight=weight, bias=bias,
                temperature=temperature, fingerprint=engine.fingerprint,
                pixel_budget=engine.pixel_budget, window_groups=samples.window_groups,
                feature_path=FEATURE_PATH, metrics=metrics, trained_on=trained_on)


def train_desk_heads(model: str, out: Path, clips: int) -> list[Head]:
    """Train every head for `model` and write those that are good enough to `out`."""
    from ..engine.engine import Engine

    engine = Engine.load(model)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for samples in (draw_presence(engine, clips), draw_motion(engine, clips)):
        trained_on = f"{len(samples.world)} clips of {clips} simulated desks"
        for name in samples.truth:
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


def _world(k: int, duration_s: float, segment_s: tuple[float, float]) -> tuple[
        World, tuple[int, int], np.random.Generator]:
    rng = np.random.default_rng([FIRST_SEED + k, 11])
    world = World(FIRST_SEED + k, Script.random(FIRST_SEED + k, duration_s, segment_s))
    return world, CAMERAS[int(rng.choice(len(CAMERAS), p=(0.5, 0.3, 0.1, 0.1)))], rng


def _truth(told: Sequence[dict[str, str]], names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: np.array([facts[name] == "yes" for facts in told]) for name in names}


def _swapped(facts: dict[str, str]) -> dict[str, str]:
    """Return the truth of a clip played backwards."""
    pairs = (("approaching", "receding"), ("moving_left", "moving_right"))
    return {**facts, **{a: facts[b] for a, b in pairs}, **{b: facts[a] for a, b in pairs}}


def _progress(count: int, name: str) -> Any:
    from tqdm import tqdm

    return tqdm(range(count), desc=name, unit="world", disable=None)


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
