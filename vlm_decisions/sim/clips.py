"""Clips of the desk with one right answer each, to measure models on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from ..frames import FPS
from .script import Script
from .world import World

GROUPS, SETTLED_S = 8, 0.6
LENGTH_S = (2 * GROUPS - 1) / FPS  # from the first frame to the last
TIMES_S = tuple((2 * i + 0.5) / FPS for i in range(GROUPS))  # of the groups
SIZE = (640, 480)
MOTION = ("approaching", "receding", "moving_left", "moving_right")
CONDITIONS = ("two_people", "crowded", "dark", "noisy", "blurred")


@dataclass(frozen=True)
class Clip:
    """Frames of a window, oldest first, and what is true at its newest.

    `steady` says whether all of it shows one and the same motion (or none); `conditions` names
    what makes it hard to see (CONDITIONS).
    """

    frames: list[np.ndarray]
    truth: dict[str, str]
    steady: bool
    conditions: tuple[str, ...] = field(default=())

    @property
    def moves(self) -> bool:
        return any(self.truth[name] == "yes" for name in MOTION)

    @property
    def pairs(self) -> list[list[np.ndarray]]:
        """The frames by group."""
        return [self.frames[i:i + 2] for i in range(0, len(self.frames), 2)]


def settled_moment(seed: int) -> tuple[World, float]:
    """Return the world of a seed and a time at least SETTLED_S after any change."""
    rng = np.random.default_rng([seed, 12])
    world = World(seed, Script.random(seed, 9.0, (1.8, 3.2)))
    while True:
        end = float(rng.uniform(LENGTH_S, world.duration_s - 0.01))
        if world.script.at(end)[1] >= SETTLED_S:
            return world, end


def draw_clip(seed: int) -> Clip:
    """Draw the clip of a seed: it ends at least SETTLED_S after any change."""
    return window(*settled_moment(seed))


def draw_motion_clip(seed: int) -> Clip:
    """Draw a clip that lies within one segment; four of five show a motion.

    What a frame shows then tells nothing that was true of another part of the clip only.
    """
    rng = np.random.default_rng([seed, 14])
    wanted = bool(rng.random() < 0.8)
    for attempt in range(1000):
        world = World(seed, Script.random(seed + attempt, 12.0, (LENGTH_S + 0.2, LENGTH_S + 1.0)))
        begun = [0.0, *world.script.changes_s]
        rng.shuffle(begun)
        for start in begun:
            moves = any(world.truth(start + 0.01)[name] == "yes" for name in MOTION)
            if moves == wanted:
                return window(world, start + 0.02 + LENGTH_S + float(rng.uniform(0.0, 0.15)))
    raise RuntimeError("random scripts show no motion")  # a script of 5 segments has one in 2 of 3


def conditions_of(world: World, t_s: float) -> tuple[str, ...]:
    """Return what makes the world hard to see at `t_s`, of CONDITIONS.

    crowded: at least five things on the desk or held; dark: under 0.6 of full light; noisy: sensor
    noise above 6 grey levels (standard deviation); blurred: defocus above 1 pixel at 640 wide.
    """
    state = world.state(t_s)
    things = len(state.desk) + len(world._clutter) + (state.holding is not None)
    here = (state.second_person, things >= 5, state.light < 0.6, world._noise > 6.0,
            world._blur * 640 > 1.0)
    return tuple(name for name, true in zip(CONDITIONS, here, strict=True) if true)


def drawing() -> str:
    """Return a digest of how the desk is drawn: what was made from other drawings has another."""
    digest = hashlib.blake2b(digest_size=8)
    for seed in range(4):
        world = World(seed, Script.random(seed, 12.0))
        for t_s in (0.5, 4.5, 8.5):
            digest.update(world.render(t_s, 160, 120).tobytes())
            digest.update(repr(sorted(world.truth(t_s).items())).encode())
    return digest.hexdigest()


def window(world: World, end_s: float) -> Clip:
    """Draw the GROUPS groups of a world that end at `end_s`."""
    times = end_s - np.arange(2 * GROUPS)[::-1] / FPS
    first = max(0.0, float(times[0]))
    return Clip([world.render(float(t), *SIZE) for t in times], world.truth(end_s),
                world.script.at(first)[0] == world.script.at(end_s)[0],
                conditions_of(world, end_s))
