"""One-off questions on their way to the engine thread."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from ..decision import Decision
from ..questions import Question


@dataclass(frozen=True, eq=False)
class OneOff:
    """A question about what a view shows now; its answer is the future's result."""

    question: Question
    view: str = ""
    future: Future[Decision] = field(default_factory=Future)

    def settle(self, decision: Decision) -> None:
        """Hand the answer over, unless its asker has given up."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(decision)


class OneOffs:
    """Questions about now that wait for the engine thread. Thread-safe.

    `changed` is the condition that the engine thread waits on; `waiting` is true from the moment
    a question is put until the thread has turned to it.
    """

    def __init__(self, changed: threading.Condition) -> None:
        """Start empty."""
        self.waiting = False
        self._changed = changed
        self._queue: deque[OneOff] = deque()

    def put(self, question: Question, view: str = "") -> Future[Decision]:
        """Let a question wait; return its future."""
        one = OneOff(question, view)
        with self._changed:
            self._queue.append(one)
            self.waiting = True
            self._changed.notify_all()
        return one.future

    def put_back(self, one: OneOff) -> None:
        """Let a question that cannot be answered yet wait for the next turn."""
        with self._changed:
            self._queue.append(one)

    def take(self) -> list[OneOff]:
        """Return those that wait and are still wanted, and keep none."""
        with self._changed:
            taken = list(self._queue)
            self._queue.clear()
        return [one for one in taken if not one.future.cancelled()]
