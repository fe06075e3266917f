"""A person at the desk: how one looks, and where the hands are in each activity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .canvas import Canvas, Colour

_SKIN = ((245, 214, 190), (228, 184, 148), (196, 146, 108), (141, 93, 62), (94, 62, 44))
_HAIR = ((28, 22, 20), (84, 56, 34), (180, 140, 70), (120, 50, 30), (170, 170, 172))
_RATIO = 0.75  # the scene is laid out for 4:3: a share of the height is this share of the width


def head_y(scale: float) -> float:
    """Return the height of the head: the camera is low, so a nearer head is higher."""
    return 0.37 - 0.07 * (scale - 1.0)


def hand_spots(x: float, scale: float, activity: str,
               holding: str | None) -> tuple[tuple[float, float], tuple[float, float] | None]:
    """Centre of the hand that holds something (or the right hand) and of the other, if raised."""
    y, w = head_y(scale), scale * _RATIO
    if activity == "drinking":
        return (x + 0.035 * w, y + 0.075 * scale), None
    if activity == "on phone":
        return (x + 0.1 * w, y + 0.01 * scale), None
    if activity == "reading":
        return (x, min(y + 0.25 * scale, 0.66)), None
    if activity == "typing":
        return (x + 0.085 * w, 0.79), (x - 0.085 * w, 0.79)
    if holding is not None:
        return (x + 0.2 * w, y + 0.17 * scale), None
    return (x + 0.24 * w, y + 0.5 * scale), None


@dataclass(frozen=True)
class Figure:
    """Looks of one person; drawn behind the desk, with the hands that reach over it drawn after."""

    skin: Colour
    hair: Colour
    shirt: Colour
    long_hair: bool
    glasses: bool
    sway: float

    @staticmethod
    def random(rng: np.random.Generator) -> Figure:
        shirt = tuple(int(c) for c in rng.integers(25, 235, 3))
        return Figure(_SKIN[int(rng.integers(len(_SKIN)))], _HAIR[int(rng.integers(len(_HAIR)))],
                      shirt, bool(rng.random() < 0.5),  # type: ignore[arg-type]
                      bool(rng.random() < 0.3), float(rng.uniform(0.0, 0.003)))

    def box(self, x: float, scale: float) -> tuple[float, float, float, float]:
        """Bounding box of head and trunk as shares of the image."""
        y, w = head_y(scale), scale * _RATIO
        return x - 0.18 * w, y - 0.14 * scale, x + 0.18 * w, 0.66

    def draw(self, canvas: Canvas, x: float, scale: float, activity: str, holding: str | None,
             t_s: float) -> None:
        """Head, trunk and hanging arms."""
        x += self.sway * np.sin(2.1 * t_s)
        y, w, s = head_y(scale), scale * _RATIO, scale
        shoulder, sleeve = y + 0.2 * s, tuple(int(c * 0.85) for c in self.shirt)
        if self.long_hair:
            canvas.ellipse(x, y + 0.03 * s, 0.1 * s, 0.14 * s, self.hair)
        canvas.box(x - 0.035 * w, y + 0.06 * s, x + 0.035 * w, shoulder, self._neck())
        canvas.polygon([(x - 0.06 * w, y + 0.135 * s), (x + 0.06 * w, y + 0.135 * s),
                        (x + 0.17 * w, shoulder), (x + 0.18 * w, 1.05), (x - 0.18 * w, 1.05),
                        (x - 0.17 * w, shoulder)], self.shirt)
        right, left = hand_spots(x, scale, activity, holding)
        if activity in ("idle", "drinking", "on phone") and left is None:
            canvas.line([(x - 0.165 * w, shoulder + 0.03 * s), (x - 0.2 * w, y + 0.62 * s)],
                        0.07 * s, sleeve)
        if activity == "idle" and holding is None:
            canvas.line([(x + 0.165 * w, shoulder + 0.03 * s), (x + 0.2 * w, y + 0.62 * s)],
                        0.07 * s, sleeve)
        canvas.ellipse(x, y, 0.078 * s, 0.1 * s, self.skin)
        canvas.polygon([(x - 0.08 * w, y - 0.02 * s), (x - 0.07 * w, y - 0.09 * s),
                        (x, y - 0.125 * s), (x + 0.07 * w, y - 0.09 * s),
                        (x + 0.08 * w, y - 0.02 * s), (x, y - 0.055 * s)], self.hair)
        gaze = 0.014 * s if activity in ("typing", "reading") else 0.0
        for side in (-1, 1):
            ex = x + side * 0.032 * w
            canvas.ellipse(ex, y + gaze, 0.009 * s, 0.008 * s, (25, 25, 30))
            if self.glasses:
                canvas.ring(ex, y + gaze, 0.022 * s, 0.018 * s, 0.007 * s, (35, 35, 40))
        canvas.line([(x - 0.02 * w, y + 0.055 * s), (x + 0.02 * w, y + 0.055 * s)], 0.01 * s,
                    (150, 70, 70))

    def draw_hands(self, canvas: Canvas, x: float, scale: float, activity: str,
                   holding: str | None, t_s: float) -> None:
        """Draw raised forearms and hands, in front of the desk and of the trunk."""
        if activity == "idle" and holding is None:
            return
        x += self.sway * np.sin(2.1 * t_s)
        y, w, s = head_y(scale), scale * _RATIO, scale
        shoulder, sleeve = y + 0.23 * s, tuple(int(c * 0.8) for c in self.shirt)
        right, left = hand_spots(x, scale, activity, holding)
        if activity == "reading":
            pairs = [((x + 0.125 * w, right[1] + 0.02), 1), ((x - 0.125 * w, right[1] + 0.02), -1)]
        elif left is not None:
            beat = 0.012 * np.sin(31.0 * t_s)
            pairs = [((right[0], right[1] + beat), 1), ((left[0], left[1] - beat), -1)]
        else:
            pairs = [(right, 1)]
        for (hx, hy), side in pairs:
            elbow = (x + side * 0.235 * w, min(max(shoulder + 0.17 * s, hy), 0.74))
            canvas.line([(x + side * 0.155 * w, shoulder), elbow], 0.062 * s, sleeve)
            canvas.line([elbow, (hx, hy)], 0.05 * s, sleeve)
            canvas.ellipse(hx, hy, 0.034 * s, 0.034 * s, self.skin)

    def _neck(self) -> Colour:
        return tuple(int(c * 0.9) for c in self.skin)  # type: ignore[return-value]
