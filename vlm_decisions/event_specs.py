"""
What an event is: a small state machine over decisions, described as data and validated.

Events stand beside the questions in the same YAML file:

    events:
      - id: drink
        states: [idle, drinking]           # the first is where it begins
        transitions:
          - {from: idle, to: drinking, when: {activity: drinking}, hold_s: 0.5}
          - {from: drinking, to: idle, when: {activity: [typing, reading, idle, away]},
             hold_s: 1.0, count: drinks, refractory_s: 3.0}
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .decision import HEALTH_IDS, NO, UNCERTAIN, UNKNOWN, YES
from .yaml_records import Record, Shape

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
    texts=("from", "to", "count"),
    tables=("when",),
)
SHAPE = Shape(
    known=("id", "states", "transitions", "on_unknown"),
    texts=("id", "states", "on_unknown"),
    nested={"transitions": _TRANSITION},
)


class EventError(ValueError):
    """An event that is not valid; `field` is the key at fault, `transition` its index or None."""

    def __init__(
        self, message: str, field: str | None = None, transition: int | None = None
    ) -> None:
        """Keep beside the message where the fault is, for the line number."""
        super().__init__(message)
        self.field, self.transition = field, transition


class QuestionLike(Protocol):
    """What is needed of a question to check an event: its id, kind and options."""

    id: str
    kind: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Transition:
    """
    One way from a state to another. Raises EventError (see EventSpec, which names it).

    - `source`, `target`: states. `when`: question id to the answers that fit; all questions must
      fit at once. Empty: it always fits, and `hold_s` is a time limit on the state.
    - `hold_s`: how long it must have fitted without a break, in the state, seconds of frame time.
    - `refractory_s`: how long it stays shut after it was taken, seconds of frame time.
    - `count`: the event's counter that goes up when it is taken; empty for none.
    """

    source: str
    target: str
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hold_s: float = 0.0
    refractory_s: float = 0.0
    count: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults, as YAML holds it."""
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
    """
    One event: states, of which the first is the initial one, and transitions. Raises EventError.

    Of the transitions from a state the first that may be taken is, one per decision. An `unknown`
    answer never fits unless a transition lists it, and ends the hold of those that do not.
    `on_unknown`: `keep` the state then, or `reset` to the initial one, when any question of the
    event turns unknown.
    """

    id: str
    states: tuple[str, ...]
    transitions: tuple[Transition, ...]
    on_unknown: str = KEEP

    def __post_init__(self) -> None:
        """Check all that can be checked without the questions."""
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
        """Ids of the questions that it listens to, in order of appearance."""
        return tuple(dict.fromkeys(name for t in self.transitions for name in t.when))

    def check_questions(self, questions: Mapping[str, QuestionLike]) -> None:
        """Raise EventError unless every question exists and can give the answers named."""
        for index, transition in enumerate(self.transitions):
            for name, answers in transition.when.items():
                if name in HEALTH_IDS:
                    possible: tuple[str, ...] = (YES, NO)
                elif name in questions:
                    question = questions[name]
                    possible = question.options if question.kind == "choice" else (YES, NO)
                else:
                    known = ", ".join([*questions, *HEALTH_IDS])
                    raise self.error(
                        f"when.{name}", f"no question '{name}' (there are: {known})", index
                    )
                possible = (*possible, UNCERTAIN, UNKNOWN)
                for answer in answers:
                    if answer not in possible:
                        raise self.error(
                            f"when.{name}",
                            f"'{name}' never answers '{answer}' (its answers: "
                            f"{', '.join(possible)})",
                            index,
                        )

    def to_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults, as YAML holds it."""
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
                    key, f"no state '{state}' (there are: {', '.join(self.states)})", index
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


def read_event(record: Record, source: str, questions: Mapping[str, QuestionLike]) -> EventSpec:
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
        spec.check_questions(questions)
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
