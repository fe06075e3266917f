"""
Events over decisions: state machines that see answers hold, and count what happened.

Everything is on frame time (the decisions' `t_end`), so that a recording replayed at any speed
gives the same events. See event_specs for what an event is made of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .decision import UNKNOWN, Decision
from .event_specs import RESET, EventSpec, Transition
from .frames import NS

#: Why a machine changed its state.
TRANSITION = "transition"  # a transition of its own
UNKNOWN_ANSWER = "unknown"  # an answer turned unknown, and the event says reset
TIME_BACK = "time"  # frame time went backwards


@dataclass(frozen=True)
class Event:
    """
    A machine took a transition, or was put back to its initial state.

    - `event_id`, `from_state`, `to_state`, `cause` (TRANSITION, UNKNOWN_ANSWER or TIME_BACK).
    - `counter`, `count`: the counter that went up and its new value; empty and 0 for none.
    - `question_id`, `answer`, `p`: of the decision that set it off (`p` is NaN if unknown).
    - `t_start_ns`: frame time from which the transition fitted, `t_end_ns`: frame time at which
      it was taken, `t_decided_ns`: when that was decided; `state_since_ns`: frame time at which
      `from_state` began.
    - `frame_id`: the camera's.
    """

    event_id: str
    from_state: str
    to_state: str
    cause: str
    counter: str
    count: int
    question_id: str
    answer: str
    p: float
    t_start_ns: int
    t_end_ns: int
    t_decided_ns: int
    state_since_ns: int
    frame_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: times in seconds as floats, a NaN as None."""
        values = dict(self.__dict__)
        for name in ("t_start", "t_end", "t_decided", "state_since"):
            values[name] = values.pop(f"{name}_ns") / NS
        values["p"] = self.p if math.isfinite(self.p) else None
        return values

    def to_json(self) -> str:
        """Return one line of strict JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)


class EventMachine:
    """One event's state, counters and timers. Not thread-safe."""

    def __init__(self, spec: EventSpec) -> None:
        """Begin in the initial state, with all counters at 0."""
        self.spec = spec
        self.state = spec.states[0]
        self.since_ns = 0
        self.counters = {t.count: 0 for t in spec.transitions if t.count}
        self._listens = frozenset(spec.questions)
        self._timed = any(not t.when for t in spec.transitions)
        self._now_ns = 0
        self._answers: dict[str, str] = {}
        self._fits_since: dict[int, int] = {}  # transition's index -> frame time
        self._taken_ns: dict[int, int] = {}

    def update(self, decision: Decision) -> Event | None:
        """
        Take a decision and return the event it sets off, if any.

        Frame time passes with the decisions listened to (with any, where a transition has no
        `when`); an `unknown` counts at the time it was decided, as silence has no frames. Time
        never runs backwards here: EventBook restarts the machine where it does.
        """
        listened = decision.question_id in self._listens
        if not listened and not self._timed:
            return None
        unknown = decision.answer == UNKNOWN
        first = self._now_ns == 0
        self._now_ns = max(
            self._now_ns, decision.t_decided_ns if unknown else decision.t_end_ns
        )
        if first:
            self.since_ns = self._now_ns
            self._fits_since.clear()  # nothing has held since 1970
        if listened:
            before = self._answers.get(decision.question_id)
            self._answers[decision.question_id] = decision.answer
            turned = unknown and before not in (None, UNKNOWN)
            if turned and self.spec.on_unknown == RESET and self.state != self.spec.states[0]:
                return self._enter(self.spec.states[0], UNKNOWN_ANSWER, decision, self._now_ns)
        return self._step(decision)

    def restart(self, decision: Decision) -> Event | None:
        """Begin anew at the decision's frame time, keeping the counters; return the event."""
        initial = self.spec.states[0]
        event = None
        if self.state != initial:
            event = self._enter(initial, TIME_BACK, decision, decision.t_end_ns)
        self.state, self.since_ns = initial, decision.t_end_ns
        self._now_ns = decision.t_end_ns
        self._answers.clear()
        self._fits_since.clear()
        self._taken_ns.clear()
        return event

    def _step(self, decision: Decision) -> Event | None:
        """Note which transitions fit, and take the first that has for long enough."""
        taken = None
        for index, transition in enumerate(self.spec.transitions):
            if transition.source != self.state or not self._fits(transition):
                self._fits_since.pop(index, None)
                continue
            began_ns = self._fits_since.setdefault(
                index, self._now_ns if transition.when else self.since_ns
            )
            if taken is None and self._may(index, transition, began_ns):
                taken = index, transition, began_ns
        if taken is None:
            return None
        index, transition, began_ns = taken
        self._taken_ns[index] = self._now_ns
        if transition.count:
            self.counters[transition.count] += 1
        return self._enter(transition.target, TRANSITION, decision, began_ns, transition.count)

    def _fits(self, transition: Transition) -> bool:
        return all(self._answers.get(name) in fit for name, fit in transition.when.items())

    def _may(self, index: int, transition: Transition, began_ns: int) -> bool:
        taken_ns = self._taken_ns.get(index)
        shut = taken_ns is not None and self._now_ns - taken_ns < _ns(transition.refractory_s)
        return not shut and self._now_ns - began_ns >= _ns(transition.hold_s)

    def _enter(
        self, state: str, cause: str, decision: Decision, began_ns: int, counter: str = ""
    ) -> Event:
        event = Event(
            event_id=self.spec.id,
            from_state=self.state,
            to_state=state,
            cause=cause,
            counter=counter,
            count=self.counters[counter] if counter else 0,
            question_id=decision.question_id,
            answer=decision.answer,
            p=decision.p,
            t_start_ns=began_ns,
            t_end_ns=decision.t_end_ns if cause == TIME_BACK else self._now_ns,
            t_decided_ns=decision.t_decided_ns,
            state_since_ns=self.since_ns,
            frame_id=decision.frame_id,
        )
        self.state, self.since_ns = state, self._now_ns
        # Those that fit already in the new state hold from here on.
        self._fits_since = {
            index: self._now_ns
            for index, transition in enumerate(self.spec.transitions)
            if transition.source == state and self._fits(transition)
        }
        return event


class EventBook:
    """
    All events of a set of questions, fed with every decision. Not thread-safe.

    Decisions of one question come in order of frame time; one that is older than its predecessor
    means that frame time went backwards (bag loop, simulation reset), and every machine begins
    anew. Counters go on.
    """

    def __init__(self, specs: Iterable[EventSpec] = ()) -> None:
        """Begin with every machine in its initial state."""
        self._machines = tuple(EventMachine(spec) for spec in specs)
        self._newest_ns: dict[str, int] = {}

    def update(self, decision: Decision) -> list[Event]:
        """Take a decision and return the events it sets off, in the order of the file."""
        if not self._machines:
            return []
        events: list[Event | None] = []
        stamp_ns = decision.t_end_ns
        if stamp_ns:  # else there is no evidence, and no time
            if stamp_ns < self._newest_ns.get(decision.question_id, 0):
                self._newest_ns.clear()
                events += [machine.restart(decision) for machine in self._machines]
            self._newest_ns[decision.question_id] = stamp_ns
        events += [machine.update(decision) for machine in self._machines]
        return [event for event in events if event is not None]

    def states(self) -> dict[str, str]:
        """Return the present state of each event."""
        return {machine.spec.id: machine.state for machine in self._machines}

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of each event."""
        return {machine.spec.id: dict(machine.counters) for machine in self._machines}

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self._machines)


def _ns(seconds: float) -> int:
    return round(seconds * NS)
