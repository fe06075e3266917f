"""A lamp over the simulated desk, for what the embedded model was never taught."""

from __future__ import annotations

import cv2
import numpy as np

from .canvas import Canvas
from .script import Script

SHORTEST_S, LONGEST_S = 1.8, 4.0
SHADE = (92, 96, 88)
LIT = (255, 240, 170)


class Lamp:
    """Hangs from the ceiling on the side away from the door, and is switched on and off.

    Where it hangs is the seed's; when it is switched (`switched_s`, in order) is the script's, so
    that one desk may be seen in many episodes.
    """

    def __init__(self, seed: int, script: Script, door_x: float) -> None:
        rng = np.random.default_rng([seed, 21])
        self._x = float(np.clip(1.0 - door_x + rng.uniform(-0.12, 0.12), 0.15, 0.85))
        self._y = float(rng.uniform(0.1, 0.16))
        rng = np.random.default_rng([22, *(round(1e3 * t) for t in script.changes_s)])
        self._begins_on = bool(rng.random() < 0.5)
        self.switched_s: list[float] = []
        t_s = float(rng.uniform(0.5, LONGEST_S))
        while t_s < script.duration_s:
            self.switched_s.append(t_s)
            t_s += float(rng.uniform(SHORTEST_S, LONGEST_S))

    def is_on(self, t_s: float) -> bool:
        """Tell whether it is on at a time."""
        times = sum(switch_s <= t_s for switch_s in self.switched_s)
        return self._begins_on != bool(times % 2)

    def draw(self, canvas: Canvas, t_s: float) -> None:
        """Draw it, and where it is on its light."""
        x, y, on = self._x, self._y, self.is_on(t_s)
        if on:
            glow = np.zeros_like(canvas.image)
            Canvas(glow).polygon([(x - 0.03, y + 0.05), (x + 0.03, y + 0.05), (x + 0.16, 0.7),
                                  (x - 0.16, 0.7)], (60, 54, 30))
            canvas.image[:] = cv2.add(canvas.image, glow)
        canvas.line([(x, 0.0), (x, y)], 0.006, (40, 40, 40))
        canvas.polygon([(x - 0.018, y), (x + 0.018, y), (x + 0.05, y + 0.075),
                        (x - 0.05, y + 0.075)], SHADE)
        canvas.ellipse(x, y + 0.08, 0.034, 0.02, LIT if on else (70, 70, 72))
