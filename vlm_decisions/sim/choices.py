"""Questions with options about the simulated desk, their options in any order and words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .clauses import OBJECTS, Speaker, with_article


@dataclass(frozen=True)
class Choice:
    """A question, its options, and the index of the right one."""

    text: str
    options: tuple[str, ...]
    answer: int
    motion: bool = False


Drawn = tuple[str, dict[str, str]]  # the text, and the fact ("!": not) of each option


def _door(s: Speaker) -> Drawn:
    closed = s.pick(("closed", "closed", "shut"))
    text = s.pick((f"Is the door open or {closed}?", f"Is the door {closed} or open?",
                   "What state is the door in?", "How is the door?", "Which is the door?"))
    return text, {"open": "door_open", closed: "!door_open"}


def _side(s: Speaker) -> Drawn:
    name = s.pick([*OBJECTS, "person"])
    it = s.the(name)
    text = s.pick((f"Is {it} on the left or on the right?", f"On which side is {it}?",
                   f"In which half of the picture is {it}?", f"Where is {it}?",
                   f"Is {it} on the right or on the left?"))
    words = s.pick((("left", "right"), ("on the left", "on the right"),
                    ("left half", "right half")))
    return text, {word: f"side:{side}:{name}"
                  for word, side in zip(words, ("left", "right"), strict=True)}


def _order(s: Speaker) -> Drawn:
    first, second = (str(n) for n in s.rng.choice([*OBJECTS, "person"], 2, replace=False))
    one, other, side = s.noun(first), s.noun(second), s.pick(("left", "right"))
    text = s.pick((f"Which is further {side}, the {one} or the {other}?",
                   f"What is farther {side}: the {one} or the {other}?",
                   f"Which is further to the {side}?", f"Which of the two is on the {side}?"))
    pair = (first, second) if side == "left" else (second, first)
    back = (second, first) if side == "left" else (first, second)
    return text, {one: "left:{}:{}".format(*pair), other: "left:{}:{}".format(*back)}


def _activity(s: Speaker) -> Drawn:
    text = s.pick(("What is the person doing?", "What is the person mainly doing?",
                   "What is happening at the desk?", "What are they doing?",
                   "What is someone doing here?", "Which activity is it?"))
    return text, {word: f"doing:{word}" for word in ("typing", "drinking", "on phone", "reading")}


def _held(s: Speaker) -> Drawn:
    text = s.pick(("What is the person holding?", "What is in the person's hand?",
                   "What does the person hold?", "Which thing is being held?",
                   "What is she holding?", "What is he carrying?"))
    return text, {"nothing": "!held", **{s.noun(name): f"held:{name}"
                                         for name in ("cup", "phone", "pen", "book")}}


def _people(s: Speaker) -> Drawn:
    text = s.pick(("How many people are there?", "How many people are in view?",
                   "How many persons can you see?", "What is the number of people?"))
    none = s.pick(("none", "none", "zero", "nobody"))
    return text, {none: "people==0", "one": "people==1", "two": "people==2"}


def _things(s: Speaker) -> Drawn:
    noun = s.pick(("things", "objects", "items"))
    text = s.pick((f"How many {noun} are on the desk?", f"How many {noun} lie on the table?",
                   f"What is the number of {noun} on the desk?"))
    return text, {word: f"things=={k}" for k, word in enumerate(("none", "one", "two", "three",
                                                                 "four"))}


def _which(s: Speaker) -> Drawn:
    names = [str(n) for n in s.rng.choice(OBJECTS, int(s.rng.integers(2, 5)), replace=False)]
    desk = s.rng.random() < 0.5
    text = s.pick(("Which of these is on the desk?", "What is on the desk?",
                   "Which thing lies on the table?") if desk else
                  ("Which of these is in view?", "Which of these can you see?",
                   "What is in the picture?"))
    return text, {s.noun(n): f"{'on_desk' if desk else 'present'}:{n}" for n in names}


def _distance(s: Speaker) -> Drawn:
    text = s.pick(("Is the person near or far?", "Is the person far away or near?",
                   "How far away is the person?"))
    return text, {s.pick(("near", "close")): "near", s.pick(("far", "far away")): "far"}


def _direction(s: Speaker) -> Drawn:
    text = s.pick(("Which way is the person moving?", "How is the person moving?",
                   "Where is the person going?", "In which direction is the person walking?"))
    return text, {"left": "motion:left", "right": "motion:right", "closer": "motion:approaching",
                  "away": "motion:receding", "nowhere": "!moving"}


_DRAWN: tuple[Callable[[Speaker], Drawn], ...] = (
    _door, _side, _order, _activity, _held, _people, _things, _which, _distance, _direction)


def choice(rng: np.random.Generator, facts: Mapping[str, int], motion: bool) -> Choice | None:
    """Draw a question with options about a scene.

    Options are dropped at random and in random order, with an article at times.

    Args:
        rng: the source of chance.
        facts: of the scene (`facts.facts_of`).
        motion: whether what was drawn of the scene shows how it moves.

    Returns:
        None where the drawn question has not just one right option there.
    """
    drawn = _DRAWN[int(rng.integers(len(_DRAWN)))]
    if drawn is _direction and not motion:
        return None
    text, options = drawn(Speaker(rng, "choice"))
    values = {word: -facts[name[1:]] if name.startswith("!") else facts[name]
              for word, name in options.items()}
    right = [word for word, value in values.items() if value > 0]
    if len(right) != 1 or 0 in values.values():
        return None
    words = [word for word in options if word in right
             or len(options) == 2 or rng.random() < 0.85]
    if len(words) < 2:
        return None
    rng.shuffle(words)
    if drawn in (_order, _which) and rng.random() < 0.3:
        article = with_article if rng.random() < 0.5 else "the {}".format
        return Choice(text, tuple(article(w) for w in words), words.index(right[0]))
    return Choice(text, tuple(words), words.index(right[0]), drawn is _direction)
