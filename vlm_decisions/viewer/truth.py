"""What is true of a camera whose truth is told (a simulated desk, a labelled recording)."""

from __future__ import annotations

from collections import deque

from ..kinds import KindError, kind_of
from ..questions import Question
from ..sources.truth import MAX_HOLD_NS, TruthRow

ROWS = 256
"""Rows of truth that are kept: about 16 s of a camera at 16 Hz."""


class RecentTruth:
    """The truth of the last seconds, by frame time."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._rows: deque[TruthRow] = deque(maxlen=ROWS)

    def take(self, row: TruthRow) -> None:
        """Take what is true from a stamp on, until the next one."""
        if self._rows and row.stamp_ns < self._rows[-1].stamp_ns:
            self._rows.clear()  # frame time went backwards
        self._rows.append(row)

    def answer(self, question: Question, t_ns: int) -> str | None:
        """Return the right answer to a question at a frame time, None where it is not known."""
        for row in reversed(self._rows):
            if row.stamp_ns <= t_ns:
                if t_ns - row.stamp_ns >= MAX_HOLD_NS:
                    return None
                return answer_of(question, row)
        return None


def answer_of(question: Question, row: TruthRow) -> str | None:
    """Return what a row says of a question, as the question's kind writes it, or None."""
    told = row.facts.get(question.id)
    try:
        return None if told is None else kind_of(question).canonical(question, told)
    except KindError:  # the truth is of another question of that name
        return None
