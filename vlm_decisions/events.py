"""Events over decisions: small state machines that wait for answers and count what happened.

An event is described as data (EventSpec), beside the questions in the same YAML file:

    events:
      - id: drink
        states: [idle, drinking]           # the first is the initial one
        transitions:
          - {from: idle, to: drinking, when: {activity: drinking}, hold_s: 0.5}
          - {from: drinking, to: idle, when: {activity: [typing, reading, idle, away]},
             hold_s: 1.0, count: drinks, refractory_s: 3.0}

An EventMachine runs one of them, an EventBook all of them. All times are frame time (`t_end` of the
decisions), so that a recording gives the same events at any speed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .conditions import ConditionError, check_view
from .decision import UNCERTAIN, UNKNOWN, Decision
from .files.listing import listed, there_are
from .files.yaml_records import Record, Shape
from .frames import NS
from .kinds import QuestionLike, in_view, names_of, question_of, view_of, without_view
from .texts import normal
from .views import address

MAX_EVENTS = 64
MAX_STATES = 32
MAX_TRANSITIONS = 128
MAX_NAME = 64
MAX_SECONDS = 86400.0

KEEP, RESET = "keep", "reset"
ON_UNKNOWN = (KEEP, RESET)

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*(_[a-zA-Z0-9]+)*")

_TRANSITION = Shape(
    known=("from", "to", "when", "hold_s", "refractory_s", "count"),
    literals=("from", "to", "count"),
    tables=("when",),
)
SHAPE = Shape(
    known=("id", "states", "transitions", "on_unknown"),
    literals=("id", "states", "on_unknown"),
    nested={"transitions": _TRANSITION},
)


class EventError(ValueError):
    """An event that is not valid. `field` is the key at fault, `transition` its index or None."""

    def __init__(
        self, message: str, field: str | None = None, transition: int | None = None
    ) -> None:
        """Store the place of the fault with the message, so that the line can be found."""
        super().__init__(message)
        self.field, self.transition = field, transition


@dataclass(frozen=True)
class Transition:
    """A transition from one state to another. EventSpec validates it.

    Attributes:
        source: state that it starts from.
        target: state that it leads to.
        when: question id (of an any_of: `id[label]`) to the answers that fit. With several views
            a name may say whose answer counts, as conditions do: `door.person`. All must fit at
            once. If it is empty, the transition always fits, and `hold_s` is a time limit on the
            state.
        hold_s: how long it must have fitted without a break in that state, seconds of frame time.
        refractory_s: how long it is disabled after it was taken, seconds of frame time.
        count: the event's counter that is incremented when it is taken; empty for none.
    """

    source: str
    target: str
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hold_s: float = 0.0
    refractory_s: float = 0.0
    count: str = ""

    def __post_init__(self) -> None:
        """Normalise the answers in the same way as questions do."""
        answers = {name: tuple(map(normal, fit)) for name, fit in self.when.items()}
        object.__setattr__(self, "when", answers)

    def to_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults, as in YAML."""
        values: dict[str, Any] = {"from": self.source, "to": self.target}
        if self.when:
            values["when"] = {
                name: answers[0] if len(answers) == 1 else list(answers)
                for name, answers in self.when.items()
            }
        for name in ("hold_s", "refractory_s", "count"):
            if getattr(self, name):
                values[name] = getattr(self, name)
        return values


