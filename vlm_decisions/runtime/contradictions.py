"""Answers that cannot all be right: a yes, and not what it implies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..decision import YES, Decision
from ..questions import Question
from .withhold import condition_of


class Contradictions:
    """Finds them and counts how often each question's began. Not thread-safe."""

    def __init__(self) -> None:
        """Start without any."""
        self.counts: Counter[str] = Counter()
        self._open: set[str] = set()

    def of(
        self, question: Question, decision: Decision, answers: Mapping[str, str],
        standing: Mapping[str, Question],
    ) -> tuple[str, ...]:
        """Return the conditions that a decision implies and that do not hold.

        `answers`: the present ones by name; `standing`: all questions by id. What an answer leaves
        open is no contradiction.
        """
        found: tuple[str, ...] = ()
        if question.implies and decision.answer == YES:
            found = tuple(one for one in question.implies
                          if condition_of(one).holds(answers, standing) is False)
        if found and question.id not in self._open:
            self.counts[question.id] += 1
        (self._open.add if found else self._open.discard)(question.id)
        return found

    def forget(self, question_id: str) -> None:
        """Drop what is kept of a question."""
        self._open.discard(question_id)
        self.counts.pop(question_id, None)
