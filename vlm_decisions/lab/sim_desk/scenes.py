"""Training data drawn from the simulated desk: strips of frames with the state at each group."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from ...frames import FPS
from ...sim.script import Script, State
from ...sim.world import World

GROUP_S = 2 / FPS
OPPOSITE = {"approaching": "receding", "receding": "approaching", "left": "right",
            "right": "left"}
RENDER_SIZES = {(160, 128): ((320, 240), (224, 168), (448, 336)),  # model size -> camera sizes
                (192, 96): ((320, 180), (448, 252)),
                (128, 128): ((240, 240), (320, 320))}


@dataclass(frozen=True)
class Moment:
    """What is true at one group: its newest frame's state, and for how long it has been so."""

    state: State
    x: float
    scale: float
    velocity: tuple[float, float]  # d x / dt in widths per second, d ln(scale) / dt
    since_s: float  # time since the last segment change, at the newest frame


@dataclass(frozen=True)
class Strip:
    """Consecutive groups of one world: frames uint8 (groups, 2, H, W, 3) and their moments."""

    frames: np.ndarray
    moments: tuple[Moment, ...]
    boxes: tuple[dict[str, tuple[float, float, float, float]], ...]


def moment(world: World, t_s: float) -> Moment:
    """Return the truth of `world` at `t_s`."""
    index, since = world.script.at(t_s)
    state = world.script.segments[index].state
    x, scale = state.at(since)
    vx = {"left": -state.rate, "right": state.rate}.get(state.motion, 0.0)
    vs = {"approaching": state.rate, "receding": -state.rate}.get(state.motion, 0.0)
    return Moment(state, x, scale, (vx, vs), since)


@dataclass(frozen=True)
class Plan:
    """A strip before it is drawn: its world, its camera size and the time of every frame."""

    world: World
    camera: tuple[int, int]
    times_s: np.ndarray  # (groups, 2)

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The truth at each group's newest frame."""
        return tuple(moment(self.world, float(t)) for t in self.times_s[:, 1])

    @property
    def moments_backwards(self) -> tuple[Moment, ...]:
        """The truth at each group's newest frame when the strip is played backwards."""
        return tuple(backwards(self.world, float(t)) for t in self.times_s[::-1, 0])


def backwards(world: World, t_s: float) -> Moment:
    """Return the truth at `t_s` of a world whose time runs backwards."""
    index, since = world.script.at(t_s)
    now = moment(world, t_s)
    state = replace(now.state, motion=OPPOSITE.get(now.state.motion, now.state.motion))
    left_s = world.script.segments[index].duration_s - since
    return Moment(state, now.x, now.scale, (-now.velocity[0], -now.velocity[1]), left_s)


def plan_strip(seed: int, groups: int, size: tuple[int, int] = (160, 128),
               segment_s: tuple[float, float] = (1.2, 3.0)) -> Plan:
    """Plan `groups` consecutive groups of a random world for the model's `size` (width, height)."""
    rng = np.random.default_rng([seed, 7])
    sizes = RENDER_SIZES[size]
    camera = sizes[0] if rng.random() < 0.8 else sizes[int(rng.integers(1, len(sizes)))]
    world = World(seed, Script.random(seed, groups * GROUP_S + 0.5, segment_s))
    times = float(rng.uniform(0.01, 0.3)) + np.arange(2 * groups) / FPS
    times += rng.uniform(-0.008, 0.008, 2 * groups)
    return Plan(world, camera, times.reshape(groups, 2))


def draw_strip(plan: Plan, size: tuple[int, int]) -> Strip:
    """Draw a planned strip at the camera's size and resize it as the engine does.

    The resize is bicubic with anti-aliasing, like the engine's.
    """
    frames = np.empty((*plan.times_s.shape, size[1], size[0], 3), np.uint8)
    for index in np.ndindex(plan.times_s.shape):
        image = Image.fromarray(plan.world.render(float(plan.times_s[index]), *plan.camera))
        frames[index] = np.asarray(image.resize(size, Image.Resampling.BICUBIC))
    boxes = tuple(plan.world.boxes(float(t)) for t in plan.times_s[:, 1])
    return Strip(frames, plan.moments, boxes)


def patches(frames: np.ndarray) -> np.ndarray:
    """Cut groups of frames into patches in the vision tower's order.

    Args:
        frames: uint8 (N, 2, H, W, 3), sides divisible by 32.

    Returns:
        float32 (N, H/16 * W/16, 3*2*16*16), normalised to [-1, 1], patches of one merged token
        next to each other (Qwen2-VL's layout).
    """
    n, _, height, width, _ = frames.shape
    h, w = height // 32, width // 32
    x = frames.reshape(n, 2, h, 2, 16, w, 2, 16, 3)
    x = x.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)  # n, h, w, mh, mw, c, t, ph, pw
    return (np.ascontiguousarray(x).reshape(n, h * w * 4, -1).astype(np.float32) / 127.5) - 1.0
