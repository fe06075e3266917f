"""The standing questions as the threads read them: a value, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..kinds import in_view, question_of
from ..question_book import QuestionBook
from ..questions import Question
from .gate import Gate


@dataclass(frozen=True)
class StandingQuestions:
    """Those of a book, by id, in order; `placed`: ids of what is asked of one view only, by view.

    `views_named`: the views that conditions of questions name.
    """

    by_id: Mapping[str, Question] = field(default_factory=dict)
    views_named: frozenset[str] = frozenset()
    placed: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, book: QuestionBook) -> StandingQuestions:
        """Return those that stand in the book now."""
        placed: dict[str, set[str]] = {}
        for question_id, name in book.placed.items():
            placed.setdefault(name, set()).add(question_id)
        return cls(
            {question.id: question for question in book},
            frozenset(name for question in book for name in question.views_named),
            {name: frozenset(ids) for name, ids in placed.items()},
        )

    def at(self, view: str) -> tuple[Question, ...]:
        """Return those that are asked of a view."""
        return tuple(one for one in self.by_id.values() if one.is_of(view))

    def answers(self, view: str, gates: Mapping[str, Gate]) -> dict[str, str]:
        """Return what a view's conditions may name: its own answers before those of others.

        Those of a view that a condition says are there by `view.question`, too. `gates`: those of
        all views by name, under their owner's lock.
        """
        answers: dict[str, str] = {}
        for name, gate in gates.items():
            own = self.placed.get(name, frozenset()) if name != view else frozenset()
            named = name in self.views_named
            if not (own or named):
                continue
            given = gate.answers()
            if named:
                answers |= {in_view(name, one): said for one, said in given.items()}
            answers |= {one: said for one, said in given.items() if question_of(one) in own}
        return answers | gates[view].answers()
