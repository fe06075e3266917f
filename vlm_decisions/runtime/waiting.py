"""Waits for conditions over answers: how long each has held, and whether that is long enough.

Decisions push every wait on; nothing here has a thread or looks at a clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..conditions import Condition, ConditionError, parse_condition
from ..decision import UNKNOWN, Decision, probability
from ..files.listing import there_are
from ..frames import NS
from ..kinds import in_view, label_of, question_of, view_of
from ..questions import Question


class WaitError(ValueError):
    """A wait that makes no sense; the message says what would."""


@dataclass(frozen=True)
class WaitState:
    """How a wait stands: for people and for feedback.

    `held_s`: seconds of frame time that the condition has held. `answers`, `p`: of each name of the
    condition the present answer and its own probability (NaN where unknown or uncertain). `end_ns`:
    frame time of the oldest evidence among them, 0 where there is none.
    """

    holds: bool
    held_s: float
    names: tuple[str, ...]
    answers: tuple[str, ...]
    p: tuple[float, ...]
    end_ns: int

    def __str__(self) -> str:
        """Return the answers, as `person yes, activity unknown`."""
        return ", ".join(f"{name} {answer}" for name, answer in zip(self.names, self.answers))


class Wait:
    """One condition and since when it has held. Not thread-safe.

    `sources`: whose answers count, as (view, id) by the name of a question or of the camera's
    health as the condition says it: `person`, `door.person`.

    The hold is counted in frame time, from the evidence that made the condition true to the newest
    evidence on any of its questions. An answer that leaves the condition open (unknown, uncertain)
    breaks it, and so does frame time that goes backwards. The camera's health is published where it
    changes only: in a condition without a question, frame time goes on with every decision
    of its views.
    """

    def __init__(
        self, condition: str, for_s: float, questions: Mapping[str, Question],
        views: Sequence[str] = ("",), view: str = "",
    ) -> None:
        """Read the condition. Raises WaitError, also where it names what there is not.

        `questions`, `views`: those standing, by id and by name. `view`: whose answers count where a
        question is asked of several and the condition does not say.
        """
        if not (math.isfinite(for_s) and for_s >= 0.0):
            raise WaitError(f"for_s must be seconds from 0 on, not {for_s:g}")
        try:
            self.condition: Condition = parse_condition(condition)
        except ConditionError as error:
            raise WaitError(f"condition: {error}") from error
        self.for_s, self._view = for_s, view
        self.sources: dict[str, tuple[str, str]] = {}
        self.sources = self._resolved(questions, views)
        self._asked = self._questions_of(self.sources, questions)
        self._answers: dict[str, str] = {}
        self._began_ns: int | None = None
        self._now_ns = 0
        self._newest_ns: dict[tuple[str, str], int] = {}  # by source

    def follow(self, questions: Mapping[str, Question], views: Sequence[str] = ("",)) -> str:
        """Take note that questions or views changed; return why it cannot end any more, or nothing.

        What was answered to a question that asks something else now counts no longer. A view that
        comes does not change whose answers count.
        """
        gone = [view for view, _ in self.sources.values() if view not in views]
        if gone:
            return f"there is no view '{gone[0]}' any more"
        try:
            resolved = self._resolved(questions, views)
        except WaitError as error:
            return str(error)
        for name, source in resolved.items():
            _, question_id = source
            same = (question_id not in questions
                    or questions[question_id].asks_the_same(self._asked[question_id]))
            if not same or source != self.sources[name]:
                self._forget(name)
        self.sources = resolved
        self._asked = self._questions_of(resolved, questions)
        self._judge()
        return ""

    @staticmethod
    def _questions_of(
        sources: Mapping[str, tuple[str, str]], questions: Mapping[str, Question]
    ) -> dict[str, Question]:
        ids = (question_id for _, question_id in sources.values())
        return {one: questions[one] for one in ids if one in questions}

    def _resolved(
        self, questions: Mapping[str, Question], views: Sequence[str]
    ) -> dict[str, tuple[str, str]]:
        """Return whose answers count, by name. Raises WaitError."""
        try:
            self.condition.check(questions, views)
        except ConditionError as error:
            raise WaitError(f"condition: {error}") from error
        if self._view and self._view not in views:
            there = there_are(filter(None, views), self._view, "one, without a name")
            raise WaitError(f"there is no view '{self._view}' ({there})")
        found = {}
        for name in map(_whole, self.condition.names):
            question_id, before = question_of(name), self.sources.get(name, ("", ""))[0]
            of = [view for view in views
                  if question_id not in questions or questions[question_id].is_of(view)]
            for meant in (view_of(name), self._view, before):
                if meant in of:
                    of = [meant]
                    break
            if len(of) != 1:
                raise WaitError(f"'{name}' is answered of several views, name one: {', '.join(of)}")
            found[name] = of[0], question_id
        return found

    def begin(self, latest: Mapping[str, Decision]) -> bool:
        """Take the newest decisions, by name; return whether it has held long enough already."""
        for name in self.sources:
            if name in latest:
                self._take(name, latest[name])
        return self._judge()

    def update(self, decision: Decision) -> bool:
        """Take a decision; return whether the condition has held long enough."""
        source = decision.view, decision.question_id
        names = [name for name, one in self.sources.items() if one == source]
        for name in names:
            self._take(name, decision)
        if not names:
            of_none = all(view != decision.view for view, _ in self.sources.values())
            if self._asked or of_none or decision.answer == UNKNOWN:
                return False
            self._pass(decision)
        return self._judge()

    def state(self, latest: Mapping[str, Decision]) -> WaitState:
        """Return how it stands; `latest`: the newest decisions by name, for their p and age."""
        names = self.condition.names
        found = [latest.get(_whole(name)) for name in names]
        ends = [one.t_end_ns for one in found if one is not None and one.answer != UNKNOWN]
        began_ns = self._began_ns
        return WaitState(
            holds=began_ns is not None,
            held_s=0.0 if began_ns is None else (self._now_ns - began_ns) / NS,
            names=names,
            answers=tuple(self._answers.get(name, UNKNOWN) for name in names),
            p=tuple(math.nan if one is None or one.answer == UNKNOWN
                    else probability(one, label_of(name)) for name, one in zip(names, found)),
            end_ns=min(ends, default=0),
        )

    def _take(self, name: str, decision: Decision) -> None:
        if decision.answer == UNKNOWN:  # there may be no frames: frame time stands still
            self._forget(name)
            return
        self._pass(decision)
        view = view_of(name)
        self._answers |= {in_view(view, one) if view else one: answer
                          for one, answer in decision.by_name.items()}

    def _forget(self, name: str) -> None:
        for one in [one for one in self._answers if _whole(one) == name]:
            del self._answers[one]

    def _pass(self, decision: Decision) -> None:
        """Let frame time go on; the decisions of one question come in its order."""
        source, end_ns = (decision.view, decision.question_id), decision.t_end_ns
        if end_ns < self._newest_ns.get(source, 0):
            self._answers.clear()
            self._newest_ns.clear()
            self._began_ns, self._now_ns = None, 0
        self._newest_ns[source] = end_ns
        self._now_ns = max(self._now_ns, end_ns)

    def _judge(self) -> bool:
        if not self.condition.holds(self._answers, self._asked):
            self._began_ns = None
            return False
        if self._began_ns is None:
            self._began_ns = self._now_ns
        return self._now_ns - self._began_ns >= round(self.for_s * NS)


def _whole(name: str) -> str:
    """Return the name of the whole answer that a label's is part of: `door.on_desk`."""
    return name.partition("[")[0]
