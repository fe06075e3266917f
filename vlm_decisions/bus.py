"""
The decision bus: raw probabilities in, smoothed answers with hysteresis out.

One place turns evidence into the answers that others act on, so that every tier smooths, holds
and marks its answers by the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .decision import NO, TIER_HEALTH, UNCERTAIN, UNKNOWN, YES, Decision
from .questions import Question


@dataclass(frozen=True)
class Evidence:
    """What an answer rests on: who looked (`tier`, `depth`, `model`) at which frames."""

    tier: int
    t_start_ns: int
    t_end_ns: int
    depth: int = 0
    frame_id: str = ""
    model: str = ""


#: Evidence of a question that was never answered: both stamps are 0.
NO_EVIDENCE = Evidence(tier=TIER_HEALTH, t_start_ns=0, t_end_ns=0)


@dataclass
class _State:
    """What is kept of one question between its answers."""

    options: tuple[str, ...] = ()
    smoothed: np.ndarray | None = None
    answer: str | None = None
    since_ns: int = 0
    evidence: Evidence = NO_EVIDENCE


class Bus:
    """
    Smoothing and hysteresis, per question. Not thread-safe: the owner serialises the calls.

    Yes/no: `yes` at smoothed p >= enter, `no` at p <= exit; between them the present yes or no is
    kept, and without one (at first, or after `unknown`) the answer is `uncertain`. Choice: the
    vector is smoothed, and the leader takes over once it leads the present answer (at first: the
    runner-up) by the question's `switch_margin`. An `unknown` forgets the smoothing: what comes
    after it is new evidence.
    """

    def __init__(self) -> None:
        """Start without any answers."""
        self._states: dict[str, _State] = {}

    def update(
        self,
        question: Question,
        probabilities: Sequence[float] | np.ndarray,
        evidence: Evidence,
        t_decided_ns: int,
    ) -> Decision:
        """
        Take one group's probabilities and return the decision.

        `probabilities`: (yes, no) for a yes/no question, one per option for a choice, calibrated
        (see `calibrated`). Raises ValueError if they are not that many finite numbers in [0, 1].
        """
        raw = _checked(question, probabilities)
        state = self._states.setdefault(question.id, _State())
        if state.smoothed is None or state.options != question.options:
            state.smoothed, state.options = raw, question.options
        else:
            state.smoothed = question.ema * raw + (1.0 - question.ema) * state.smoothed
        if question.kind == "choice":
            index = _choose(question, state.smoothed, state.answer)
            answer = UNCERTAIN if index is None else question.options[index]
            leader = int(np.argmax(state.smoothed)) if index is None else index
        else:
            answer, leader = _decide(question, float(state.smoothed[0]), state.answer), 0
        changed = self._note(state, answer, evidence.t_end_ns)
        state.evidence = evidence
        is_choice = question.kind == "choice"
        return Decision(
            question_id=question.id,
            answer=answer,
            p=float(state.smoothed[leader]),
            p_raw=float(raw[leader]),
            options=question.options,
            probabilities=tuple(float(p) for p in state.smoothed) if is_choice else (),
            tier=evidence.tier,
            depth=evidence.depth,
            t_start_ns=evidence.t_start_ns,
            t_end_ns=evidence.t_end_ns,
            t_decided_ns=t_decided_ns,
            changed=changed,
            since_ns=state.since_ns,
            model=evidence.model,
            frame_id=evidence.frame_id,
        )

    def unknown(
        self,
        question: Question,
        reason: str,
        t_decided_ns: int,
        evidence: Evidence | None = None,
    ) -> Decision:
        """
        Return the decision that there is no answer, for `reason`.

        `evidence` are the frames that could not be judged; without it, the question's last (its
        stamps are 0 if there was none). `since` is its first such frame, or the time decided.
        """
        state = self._states.setdefault(question.id, _State())
        state.smoothed = None
        began_ns = t_decided_ns if evidence is None else evidence.t_end_ns
        changed = self._note(state, UNKNOWN, began_ns)
        evidence = state.evidence = evidence or state.evidence
        return Decision(
            question_id=question.id,
            answer=UNKNOWN,
            p=math.nan,
            p_raw=math.nan,
            options=question.options,
            probabilities=(),
            tier=evidence.tier,
            depth=0,
            t_start_ns=evidence.t_start_ns,
            t_end_ns=evidence.t_end_ns,
            t_decided_ns=t_decided_ns,
            changed=changed,
            since_ns=state.since_ns,
            model=evidence.model,
            frame_id=evidence.frame_id,
            reason=reason,
        )

    def answer(self, question_id: str) -> str | None:
        """Return the answer last published, or None."""
        state = self._states.get(question_id)
        return state.answer if state else None

    def evidence(self, question_id: str) -> Evidence:
        """Return the evidence of the last answer (NO_EVIDENCE if there was none)."""
        state = self._states.get(question_id)
        return state.evidence if state else NO_EVIDENCE

    def forget(self, question_id: str) -> None:
        """Drop all that is kept of a question."""
        self._states.pop(question_id, None)

    def reset(self) -> None:
        """Drop the smoothing and evidence of all questions (frame time started anew)."""
        for state in self._states.values():
            state.smoothed = None
            state.evidence = NO_EVIDENCE

    @staticmethod
    def _note(state: _State, answer: str, began_ns: int) -> bool:
        changed = answer != state.answer
        if changed:
            state.answer, state.since_ns = answer, began_ns
        return changed


def calibrated(question: Question, logits: Sequence[float] | np.ndarray) -> np.ndarray:
    """
    Return the probabilities of logits (k,), after the question's scale and bias.

    Yes/no: logits (yes, no), p(yes) = sigmoid(scale * (yes - no) + bias). Choice: the softmax of
    scale * logits.
    """
    z = question.scale * np.asarray(logits, np.float64)
    if question.kind == "yes_no" and z.shape == (2,):
        p = _sigmoid(float(z[0]) - float(z[1]) + question.bias)
        return np.array((p, 1.0 - p))
    z = np.exp(z - np.max(z))
    return z / z.sum()


def _sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(-x)), NaN for what is not finite; for one number quicker than numpy."""
    if not math.isfinite(x):
        return math.nan
    small = math.exp(-abs(x))
    return (1.0 if x >= 0 else small) / (1.0 + small)


def _checked(question: Question, probabilities: Sequence[float] | np.ndarray) -> np.ndarray:
    raw = np.asarray(probabilities, np.float64)
    count = len(question.options) or 2
    if raw.shape != (count,):
        raise ValueError(f"question '{question.id}': {count} probabilities wanted, got {raw.shape}")
    if not (np.isfinite(raw).all() and raw.min() >= -1e-6 and raw.max() <= 1 + 1e-6):
        raise ValueError(f"question '{question.id}': not probabilities: {raw.tolist()}")
    return raw.clip(0.0, 1.0)


def _decide(question: Question, p: float, current: str | None) -> str:
    if p >= question.enter:
        return YES
    if p <= question.exit:
        return NO
    return current if current in (YES, NO) else UNCERTAIN


def _choose(question: Question, p: np.ndarray, current: str | None) -> int | None:
    order = np.argsort(-p, kind="stable")
    leader = int(order[0])
    if current in question.options:
        held = question.options.index(current)
        return leader if p[leader] - p[held] >= question.switch_margin else held
    return leader if p[leader] - p[order[1]] >= question.switch_margin else None
