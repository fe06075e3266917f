"""Anti-aliased drawing in shares of the image, so that a scene looks alike at any size."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

Colour = tuple[int, int, int]  # RGB, 0 to 255
Point = tuple[float, float]  # shares of the width and of the height
_SHIFT = 4  # sub-pixel bits
_ONE = 1 << _SHIFT


class Canvas:
    """Draws on `image`, uint8 RGB of shape (H, W, 3), in place.

    Positions are shares of width and height; sizes of round or tilted things are shares of the
    height in both directions, so that they keep their shape.
    """

    def __init__(self, image: np.ndarray) -> None:
        self.image = image
        self.height, self.width = image.shape[:2]

    def _points(self, points: Sequence[Point]) -> np.ndarray:
        scaled = np.asarray(points, np.float64) * (self.width * _ONE, self.height * _ONE)
        return scaled.round().astype(np.int32)

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        cv2.fillPoly(self.image, [self._points(points)], colour, cv2.LINE_AA, _SHIFT)

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: Colour) -> None:
        self.polygon([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], colour)

    def tilted(self, x: float, y: float, w: float, h: float, angle: float, colour: Colour) -> None:
        """Draw a rectangle of w x h shares of the height, turned by `angle` radians."""
        c, s, ratio = np.cos(angle), np.sin(angle), self.height / self.width
        corners = [(-w / 2, -h / 2), (w / 2, -h / 2), (w / 2, h / 2), (-w / 2, h / 2)]
        self.polygon([(x + (u * c - v * s) * ratio, y + u * s + v * c) for u, v in corners], colour)

    def ellipse(self, x: float, y: float, rx: float, ry: float, colour: Colour) -> None:
        centre = self._points([(x, y)])[0]
        axes = round(rx * self.height * _ONE), round(ry * self.height * _ONE)
        cv2.ellipse(self.image, (int(centre[0]), int(centre[1])), axes, 0, 0, 360, colour, -1,
                    cv2.LINE_AA, _SHIFT)

    def ring(self, x: float, y: float, rx: float, ry: float, width: float, colour: Colour) -> None:
        centre = self._points([(x, y)])[0]
        axes = round(rx * self.height * _ONE), round(ry * self.height * _ONE)
        cv2.ellipse(self.image, (int(centre[0]), int(centre[1])), axes, 0, 0, 360, colour,
                    self._thick(width), cv2.LINE_AA, _SHIFT)

    def line(self, points: Sequence[Point], width: float, colour: Colour) -> None:
        cv2.polylines(self.image, [self._points(points)], False, colour, self._thick(width),
                      cv2.LINE_AA, _SHIFT)

    def _thick(self, width: float) -> int:
        return max(1, round(width * self.height))
