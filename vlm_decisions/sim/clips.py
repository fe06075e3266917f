"""Clips of the desk with one right answer each, to measure models on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .script import Script
from .world import World

GROUPS, FPS, SETTLED_S = 8, 8.0, 0.6
SIZE = (640, 480)
MOTION = ("approaching", "receding", "moving_left", "moving_right")


@dataclass(frozen=True)
class Clip:
    """Frames of a window, oldest first, and what is true at its newest.

    `steady` says whether all of it shows one and the same motion (or none).
    """

    frames: list[np.ndarray]
    truth: dict[str, str]
    steady: bool

    @property
    def moves(self) -> bool:
        return any(self.truth[name] == "yes" for name in MOTION)


def draw_clip(seed: int) -> Clip:
    """Draw the clip of a seed."""
    rng = np.random.default_rng([seed, 12])
    world = World(seed, Script.random(seed, 9.0, (1.8, 3.2)))
    length_s = (2 * GROUPS - 1) / FPS
    while True:
        end = float(rng.uniform(length_s, world.duration_s - 0.01))
        index, since = world.script.at(end)
        if since >= SETTLED_S:
            break
    times = end - np.arange(2 * GROUPS)[::-1] / FPS
    return Clip([world.render(float(t), *SIZE) for t in times], world.truth(end),
                world.script.at(float(times[0]))[0] == index)
