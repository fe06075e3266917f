"""What the page needs of a running system, whether that is a ROS node or a runtime in process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..decision import Decision
from ..questions import Question
from ..runtime.statistics import Percentiles

#: Picture channels: the camera's image with the answers drawn on it, and the image alone.
OVERLAY, CAMERA = "overlay", "camera"
CHANNELS = (OVERLAY, CAMERA)

#: What the page can change of a standing question.
CHANGEABLE = ("rate_hz", "enter", "exit", "ema")


class SourceError(RuntimeError):
    """A request that the system refused; the message says why, for the person who asked."""


class Unavailable(SourceError):
    """The system cannot be reached now, or did not reply in time."""


class Source(Protocol):
    """
    Acts on the running system; what it sees goes to a Board and to Pictures.

    The requests block and are called from worker threads. Each returns what was done, in words,
    and raises SourceError, or QuestionError where the question itself is at fault.
    """

    kind: str
    name: str

    def add(self, question: Question) -> str:
        """Let a new question stand."""

    def remove(self, question_id: str) -> str:
        """Take a standing question away."""

    def change(self, question_id: str, changes: Mapping[str, float]) -> str:
        """Set fields out of CHANGEABLE, all or none."""

    def ask(self, question: Question, timeout_s: float) -> Decision:
        """Answer one question about now."""

    def watch(self, channels: frozenset[str]) -> None:
        """Take that pictures of these channels are looked at. Called from any thread."""


@dataclass(frozen=True)
class Status:
    """One line of diagnostics; `level` 0 good, 1 warning, 2 error, 3 no news."""

    name: str
    level: int
    message: str


@dataclass(frozen=True)
class System:
    """
    How the running system does.

    `state`: lifecycle label. `image_age_s`: since the last image, NaN where unknown. `counts`,
    `dropped`: totals by name and by cause. `tick_ms`, `age_ms`: milliseconds by stage and by tier.
    `condition`: why answers are unknown just now, or empty. `max_age_s`: an answer older than that
    is stale. NaN stands for a number that is not known.
    """

    state: str = ""
    model: str = ""
    device: str = ""
    topic: str = ""
    image_rate_hz: float = math.nan
    image_age_s: float = math.nan
    queue: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    tick_ms: Mapping[str, Percentiles] = field(default_factory=dict)
    age_ms: Mapping[str, Percentiles] = field(default_factory=dict)
    memory_mb: float = math.nan
    condition: str = ""
    last_error: str = ""
    max_age_s: float = 2.0
    statuses: tuple[Status, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; what is not finite as None."""
        values = {name: value for name, value in self.__dict__.items()
                  if isinstance(value, (str, int))}
        values |= {name: finite(value) for name, value in self.__dict__.items()
                   if isinstance(value, float)}
        values["counts"], values["dropped"] = dict(self.counts), dict(self.dropped)
        for name in ("tick_ms", "age_ms"):
            values[name] = {key: [finite(ms.p50), finite(ms.p95)]
                            for key, ms in getattr(self, name).items()}
        values["statuses"] = [dict(status.__dict__) for status in self.statuses]
        return values


def finite(value: float) -> float | None:
    """Return a number that JSON can hold: None for what is not finite."""
    return round(float(value), 4) if math.isfinite(value) else None
