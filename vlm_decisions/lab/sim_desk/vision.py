"""First stage: a vision tower whose tokens and pooled features show what is on the desk.

Yes/no labels alone teach a small tower slowly, so it learns from dense labels that the world
gives for free: which thing covers each merged token, and, from the mean over tokens (what the
Tier 1 heads read), presence, activity, positions and the motion between a group's two frames.
The label layers are thrown away afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...sim.script import ACTIVITIES, OBJECTS
from .corpus import where
from .scenes import Moment, Strip, patches

CELLS = ("person", "second_person", "cup", "phone", "laptop", "pen", "book", "held", "door_open",
         "door_closed")
FLAGS = ("person", "second_person", "cup", "phone", "laptop", "pen", "book", "door_open",
         "hold_cup", "hold_phone", "hold_pen", "hold_book", "desk_cup", "desk_phone", "desk_pen",
         "approaching", "receding", "left", "right")
POSE = ("x", "ln_scale", "vx", "vs", "x_cup", "x_phone", "x_laptop", "x_pen")


@dataclass
class Labels:
    """Targets of N groups; see `CELLS`, `FLAGS` and `POSE` for the columns."""

    cells: Tensor  # (N, tokens, CELLS) share of the thing in view that says yes, 0 to 1
    flags: Tensor  # (N, FLAGS) 0 or 1
    activity: Tensor  # (N,) index into ACTIVITIES
    pose: Tensor  # (N, POSE)
    known: Tensor  # (N, POSE) 1 where the pose has a meaning
    settled: Tensor  # (N,) 1 where both frames belong to one segment

    def __getitem__(self, index: Tensor) -> Labels:
        return Labels(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @staticmethod
    def cat(parts: list[Labels]) -> Labels:
        names = Labels.__dataclass_fields__
        return Labels(*(torch.cat([getattr(p, name) for p in parts]) for name in names))


def flags_of(moment: Moment) -> list[float]:
    """Return the `FLAGS` of one moment."""
    state, x = moment.state, moment.x
    moving = state.motion if state.person else "still"
    return [float(v) for v in (
        state.person, state.second_person,
        *(where(state, x, n) is not None for n in OBJECTS), state.holding == "book",
        state.door_open, *(state.holding == n for n in ("cup", "phone", "pen", "book")),
        *(n in state.desk for n in ("cup", "phone", "pen")),
        *(moving == m for m in ("approaching", "receding", "left", "right")))]


def pose_of(moment: Moment) -> tuple[list[float], list[float]]:
    """`POSE` of one moment, scaled to about unit size, and which entries mean something."""
    state, x = moment.state, moment.x
    places = [where(state, x, n) for n in OBJECTS]
    vx, vs = moment.velocity
    here = float(state.person)
    pose = [(x - 0.5) * 4, np.log(moment.scale) * 3, vx * 8, vs * 5,
            *((0.5 if p is None else p) * 4 - 2 for p in places)]
    return pose, [here, here, here, here, *(float(p is not None) for p in places)]


def labels_of(strip: Strip) -> Labels:
    """Targets of every group of a strip."""
    height, width = strip.frames.shape[2:4]
    rows, columns = height // 32, width // 32
    cells = np.zeros((len(strip.moments), rows, columns, len(CELLS)), np.float32)
    for g, (now, boxes) in enumerate(zip(strip.moments, strip.boxes, strict=True)):
        for name, (x0, y0, x1, y1) in boxes.items():
            label = name
            if name == "door":
                label = "door_open" if now.state.door_open else "door_closed"
            across = np.clip(np.minimum(np.arange(1, columns + 1), x1 * columns)
                             - np.maximum(np.arange(columns), x0 * columns), 0, 1)
            down = np.clip(np.minimum(np.arange(1, rows + 1), y1 * rows)
                           - np.maximum(np.arange(rows), y0 * rows), 0, 1)
            cover = np.outer(down, across)
            share = np.minimum(1, cover / max(cover.max(), 1e-6) * 1.5)  # small things count too
            cells[g, :, :, CELLS.index(label)] = np.maximum(
                cells[g, :, :, CELLS.index(label)], np.where(share > 0.3, share, 0))
    poses = [pose_of(m) for m in strip.moments]
    return Labels(
        torch.from_numpy(cells.reshape(len(cells), -1, len(CELLS))),
        torch.tensor([flags_of(m) for m in strip.moments]),
        torch.tensor([ACTIVITIES.index(m.state.activity) for m in strip.moments]),
        torch.tensor([p for p, _ in poses], dtype=torch.float32),
        torch.tensor([k for _, k in poses], dtype=torch.float32),
        torch.tensor([float(m.since_s > 0.14) for m in strip.moments]))


class Labeller(nn.Module):
    """The linear layers that read labels off tokens and off their mean."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.cells = nn.Linear(dim, len(CELLS))
        self.flags = nn.Linear(dim, len(FLAGS))
        self.activity = nn.Linear(dim, len(ACTIVITIES))
        self.pose = nn.Linear(dim, len(POSE))

    def losses(self, tokens: Tensor, want: Labels) -> dict[str, Tensor]:
        """Loss per label kind for tokens (N, T, dim)."""
        sure = want.settled
        mean = tokens.mean(1)

        def average(loss: Tensor, weight: Tensor) -> Tensor:
            return (loss * weight).sum() / weight.sum().clamp(min=1)

        flags = F.binary_cross_entropy_with_logits(self.flags(mean), want.flags, reduction="none")
        pose = F.smooth_l1_loss(self.pose(mean), want.pose, reduction="none", beta=0.3)
        cells = F.binary_cross_entropy_with_logits(self.cells(tokens), want.cells,
                                                   reduction="none")
        activity = F.cross_entropy(self.activity(mean), want.activity, reduction="none")
        return {
            "cells": average(cells.mean((1, 2)), sure) * 6,
            "flags": average(flags.mean(1), sure) * 3,
            "activity": average(activity, sure),
            "pose": average(pose, want.known * sure[:, None]) * 2,
        }


class GroupPool:
    """The newest groups of a stream of strips of one size, to draw batches from."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._frames: list[np.ndarray] = []
        self._labels: list[Labels] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, strip: Strip, labels: Labels) -> None:
        for g in range(len(strip.frames)):
            item = strip.frames[g], labels[torch.tensor([g])]
            if len(self._frames) < self.capacity:
                self._frames.append(item[0])
                self._labels.append(item[1])
            else:
                self._frames[self._next], self._labels[self._next] = item
                self._next = (self._next + 1) % self.capacity

    def batch(self, rng: np.random.Generator, size: int) -> tuple[Tensor, Labels]:
        """`size` groups: pixels (N, P, 1536) and labels."""
        chosen = rng.integers(len(self), size=size)
        pixels = torch.from_numpy(patches(np.stack([self._frames[i] for i in chosen])))
        return pixels, Labels.cat([self._labels[i] for i in chosen])


def cycle_sizes(rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Model sizes (width, height) to train on: mostly 4:3, some 16:9 and square."""
    sizes = ((160, 128), (192, 96), (128, 128))
    while True:
        yield sizes[int(rng.choice(3, p=(0.76, 0.12, 0.12)))]