@dataclass(frozen=True)
class EventSpec:
    """One event: its states, of which the first is the initial one, and its transitions.

    For each decision, the first transition from the present state that fits is taken. An `unknown`
    answer only fits a transition that lists it, and ends the hold of the others.

    Attributes:
        id: a ROS name token.
        states: names of the states.
        transitions: between them, in order of priority.
        on_unknown: `keep` the state when the answer to a question of the event becomes unknown, or
            `reset` it to the initial one.

    Raises:
        EventError: a field that is not valid.
    """

    id: str
    states: tuple[str, ...]
    transitions: tuple[Transition, ...]
    on_unknown: str = KEEP

    def __post_init__(self) -> None:
        """Validate everything that does not depend on the questions."""
        _check_name("event id", self.id, "id")
        self._check_states()
        if self.on_unknown not in ON_UNKNOWN:
            raise self.error(
                "on_unknown", f"must be {' or '.join(ON_UNKNOWN)}, not {self.on_unknown!r}"
            )
        if not 1 <= len(self.transitions) <= MAX_TRANSITIONS:
            raise self.error(
                "transitions", f"must be 1 to {MAX_TRANSITIONS}, not {len(self.transitions)}"
            )
        for index, transition in enumerate(self.transitions):
            self._check_transition(index, transition)
        reached = {t.target for t in self.transitions if t.source != t.target}
        for state in self.states[1:]:
            if state not in reached:
                raise self.error("states", f"hold '{state}', which no transition leads to")

    @property
    def questions(self) -> tuple[str, ...]:
        """Ids of the questions that it uses, in order of appearance."""
        return tuple(dict.fromkeys(question_of(name) for t in self.transitions for name in t.when))

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views that it says."""
        return tuple(dict.fromkeys(
            filter(None, (view_of(name) for t in self.transitions for name in t.when))))

    def check_questions(
        self, questions: Mapping[str, QuestionLike], views: Iterable[str] = ("",)
    ) -> None:
        """Raise EventError unless every question exists and can give the answers that are named.

        `views`: the names of those there are, each question of which may be named.
        """
        there = names_of(questions)
        for index, transition in enumerate(self.transitions):
            for name, answers in transition.when.items():
                own, question = without_view(name), questions.get(question_of(name))
                if own not in there:
                    hint = "; of a view's answer the name is view.question" if "/" in own else ""
                    raise self.error(
                        f"when.{name}", f"no question '{own}' ({there_are(there, own)}{hint})",
                        index,
                    )
                try:
                    check_view(view_of(name), question, question_of(name), views)
                except ConditionError as error:
                    raise self.error(f"when.{name}", str(error), index) from error
                possible = (*there[own], UNCERTAIN, UNKNOWN)
                for answer in answers:
                    if answer not in possible:
                        raise self.error(
                            f"when.{name}",
                            f"'{name}' never answers '{answer}' (its answers: "
                            f"{listed(possible)})",
                            index,
                        )

    def to_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults, as in YAML."""
        values: dict[str, Any] = {"id": self.id, "states": list(self.states)}
        if self.on_unknown != KEEP:
            values["on_unknown"] = self.on_unknown
        values["transitions"] = [transition.to_dict() for transition in self.transitions]
        return values

    def error(self, key: str, message: str, transition: int | None = None) -> EventError:
        """Return an error that names this event, the key and the transition (from 1)."""
        at = "" if transition is None else f"transition {transition + 1}: "
        shown = key if transition is None or "." not in key else key.partition(".")[0]
        return EventError(f"event '{self.id}': {at}{shown}: {message}", key, transition)

    def _check_states(self) -> None:
        if not 1 <= len(self.states) <= MAX_STATES:
            raise self.error("states", f"must be 1 to {MAX_STATES}, not {len(self.states)}")
        for state in self.states:
            _check_name(f"event '{self.id}': states: state", state, "states")
        if len(set(self.states)) < len(self.states):
            raise self.error("states", "name a state twice")

    def _check_transition(self, index: int, transition: Transition) -> None:
        for key, state in (("from", transition.source), ("to", transition.target)):
            if state not in self.states:
                raise self.error(
                    key, f"no state '{state}' ({there_are(self.states, state)})", index
                )
        for key in ("hold_s", "refractory_s"):
            value = getattr(transition, key)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not (math.isfinite(value) and 0 <= value <= MAX_SECONDS):
                raise self.error(
                    key, f"must be 0 to {MAX_SECONDS:g} seconds, not {value!r}", index
                )
        if transition.count:
            _check_name(f"event '{self.id}': counter", transition.count, "count", index)
        if not transition.when and not transition.hold_s:
            raise self.error("when", "is missing: without it hold_s must be above 0", index)
        for name, answers in transition.when.items():
            if not answers or len(set(answers)) < len(answers):
                raise self.error(
                    f"when.{name}", f"'{name}' needs one answer or several distinct ones", index
                )
        looping = transition.source == transition.target
        if looping and not (transition.hold_s or transition.refractory_s):
            raise self.error(
                "to", "a transition back to its own state needs hold_s or refractory_s, else "
                "every decision takes it", index
            )


def read_event(record: Record, source: str, questions: Mapping[str, QuestionLike],
               views: Iterable[str] = ("",)) -> EventSpec:
    """Return the event of a YAML record. Raises EventError that begins with source and line."""
    _need(record, source, "an event", ("id", "states", "transitions"))
    inner: list[Record] = record.values["transitions"]
    for one in inner:
        _need(one, source, "a transition", ("from", "to"))
    try:
        spec = EventSpec(
            record.values["id"],
            _texts(record.values["states"]),
            tuple(_transition(one) for one in inner),
            record.values.get("on_unknown", KEEP),
        )
        spec.check_questions(questions, views)
    except EventError as error:
        at = record if error.transition is None else inner[error.transition]
        key = (error.field or "").partition(".")[0]
        raise EventError(f"{source}:{at.lines.get(key, at.line)}: {error}", error.field) from error
    return spec


