"""Who answers a question: a head that was learned, one that was loaded, or the language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..decision import TIER_HEADS, TIER_VLM, label_name
from ..files.listing import there_are
from ..kinds import kind_of
from ..questions import Question, QuestionError
from .engine_protocol import EngineLike
from .heads import Head, HeadError, HeadQuery, answering_head, deciding_head, query_with
from .learned import Learned


class Answerers:
    """The heads of a view, and what was learned of its questions. Of the engine's thread."""

    def __init__(self, engine: EngineLike, heads: Sequence[Head]) -> None:
        """Know the engine and the heads that were loaded for it."""
        self._engine = engine
        self._heads = heads
        self._learned: Mapping[str, Learned] = {}

    def use(self, learned: Mapping[str, Learned]) -> set[str]:
        """Answer from now on with what was learned, by name.

        Returns the ids of the questions that are answered with another.
        """
        before, self._learned = self._learned, learned
        if before is learned:
            return set()
        return {(before.get(name) or learned[name]).question_id for name in {*before, *learned}
                if before.get(name) is not learned.get(name)}

    def learned(self, question: Question) -> Learned | None:
        """Return what was learned of a question, None where nothing was; see `of_labels`."""
        learned = self._learned.get(question.id)
        return learned if learned is not None and learned.is_of(question) else None

    def of_labels(self, question: Question) -> dict[int, Learned]:
        """Return what was learned of labels of an any_of, by their place among them."""
        if kind_of(question).exclusive:
            return {}
        found = {place: self._learned.get(label_name(question.id, label))
                 for place, label in enumerate(question.options)}
        return {place: one for place, one in found.items()
                if one is not None and one.is_of(question)}

    def deciding(self, question: Question) -> Question:
        """Return a question with the thresholds to decide with: what was learned may bring some."""
        learned = self.learned(question)
        return question if learned is None else learned.deciding(question)

    def head(self, question: Question) -> Head | Learned | None:
        """Return the head that answers, None where the language model does. Raises HeadError.

        One that was learned comes before those that were loaded.
        """
        learned = self.learned(question)
        if learned is not None and learned.is_head:
            return learned
        head = answering_head(question, self._heads)
        if head is None and question.tier == "heads":
            raise HeadError(self._no_head(question))
        return head

    def is_models(self, question: Question) -> bool:
        """Tell whether the language model answers a question."""
        learned = self.learned(question)
        if learned is not None and learned.is_head:
            return False
        return question.tier != "heads" and answering_head(question, self._heads) is None

    def tier(self, question: Question) -> int:
        """Return the tier that answers a question."""
        return TIER_VLM if self.is_models(question) else TIER_HEADS

    def queries(self, questions: Sequence[Question]) -> list[Question | HeadQuery]:
        """Return what the engine is asked: questions, with the heads of their early exits."""
        return [
            question if (head := deciding_head(question, self._heads)) is None
            else query_with(question, head)
            for question in questions
        ]

    def check(self, question: Question) -> None:
        """Raise QuestionError where this model and its heads can never answer a question."""
        self._check_depth(question)
        if question.unsure and self._engine.n_frames < 2:
            raise QuestionError(
                f"question '{question.id}': unsure {question.unsure}: '{self._engine.name}' sees "
                "single frames: there is no longer history for it", "unsure")
        try:
            decides = deciding_head(question, self._heads) is not None
        except HeadError as error:
            raise QuestionError(f"question '{question.id}': {error}", "head") from error
        demanded = question.tier == "heads" or question.head is not None and not decides
        if demanded and answering_head(question, self._heads) is None:
            raise QuestionError(
                f"question '{question.id}': {self._no_head(question)}",
                "tier" if question.head is None else "head",
            )

    def _check_depth(self, question: Question) -> None:
        n_layers, early = self._engine.n_layers, question.early
        field, depth, most = "depth", question.depth, n_layers
        if early is not None and not n_layers:
            return  # it has no earlier exit: as many layers as needed are all
        if early is not None:  # full depth must be deeper
            field, depth, most = "shallow_depth", early.depth, n_layers - 1
        if depth is not None and depth > most:
            there = f"has layers 1 to {n_layers}" if n_layers else "answers from its last layer"
            before = " and one must be left" if early and n_layers else ""
            raise QuestionError(
                f"question '{question.id}': {field} {depth}: the language model "
                f"'{self._engine.name}' {there}{before}",
                field,
            )

    def _no_head(self, question: Question) -> str:
        wanted = f"'{question.head}'" if question.head else f"for question '{question.id}'"
        known = there_are((
            head.name if question.head else f"{head.name} for {head.question}"
            for head in self._heads), question.head or "")
        return f"no head {wanted} is loaded for this model ({known})"
