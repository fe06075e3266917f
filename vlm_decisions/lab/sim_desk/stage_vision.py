"""Run the first training stage, with checkpoints, resume and an estimate of the time left."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from ...learn.measures import auroc
from . import forward
from .checkpoints import Run
from .optimiser import Optimiser
from .scenes import Strip
from .strips import drawn, size_of
from .vision import FLAGS, GroupPool, Labeller, Labels, cycle_sizes, labels_of
from .workers import Producer

BATCH = 64
KEPT = 5000  # strips whose frames (2 MB each) are kept for the second stage
POOL = {(160, 128): 7000, (192, 96): 1500, (128, 128): 1500}
VALIDATION_SEEDS = 900_000_000


def draw(seed: int, folder: str | None) -> tuple[tuple[int, int], Strip, Labels]:
    """Draw one strip of training data; its frames are kept in `folder` for the second stage."""
    size = size_of(seed)
    strip = drawn(seed, folder if seed < KEPT else None)
    return size, strip, labels_of(strip)


def validate(visual: Any, labeller: Labeller, strips: list[tuple[Any, Strip, Labels]]) -> str:
    """AUROC per flag on held-out worlds, read from the pooled features."""
    from .scenes import patches

    scores, truth = [], []
    with torch.no_grad():
        for (width, height), strip, labels in strips:
            pixels = torch.from_numpy(patches(strip.frames))
            tokens = forward.vision_features(visual, pixels, (height // 16, width // 16))
            keep = labels.settled > 0
            scores.append(labeller.flags(tokens.mean(1))[keep])
            truth.append(labels.flags[keep])
    s, t = torch.cat(scores).numpy(), torch.cat(truth).numpy()
    ranks = {name: auroc(t[:, k], s[:, k]) for k, name in enumerate(FLAGS)}
    return "  ".join(f"{name} {value:.3f}" for name, value in ranks.items() if value is not None)


def train_vision(model: Any, run: Run, steps: int, lr: float = 2e-3) -> None:
    """Train `model.model.visual` for `steps` steps; `run` holds the checkpoint folder."""
    visual = model.model.visual
    labeller = Labeller(visual.config.out_hidden_size)
    modules = {"visual": visual, "labeller": labeller}
    optimiser = Optimiser(modules.values(), lr, run.cosine(steps, warmup=150))
    start = run.restore("vision", modules, optimiser)
    if start >= steps:
        return
    rng = np.random.default_rng([start, 9])
    pools = {size: GroupPool(capacity) for size, capacity in POOL.items()}
    held_out = [draw(VALIDATION_SEEDS + k, None) for k in range(40)]
    frames = run.folder / "frames"
    frames.mkdir(exist_ok=True)
    first = len(list(frames.glob("*.npy"))) if run.epoch("vision") else 0
    producer = Producer(functools.partial(draw, folder=str(frames)), first)
    progress = run.progress("vision", start, steps)
    try:
        while min(len(p) for p in pools.values()) < 64 or sum(map(len, pools.values())) < 1200:
            _, (size, strip, labels) = producer.get()
            pools[size].add(strip, labels)
        sizes = cycle_sizes(rng)
        for step in range(start, steps):
            for _ in range(4):
                if producer.ready():
                    _, (size, strip, labels) = producer.get()
                    pools[size].add(strip, labels)
            size = next(sizes)
            pixels, want = pools[size].batch(rng, BATCH)
            grid = (size[1] // 16, size[0] // 16)
            with torch.autocast("cpu", torch.bfloat16):
                tokens = forward.vision_features(visual, pixels, grid)
            losses = labeller.losses(tokens.float(), want)
            optimiser.step(sum(losses.values()))
            progress.update(step + 1, {k: float(v.detach()) for k, v in losses.items()})
            if (step + 1) % 250 == 0 or step + 1 == steps:
                progress.note(validate(visual, labeller, held_out))
                run.save("vision", step + 1, modules, optimiser)
    finally:
        producer.close()


