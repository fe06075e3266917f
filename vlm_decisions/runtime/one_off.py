"""One-off questions on their way to the engine thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from ..decision import Decision
from ..questions import Question

Waiting = tuple[Question, "Future[Decision]"]


class Asks:
    """
    Questions about now that wait for the engine thread. Thread-safe.

    `changed` is the condition that the engine thread waits on; `waiting` is true from the moment
    a question is put until the thread has turned to it.
    """

    def __init__(self, changed: threading.Condition) -> None:
        """Start empty."""
        self.waiting = False
        self._changed = changed
        self._asks: deque[Waiting] = deque()

    def put(self, question: Question) -> Future[Decision]:
        """Let a question wait; its answer is the future's result."""
        future: Future[Decision] = Future()
        with self._changed:
            self._asks.append((question, future))
            self.waiting = True
            self._changed.notify_all()
        return future

    def serve(self, answer: Callable[[Question], Decision | None]) -> None:
        """Answer those that wait; one for which `answer` has nothing yet waits on."""
        for question, future in self._taken():
            if future.cancelled():
                continue
            decision = answer(question)
            if decision is None:
                with self._changed:
                    self._asks.append((question, future))
            elif future.set_running_or_notify_cancel():
                future.set_result(decision)

    def _taken(self) -> list[Waiting]:
        with self._changed:
            asks = list(self._asks)
            self._asks.clear()
        return asks
