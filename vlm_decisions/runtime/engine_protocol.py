"""What the runtime needs of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..questions import Question
from ..reuse import ReuseSettings, ReuseStats
from .heads import Pooled


class ReadoutLike(Protocol):
    """The engine's answer to one question: logits, layers used.

    Logits: (k,) in the options' order, or (yes, no); of an any_of with k labels (k, 2), each (yes,
    no).
    `calibrated` (an engine without early exits has none): the logits are those of an early exit,
    with its calibration.
    """

    logits: Any
    depth: int


class TimedGroup(Protocol):
    """An encoded group in a stream, with the stamps of its two frames.

    `left_out_ns`: time since the stream's first group that the model is not told.
    """

    group: Pooled
    t_start_ns: int
    t_end_ns: int
    left_out_ns: int


class StreamLike(Protocol):
    """A running state that groups are appended to and questions forked off (engine.stream).

    It alone keeps the groups and their times. Appending is cheap: what a group costs the language
    model is paid by the next `ask`, or by `idle`.
    """

    @property
    def history(self) -> Sequence[TimedGroup]:
        """Return the groups that the next questions see, oldest first."""

    def append(
        self, group: Any, stamps_ns: tuple[int, int], *, left_out_ns: int = 0
    ) -> None:
        """Append an encoded group whose two frames have these stamps.

        `left_out_ns`: how much of the time since the group before the model is not told.
        """

    def ask(self, queries: Sequence[Question]) -> Sequence[ReadoutLike]:
        """Answer all: only `text`, `kind`, `options`, `depth` and `early` are read."""

    def reset(self) -> None:
        """Drop all groups."""

    def start_over(self) -> None:
        """Drop the state; the last window's groups stay and are computed anew when needed."""

    def idle(self) -> bool:
        """Do a piece of what can wait for dead time; return whether there was one."""


class ReusingLike(Protocol):
    """An encoder of the groups of one stream that encodes only what changed."""

    stats: ReuseStats

    def grid(self, frames: Sequence[np.ndarray]) -> tuple[int, int]:
        """Return the rows and columns of visual tokens of such images."""

    def lost(self) -> None:
        """Take the next group in full: pictures before it are missing."""

    def encode(
        self, frames: Sequence[np.ndarray], changed: np.ndarray | None = None
    ) -> Pooled:
        """Encode the two uint8 RGB images of the next group.

        `changed`: bool (rows, columns), which tokens changed since the group before, where that is
        told from outside.
        The group says which share of it was encoded (`encoded`). One in which nothing changed has
        the very features of the group before.
        """

    def idle(self) -> bool:
        """Do what is due and can be done in dead time; return whether there was something."""


class EngineLike(Protocol):
    """What the runtime needs of an engine."""

    name: str
    fingerprint: str
    pixel_budget: int
    n_layers: int  # of the language model: the greatest depth of a question; 0: there is no choice
    n_frames: int  # of the two of a group, that it sees: 2, or 1 for the newest alone
    token_pixels: int  # of a side of a visual token

    def encode(self, frames: Sequence[np.ndarray], *, pixel_budget: int | None = None) -> Pooled:
        """Encode these uint8 RGB images of a group, its newest last.

        `pixel_budget`: another than its own.
        """

    def encode_many(
        self, groups: Sequence[Sequence[np.ndarray]], *, pixel_budget: int | None = None
    ) -> Sequence[Pooled]:
        """Encode several groups of one size of image in one batch."""

    def tokens(self, query: Question) -> int:
        """Return how many tokens a question has; from any thread."""

    def token_counts(self, queries: Sequence[Question]) -> Sequence[tuple[int, int]]:
        """Return of each query of a batch the tokens that no other has, and that none before has.

        The latter of all together are what the model reads; from any thread.
        """

    def stream(self, window_groups: int, mode: str, *, slide: int = 1) -> StreamLike:
        """Return a new, empty running state.

        slide: moves after which a window is computed anew; only given where it is more than 1.
        """

    def reusing(
        self, settings: ReuseSettings, *, pixel_budget: int | None = None
    ) -> ReusingLike:
        """Return an encoder for the groups of one stream; only asked for where reuse is on."""
