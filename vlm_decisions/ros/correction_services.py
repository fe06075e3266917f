"""The services of corrections: correct, list, take back, and take back what was learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rclpy.node import Node

from vlm_decisions.srv import Correct, ListCorrections, UndoCorrection, UndoLearning

from ..learn.corrections import Correction, CorrectionError
from ..questions import QuestionError
from ..runtime.learned import LearnedError
from .convert import correction_to_msg, time_to_ns
from .services import Refused


class CorrectionBackend(Protocol):
    """What the services need of the node.

    Each may raise Refused, QuestionError, CorrectionError, LearnedError or OSError.
    """

    def correct(self, question_id: str, view: str, answer: str, start_ns: int, end_ns: int
                ) -> tuple[Correction, str]:
        """Keep what is right; return it and what to say."""

    def corrections(self, question_id: str, view: str) -> list[Correction]:
        """Return what was corrected of a question and of a view, or of all."""

    def undo_correction(self, number: int) -> Correction:
        """Take a correction back, the newest for 0."""

    def undo_learning(self, question_id: str, view: str) -> str:
        """Answer as before anything was learned; return what was done."""


class CorrectionServices:
    """Offers the services of a node."""

    def __init__(self, node: Node, backend: CorrectionBackend) -> None:
        self._backend = backend
        node.create_service(Correct, "~/correct", self._correct)
        node.create_service(ListCorrections, "~/list_corrections", self._list)
        node.create_service(UndoCorrection, "~/undo_correction", self._undo)
        node.create_service(UndoLearning, "~/undo_learning", self._undo_learning)

    def _correct(self, request: Any, response: Any) -> Any:
        def act() -> str:
            correction, said = self._backend.correct(
                request.question_id, request.view, request.answer, time_to_ns(request.t_start),
                time_to_ns(request.t_end))
            response.correction = correction_to_msg(correction)
            return said
        return _reply(response, act)

    def _list(self, request: Any, response: Any) -> Any:
        def act() -> str:
            found = self._backend.corrections(request.question_id, request.view)
            response.corrections = list(map(correction_to_msg, found))
            return f"{len(found)} correction{'' if len(found) == 1 else 's'}"
        return _reply(response, act)

    def _undo(self, request: Any, response: Any) -> Any:
        return _reply(response,
                      lambda: f"took back {self._backend.undo_correction(request.id)}")

    def _undo_learning(self, request: Any, response: Any) -> Any:
        return _reply(response,
                      lambda: self._backend.undo_learning(request.question_id, request.view))


def _reply(response: Any, act: Callable[[], str]) -> Any:
    try:
        response.message = act()
        response.success = True
    except (QuestionError, CorrectionError, LearnedError, Refused, OSError) as error:
        response.success, response.message = False, str(error)
    return response
