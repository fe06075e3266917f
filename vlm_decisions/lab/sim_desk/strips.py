"""Strips of vision features for the second stage: drawn once, encoded once, kept on disk."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...files.atomic import replacing
from . import forward
from .scenes import Moment, Strip, draw_strip, patches, plan_strip
from .vision import cycle_sizes
from .workers import Producer

GROUPS = 16
SHARD = 64


@dataclass(frozen=True)
class EncodedStrip:
    """One strip: model size (width, height), features float16 (groups, tokens, dim), moments."""

    seed: int
    size: tuple[int, int]
    features: np.ndarray
    moments: tuple[Moment, ...]

    def jumbled(self, opposite: EncodedStrip, rng: np.random.Generator) -> EncodedStrip:
        """Return it with the two frames of every other group or so exchanged, at random.

        opposite: the same strip played the other way. A direction must then be read from group to
        group: within a group it says nothing.
        """
        swapped = rng.random(len(self.features)) < 0.5
        features = np.where(swapped[:, None, None], opposite.features[::-1], self.features)
        return replace(self, features=features)


def size_of(seed: int) -> tuple[int, int]:
    """Return the model size of the strip with this seed."""
    return next(cycle_sizes(np.random.default_rng([seed, 8])))


def drawn(seed: int, folder: str | None) -> Strip:
    """Draw the strip of `seed`, or load it from `folder` when it was drawn into it before."""
    size = size_of(seed)
    plan = plan_strip(seed, GROUPS, size)
    if folder is None:
        return draw_strip(plan, size)
    path = Path(folder) / f"{seed}.npy"
    if path.exists():
        boxes = tuple(plan.world.boxes(float(t)) for t in plan.times_s[:, 1])
        return Strip(np.load(path), plan.moments, boxes)
    strip = draw_strip(plan, size)
    with replacing(path) as file:
        np.save(file, strip.frames)
    return strip


@functools.lru_cache(maxsize=1)
def _visual(vision_checkpoint: str) -> Any:
    from .architecture import fresh_model

    visual = fresh_model()[1].model.visual
    state = torch.load(vision_checkpoint, weights_only=True)
    visual.load_state_dict(state["modules"]["visual"])
    return visual.eval()


def encode(seed: int, vision_checkpoint: str) -> tuple[int, np.ndarray]:
    """Run the trained vision tower over the strip of `seed`, played forwards and backwards.

    Returns the seed and features float16 (2, groups, tokens, dim).
    """
    size = size_of(seed)
    kept = Path(vision_checkpoint).parent / "frames"  # of the first stage, where it was run here
    frames = drawn(seed, str(kept) if kept.is_dir() else None).frames
    frames = np.concatenate([frames, frames[::-1, ::-1]])
    with torch.no_grad():
        features = forward.vision_features(
            _visual(vision_checkpoint), torch.from_numpy(patches(frames)),
            (size[1] // 16, size[0] // 16))
    return seed, features.numpy().astype(np.float16).reshape(2, GROUPS, *features.shape[1:])


def both_ways(seed: int, features: np.ndarray) -> tuple[EncodedStrip, EncodedStrip]:
    """Return the strip of `seed` with its truth, forwards and backwards.

    Played both ways, no place or size goes with one direction of motion.
    """
    size = size_of(seed)
    plan = plan_strip(seed, GROUPS, size)
    return (EncodedStrip(seed, size, features[0], plan.moments),
            EncodedStrip(seed, size, features[1], plan.moments_backwards))


class StripStore:
    """A growing set of encoded strips in a folder of shards, filled by a background process."""

    def __init__(self, folder: Path, vision_checkpoint: Path, most: int) -> None:
        self.folder, self.most = folder, most
        folder.mkdir(parents=True, exist_ok=True)
        self.strips: list[EncodedStrip] = []
        self.backwards: list[EncodedStrip] = []  # the same, with time running backwards
        self._pending: list[tuple[int, np.ndarray]] = []
        for path in sorted(folder.glob("shard_*.npz")):
            with np.load(path) as shard:
                for seed in shard["seeds"]:
                    self._add(int(seed), shard[f"f{seed}"])
        make = functools.partial(encode, vision_checkpoint=str(vision_checkpoint))
        self._producer: Producer | None = None
        if len(self.strips) < most:
            self._producer = Producer(make, len(self.strips), ahead=64)

    def __len__(self) -> int:
        return len(self.strips)

    def __iter__(self) -> Iterator[EncodedStrip]:
        return iter(self.strips)

    def poll(self, wait_for: int = 0) -> None:
        """Take what is ready; wait until at least `wait_for` strips are there."""
        while self._producer and (self._producer.ready() or len(self.strips) < wait_for):
            _, (seed, features) = self._producer.get()
            self._add(seed, features)
            self._pending.append((seed, features))
            if len(self._pending) == SHARD:
                self._write()
            if len(self.strips) >= self.most:
                self.close()

    def _add(self, seed: int, features: np.ndarray) -> None:
        strip, backwards = both_ways(seed, features)
        self.strips.append(strip)
        self.backwards.append(backwards)

    def _write(self) -> None:
        seeds = [seed for seed, _ in self._pending]
        path = self.folder / f"shard_{seeds[0]:07d}.npz"
        arrays = {f"f{seed}": features for seed, features in self._pending}
        with replacing(path) as file:
            np.savez(file, seeds=np.array(seeds), **arrays)
        self._pending.clear()

    def close(self) -> None:
        if self._producer:
            self._producer.close()
            self._producer = None
