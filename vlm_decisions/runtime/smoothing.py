"""Probabilities in, decisions out: calibration, smoothing and hysteresis.

One place turns evidence into the answers that others act on, so that every tier smooths, holds
and marks its answers by the same rules. `decide` and `no_answer` make a decision by itself, for a
one-off question; a `Smoother` makes those of standing questions, one after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..decision import FAULT, UNKNOWN, Decision
from ..frames import NS
from ..kinds import kind_of
from ..questions import Question
from .engine_protocol import ReadoutLike
from .evidence import NO_EVIDENCE, Evidence, Result
from .forward_filter import filtered
from .onset import OnsetFinder


def decide(result: Result, t_decided_ns: int) -> Decision:
    """Return the decision of one look by itself, unsmoothed: `unknown` where it gave nothing."""
    question, evidence = result.question, result.evidence
    if not result.probabilities:
        return no_answer(question, result.reason, t_decided_ns, evidence, result.status)
    raw = checked(question, result.probabilities)
    return _known(question, raw, raw, evidence, t_decided_ns, _State())


def no_answer(
    question: Question,
    reason: str,
    t_decided_ns: int,
    evidence: Evidence = NO_EVIDENCE,
    status: str = FAULT,
) -> Decision:
    """Return the decision that a question has no answer, for `reason`."""
    return _unknown(question, reason, status, evidence, t_decided_ns, t_decided_ns, _State())


@dataclass
class _State:
    """What is kept of one question between its answers."""

    options: tuple[str, ...] = ()
    smoothed: tuple[float, ...] = ()  # empty where the next answer begins anew
    answer: str | None = None
    held: tuple[str, ...] = ()  # what hysteresis starts from
    by_name: dict[str, str] = field(default_factory=dict)
    since_ns: int = 0
    evidence: Evidence = NO_EVIDENCE
    onsets: OnsetFinder = field(default_factory=OnsetFinder)

    def forget(self) -> None:
        """Let the next answer begin anew."""
        self.smoothed = ()
        self.onsets.forget()

    def note(self, decision: Decision, evidence: Evidence) -> None:
        """Keep what the next decision depends on."""
        self.answer, self.since_ns = decision.answer, decision.since_ns
        self.held = decision.answers or (decision.answer,)
        self.by_name, self.evidence = decision.by_name, evidence


class Smoother:
    """Smoothing, hysteresis and onsets, per question. Not thread-safe: the owner serialises calls.

    Smoothed is by an exponential average, or by a forward filter (see forward_filter).

    The vector of probabilities is smoothed, whatever the kind of question; what it comes to, with
    which hysteresis, is the kind's (see kinds.py). For yes/no: `yes` at smoothed p >= enter, `no`
    at p <= exit; between them the present yes or no is kept, and without one (at first, or after
    `unknown`) the answer is `uncertain`. An `unknown` forgets the smoothing: what comes after it is
    new evidence. A cut since the last look begins the smoothing anew, and leaves the answer.
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
        """Take one group's probabilities and return the decision.

        `probabilities`: as the question's kind has them, calibrated (see `calibrated`). Raises
        ValueError if they are not that many finite numbers in [0, 1].
        """
        raw = checked(question, probabilities)
        state = self._states.setdefault(question.id, _State())
        if state.options != question.options:
            state.forget()
        if evidence.cut_ns and state.evidence.t_end_ns <= evidence.cut_ns:
            state.smoothed = ()  # what was said is of another picture
        state.smoothed = _smoothed(question, raw, state, evidence)
        state.options = question.options
        state.onsets.look(evidence.t_end_ns, raw)
        decision = _known(question, raw, state.smoothed, evidence, t_decided_ns, state)
        state.note(decision, evidence)
        return decision

    def unknown(
        self,
        question: Question,
        reason: str,
        t_decided_ns: int,
        evidence: Evidence | None = None,
        status: str = FAULT,
    ) -> Decision:
        """Return the decision that there is no answer, for `reason` (`status`: the same in a word).

        `evidence` are the frames that could not be judged; without it, the question's last (its
        stamps are 0 if there was none). `since` is its first such frame, or the time decided.
        """
        state = self._states.setdefault(question.id, _State())
        state.forget()
        began_ns = t_decided_ns if evidence is None else evidence.t_end_ns
        evidence = evidence or state.evidence
        decision = _unknown(question, reason, status, evidence, t_decided_ns, began_ns, state)
        state.note(decision, evidence)
        return decision

    def answers(self) -> dict[str, str]:
        """Return the answers last published, by name (see Decision.by_name)."""
        found: dict[str, str] = {}
        for state in self._states.values():
            found |= state.by_name
        return found

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
            state.forget()
            state.evidence = NO_EVIDENCE


