"""The result of fitting a question, the sources held out for it, and why none may be fitted."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..questions import Question
from .predictions import SETTLED_S
from .probes import folds_of

NOT_FINITE = "the model's logits are not finite (NaN or infinite): load it in float32"
TOO_SHORT = f"no label lasts long enough ({SETTLED_S:g} s after a change, and a second of history)"


class CalibrationError(ValueError):
    """Questions or labels that nothing can be fitted on. The message says what to change."""


class AnswersError(CalibrationError):
    """A question whose answers are too few sources' for a part of them to be held out."""


@dataclass
class Fitted:
    """What was fitted to one question, and its results on held-out sources.

    Attributes:
        question: as it was.
        tier: `heads` or `vlm`, who answers.
        values: scale and bias (if the language model is asked), switch_hz (if it is filtered),
            enter and exit, as they are now. Of a choice or score scale and, of a score, thresholds;
            of each with an early exit the values of that.
        stops: share of the held-out samples that stop at the early exit, None without one.
        kept: names of values that were not changed ("scale, bias"; "enter, exit") and why.
        before: auroc, ece, brier and log_loss of the language model's P(yes), None if it is not
            asked, and the `cost` per event of the answers, with the question's values. Of a choice
            or score: ece and brier of the likeliest option, log_loss of the right one, `accuracy`,
            and of a score `mae`, the mean error of the expected value, and `cost`, the mean over
            its thresholds of the cost of being on the wrong side; the others are None.
        after: the same with the fitted values.
        sources: how many were held out.
        held: truth, and P(yes) before and after, of the held-out samples.
    """

    question: Question
    tier: str
    values: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    before: dict[str, float | None] = field(default_factory=dict)
    after: dict[str, float | None] = field(default_factory=dict)
    sources: int = 0
    held: dict[str, np.ndarray] = field(default_factory=dict)
    stops: float | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """Values that differ from the question's."""
        return {k: v for k, v in self.values.items() if v != getattr(self.question, k)}


def held_out(source: np.ndarray, answer: np.ndarray) -> np.ndarray:
    """Return the sources of the third that is held out. Raises AnswersError."""
    check_answers(set(source[answer]), set(source[~answer]))
    folds = folds_of(source, answer, 3)
    if not folds:
        raise AnswersError("there is no part of the sources to hold out such that it and the rest "
                           "both have yes and no")
    return np.unique(source[folds[0][1]])


def check_answers(yes: Set[Any], no: Set[Any]) -> None:
    """Take the sources that show yes, and those that show no. Raises AnswersError."""
    if not yes and not no:
        raise AnswersError(TOO_SHORT)
    if not yes or not no:
        raise AnswersError(f"everything says {'yes' if yes else 'no'} and both answers are needed")
    if min(len(yes), len(no)) < 2:
        raise AnswersError(f"yes is seen in {len(yes)} of the sources and no in {len(no)}, and "
                           "each is needed in two or more, so that one can be held out")


def check_options(answers: Set[str]) -> None:
    """Take the options that are right somewhere. Raises AnswersError."""
    if not answers:
        raise AnswersError(TOO_SHORT)
    if len(answers) == 1:
        raise AnswersError(f"everything says {answers.pop()!r} and another option is needed, too")
