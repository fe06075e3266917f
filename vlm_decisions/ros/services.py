"""The services: add, remove, list, save questions, ask about now, add and remove views.

Each answers at once from the executor's thread, but ``~/ask``: its callback is a coroutine that
waits for the runtime without holding the executor, so one executor thread is enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future as WorkerFuture
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.exceptions import InvalidHandle
from rclpy.node import Node
from rclpy.task import Future

from vlm_decisions.srv import (
    AddQuestion,
    AddView,
    Ask,
    ListQuestions,
    RemoveQuestion,
    RemoveView,
    SaveQuestions,
)

from ..decision import Decision
from ..kinds import plain_kind
from ..questions import Question, QuestionError, unnamed
from ..runtime.costs import Cost
from ..views import View, ViewError
from .convert import decision_to_msg, question_from_msg, question_to_msg, view_from_msg

MAX_ASKS = 4
"""Asks that may wait at the same time; one more is refused."""

MAX_TIMEOUT_S = 60.0


class Refused(RuntimeError):
    """A request that cannot be met now; the message says why."""


class Backend(Protocol):
    """What the services need of the node. Each may raise Refused or QuestionError."""

    def questions(self) -> Sequence[Question]:
        """Return the standing questions."""

    def add_question(self, question: Question, replace: bool) -> str:
        """Add a standing question; return what was done."""

    def check_question(self, question: Question, replace: bool) -> str:
        """Return that a question could be added; change nothing."""

    def cost(self, question: Question) -> Cost | None:
        """Return what a question costs, None before the model is loaded."""

    def remove_question(self, question_id: str) -> str:
        """Remove a standing question; return what was done."""

    def save_questions(self, path: str) -> str:
        """Write the standing questions; return the file written."""

    def ask(self, question: Question, timeout_s: float) -> list[Decision]:
        """Answer a question about now, of each view that it is of; called from another thread."""

    def add_view(self, view: View) -> str:
        """Add a view; return what was done."""

    def remove_view(self, name: str) -> str:
        """Remove a view; return what was done."""


class QuestionServices:
    """Offers the services of a node; ``close`` ends the waiting asks' threads."""

    def __init__(self, node: Node, backend: Backend) -> None:
        self._node, self._backend = node, backend
        self._asks = 0
        self._pool = ThreadPoolExecutor(MAX_ASKS, thread_name_prefix="ask")
        for kind, name, callback in (
                (AddQuestion, "add_question", self._add),
                (RemoveQuestion, "remove_question", self._remove),
                (ListQuestions, "list_questions", self._list),
                (SaveQuestions, "save_questions", self._save),
                (AddView, "add_view", self._add_view),
                (RemoveView, "remove_view", self._remove_view)):
            node.create_service(kind, f"~/{name}", callback)
        # In the default group a waiting ask would hold back every other callback.
        node.create_service(Ask, "~/ask", self._ask, callback_group=ReentrantCallbackGroup())

    def close(self) -> None:
        """Take no more asks; those that wait end with the runtime."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _add(self, request: Any, response: Any) -> Any:
        def act() -> str:
            question = question_from_msg(request.question)
            act = self._backend.check_question if request.check_only else self._backend.add_question
            said = act(question, request.replace)
            cost = self._backend.cost(question)
            response.tokens, response.cost_ms = (cost.tokens, cost.ms) if cost else (0, math.nan)
            return said
        return self._reply(response, act)

    def _remove(self, request: Any, response: Any) -> Any:
        return self._reply(response,
                           lambda: self._backend.remove_question(request.question_id))

    def _list(self, _request: Any, response: Any) -> Any:
        def act() -> str:
            response.questions = [question_to_msg(q) for q in self._backend.questions()]
            count = len(response.questions)
            return f"{count} question{'' if count == 1 else 's'}"
        return self._reply(response, act)

    def _save(self, request: Any, response: Any) -> Any:
        def act() -> str:
            response.path = self._backend.save_questions(request.path)
            return f"wrote {response.path}"
        return self._reply(response, act)

    def _add_view(self, request: Any, response: Any) -> Any:
        return self._reply(response, lambda: self._backend.add_view(view_from_msg(request.view)))

    def _remove_view(self, request: Any, response: Any) -> Any:
        return self._reply(response, lambda: self._backend.remove_view(request.name))

    async def _ask(self, request: Any, response: Any) -> Any:
        try:
            question = ask_question(
                request.text, request.options, request.kind, request.thresholds,
                request.view)
            if not 0.0 < request.timeout_s <= MAX_TIMEOUT_S:
                raise Refused(f"timeout_s must be above 0 and at most {MAX_TIMEOUT_S:g}, "
                              f"not {request.timeout_s:g}")
            if self._asks >= MAX_ASKS:
                raise Refused(f"{MAX_ASKS} asks are waiting already")
            self._asks += 1
            try:
                decisions = await self._answered(question, request.timeout_s)
            finally:
                self._asks -= 1
        except (QuestionError, RuntimeError) as error:
            response.success, response.message = False, str(error) or type(error).__name__
        else:
            response.decisions = [decision_to_msg(decision) for decision in decisions]
            response.decision = response.decisions[0]
            response.success = any(decision.answer != "unknown" for decision in decisions)
            response.message = "; ".join(map(_said, decisions))
        return response

    def _answered(self, question: Question, timeout_s: float) -> Future:
        """Return a future of the answer that wakes the executor when it is there."""
        executor = self._node.executor
        future = Future(executor=executor)

        def finish(done: WorkerFuture) -> None:
            if done.cancelled():
                future.set_exception(Refused("the node is shutting down"))
            elif done.exception() is not None:
                future.set_exception(done.exception())
            else:
                future.set_result(done.result())
            # rclpy resumes a waiting coroutine when its executor wakes, not by itself.
            with suppress(InvalidHandle):  # shut down meanwhile
                executor.wake()

        self._pool.submit(self._backend.ask, question, timeout_s).add_done_callback(finish)
        return future

    def _reply(self, response: Any, act: Any) -> Any:
        try:
            response.message = act()
            response.success = True
        except (QuestionError, ViewError, Refused) as error:
            response.success, response.message = False, str(error)
        return response


def _said(decision: Decision) -> str:
    """Return an answer in words, with the view where it has a name."""
    said = (f"unknown: {decision.reason}" if decision.answer == "unknown"
            else f"{decision.said} (p={decision.p:.3f})")
    return f"{decision.view}: {said}" if decision.view else said


def ask_question(
    text: str, options: Sequence[str], kind: str = "", thresholds: Sequence[float] = (),
    view: str = ""
) -> Question:
    """Return the question of an ask; without a kind it is yes/no, or a choice among ``options``."""
    return unnamed("ask", text=text, kind=kind or plain_kind(options), options=tuple(options),
                   thresholds=tuple(thresholds), ema=1.0, view=view)
