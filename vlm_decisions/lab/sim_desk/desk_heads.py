"""Tier 1 heads for the simulated desk, drawn at camera sizes and encoded by the running path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...frames import FPS
from ...learn.features import Store, engine_key
from ...learn.heads import LEAST_AUROC, fit_head
from ...learn.samples import Samples
from ...runtime.heads import Head, motion_row, write_head
from ...sim.clips import MOTION, drawing
from ...sim.script import Script
from ...sim.world import World
from .scenes import GROUP_S

PRESENCE = ("person", "second_person", "cup", "phone", "laptop", "pen", "door_open")
MOTION_GROUPS = 4  # a second: long enough to see a motion, short enough to notice its end
CAMERAS = ((640, 480), (320, 240), (1280, 720), (480, 480))
FIRST_SEED = 700_000_000  # no world that the model was trained on
CHUNK = 50  # worlds stored at once

Rows = dict[str, list[Any]]


def train_desk_heads(model: str, out: Path, clips: int, cache: Path | None = None,
                     engine: Any = None) -> list[Head]:
    """Train every head of the desk for `model` and write those that are good enough to `out`."""
    if engine is None:
        from ...engine.engine import Engine

        engine = Engine.load(model)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for samples in (draw_presence(engine, clips, cache), draw_motion(engine, clips, cache)):
        trained_on = f"{len(samples.source)} clips of {clips} simulated desks"
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


def draw_presence(engine: Any, clips: int, cache: Path | None = None) -> Samples:
    """Encode single groups, at settled moments of `clips` random worlds."""
    rows = _drawn(engine, "presence", PRESENCE, clips, _presence, cache)
    features = {"mean": rows["mean"],
                "mean_max": np.concatenate([rows["mean"], rows["max"]], axis=1)}
    return Samples(features, rows["world"], _truth(rows["truth"], PRESENCE))


def draw_motion(engine: Any, clips: int, cache: Path | None = None) -> Samples:
    """Encode windows of MOTION_GROUPS groups, each inside one segment, forwards and backwards.

    Played backwards the same places and sizes go with the opposite answer, so that only change
    over time can tell.
    """
    rows = _drawn(engine, "motion", MOTION, clips, _motion, cache)
    return Samples({"motion": rows["motion"]}, rows["world"], _truth(rows["truth"], MOTION),
                   MOTION_GROUPS)


def _presence(engine: Any, k: int) -> Rows:
    world, size, rng = _world(k, 8.0, (1.6, 2.4))
    rows: Rows = {"mean": [], "max": [], "world": [], "truth": []}
    for start in [0.0, *world.script.changes_s][:4]:
        t = start + float(rng.uniform(0.02, 1.6 - GROUP_S))
        group = engine.encode([world.render(t, *size), world.render(t + 1 / FPS, *size)])
        told = world.truth(t + 1 / FPS)
        rows["mean"].append(group.mean)
        rows["max"].append(group.max)
        rows["world"].append(k)
        rows["truth"].append([told[name] == "yes" for name in PRESENCE])
    return rows


def _motion(engine: Any, k: int) -> Rows:
    length_s = (2 * MOTION_GROUPS - 1) / FPS
    world, size, rng = _world(100_000 + k, 8 * (length_s + 0.4), (length_s + 0.1, length_s + 0.6))
    begun = [0.0, *world.script.changes_s]
    moving = [s for s in begun if world.truth(s + 0.01)["activity"] == "idle"] or begun
    rows: Rows = {"motion": [], "world": [], "truth": []}
    for start in (begun[int(rng.integers(len(begun)))], moving[int(rng.integers(len(moving)))]):
        times = start + float(rng.uniform(0.0, 0.09)) + np.arange(2 * MOTION_GROUPS) / FPS
        frames = [world.render(float(t), *size) for t in times]
        told = world.truth(float(times[-1]))
        for images, facts in ((frames, told), (frames[::-1], swapped(told))):
            groups = engine.encode_many([images[2 * i:2 * i + 2] for i in range(MOTION_GROUPS)])
            rows["motion"].append(motion_row(np.stack([group.mean for group in groups])))
            rows["world"].append(k)
            rows["truth"].append([facts[name] == "yes" for name in MOTION])
    return rows


def swapped(facts: dict[str, str]) -> dict[str, str]:
    """Return the truth of a clip played backwards."""
    pairs = (("approaching", "receding"), ("moving_left", "moving_right"))
    return {**facts, **{a: facts[b] for a, b in pairs}, **{b: facts[a] for a, b in pairs}}


def _drawn(engine: Any, what: str, told: Sequence[str], clips: int,
           draw: Callable[[Any, int], Rows], cache: Path | None) -> dict[str, np.ndarray]:
    """Draw worlds 0 to clips, CHUNK at a time, each chunk stored when it is done."""
    from tqdm import tqdm

    store = Store(cache, engine_key(engine), what, told, CAMERAS, MOTION_GROUPS, drawing())
    chunks = []
    with tqdm(total=clips, desc=what, unit="world", disable=None) as bar:
        for first in range(0, clips, CHUNK):
            worlds = range(first, min(first + CHUNK, clips))
            name = f"desk_{what}_{worlds.start}_{worlds.stop}"
            arrays = store.read(name)
            if arrays is None:
                rows: Rows = {}
                for k in worlds:
                    for key, column in draw(engine, k).items():
                        rows.setdefault(key, []).extend(column)
                    bar.update()
                arrays = {key: np.array(column) for key, column in rows.items()}
                store.write(arrays, name)
            else:
                bar.update(len(worlds))
            chunks.append(arrays)
    return {key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]}


def _world(k: int, duration_s: float, segment_s: tuple[float, float]) -> tuple[
        World, tuple[int, int], np.random.Generator]:
    rng = np.random.default_rng([FIRST_SEED + k, 11])
    world = World(FIRST_SEED + k, Script.random(FIRST_SEED + k, duration_s, segment_s))
    return world, CAMERAS[int(rng.choice(len(CAMERAS), p=(0.5, 0.3, 0.1, 0.1)))], rng


def _truth(told: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: told[:, k].astype(bool) for k, name in enumerate(names)}
