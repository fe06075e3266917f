"""What happens at the simulated desk: timed segments, each with one complete state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

OBJECTS = ("cup", "phone", "laptop", "pen")
COUNTS = ("none", "one", "two", "three", "four")  # of people, and of things on the desk
ACTIVITIES = ("typing", "drinking", "on phone", "reading", "idle", "away")
MOTIONS = ("still", "approaching", "receding", "left", "right")
HOLDABLE = ("cup", "phone", "pen", "book")

X_RANGE = (0.16, 0.84)  # where a person's centre may be, as a share of the image width
SCALE_RANGE = (0.62, 1.62)  # a person's size, 1 being someone sitting at the desk


@dataclass(frozen=True)
class State:
    """Everything that is true of the desk during one segment.

    Positions are shares of the image width (0 left, 1 right), scales are relative to a person
    sitting at the desk, rates are per second: widths for left and right, natural-log scale
    units for approaching and receding.
    """

    person: bool = True
    x: float = 0.5
    scale: float = 1.0
    motion: str = "still"
    rate: float = 0.0
    activity: str = "idle"
    holding: str | None = None
    second_person: bool = False
    door_open: bool = False
    desk: dict[str, float] = field(default_factory=dict)  # object lying on the desk -> its x
    light: float = 1.0

    def __post_init__(self) -> None:
        if self.activity not in ACTIVITIES:
            raise ValueError(f"activity {self.activity!r} is not one of {', '.join(ACTIVITIES)}")
        if self.motion not in MOTIONS:
            raise ValueError(f"motion {self.motion!r} is not one of {', '.join(MOTIONS)}")
        if self.holding is not None and self.holding not in HOLDABLE:
            raise ValueError(f"holding {self.holding!r} is not one of {', '.join(HOLDABLE)}")
        if self.person == (self.activity == "away"):
            raise ValueError("activity is 'away' exactly when no person is present")
        unknown = set(self.desk) - set(OBJECTS)
        if unknown:
            raise ValueError(f"objects on the desk must be among {', '.join(OBJECTS)}: {unknown}")

    def at(self, t_s: float) -> tuple[float, float]:
        """Centre x and scale of the person `t_s` seconds into the segment."""
        x, scale = self.x, self.scale
        if self.motion == "approaching":
            scale *= math.exp(self.rate * t_s)
        elif self.motion == "receding":
            scale *= math.exp(-self.rate * t_s)
        elif self.motion == "left":
            x -= self.rate * t_s
        elif self.motion == "right":
            x += self.rate * t_s
        return x, scale


@dataclass(frozen=True)
class Segment:
    """One state held for `duration_s` seconds."""

    duration_s: float
    state: State


@dataclass(frozen=True)
class Script:
    """A sequence of segments; time 0 is the start of the first."""

    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        if not self.segments or any(s.duration_s <= 0 for s in self.segments):
            raise ValueError("a script needs at least one segment, each longer than 0 s")

    @property
    def duration_s(self) -> float:
        return sum(s.duration_s for s in self.segments)

    @property
    def changes_s(self) -> list[float]:
        """Times at which one segment gives way to the next."""
        ends = np.cumsum([s.duration_s for s in self.segments])
        return [float(t) for t in ends[:-1]]

    def at(self, t_s: float) -> tuple[int, float]:
        """Segment index and the time since it began; the script repeats after its end."""
        t = t_s % self.duration_s
        for index, segment in enumerate(self.segments):
            if t < segment.duration_s or index == len(self.segments) - 1:
                return index, t
            t -= segment.duration_s
        raise AssertionError("unreachable")

    @staticmethod
    def random(seed: int, duration_s: float, segment_s: tuple[float, float] = (2.0, 4.0)) -> Script:
        """Independent random segments, balanced so that each answer is worth asking for."""
        rng = np.random.default_rng([seed, 1])
        segments: list[Segment] = []
        left = duration_s
        while left > 1e-9:
            length = float(rng.uniform(*segment_s))
            if left - length < segment_s[0]:
                length = left
            segments.append(Segment(length, random_state(rng, length)))
            left -= length
        return Script(tuple(segments))

    @staticmethod
    def demo(seed: int = 0) -> Script:
        """Half a minute at a desk in which every shipped question changes its answer."""
        rng = np.random.default_rng([seed, 2])
        right = bool(rng.integers(2))  # which side the cup stands on

        def side(x: float) -> float:
            return x if right else 1.0 - x

        desk = {"cup": side(0.78), "laptop": 0.5, "phone": side(0.2)}
        away = State(person=False, activity="away", desk=desk)
        far = replace(away, person=True, activity="idle", door_open=True, scale=0.66, x=0.5)
        near = State(x=0.5, scale=1.0, desk=desk)
        without_cup = {k: v for k, v in desk.items() if k != "cup"}
        without_phone = {k: v for k, v in desk.items() if k != "phone"}
        crossed = {"cup": side(0.2), "laptop": 0.52, "phone": side(0.82), "pen": side(0.36)}
        return Script((
            Segment(3.0, away),
            Segment(3.0, replace(far, motion="approaching", rate=0.28)),
            Segment(3.0, replace(near, activity="typing", scale=1.05)),
            Segment(3.0, replace(near, activity="drinking", holding="cup", desk=without_cup)),
            Segment(3.0, replace(near, activity="on phone", holding="phone", desk=without_phone)),
            Segment(3.0, replace(near, second_person=True, x=side(0.45), desk=crossed)),
            Segment(3.0, replace(near, activity="reading", holding="book", desk=crossed)),
            Segment(3.0, replace(near, x=0.25, motion="right", rate=0.18, desk={"pen": 0.4})),
            Segment(3.0, replace(near, x=0.75, motion="left", rate=0.18, desk=without_cup)),
            Segment(3.0, replace(near, scale=1.45, motion="receding", rate=0.27, door_open=True)),
        ))


def _place(rng: np.random.Generator, taken: Sequence[float], gap: float = 0.13) -> float | None:
    for _ in range(40):
        x = float(rng.uniform(0.09, 0.91))
        if all(abs(x - other) >= gap for other in taken):
            return x
    return None


def random_state(rng: np.random.Generator, duration_s: float) -> State:
    """Draw one state that stays drawable for `duration_s` seconds."""
    kinds = ("away", "typing", "drinking", "on phone", "reading", "idle", "move")
    kind = str(rng.choice(kinds, p=(0.15, 0.11, 0.12, 0.12, 0.11, 0.15, 0.24)))
    state = State(person=kind != "away", activity="idle" if kind in ("idle", "move") else kind)
    x, scale = float(rng.uniform(0.27, 0.73)), float(rng.uniform(0.75, 1.3))
    motion, rate, holding = "still", 0.0, None
    if kind == "move":
        motion = str(rng.choice(MOTIONS[1:]))
        low, high = SCALE_RANGE if motion in ("approaching", "receding") else X_RANGE
        room = math.log(high / low) if motion in ("approaching", "receding") else high - low
        most = min(room * 0.97 / duration_s, 0.5 if motion in ("approaching", "receding") else 0.3)
        rate = float(rng.uniform(max(0.1, 0.55 * most), most))
        travel = rate * duration_s
        if motion == "approaching":
            scale = low * math.exp(float(rng.uniform(0, room - travel)))
        elif motion == "receding":
            scale = high * math.exp(-float(rng.uniform(0, room - travel)))
        elif motion == "left":
            x = high - float(rng.uniform(0, room - travel))
        else:
            x = low + float(rng.uniform(0, room - travel))
    elif kind == "idle" and rng.random() < 0.65:
        holding = str(rng.choice(("cup", "phone", "pen")))
    elif kind in ("drinking", "on phone", "reading"):
        holding = {"drinking": "cup", "on phone": "phone", "reading": "book"}[kind]

    desk: dict[str, float] = {}
    taken: list[float] = []
    if holding is not None:
        taken.append(x)  # keep left-of and right-of clear of a held object
    if kind == "typing":
        desk["laptop"] = x
        taken.append(x)
    for name in rng.permutation(list(OBJECTS)):
        if name in desk or name == holding or rng.random() > 0.6:
            continue
        place = _place(rng, taken)
        if place is not None:
            desk[str(name)] = place
            taken.append(place)
    return replace(
        state, x=x, scale=scale, motion=motion, rate=rate, holding=holding, desk=desk,
        second_person=state.person and bool(rng.random() < 0.3),
        door_open=bool(rng.random() < 0.5),
        light=float(np.exp(rng.uniform(-0.75, 0.2))) if rng.random() < 0.5 else 1.0,
    )