def _transition(record: Record) -> Transition:
    values = record.values
    return Transition(
        values["from"],
        values["to"],
        {name: _texts(answers) for name, answers in values.get("when", {}).items()},
        values.get("hold_s", 0.0),
        values.get("refractory_s", 0.0),
        values.get("count", ""),
    )


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _need(record: Record, source: str, what: str, keys: Sequence[str]) -> None:
    for key in keys:
        if key not in record.values:
            raise EventError(f"{source}:{record.line}: {what} needs the key '{key}'", key)


def _check_name(what: str, name: Any, key: str, transition: int | None = None) -> None:
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        shown = name[:MAX_NAME] if isinstance(name, str) else name
        raise EventError(
            f"{what} {shown!r} must be letters, digits and single underscores, starting with a "
            f"letter, at most {MAX_NAME} characters",
            key,
            transition,
        )


#: Why a state machine changed its state.
TRANSITION = "transition"  # a transition was taken
UNKNOWN_ANSWER = "unknown"  # an answer became unknown, and on_unknown is reset
TIME_BACK = "time"  # frame time went backwards


@dataclass(frozen=True)
class Event:
    """A state machine took a transition, or was reset to its initial state.

    Attributes:
        event_id: which event.
        from_state: state before.
        to_state: state after.
        cause: TRANSITION, UNKNOWN_ANSWER or TIME_BACK.
        counter: the counter that was incremented; empty for none.
        count: its new value; 0 for none.
        question_id: question of the decision that caused it.
        answer: answer of that decision.
        p: probability of that decision, NaN if it is unknown.
        t_start_ns: frame time from which the transition fitted.
        t_end_ns: frame time at which it was taken.
        t_decided_ns: when that was decided.
        state_since_ns: frame time at which `from_state` began.
        frame_id: the camera's TF frame.
        t_onset_ns: when that decision's answer began in the picture, and `t_onset_sd_s` its
            standard deviation in seconds, as in the decision; 0 where that was not seen.
        view: name of the view whose answers it follows; empty where they are of no one view.
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
    t_onset_ns: int = 0
    t_onset_sd_s: float = 0.0
    view: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: times in seconds as floats, NaN as None."""
        values = dict(self.__dict__)
        for name in ("t_start", "t_end", "t_decided", "state_since", "t_onset"):
            values[name] = values.pop(f"{name}_ns") / NS
        values["p"] = self.p if math.isfinite(self.p) else None
        return values

    def to_json(self) -> str:
        """Return one line of strict JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)


class EventMachine:
    """State, counters and timers of one event. Not thread-safe."""

    def __init__(self, spec: EventSpec, view: str = "", placed: Container[str] = ()) -> None:
        """Start in the initial state, with all counters at 0.

        `view`: whose answers it follows; of the questions in `placed` those of any view.
        """
        self.spec, self.view, self._placed = spec, view, placed
        self.state = spec.states[0]
        self.since_ns = 0
        self.counters = {t.count: 0 for t in spec.transitions if t.count}
        names = {name for t in spec.transitions for name in t.when}
        self._listens = frozenset((view_of(name), question_of(name)) for name in names)
        self._timed = any(not t.when for t in spec.transitions)
        self._now_ns = 0
        self._answers: dict[str, str] = {}
        self._fits_since: dict[int, int] = {}  # transition's index -> frame time
        self._taken_ns: dict[int, int] = {}

    def update(self, decision: Decision) -> Event | None:
        """Process a decision and return the event that it causes, if any.

        Frame time advances with the decisions that the event uses (with all decisions, if a
        transition has no `when`). An `unknown` counts at the time of the decision, since there may
        be no frames. Time never runs backwards here: EventBook restarts the machine in that case.
        """
        listened = [view for view in self._names_of(decision)
                    if (view, decision.question_id) in self._listens]
        if not listened and not self._timed:
            return None
        unknown = decision.answer == UNKNOWN
        first = self._now_ns == 0
        self._now_ns = max(
            self._now_ns, decision.t_decided_ns if unknown else decision.t_end_ns
        )
        if first:
            self.since_ns = self._now_ns
            self._fits_since.clear()  # holds begin at the first decision, not at time 0
        for view in listened:
            before = self._answers.get(_of_view(view, decision.question_id))
            self._answers |= {_of_view(view, name): answer
                              for name, answer in decision.by_name.items()}
            turned = unknown and before not in (None, UNKNOWN)
            if turned and self.spec.on_unknown == RESET and self.state != self.spec.states[0]:
                return self._enter(self.spec.states[0], UNKNOWN_ANSWER, decision, self._now_ns)
        return self._step(decision)

    def restart(self, decision: Decision) -> Event | None:
        """Restart at the decision's frame time, keeping the counters; return the event, if any."""
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

    def hears(self, decision: Decision) -> bool:
        """Return whether a transition depends on a decision's question, of its view."""
        return any((view, decision.question_id) in self._listens
                   for view in self._names_of(decision))

    def _names_of(self, decision: Decision) -> tuple[str, ...]:
        """Return the views by which a decision may be named here, none of one's own."""
        own = decision.view == self.view or decision.question_id in self._placed
        return ("",) * own + (decision.view,) * bool(decision.view)

    def _step(self, decision: Decision) -> Event | None:
        """Update which transitions fit, and take the first that has fitted long enough."""
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
            t_onset_ns=decision.t_onset_ns,
            t_onset_sd_s=decision.t_onset_sd_s,
            view=self.view,
        )
        self.state, self.since_ns = state, self._now_ns
        # The hold of transitions that already fit in the new state begins now.
        self._fits_since = {
            index: self._now_ns
            for index, transition in enumerate(self.spec.transitions)
            if transition.source == state and self._fits(transition)
        }
        return event


