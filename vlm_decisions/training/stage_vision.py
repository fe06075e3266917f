"""Run the first training stage, with checkpoints, resume and an estimate of the time left."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from . import forward
from .checkpoints import Run
from .scenes import Strip, draw_strip, plan_strip
from .vision import FLAGS, GroupPool, Labeller, Labels, cycle_sizes, labels_of
from .workers import Producer

GROUPS_PER_STRIP = 4
BATCH = 48
POOL = {(160, 128): 6000, (192, 96): 1500, (128, 128): 1500}
VALIDATION_SEEDS = 900_000_000


def draw(seed: int, offset: int = 0) -> tuple[tuple[int, int], Strip, Labels]:
    """One short strip of training data; the size follows from the seed."""
    size = next(cycle_sizes(np.random.default_rng([seed, 8])))
    plan = plan_strip(seed + offset, GROUPS_PER_STRIP, size, (0.6, 2.0))
    strip = draw_strip(plan, size)
    return size, strip, labels_of(strip)


def validate(visual: Any, labeller: Labeller, strips: list[tuple[Any, Strip, Labels]]) -> str:
    """AUROC per flag on held-out worlds, read from the pooled features."""
    from sklearn.metrics import roc_auc_score

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
    parts = [f"{name} {roc_auc_score(t[:, k], s[:, k]):.3f}" for k, name in enumerate(FLAGS)]
    return "  ".join(parts)


def train_vision(model: Any, run: Run, steps: int, lr: float = 1.5e-3) -> None:
    """Train `model.model.visual` for `steps` steps; `run` holds the checkpoint folder."""
    visual = model.model.visual
    labeller = Labeller(visual.config.out_hidden_size)
    modules = {"visual": visual, "labeller": labeller}
    parameters = [p for m in modules.values() for p in m.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.03, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, run.cosine(steps, warmup=150))
    start = run.restore("vision", modules, optimiser, schedule)
    if start >= steps:
        return
    rng = np.random.default_rng([start, 9])
    pools = {size: GroupPool(capacity) for size, capacity in POOL.items()}
    held_out = [draw(k, VALIDATION_SEEDS) for k in range(80)]
    producer = Producer(functools.partial(draw, offset=1_000_000 * run.epoch("vision")), 0)
    progress = run.progress("vision", start, steps)
    try:
        while min(len(p) for p in pools.values()) < 64 or sum(map(len, pools.values())) < 1200:
            _, (size, strip, labels) = producer.get()
            pools[size].add(strip, labels)
        sizes = cycle_sizes(rng)
        for step in range(start, steps):
            for _ in range(8):
                if producer.ready():
                    _, (size, strip, labels) = producer.get()
                    pools[size].add(strip, labels)
            size = next(sizes)
            pixels, want = pools[size].batch(rng, BATCH)
            grid = (size[1] // 16, size[0] // 16)
            losses = labeller.losses(forward.vision_features(visual, pixels, grid), want)
            loss = sum(losses.values())
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            schedule.step()
            progress.update(step + 1, {k: float(v.detach()) for k, v in losses.items()})
            if (step + 1) % 250 == 0 or step + 1 == steps:
                progress.note(validate(visual, labeller, held_out))
                run.save("vision", step + 1, modules, optimiser, schedule)
    finally:
        producer.close()


