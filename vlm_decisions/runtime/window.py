"""What is kept of groups that were encoded: their features and their place in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..frames import Group
from .heads import Pooled


@dataclass(frozen=True)
class Seen:
    """What is kept of a group: its place in time, not its images."""

    segment: int
    index: int
    t_start_ns: int
    t_end_ns: int
    frame_id: str

    @classmethod
    def of(cls, group: Group) -> Seen:
        """Return what is kept of a group."""
        frame_id = group.frames[1].frame_id
        return cls(group.segment, group.index, group.t_start_ns, group.t_end_ns, frame_id)


@dataclass(frozen=True, eq=False)
class Item:
    """An encoded group; `t_s`: its mean time since the window began, seconds."""

    group: Seen
    features: Pooled
    t_s: float


def cosine_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return 1 - cosine of two vectors, 0 where either has no length."""
    one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
    length = math.sqrt(float(np.dot(one, one)) * float(np.dot(other, other)))
    return 1.0 - float(np.dot(one, other)) / length if length > 0 else 0.0
