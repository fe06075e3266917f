"""What the page needs of a running system, whether that is a ROS node or a runtime in process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ..decision import Decision
from ..questions import Question

#: Picture channels: the camera's image with the answers drawn on it, and the image alone.
OVERLAY, CAMERA = "overlay", "camera"
CHANNELS = (OVERLAY, CAMERA)

#: What the page can change of a standing question.
DYNAMIC = ("rate_hz", "enter", "exit", "ema")
CHANGEABLE = ("text", "options", *DYNAMIC)


class PageSourceError(RuntimeError):
    """A request that the system refused. The message says why, for the person who asked."""


class Unavailable(PageSourceError):
    """The system cannot be reached now, or did not reply in time."""


class PageSource(Protocol):
    """Acts on the running system. What it receives goes to a Board and to Pictures.

    The requests block, and are called from worker threads. Each returns what was done, in words. It
    raises PageSourceError, or QuestionError if the question itself is not valid.
    """

    kind: str
    name: str

    def add(self, question: Question) -> str:
        """Add a standing question."""

    def remove(self, question_id: str) -> str:
        """Remove a standing question."""

    def change(self, question: Question, changes: Mapping[str, Any]) -> str:
        """Set fields out of CHANGEABLE of a standing question, all or none."""

    def ask(self, question: Question, timeout_s: float) -> Decision:
        """Answer one question about now."""

    def cost(self, question: Question) -> tuple[tuple[int, float] | None, bool]:
        """Return what a question would cost, None if unknown, and whether that is an estimate.

        A cost is (tokens, milliseconds of one asking); 0 tokens where a head answers.
        """

    def watch(self, channels: frozenset[str]) -> None:
        """Provide pictures of these channels. Called from any thread."""


def cost_by_length(question: Question, standing: Iterable[Question],
                   costs: Mapping[str, tuple[int, float]]) -> tuple[int, float] | None:
    """Estimate what a question costs from the lengths and costs of standing ones.

    None where none of these is answered by the language model.
    """
    known = [(_length(other), *costs[other.id]) for other in standing
             if other.id in costs and costs[other.id][0]]
    if not known:
        return None
    length, tokens, ms = (sum(values) for values in zip(*known))
    share = _length(question) / length
    return round(tokens * share), ms * share


def _length(question: Question) -> int:
    return len(question.text) + sum(len(option) + 1 for option in question.options)
