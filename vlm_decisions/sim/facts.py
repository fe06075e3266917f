"""What is true of the simulated desk at one moment, as named facts that may also be undecided.

A fact is +1 (true), -1 (false) or 0: too close to a limit to be asked about. With these numbers
"not" is a sign, "and" the minimum and "or" the maximum (Kleene's logic of three values), for one
scene and for an array of many alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .script import HOLDABLE, MOTIONS, OBJECTS, State
from .world import held_spot

THINGS = (*OBJECTS, "book")
PLACED = (*OBJECTS, "person")  # what has a place from left to right
MOST_COUNTED = 4
BESIDE, APART = 0.24, 0.34  # centres this close, in widths, are next to each other, or are not
MIDDLE = 0.47, 0.53  # neither the left nor the right half
SAME_PLACE = 0.05  # centres closer than this are neither left nor right of each other
NEAR, FAR = 1.18, 0.88  # scales of a person from which it is near, or far
BETWEEN_NEAR_AND_FAR = 1.03


@dataclass(frozen=True)
class Scene:
    """One moment: the state, and the person's centre x and scale."""

    state: State
    x: float
    scale: float


def _sign(value: bool) -> int:
    return 1 if value else -1


def _between(value: float, low: float, high: float) -> int:
    """+1 from `high` on, -1 up to `low`, 0 between."""
    return 1 if value >= high else -1 if value <= low else 0


def _agreed(signs: list[int]) -> int:
    return signs[0] if len(set(signs)) == 1 else 0


def _places(scene: Scene) -> dict[str, tuple[float, ...]]:
    """Return the centres of what is in view; of a held thing both the person's and the hand's."""
    places = {name: (x,) for name, x in scene.state.desk.items()}
    if scene.state.person:
        places["person"] = (scene.x,)
    held = scene.state.holding
    if held in OBJECTS:
        places[held] = (scene.x, held_spot(scene.state, scene.x, scene.scale)[0])
    return places


def facts_of(scene: Scene) -> dict[str, int]:
    """Return every fact of a scene by name."""
    state, person = scene.state, scene.state.person
    moving = state.motion if person else "still"
    places = _places(scene)
    facts = {
        "person": _sign(person),
        "second_person": _sign(state.second_person),
        "door_open": _sign(state.door_open),
        "held": _sign(state.holding is not None),
        "empty_handed": _sign(person and state.holding is None),
        "moving": _sign(moving != "still"),
        "still": _sign(person and moving == "still"),
        "near": _between(scene.scale, BETWEEN_NEAR_AND_FAR, NEAR) if person else -1,
        "far": _between(-scene.scale, -BETWEEN_NEAR_AND_FAR, -FAR) if person else -1,
    }
    for name in THINGS:
        facts[f"present:{name}"] = _sign(name in state.desk or state.holding == name)
    for name in OBJECTS:
        facts[f"on_desk:{name}"] = _sign(name in state.desk)
    for name in HOLDABLE:
        facts[f"held:{name}"] = _sign(state.holding == name)
    for activity in ("typing", "drinking", "on phone", "reading"):
        facts[f"doing:{activity}"] = _sign(state.activity == activity)
    for motion in MOTIONS[1:]:
        facts[f"motion:{motion}"] = _sign(moving == motion)
    for name in PLACED:
        here = places.get(name)
        facts[f"side:left:{name}"] = _agreed(
            [_between(-x, -MIDDLE[1], -MIDDLE[0]) for x in here]) if here else -1
        facts[f"side:right:{name}"] = _agreed(
            [_between(x, *MIDDLE) for x in here]) if here else -1
        for other in PLACED:
            there = places.get(other)
            if other == name:
                continue
            gaps = [y - x for x in here or () for y in there or ()]
            facts[f"left:{name}:{other}"] = _agreed(
                [_between(gap, -SAME_PLACE, SAME_PLACE) for gap in gaps]) if gaps else -1
            facts[f"beside:{name}:{other}"] = _agreed(
                [_between(-abs(gap), -APART, -BESIDE) for gap in gaps]) if gaps else -1
    # Things are those that have a name; a sheet of paper or a plant is not counted.
    things, people = len(state.desk), int(person) + int(state.second_person)
    for k in range(MOST_COUNTED + 1):
        facts[f"things>={k}"], facts[f"things=={k}"] = _sign(things >= k), _sign(things == k)
        facts[f"people>={k}"], facts[f"people=={k}"] = _sign(people >= k), _sign(people == k)
    return facts


@dataclass(frozen=True)
class Meaning:
    """What a question asks: a fact, or "not", "and", "or" of other meanings, or "unknown".

    parts: of "fact" its name; of the others, meanings.
    """

    op: str
    parts: tuple[Any, ...] = ()

    def value(self, facts: Mapping[str, Any]) -> Any:
        """+1, -1 or 0 (undecided); an array where `facts` holds arrays."""
        if self.op == "fact":
            return facts[self.parts[0]]
        if self.op == "unknown":
            return facts["person"] * 0
        values = [part.value(facts) for part in self.parts]
        if self.op == "not":
            return -values[0]
        return (np.minimum if self.op == "and" else np.maximum).reduce(values)

    def __invert__(self) -> Meaning:
        return self.parts[0] if self.op == "not" else Meaning("not", (self,))

    def __and__(self, other: Meaning) -> Meaning:
        return Meaning("and", (self, other))

    def __or__(self, other: Meaning) -> Meaning:
        return Meaning("or", (self, other))

    def facts(self) -> frozenset[str]:
        """Names of the facts it rests on."""
        if self.op == "fact":
            return frozenset(self.parts)
        return frozenset().union(*(part.facts() for part in self.parts))


def fact(name: str) -> Meaning:
    """Return the meaning that one fact is true."""
    return Meaning("fact", (name,))


UNKNOWN = Meaning("unknown")
