"""Which questions it makes no sense to ask at present, and why."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ..conditions import Condition, parse_condition
from ..decision import NO, NOT_ASKED, NOT_ENOUGH_EVIDENCE, OK, UNKNOWN
from ..questions import Question

#: A condition as it was read, by its text.
condition_of = lru_cache(maxsize=1024)(parse_condition)


def withheld(
    question: Question, answers: Mapping[str, str], standing: Mapping[str, Question], seen_s: float
) -> tuple[str, str]:
    """Return why a question is not asked about a group, as status and reason; OK and "" if it is.

    `answers`: the present ones by id, so those of the group before where this group's are not yet
    known. `standing`: all questions by id. `seen_s`: how long the picture has been seen without a
    cut.
    """
    if question.needs is not None and answers.get(question.needs, UNKNOWN) == NO:
        return NOT_ASKED, f"it needs '{question.needs}', which is no"
    if question.when is not None:
        condition = condition_of(question.when)
        holds = condition.holds(answers, standing)
        if not holds:
            return NOT_ASKED, f"{question.when}: {_open(condition, answers, holds)}"
    if seen_s < question.min_evidence_s:
        return NOT_ENOUGH_EVIDENCE, f"seen for {seen_s:.1f} of {question.min_evidence_s:g} s"
    return OK, ""


def _open(condition: Condition, answers: Mapping[str, str], holds: bool | None) -> str:
    if holds is not None:
        return "does not hold"
    told = (f"'{name}' is {answers.get(name, UNKNOWN)}" for name in condition.names)
    return "is open: " + ", ".join(told)
