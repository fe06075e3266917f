"""What the runtime needs of an engine, and where a worker's results go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..questions import Question
from .heads import Pooled
from .smoothing import Evidence


class ReadoutLike(Protocol):
    """The engine's answer to one question: logits (k,) in the options' order, layers used."""

    logits: Any
    depth: int


class StreamLike(Protocol):
    """A running state that groups are appended to and questions forked off (engine.stream)."""

    @property
    def n_groups(self) -> int:
        """Return the groups that the state holds."""

    def append(self, group: Any, t_s: float) -> None:
        """Append an encoded group at `t_s` seconds."""

    def ask(self, queries: Sequence[Question]) -> Sequence[ReadoutLike]:
        """Answer all: only `text`, `options` and `depth` of a question are read."""

    def reset(self) -> None:
        """Drop all groups."""

    def idle(self) -> bool:
        """Do a piece of what can wait for dead time; return whether there was one."""


class EngineLike(Protocol):
    """What the runtime needs of an engine."""

    name: str
    fingerprint: str
    pixel_budget: int

    def encode(self, frames: Sequence[np.ndarray]) -> Pooled:
        """Encode the two uint8 RGB images of a group."""

    def stream(self, window_groups: int, mode: str) -> StreamLike:
        """Return a new, empty running state."""


class Sink(Protocol):
    """Where the worker's results go."""

    def answered(
        self, question: Question, probabilities: Sequence[float], evidence: Evidence
    ) -> None:
        """Take an answer's calibrated probabilities."""

    def failed(self, question: Question, reason: str, evidence: Evidence) -> None:
        """Take that a question could not be answered on this evidence."""

    def error(self, message: str) -> None:
        """Take a fault that the operator should hear of."""
