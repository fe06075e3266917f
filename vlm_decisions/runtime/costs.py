"""What asking costs: tokens of each question, and the time that batches took."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..questions import Question
from .engine_protocol import EngineLike


@dataclass(frozen=True)
class Cost:
    """What a question costs the language model.

    `tokens` that it has; `ms`: milliseconds that an asking with it takes longer than without it,
    which goes with the tokens that no other question begins with.
    """

    tokens: int
    ms: float  # NaN before anything was asked

    def __str__(self) -> str:
        """Return it for a person: `121 tokens, 24 ms`."""
        return f"{self.tokens} tokens" + ("" if math.isnan(self.ms) else f", {self.ms:.1f} ms")


class CostModel:
    """What asking costs, learnt from the batches asked: seconds = fixed + each * tokens.

    The tokens of a batch are those that the model reads: what questions begin with alike, once.
    While all batches had the same size, cost is taken to be proportional: a guess that the next
    batch, of another size, corrects.
    """

    def __init__(self, memory: int = 32) -> None:
        """`memory`: batches that are remembered."""
        self._batches: deque[tuple[int, float]] = deque(maxlen=memory)
        self._fitted = math.nan, math.nan

    @property
    def known(self) -> bool:
        """Whether any batch was asked yet."""
        return bool(self._batches)

    def note(self, tokens: int, seconds: float) -> None:
        """Remember that a batch of so many tokens took `seconds`."""
        if tokens > 0 and seconds >= 0:
            self._batches.append((tokens, seconds))
            self._fitted = self._fit()

    def fit(self) -> tuple[float, float]:
        """Return (fixed, each) in seconds, NaN before any batch."""
        return self._fitted

    def _fit(self) -> tuple[float, float]:
        tokens, seconds = np.array(self._batches, np.float64).T
        if np.ptp(tokens) > 0:
            slope, intercept = np.polyfit(tokens, seconds, 1)
            if slope > 0 and intercept > 0:
                return float(intercept), float(slope)
        return 0.0, float((seconds / tokens).mean())

    def of(self, tokens: int, own: int) -> Cost:
        """Return the cost of a question of so many tokens, of which `own` are its alone."""
        return Cost(tokens, 1e3 * self.fit()[1] * own)

    def total_ms(self, tokens: int) -> float:
        """Return what a batch of so many tokens takes; NaN before any was asked."""
        fixed, each = self.fit()
        return 1e3 * (fixed + each * tokens)

    def fitting(self, tokens: Sequence[int], budget_s: float) -> int:
        """Return how many of the first questions can be expected to fit; at least 1.

        `tokens`: what each adds to those before it.
        """
        if not self._batches:
            return 1
        fixed, each = self.fit()
        spent = fixed + each * np.cumsum(tokens)
        return max(1, int(np.count_nonzero(spent <= budget_s + 1e-9)))


class AskingCosts:
    """What asking an engine costs, by question and for batches. Belongs to the engine's thread."""

    def __init__(self, engine: EngineLike) -> None:
        """Know the tokens of each question, but no time yet."""
        self._engine = engine
        self._model = CostModel()

    def of(self, questions: Sequence[Question]) -> dict[str, Cost]:
        """Return what each costs by its id, asked together."""
        counts = self._token_counts(questions)
        return {
            question.id: self._model.of(self._tokens(question), own)
            for question, (own, _) in zip(questions, counts, strict=True)
        }

    def total_ms(self, questions: Sequence[Question]) -> float:
        """Return what asking all takes, milliseconds; NaN before anything was asked."""
        return self._model.total_ms(self._added(questions))

    def note(self, questions: Sequence[Question], seconds: float) -> None:
        """Remember what a batch took."""
        self._model.note(self._added(questions), seconds)

    def fitting(self, questions: Sequence[Question], budget_s: float) -> Sequence[Question]:
        """Return the first questions that can be expected to fit into a time; at least one."""
        added = [more for _, more in self._token_counts(questions)]
        return questions[: self._model.fitting(added, budget_s)]

    @property
    def known(self) -> bool:
        """Whether anything was asked yet."""
        return self._model.known

    def _added(self, questions: Sequence[Question]) -> int:
        return sum(added for _, added in self._token_counts(questions))

    def _tokens(self, question: Question) -> int:
        try:
            return self._engine.tokens(question)
        except Exception:  # it cannot be asked: it is told when it is
            return 0

    def _token_counts(self, questions: Sequence[Question]) -> list[tuple[int, int]]:
        """Return the tokens of each alone, and added to those before; 0: not to be asked."""
        sound = [question for question in questions if self._tokens(question)]
        counts = iter(self._engine.token_counts(sound) if sound else ())
        return [next(counts) if question in sound else (0, 0) for question in questions]
