"""From results to decisions: the gate of each view judges them, and the listeners get them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from ..decision import UNKNOWN, Decision
from .evidence import Look, Result
from .listeners import Listeners
from .notices import Notices
from .standing_questions import StandingQuestions
from .tick import Work
from .view_set import ViewSet
from .view_state import ViewState


class DecisionPublisher:
    """Publishes what the gates make of results, one decision at a time and in order.

    `lock` guards the gates, the questions and the listeners, and is held while decisions are
    published. `standing`: the questions whose results count; set under the lock, read without.
    """

    def __init__(self, views: ViewSet, notices: Notices, clock_ns: Callable[[], int]) -> None:
        """`clock_ns`: the clock that the frames' stamps are on."""
        self.lock = threading.RLock()  # taken before the intakes'
        self.standing = StandingQuestions()
        self.listeners: Listeners[Decision] = Listeners("decisions", notices.error, self.lock)
        self.watchers: Listeners[Look] = Listeners("looks", notices.error, self.lock)
        self._views, self._notices, self._clock_ns = views, notices, clock_ns
        self._thread: int | None = None  # that hands decisions to the listeners now

    @property
    def is_calling(self) -> bool:
        """Whether it is a listener that this is asked by."""
        return self._thread == threading.get_ident()

    def publish(self, view: ViewState, decisions: Iterable[Decision]) -> None:
        """Hand decisions to the listeners; under the lock."""
        before, self._thread = self._thread, threading.get_ident()
        try:
            for decision in decisions:
                self._publish_one(view, decision)
        finally:
            self._thread = before

    def _publish_one(self, view: ViewState, decision: Decision) -> None:
        if view.name:
            decision = replace(decision, view=view.name)
        known = decision.answer != UNKNOWN
        view.meter.published(decision.tier, decision.age_s if known else None)
        self.listeners.tell(decision)

    def answers(self, view: ViewState) -> dict[str, str]:
        """Return what a view's conditions may name; under the lock."""
        gates = {one.name: one.gate for one in self._views.all}
        return self.standing.answers(view.name, {**gates, view.name: view.gate})

    def deliver(self, view: ViewState, works: Iterable[Work]) -> None:
        """Publish what comes of the group in work, as it comes; tell of the faults."""
        generation = view.turn.generation
        for work in works:
            self._tell_faults(work)
            for result in work.results:
                if result.probabilities:
                    self._show(view, result)
                self._admit(view, result, generation)
                if result.probabilities:
                    view.note_outside()

    def take(self, view: ViewState, work: Work) -> None:
        """Publish what was done without a group in work; tell of the faults."""
        self._tell_faults(work)
        for result in work.results:
            self._admit(view, result, view.generation)

    def _tell_faults(self, work: Work) -> None:
        for fault in work.faults:
            self._notices.error(fault)

    def _show(self, view: ViewState, result: Result) -> None:
        """Hand a look at the group in work to the watchers."""
        if not self.watchers or view not in self._views.all:
            return
        encoded, generation = view.turn.encoded, view.turn.generation
        look = Look(result, view.name, generation, encoded.t_start_ns, encoded.t_end_ns,
                    encoded.features, view.shown())
        self.watchers.tell(look)

    def _admit(self, view: ViewState, result: Result, generation: int) -> None:
        """Publish what the gate makes of a result, unless it is of another time or question."""
        with self.lock:
            question = self.standing.by_id.get(result.question.id)
            if (
                generation != view.intake.generation
                or question is None
                or not question.asks_the_same(result.question)
                or view not in self._views.all
            ):
                view.meter.drop("outdated")
                return
            decides = view.processor.answerers.deciding(question)
            decisions = view.gate.result(result, decides, self._clock_ns())
            if question.implies:
                answers = self.answers(view)
                decisions = [
                    replace(one, contradicts=view.contradictions.of(
                        question, one, answers, self.standing.by_id))
                    for one in decisions
                ]
            self.publish(view, decisions)
