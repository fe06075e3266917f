"""Answers that stand for later groups, because the picture has not changed since."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..frames import NS
from ..questions import Question
from .evidence import Result

#: Ends the model's name where an answer rests on reuse.
REUSE = "+reuse"


class StandingAnswers:
    """The newest answer to each question, with the features of the group that it was asked about.

    Compared is always with what the picture was when the question was asked, so that nothing
    creeps in.
    """

    def __init__(self, refresh: float = 1.0) -> None:
        """`refresh`: share of `refresh_s` after which an answer stands no longer."""
        self._refresh = refresh
        self._kept: dict[str, tuple[Result, np.ndarray]] = {}

    def keep(self, result: Result, mean: np.ndarray) -> None:
        """Keep an answer. `mean`: (features,), pooled, of the group that was asked about."""
        self._kept[result.question.id] = result, mean

    def correct(self, result: Result) -> None:
        """Let another answer about the same group stand, where one was kept."""
        if result.question.id in self._kept:
            self._kept[result.question.id] = result, self._kept[result.question.id][1]

    def drop(self, question_id: str) -> None:
        """Let the answer to a question stand no longer."""
        self._kept.pop(question_id, None)

    def retain(self, question_ids: Iterable[str]) -> None:
        """Drop the answers to all other questions."""
        self._kept = {name: self._kept[name] for name in question_ids if name in self._kept}

    def clear(self) -> None:
        """Drop all."""
        self._kept.clear()

    def at(
        self,
        question: Question,
        mean: np.ndarray,
        t_end_ns: int,
        unchanged_since_ns: int | None,
        cut_ns: int = 0,
    ) -> Result | None:
        """Return the answer that stands for a group, too; None where it must be asked about.

        Args:
            question: as it stands now.
            mean: (features,), pooled, of the group.
            t_end_ns: of the group.
            unchanged_since_ns: end of the oldest group that shows exactly what this one does, None
                where this one shows something else.
            cut_ns: first frame after the newest cut, 0 for none: no answer stands across it.
        """
        if question.id not in self._kept:
            return None
        result, asked_about = self._kept[question.id]
        if question is not result.question:  # it was changed, or taken out and added
            return None
        t_asked_ns = result.evidence.t_asked_ns or result.evidence.t_end_ns
        still = unchanged_since_ns is not None and t_asked_ns >= unchanged_since_ns
        if not still and (
            question.ask != "on_change"
            or t_asked_ns < cut_ns
            or t_end_ns - t_asked_ns >= self._refresh * question.refresh_s * NS
            or cosine_distance(asked_about, mean) > question.change
        ):
            return None
        evidence = replace(
            result.evidence,
            t_end_ns=t_end_ns,
            t_asked_ns=t_asked_ns,
            model=result.evidence.model.removesuffix(REUSE) + REUSE,
        )
        return Result(question, evidence, result.probabilities, logits=result.logits)


def cosine_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return 1 - cosine of two vectors, 0 where either has no length."""
    one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
    length = math.sqrt(float(np.dot(one, one)) * float(np.dot(other, other)))
    return 1.0 - float(np.dot(one, other)) / length if length > 0 else 0.0
