"""What the embedded model is taught to answer: question families, their wordings and answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...sim.script import ACTIVITIES, OBJECTS, State

Answer = Callable[[State, float], str]


@dataclass(frozen=True)
class Wordings:
    """Questions that mean the same.

    `answer(state, x)` gives "Yes", "No" or an option for the state at the newest frame and the
    person's centre x; `motion` marks answers that one moment cannot show; `contested` says where
    something simpler does not give the answer away: a relation between two things in view, a
    direction of someone who moves.
    """

    name: str
    texts: tuple[str, ...]
    answer: Answer
    options: tuple[str, ...] = ()
    motion: bool = False
    group: str = "presence"
    contested: Callable[[State, float], bool] | None = None


def _yes(test: Callable[[State, float], bool]) -> Answer:
    return lambda state, x: "Yes" if test(state, x) else "No"


def where(state: State, x: float, name: str) -> float | None:
    """Centre x of an object, held or on the desk; None when it is not in view."""
    return x if state.holding == name else state.desk.get(name)


def _left(a: str, b: str) -> Callable[[State, float], bool]:
    def test(state: State, x: float) -> bool:
        xa, xb = where(state, x, a), where(state, x, b)
        return xa is not None and xb is not None and xa < xb

    return test


def _both(a: str, b: str) -> Callable[[State, float], bool]:
    return lambda state, x: where(state, x, a) is not None and where(state, x, b) is not None


def moves(state: State, x: float = 0.5) -> bool:
    """Whether someone is there and moves."""
    return state.person and state.motion != "still"


_MOVES = {
    "approaching": ("approaching", ("approaching", "coming closer", "moving toward the camera",
                                    "getting closer")),
    "receding": ("receding", ("receding", "moving away", "walking away from the camera",
                              "getting farther away")),
    "left": ("moving_left", ("moving left", "moving to the left", "walking to the left")),
    "right": ("moving_right", ("moving right", "moving to the right", "walking to the right")),
}
_ACTS = {
    "typing": ("typing", "typing on the laptop", "working on the laptop", "using the keyboard"),
    "drinking": ("drinking", "drinking from a cup", "taking a sip", "drinking from the cup"),
    "on phone": ("on the phone", "talking on the phone", "making a phone call", "on a phone"),
    "reading": ("reading", "reading a book", "looking at a book"),
}


def families() -> tuple[Wordings, ...]:
    """Every family, in a fixed order."""
    found = [
        Wordings("person", ("Is a person present?", "Is there a person in the video?",
                           "Is someone there?", "Is anyone at the desk?", "Can you see a person?",
                           "Is a person visible?", "Is there a person?", "Is the person present?"),
                _yes(lambda s, x: s.person)),
        Wordings("second_person", ("Is there a second person?", "Are there two people?",
                                  "Is a second person present?", "Is there more than one person?",
                                  "Is another person in view?"),
                _yes(lambda s, x: s.second_person)),
        Wordings("door_open", ("Is the door open?", "Is the door behind them open?",
                              "Is there an open door?", "Has the door been opened?"),
                _yes(lambda s, x: s.door_open)),
        Wordings("door_closed", ("Is the door closed?", "Is the door shut?"),
                _yes(lambda s, x: not s.door_open)),
        Wordings("book", ("Is there a book?", "Is a book visible?", "Can you see a book?"),
                _yes(lambda s, x: s.holding == "book")),
        Wordings("empty_hands", ("Is the person empty-handed?", "Are the person's hands empty?"),
                _yes(lambda s, x: s.person and s.holding is None), group="holding"),
        Wordings("holding_any", ("Is the person holding something?",
                                "Is the person holding anything?"),
                _yes(lambda s, x: s.holding is not None), group="holding"),
        Wordings("moving", ("Is the person moving?", "Is the person walking?",
                           "Is someone moving around?"),
                _yes(moves), motion=True, group="motion"),
        Wordings("still", ("Is the person standing still?", "Is the person still?",
                          "Is the person staying in place?"),
                _yes(lambda s, x: s.person and s.motion == "still"), motion=True, group="motion"),
        Wordings("side_left", ("Is the person on the left side?", "Is the person on the left?"),
                _yes(lambda s, x: s.person and x < 0.5), group="relation"),
        Wordings("side_right", ("Is the person on the right side?", "Is the person on the right?"),
                _yes(lambda s, x: s.person and x > 0.5), group="relation"),
    ]
    for name in OBJECTS:
        found.append(Wordings(
            name, (f"Is there a {name}?", f"Is a {name} visible?", f"Can you see a {name}?",
                   f"Is a {name} present?", f"Is there a {name} in view?",
                   f"Is there a {name} in the video?"),
            _yes(lambda s, x, n=name: where(s, x, n) is not None)))
        found.append(Wordings(
            f"{name}_on_desk", (f"Is there a {name} on the desk?", f"Is the {name} on the desk?",
                                f"Is the {name} on the table?", f"Is a {name} lying on the desk?"),
            _yes(lambda s, x, n=name: n in s.desk)))
        for other in OBJECTS:
            if other != name:
                found.append(Wordings(
                    f"{name}_left_of_{other}",
                    (f"Is the {name} to the left of the {other}?",
                     f"Is the {name} left of the {other}?"),
                    _yes(_left(name, other)), group="relation", contested=_both(name, other)))
                found.append(Wordings(
                    f"{name}_right_of_{other}",
                    (f"Is the {name} to the right of the {other}?",
                     f"Is the {name} right of the {other}?"),
                    _yes(_left(other, name)), group="relation", contested=_both(name, other)))
    for name in ("cup", "phone", "pen", "book"):
        found.append(Wordings(
            f"holding_{name}", (f"Is the person holding a {name}?",
                                f"Is the person holding the {name}?",
                                f"Is someone holding a {name}?",
                                f"Is there a {name} in the person's hand?"),
            _yes(lambda s, x, n=name: s.holding == n), group="holding"))
    for motion, (name, words) in _MOVES.items():
        found.append(Wordings(
            name, tuple(f"Is the person {w}?" for w in words) + (f"Is someone {words[0]}?",),
            _yes(lambda s, x, m=motion: s.person and s.motion == m), motion=True, group="motion",
            contested=moves))
    for activity, words in _ACTS.items():
        found.append(Wordings(
            f"doing_{activity.replace(' ', '_')}",
            tuple(f"Is the person {w}?" for w in words) + (f"Is someone {words[0]}?",),
            _yes(lambda s, x, a=activity: s.activity == a), group="activity"))
    found += [
        Wordings("activity", ("What is the person doing?", "What is the person mainly doing?",
                            "What is happening at the desk?"),
               lambda s, x: s.activity, options=ACTIVITIES, group="choice"),
        Wordings("direction", ("Which way is the person moving?", "How is the person moving?",
                             "Where is the person going?"),
               lambda s, x: {"still": "nowhere", "approaching": "closer", "receding": "away",
                             }.get(s.motion, s.motion) if s.person else "nowhere",
               options=("left", "right", "closer", "away", "nowhere"), motion=True,
               contested=moves,
               group="choice"),
        Wordings("held", ("What is the person holding?", "What is in the person's hand?"),
               lambda s, x: s.holding or "nothing",
               options=("nothing", "cup", "phone", "pen", "book"), group="choice"),
        Wordings("people", ("How many people are there?", "How many people are in view?"),
               lambda s, x: ("two" if s.second_person else "one") if s.person else "none",
               options=("none", "one", "two"), group="choice"),
        Wordings("door", ("Is the door open or closed?", "What state is the door in?"),
               lambda s, x: "open" if s.door_open else "closed", options=("open", "closed"),
               group="choice"),
    ]
    return tuple(found)


def tokenizer_text(all_families: Sequence[Wordings]) -> list[str]:
    """Lines that the small tokenizer is trained on: every wording, option and template piece."""
    from ...engine import prompt

    lines: list[str] = []
    for instruction in prompt.INSTRUCTIONS.values():
        lines += [instruction] * 40
    for family in all_families:
        for text in family.texts:
            lines += [text] * 4
            if family.options:
                lines += [text + "\nOptions: " + ", ".join(family.options)] * 4
                lines += ["\n".join(f"{chr(65 + k)}. {option}"
                                    for k, option in enumerate(family.options))] * 4
        lines += list(family.options) * 6
    words = ("Yes No Yes No yes no unknown person people someone hand left right cup mug bottle "
             "phone laptop pen book door open closed desk table chair room light dark bright "
             "camera robot standing sitting walking waving wearing glasses headphones looking "
             "toward away typing writing drinking reading idle What Which How Where Who Is Are "
             "Does Has Can Do the a an in on of at to from with and or not any many")
    lines += [words] * 8
    lines += [f"<{k / 10:.1f} seconds>" for k in range(100)]
    lines += ["user\n", "assistant\n", "system\n", "\n\n"] * 20
    return lines