def calibrated(question: Question, logits: Sequence) -> tuple[float, ...]:
    """Return the probabilities of a readout's logits, after the question's scale and bias.

    NaN where the logits are not finite. Raises ValueError or TypeError where they are not what the
    kind has.
    """
    return kind_of(question).probabilities(logits, question.scale, question.bias)


def probabilities_of(question: Question, readout: ReadoutLike) -> tuple[float, ...]:
    """Return what `calibrated` gives for a readout; that of an early exit has its calibration."""
    if getattr(readout, "calibrated", False):
        return kind_of(question).probabilities(readout.logits)
    return calibrated(question, readout.logits)


def checked(question: Question, probabilities: Sequence[float]) -> tuple[float, ...]:
    """Return the probabilities as floats in [0, 1], one for each answer. Raises ValueError."""
    count = kind_of(question).count(question)
    if len(probabilities) != count:
        raise ValueError(f"{count} probabilities wanted, got {len(probabilities)}")
    raw = tuple(map(float, probabilities))
    if not all(-1e-6 <= p <= 1 + 1e-6 for p in raw):  # nor is NaN
        raise ValueError(f"not probabilities: {list(raw)}")
    return tuple(min(1.0, max(0.0, p)) for p in raw)


def _smoothed(
    question: Question, raw: tuple[float, ...], state: _State, evidence: Evidence
) -> tuple[float, ...]:
    """Return the probabilities of a look and those before it together."""
    if question.smoothing == "filter":
        dt_s = (evidence.t_end_ns - state.evidence.t_end_ns) / NS
        if kind_of(question).exclusive:
            return filtered(state.smoothed or (1.0 / len(raw),) * len(raw), raw, dt_s,
                            question.switch_hz)
        return tuple(  # each label by itself
            filtered((before, 1.0 - before), (p, 1.0 - p), dt_s, question.switch_hz)[0]
            for p, before in zip(raw, state.smoothed or (0.5,) * len(raw), strict=True))
    if not state.smoothed:
        return raw
    new, old = question.ema, 1.0 - question.ema
    return tuple(new * p + old * before for p, before in zip(raw, state.smoothed, strict=True))


def _known(
    question: Question,
    raw: tuple[float, ...],
    smoothed: tuple[float, ...],
    evidence: Evidence,
    t_decided_ns: int,
    before: _State,
) -> Decision:
    kind = kind_of(question)
    verdict = kind.verdict(question, smoothed, before.held)
    changed = verdict.held != before.held
    onset = before.onsets.of(question, before.held, verdict.held)
    return Decision(
        question_id=question.id,
        answer=verdict.answer,
        p=kind.p(question, smoothed, verdict),
        p_raw=kind.p(question, raw, verdict),
        options=question.options,
        probabilities=smoothed if question.options else (),
        tier=evidence.tier,
        depth=evidence.depth,
        t_start_ns=evidence.t_start_ns,
        t_end_ns=evidence.t_end_ns,
        t_decided_ns=t_decided_ns,
        changed=changed,
        since_ns=evidence.t_end_ns if changed else before.since_ns,
        model=evidence.model,
        frame_id=evidence.frame_id,
        t_asked_ns=evidence.t_asked_ns or evidence.t_end_ns,
        value=verdict.value,
        answers=verdict.answers,
        t_onset_ns=onset.t_ns,
        t_onset_sd_s=onset.sd_s,
    )


def _unknown(
    question: Question,
    reason: str,
    status: str,
    evidence: Evidence,
    t_decided_ns: int,
    began_ns: int,
    before: _State,
) -> Decision:
    changed = before.answer != UNKNOWN
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
        since_ns=began_ns if changed else before.since_ns,
        model=evidence.model,
        frame_id=evidence.frame_id,
        reason=reason,
        status=status,
        answers=kind_of(question).unknown(question).answers,
    )
