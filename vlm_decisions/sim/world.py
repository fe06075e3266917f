"""The simulated desk: images of a scripted scene at any time, and what is true in them.

Everything follows from the seed and the script: the same call gives the same pixels. A second
person, clutter, uneven and changing light, sensor noise, defocus and camera shake are part of
the drawing, so that a model trained on it has to look rather than remember.
"""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np

from ..decision import NO, YES
from ..kinds import joined
from .canvas import Canvas, Colour
from .figure import Figure, hand_spots
from .lamp import Lamp
from .script import ACTIVITIES, COUNTS, OBJECTS, Script, State
from .style import Style

Box = tuple[float, float, float, float]  # x0, y0, x1, y1 as shares of width and height

DESK_TOP = 0.66  # where the desk's far edge meets the wall, as a share of the height
MIN_SIZE, MAX_SIZE = 96, 1280


class World:
    """A desk, its light and its camera, played through a script.

    Args:
        seed: picks colours, furniture, clutter, light and noise.
        script: what happens; a random one of 30 s when not given.
        shake: camera shake, noise and defocus on or off.
        lamp: a lamp hangs over the desk and is switched on and off: what the embedded model was
            never taught. Its fact is `lamp`.
        style: of another camera than the usual one.
    """

    def __init__(self, seed: int, script: Script | None = None, *, shake: bool = True,
                 lamp: bool = False, style: Style | None = None) -> None:
        self.seed = seed
        self.script = script if script is not None else Script.random(seed, 30.0)
        rng = np.random.default_rng([seed, 3])
        self._wall = _colour(rng, 90, 225)
        self._wall_pattern = str(rng.choice(("plain", "plain", "stripes", "bricks", "curtain")))
        self._desk = _colour(rng, 60, 190)
        self._grain = float(rng.uniform(0, 14))
        self._door_x = float(rng.choice((0.12, 0.88)) + rng.uniform(-0.03, 0.03))
        self._door = _colour(rng, 70, 190, away_from=self._wall)
        self._beyond = tuple(int(c) for c in rng.integers(8, 45, 3))
        self._colours: dict[str, Colour] = {
            "cup": _colour(rng, 40, 245, away_from=self._desk),
            "phone": tuple(int(c) for c in rng.integers(12, 55, 3)),
            "laptop": tuple(int(c) for c in rng.integers(60, 120) + rng.integers(0, 20, 3)),
            "pen": _vivid(rng),
            "book": _colour(rng, 40, 230),
        }
        self._tilt = {name: float(rng.uniform(-1, 1)) for name in OBJECTS}
        self._depth = {name: float(rng.uniform(0.78, 0.9)) for name in OBJECTS}
        self._first = Figure.random(rng)
        self._second = Figure.random(rng)
        self._second_x = float(rng.uniform(0.2, 0.3))
        self._second_scale = float(rng.uniform(0.55, 0.8))
        self._clutter = [
            (str(rng.choice(("sheet", "plant", "box"))), float(rng.uniform(0.05, 0.95)),
             _colour(rng, 60, 240))
            for _ in range(int(rng.integers(0, 3)))
        ]
        self._gradient = float(rng.uniform(-0.25, 0.25))
        self._tint = rng.uniform(0.9, 1.1, 3)
        self._flicker = float(rng.uniform(0, 0.03))
        self._noise = float(rng.uniform(1.0, 8.0)) if shake else 0.0
        self._blur = float(rng.uniform(0.0, 0.0035)) if shake and rng.random() < 0.4 else 0.0
        self._shake = float(rng.uniform(0.0, 0.004)) if shake else 0.0
        self._phase = float(rng.uniform(0, 6.28))
        self._lamp = Lamp(seed, self.script, self._door_x) if lamp else None
        self._style = style
        self._backgrounds: dict[tuple[int, int, bool], np.ndarray] = {}
        self._finish: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    @property
    def duration_s(self) -> float:
        return self.script.duration_s

    def state(self, t_s: float) -> State:
        """Return the scripted state at time `t_s`."""
        return self.script.segments[self.script.at(t_s)[0]].state

    def pose(self, t_s: float) -> tuple[float, float]:
        """Centre x (share of the width) and scale of the person at time `t_s`."""
        index, t = self.script.at(t_s)
        return self.script.segments[index].state.at(t)

    # -- truth ---------------------------------------------------------------------------------

    def truth(self, t_s: float) -> dict[str, str]:
        """Return what is true at `t_s`: question id -> the answer as a decision gives it."""
        truth = truth_of(self.state(t_s), self.pose(t_s)[0])
        if self._lamp is not None:
            truth["lamp"] = YES if self._lamp.is_on(t_s) else NO
        return truth

    @property
    def changes_s(self) -> list[float]:
        """Times at which something may become true or false, in order."""
        switched = self._lamp.switched_s if self._lamp is not None else []
        return sorted([*self.script.changes_s, *switched])

    def boxes(self, t_s: float) -> dict[str, Box]:
        """Where each drawn thing is, for training labels; shares of the image, aspect 4:3."""
        state, (x, scale) = self.state(t_s), self.pose(t_s)
        found: dict[str, Box] = {}
        if state.person:
            found["person"] = self._first.box(x, scale)
        if state.second_person:
            found["second_person"] = self._second.box(self._aside(state), self._second_scale)
        for name, at in state.desk.items():
            found[name] = _object_box(name, at, self._depth[name])
        if state.holding:
            found[state.holding] = _held_box(state, x, scale)
            found["held"] = found[state.holding]
        found["door"] = (self._door_x - 0.085, 0.14, self._door_x + 0.085, DESK_TOP)
        return found

    # -- drawing -------------------------------------------------------------------------------

    def render(self, t_s: float, width: int = 640, height: int = 480) -> np.ndarray:
        """Return the camera's image at `t_s`: uint8 RGB of shape (height, width, 3).

        Raises:
            ValueError: a side outside 96 to 1280 pixels.
        """
        if not (MIN_SIZE <= width <= MAX_SIZE and MIN_SIZE <= height <= MAX_SIZE):
            raise ValueError(
                f"image size {width}x{height}: each side must be {MIN_SIZE} to {MAX_SIZE} pixels")
        state, (x, scale) = self.state(t_s), self.pose(t_s)
        background = self._background(width, height, state.door_open)
        image = background.copy()
        canvas = Canvas(image)
        if state.second_person:
            self._second.draw(canvas, self._aside(state), self._second_scale, "idle", None, t_s + 9)
        if state.person:
            self._first.draw(canvas, x, scale, state.activity, state.holding, t_s)
        top = round(DESK_TOP * height)
        image[top:] = background[top:]
        for kind, at, colour in self._clutter:
            _draw_clutter(canvas, kind, at, colour)
        for name in OBJECTS:
            if name in state.desk:
                self._draw_object(canvas, name, state.desk[name], self._depth[name])
        if state.person:
            self._first.draw_hands(canvas, x, scale, state.activity, state.holding, t_s)
            if state.holding:
                self._draw_held(canvas, state, x, scale)
        if self._lamp is not None:
            self._lamp.draw(canvas, t_s)
        image = self._through_camera(image, t_s, state.light)
        if self._style is not None:
            image = self._style.show(image, self.seed + round(t_s * 1e3))
        return image

    def _aside(self, state: State) -> float:
        """Return the second person's x: on the side that the first is farther from."""
        return 1.0 - self._second_x if state.x < 0.5 else self._second_x

    def _background(self, width: int, height: int, door_open: bool) -> np.ndarray:
        key = (width, height, door_open)
        if key not in self._backgrounds:
            image = np.empty((height, width, 3), np.uint8)
            self._draw_wall(image)
            self._draw_door(Canvas(image), door_open)
            self._draw_desk(image)
            self._backgrounds[key] = image
        return self._backgrounds[key]

    def _draw_wall(self, image: np.ndarray) -> None:
        height, width = image.shape[:2]
        image[:] = self._wall
        canvas = Canvas(image)
        if self._wall_pattern == "stripes":
            for k in range(0, 24, 2):
                canvas.box(k / 24, 0, (k + 1) / 24, 1, _shade(self._wall, 0.9))
        elif self._wall_pattern == "bricks":
            for row in range(12):
                canvas.line([(0, row / 14), (1, row / 14)], 0.006, _shade(self._wall, 0.8))
                for k in range(9):
                    bx = (k + 0.5 * (row % 2)) / 8
                    canvas.line([(bx, row / 14), (bx, (row + 1) / 14)], 0.006,
                                _shade(self._wall, 0.8))
        elif self._wall_pattern == "curtain":
            wave = 1 + 0.13 * np.sin(np.linspace(0, 70, width) + self._phase)
            image[:] = np.clip(image * wave[None, :, None], 0, 255).astype(np.uint8)
        fall = np.linspace(133, 118, height)[:, None, None].astype(np.uint8)
        image[:] = cv2.multiply(image, np.broadcast_to(fall, image.shape).copy(), scale=1 / 128)

    def _draw_door(self, canvas: Canvas, is_open: bool) -> None:
        x, half, top = self._door_x, 0.075, 0.16
        canvas.box(x - half - 0.012, top - 0.02, x + half + 0.012, 1, _shade(self._door, 1.25))
        if not is_open:
            canvas.box(x - half, top, x + half, 1, self._door)
            for y in (0.24, 0.44):
                canvas.box(x - 0.05, y, x + 0.05, y + 0.15, _shade(self._door, 0.85))
            canvas.ellipse(x + half * 0.75, 0.42, 0.014, 0.014, (215, 200, 120))
            return
        canvas.box(x - half, top, x + half, 1, self._beyond)
        swing = 0.05 if x < 0.5 else -0.05  # the leaf swings into the room
        hinge = x - half if x < 0.5 else x + half
        canvas.polygon([(hinge, top), (hinge + swing, top - 0.03), (hinge + swing, 1), (hinge, 1)],
                       _shade(self._door, 0.75))

    def _draw_desk(self, image: np.ndarray) -> None:
        height, width = image.shape[:2]
        top = round(DESK_TOP * height)
        image[top:] = self._desk
        rng = np.random.default_rng([self.seed, 4])
        bands = cv2.resize(rng.normal(0, self._grain, (14, 2)), (width, height - top),
                           interpolation=cv2.INTER_CUBIC)
        image[top:] = np.clip(image[top:] + bands[..., None], 0, 255).astype(np.uint8)
        edge = max(1, height // 90)
        image[top:top + edge] = _shade(self._desk, 0.6)

    def _draw_object(self, canvas: Canvas, name: str, x: float, y: float) -> None:
        colour = self._colours[name]
        if name == "cup":
            _draw_cup(canvas, x, y, 1.0, colour)
        elif name == "phone":
            _draw_phone(canvas, x, y, 1.0, colour, self._tilt[name] * 0.5)
        elif name == "laptop":
            _draw_laptop(canvas, x, colour)
        else:
            _draw_pen(canvas, x, y, 1.0, colour, self._tilt[name] * 0.9)

    def _draw_held(self, canvas: Canvas, state: State, x: float, scale: float) -> None:
        spot = held_spot(state, x, scale)
        colour = self._colours[str(state.holding)]
        grow = 0.55 + 0.45 * scale
        if state.holding == "cup":
            _draw_cup(canvas, *spot, grow, colour)
        elif state.holding == "phone":
            _draw_phone(canvas, *spot, grow, colour, 0.15)
        elif state.holding == "pen":
            _draw_pen(canvas, *spot, grow, colour, 1.1)
        else:
            _draw_book(canvas, *spot, grow, colour)

    def _through_camera(self, image: np.ndarray, t_s: float, light: float) -> np.ndarray:
        height, width = image.shape[:2]
        if (width, height) not in self._finish:
            ramp = 128 * (1 + self._gradient * np.linspace(-1, 1, width))
            gain = ramp[None, :, None] * self._tint[None, None, :]
            gradient = np.broadcast_to(np.clip(gain, 0, 255), image.shape).astype(np.uint8)
            noise = (_unit_noise(width, height) * self._noise).round().astype(np.int16)
            self._finish[width, height] = np.ascontiguousarray(gradient), noise
        gradient, noise = self._finish[width, height]
        level = light * (1 + self._flicker * np.sin(5.1 * t_s + self._phase))
        image = cv2.multiply(image, gradient, scale=float(level) / 128)
        dx = self._shake * width * np.sin(2.3 * t_s + self._phase)
        dy = self._shake * height * np.cos(1.7 * t_s + 2 * self._phase)
        if self._shake:
            move = np.array([[1, 0, dx], [0, 1, dy]])
            image = cv2.warpAffine(image, move, (width, height), borderMode=cv2.BORDER_REPLICATE)
        if self._blur * width > 0.3:
            image = cv2.GaussianBlur(image, (0, 0), self._blur * width)
        if self._noise:
            rng = np.random.default_rng([self.seed, 6, round(t_s * 1e6)])
            oy, ox = rng.integers(0, 64, 2)
            image = cv2.add(image, noise[oy:oy + height, ox:ox + width], dtype=cv2.CV_8U)
        return image


@lru_cache(maxsize=8)
def _unit_noise(width: int, height: int) -> np.ndarray:
    """Sensor noise of unit strength, with a margin to shift it in from frame to frame."""
    rng = np.random.default_rng(5)
    return rng.standard_normal((height + 64, width + 64, 3), np.float32)


def truth_of(state: State, x: float) -> dict[str, str]:
    """Answers to the questions of `config/questions/desk.yaml` and `kinds.yaml` in `state`."""

    def where(name: str) -> float | None:
        return x if state.holding == name else state.desk.get(name)

    def left_of(a: str, b: str) -> bool:
        xa, xb = where(a), where(b)
        return xa is not None and xb is not None and xa < xb

    moving = state.motion if state.person else "still"
    facts = {
        "person": state.person,
        "second_person": state.second_person,
        **{name: where(name) is not None for name in OBJECTS},
        "door_open": state.door_open,
        **{f"holding_{name}": state.holding == name for name in ("cup", "phone", "pen", "book")},
        "cup_left_of_laptop": left_of("cup", "laptop"),
        "phone_right_of_laptop": left_of("laptop", "phone"),
        "approaching": moving == "approaching",
        "receding": moving == "receding",
        "moving_left": moving == "left",
        "moving_right": moving == "right",
    }
    answers = {name: "yes" if fact else "no" for name, fact in facts.items()}
    answers["activity"] = ACTIVITIES[ACTIVITIES.index(state.activity)]
    answers["people"] = COUNTS[state.person + state.second_person]
    answers["things"] = COUNTS[len(state.desk)]
    answers["on_desk"] = joined([name for name in OBJECTS if name in state.desk])
    return answers


def held_spot(state: State, x: float, scale: float) -> tuple[float, float]:
    """Centre of the held object as shares of the image."""
    return hand_spots(x, scale, state.activity, state.holding)[0]


# -- the things themselves; sizes are shares of the image height at scale 1 ---------------------

SIZES = {"cup": (0.1, 0.12), "phone": (0.066, 0.125), "laptop": (0.27, 0.17),
         "pen": (0.05, 0.15), "book": (0.26, 0.17)}
ASPECT = 0.75  # height over width of the image that positions were laid out for


def _object_box(name: str, x: float, y: float, grow: float = 1.0) -> Box:
    w, h = (side * grow for side in SIZES[name])
    if name == "laptop":
        return x - w * ASPECT / 2, DESK_TOP - 0.08, x + w * ASPECT / 2, DESK_TOP + 0.12
    return x - w * ASPECT / 2, y - h / 2, x + w * ASPECT / 2, y + h / 2


def _held_box(state: State, x: float, scale: float) -> Box:
    return _object_box(str(state.holding), *held_spot(state, x, scale), 0.55 + 0.45 * scale)


def _draw_cup(canvas: Canvas, x: float, y: float, grow: float, colour: Colour) -> None:
    w, h = SIZES["cup"][0] * grow, SIZES["cup"][1] * grow
    a = ASPECT
    canvas.ring(x + w * 0.55 * a, y, w * 0.26, h * 0.26, 0.018 * grow, _shade(colour, 0.75))
    canvas.polygon([(x - w / 2 * a, y - h / 2), (x + w / 2 * a, y - h / 2),
                    (x + w * 0.4 * a, y + h / 2), (x - w * 0.4 * a, y + h / 2)], colour)
    canvas.ellipse(x, y - h / 2, w / 2, h * 0.12, _shade(colour, 0.55))


def _draw_phone(canvas: Canvas, x: float, y: float, grow: float, colour: Colour,
                tilt: float) -> None:
    w, h = SIZES["phone"][0] * grow, SIZES["phone"][1] * grow
    canvas.tilted(x, y, w, h, tilt, colour)
    canvas.tilted(x, y, w * 0.76, h * 0.78, tilt, (95, 150, 205))


def _draw_laptop(canvas: Canvas, x: float, colour: Colour) -> None:
    w = SIZES["laptop"][0] * ASPECT / 2
    y = DESK_TOP
    canvas.polygon([(x - w, y - 0.08), (x + w, y - 0.08), (x + w, y + 0.08), (x - w, y + 0.08)],
                   colour)
    canvas.box(x - w * 0.88, y - 0.062, x + w * 0.88, y + 0.06, _shade(colour, 1.35))
    canvas.ellipse(x, y, 0.02, 0.02, _shade(colour, 0.6))
    canvas.polygon([(x - w, y + 0.08), (x + w, y + 0.08), (x + w * 1.12, y + 0.125),
                    (x - w * 1.12, y + 0.125)], _shade(colour, 0.7))


def _draw_pen(canvas: Canvas, x: float, y: float, grow: float, colour: Colour,
              tilt: float) -> None:
    half = SIZES["pen"][1] / 2 * grow
    dx, dy = half * np.sin(tilt) * ASPECT, half * np.cos(tilt)
    canvas.line([(x - dx, y + dy), (x + dx, y - dy)], 0.021 * grow, colour)
    canvas.line([(x - dx, y + dy), (x - dx * 0.6, y + dy * 0.6)], 0.021 * grow, (245, 245, 245))


def _draw_book(canvas: Canvas, x: float, y: float, grow: float, colour: Colour) -> None:
    w, h = SIZES["book"][0] * grow * ASPECT / 2, SIZES["book"][1] * grow / 2
    canvas.polygon([(x - w, y - h), (x, y - h * 0.75), (x + w, y - h), (x + w, y + h),
                    (x, y + h * 1.2), (x - w, y + h)], colour)
    canvas.line([(x, y - h * 0.75), (x, y + h * 1.2)], 0.01 * grow, _shade(colour, 0.5))
    for k in (-0.4, 0.0, 0.4):
        for side in (-0.52, 0.52):
            canvas.line([(x + (side - 0.3) * w, y + k * h), (x + (side + 0.3) * w, y + k * h)],
                        0.008 * grow, _shade(colour, 1.45))


def _draw_clutter(canvas: Canvas, kind: str, x: float, colour: Colour) -> None:
    if kind == "sheet":
        canvas.tilted(x, 0.86, 0.2, 0.13, 0.2, (238, 238, 232))
    elif kind == "plant":
        canvas.box(x - 0.025, 0.66, x + 0.025, 0.74, (150, 90, 60))
        for k in (-0.03, 0.0, 0.03):
            canvas.line([(x, 0.67), (x + k, 0.54)], 0.02, (60, 130, 60))
    else:
        canvas.box(x - 0.04, 0.7, x + 0.04, 0.77, colour)


def _shade(colour: Colour, gain: float) -> Colour:
    return tuple(int(min(255, c * gain)) for c in colour)  # type: ignore[return-value]


def _colour(rng: np.random.Generator, low: int, high: int,
            away_from: Colour | None = None) -> Colour:
    while True:
        colour = tuple(int(c) for c in rng.integers(low, high, 3))
        if away_from is None:
            return colour  # type: ignore[return-value]
        if sum(abs(a - b) for a, b in zip(colour, away_from, strict=True)) > 90:
            return colour  # type: ignore[return-value]


def _vivid(rng: np.random.Generator) -> Colour:
    palette = ((205, 30, 35), (25, 60, 205), (15, 140, 60), (235, 150, 20), (130, 30, 160))
    return palette[int(rng.integers(len(palette)))]
