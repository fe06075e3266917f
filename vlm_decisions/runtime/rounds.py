"""Rounds of the engine over all views: who is seen, who is asked about, and the dead time after."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..questions import WINDOW
from .decision_publisher import DecisionPublisher
from .encoding import Encoding
from .notices import Notices
from .statistics import Meter
from .view_set import ViewSet
from .view_state import ViewState

#: Pieces of dead-time work after one group; more than any stream has.
MAX_IDLE_PIECES = 64


class Rounds:
    """All views that have a group are seen to first, then the most urgent is asked about.

    What comes of it goes to the publisher. All calls belong to the engine's thread.
    """

    def __init__(
        self, views: ViewSet, encoding: Encoding, publisher: DecisionPublisher, notices: Notices,
        meter: Meter, clock_ns: Callable[[], int],
    ) -> None:
        """`meter`: of all views; `clock_ns`: the clock that the frames' stamps are on."""
        self._views, self._encoding, self._publisher = views, encoding, publisher
        self._notices, self._meter, self._clock_ns = notices, meter, clock_ns

    def see(self) -> bool:
        """Take a group of each view that has one through vision and Tier 1; whether any had."""
        now_ns = self._clock_ns()
        looked_at = self._views.to_look_at(now_ns)
        for view in looked_at:
            if view.turn:
                self._ask(view, skip=True)  # the newer group is asked about instead
        taken = [view for view in looked_at if view.take(now_ns)]
        if not taken:
            return False
        for view in taken:
            self._notices.tell(view.resized())
        began_s = self._meter.timer()
        try:
            outcomes = self._encoding.encode([(view.view, view.turn.group) for view in taken])
        except Exception as error:  # a fault of this program; the views' groups go with it
            outcomes = [error] * len(taken)
            self._notices.error(f"groups could not be encoded\n{traceback.format_exc().rstrip()}")
        share_s = (self._meter.timer() - began_s) / len(taken)
        publisher = self._publisher
        for view, outcome in zip(taken, outcomes, strict=True):
            view.turn.spent_s = share_s
            with self._guarding(view):
                with publisher.lock:
                    interrupted, answers = view.gate.interrupted(now_ns), publisher.answers(view)
                publisher.deliver(
                    view, view.see(outcome, answers, publisher.standing.by_id, interrupted))
        for view in taken:
            if view.turn and view.turn.backlog:
                self._ask(view, skip=True)
        return True

    def ask_most_urgent(self) -> bool:
        """Ask about the view whose answers would otherwise be oldest; whether there was one."""
        view = self._views.to_ask(self._clock_ns())
        if view is None:
            return False
        self._ask(view)
        with self._guarding(view):
            self._publisher.take(view, view.processor.advance())
        return True

    def dead_time(self) -> Iterator[None]:
        """Work ahead, piece by piece: go on as long as nothing else is wanted."""
        for _ in range(MAX_IDLE_PIECES):
            more = False
            for view in self._views.all:
                yield
                if view.processor is None:
                    continue
                unsure: tuple[str, ...] = ()
                with self._guarding(view):
                    again, work = view.idle()
                    more |= again
                    self._publisher.take(view, work)
                    if not again:
                        unsure = view.processor.unsure
                for where in unsure:
                    yield
                    with self._guarding(view):
                        self._look_again(view, where)
            try:
                more = more or self._encoding.idle()
            except Exception as error:  # the encoder starts afresh by itself
                self._notices.error(f"engine, refresh: {str(error) or type(error).__name__}")
            if not more:
                return

    def _look_again(self, view: ViewState, where: str) -> None:
        """Ask what a view's last group left uncertain about more of the past, if there is time."""
        other = view if where == WINDOW else self._views.named(where)
        if other is None or other.processor is None or other.generation != view.generation:
            return  # it has seen nothing of this time
        left_s = min(one.left_s() for one in self._views.all)
        self._publisher.take(
            view, view.processor.look_again(where, other.processor.past, left_s))

    def _ask(self, view: ViewState, skip: bool = False) -> None:
        with self._guarding(view):
            self._publisher.deliver(view, view.ask(self._clock_ns(), skip))
            self._notices.tell(view.note_overload())

    @contextmanager
    def _guarding(self, view: ViewState) -> Iterator[None]:
        """Let the thread live on whatever is raised: it is a fault of this program."""
        try:
            yield
        except Exception:
            view.abandon()
            self._notices.error(
                f"a group could not be processed\n{traceback.format_exc().rstrip()}")
