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

from ..decision import NO, TIER_HEALTH, UNCERTAIN, UNKNOWN, YES, Decision
from ..questions import Question
from .heads import sigmoid


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
    smoothed: tuple[float, ...] = ()  # empty where the next answer begins anew
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
        probabilities: Sequence[float],
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
        if not state.smoothed or state.options != question.options:
            state.smoothed, state.options = raw, question.options
        else:
            new, old = question.ema, 1.0 - question.ema
            state.smoothed = tuple(
                new * p + old * before for p, before in zip(raw, state.smoothed, strict=True)
            )
        if question.kind == "choice":
            index = _choose(question, state.smoothed, state.answer)
            answer = UNCERTAIN if index is None else question.options[index]
            leader = _ranking(state.smoothed)[0] if index is None else index
        else:
            answer, leader = _decide(question, state.smoothed[0], state.answer), 0
        changed = self._note(state, answer, evidence.t_end_ns)
        state.evidence = evidence
        is_choice = question.kind == "choice"
        return Decision(
            question_id=question.id,
            answer=answer,
            p=state.smoothed[leader],
            p_raw=raw[leader],
            options=question.options,
            probabilities=state.smoothed if is_choice else (),
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
        state.smoothed = ()
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
            state.smoothed = ()
            state.evidence = NO_EVIDENCE

    @staticmethod
    def _note(state: _State, answer: str, began_ns: int) -> bool:
        changed = answer != state.answer
        if changed:
            state.answer, state.since_ns = answer, began_ns
        return changed


def calibrated(question: Question, logits: Sequence[float] | np.ndarray) -> tuple[float, ...]:
    """
    Return the probabilities of logits (k,), after the question's scale and bias.

    Yes/no: logits (yes, no), p(yes) = sigmoid(scale * (yes - no) + bias). Choice: the softmax of
    scale * logits. NaN where the logits are not finite.
    """
    # A few numbers: plain floats take a fraction of numpy's time, most of all in a cold cache.
    z = [question.scale * float(x) for x in logits]
    if question.kind == "yes_no" and len(z) == 2:
        x = z[0] - z[1] + question.bias
        p = sigmoid(x) if math.isfinite(x) else math.nan
        return p, 1.0 - p
    if not all(map(math.isfinite, z)):
        return (math.nan,) * len(z)
    highest = max(z)
    e = [math.exp(x - highest) for x in z]
    total = sum(e)
    return tuple(x / total for x in e)


def _checked(question: Question, probabilities: Sequence[float]) -> tuple[float, ...]:
    count = len(question.options) or 2
    if len(probabilities) != count:
        raise ValueError(
            f"question '{question.id}': {count} probabilities wanted, got {len(probabilities)}"
        )
    raw = tuple(map(float, probabilities))
    if not all(-1e-6 <= p <= 1 + 1e-6 for p in raw):  # nor is NaN
        raise ValueError(f"question '{question.id}': not probabilities: {list(raw)}")
    return tuple(min(1.0, max(0.0, p)) for p in raw)


def _decide(question: Question, p: float, current: str | None) -> str:
    if p >= question.enter:
        return YES
    if p <= question.exit:
        return NO
    return current if current in (YES, NO) else UNCERTAIN


def _ranking(p: Sequence[float]) -> list[int]:
    """Return the indices from the highest down, of equals the first first."""
    return sorted(range(len(p)), key=lambda i: -p[i])


def _choose(question: Question, p: Sequence[float], current: str | None) -> int | None:
    leader, second = _ranking(p)[:2]
    if current in question.options:
        held = question.options.index(current)
        return leader if p[leader] - p[held] >= question.switch_margin else held
    return leader if p[leader] - p[second] >= question.switch_margin else None
