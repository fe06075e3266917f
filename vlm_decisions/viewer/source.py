"""What the page needs of a running system, whether that is a ROS node or a runtime in process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..decision import Decision
from ..questions import Question
from ..views import View

#: Picture channels: the camera's image with the answers drawn on it, and the image alone.
OVERLAY, CAMERA = "overlay", "camera"
CHANNELS = (OVERLAY, CAMERA)

#: What the page can change of a standing question.
DYNAMIC = ("rate_hz", "enter", "exit", "ema")
CHANGEABLE = ("text", "options", "thresholds", *DYNAMIC)


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

    def cost(self, question: Question) -> tuple[int, float] | None:
        """Return what a question would cost, standing or not; None if unknown.

        That is tokens, 0 where a head answers, and milliseconds of one asking, NaN if unknown.
        """

    def correct(self, question_id: str, view: str, answer: str, start_ns: int, end_ns: int) -> str:
        """Keep what the right answer is from `start_ns` to `end_ns`, both 0: now."""

    def add_view(self, view: View, of: str) -> str:
        """Add a view of the camera of the view `of`. Raises ViewError where there is none."""

    def undo_learning(self, question_id: str, view: str) -> str:
        """Answer as before anything was learned from corrections."""

    def watch(self, channels: frozenset[str]) -> None:
        """Provide pictures of these channels. Called from any thread."""