class EventBook:
    """All events of a set of questions. It gets every decision. Not thread-safe.

    Decisions of one question come in order of frame time. If one is older than the one before it,
    frame time went backwards (bag loop, simulation reset), and every machine of that view restarts.
    Counters are kept.

    An event follows each view by itself, with machines of its own, unless all its questions are
    asked of one view only (`placed` gives the view of such questions), or named with their view.
    Those answers count in every view.
    """

    def __init__(
        self, specs: Iterable[EventSpec] = (), placed: Mapping[str, str] | None = None
    ) -> None:
        """Start every machine in its initial state."""
        self._specs, self._placed = tuple(specs), dict(placed or {})
        self._shared: dict[str, EventMachine] = {}
        for spec in self._specs:
            views = {view_of(name) or self._placed.get(question_of(name))
                     for t in spec.transitions for name in t.when}
            if None not in views:
                view = next(iter(views)) if len(views) == 1 else ""
                self._shared[spec.id] = EventMachine(spec, view, self._placed)
        self._machines: dict[str, tuple[EventMachine, ...]] = {}
        self._newest_ns: dict[str, dict[str, int]] = {}  # by view and question
        if self._specs:
            self._of_view("")

    def update(self, decision: Decision) -> list[Event]:
        """Process a decision and return the events that it causes, in the order of the file."""
        if not self._specs:
            return []
        machines = self._of_view(decision.view)
        events: list[Event | None] = []
        stamp_ns = decision.t_end_ns
        if stamp_ns:  # 0 means that there is no evidence, and so no time
            newest_ns = self._newest_ns.setdefault(decision.view, {})
            if stamp_ns < newest_ns.get(decision.question_id, 0):
                newest_ns.clear()
                events += [machine.restart(decision) for machine in machines]
            newest_ns[decision.question_id] = stamp_ns
        every = (machine for group in self._machines.values() for machine in group)
        heard = (machine for machine in every if machine in machines or machine.hears(decision))
        events += [machine.update(decision) for machine in dict.fromkeys(heard)]
        return [event for event in events if event is not None]

    def states(self) -> dict[str, str]:
        """Return the present state of each event, by `view/event` where it is of a view."""
        return {name: machine.state for name, machine in self._named()}

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of each event, by the same names."""
        return {name: dict(machine.counters) for name, machine in self._named()}

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self._specs)

    def _of_view(self, view: str) -> tuple[EventMachine, ...]:
        if view not in self._machines:
            if view:
                self._machines.pop("", None)  # the views have names
            self._machines[view] = tuple(
                self._shared.get(spec.id) or EventMachine(spec, view, self._placed)
                for spec in self._specs
            )
        return self._machines[view]

    def _named(self) -> Iterator[tuple[str, EventMachine]]:
        for machines in self._machines.values():
            for machine in machines:
                shared = machine.spec.id in self._shared
                view = "" if shared else machine.view
                yield address(view, machine.spec.id), machine


def _of_view(view: str, name: str) -> str:
    return in_view(view, name) if view else name


def _ns(seconds: float) -> int:
    return round(seconds * NS)
