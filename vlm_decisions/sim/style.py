"""Another camera on the simulated desk: another palette, lens and sensor.

What the shipped model was trained on has none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

#: Brightness of stray light, grey levels.
STRAY = 220.0


@dataclass(frozen=True)
class Style:
    """How a camera shows the desk.

    - `hue_deg`: all colours are turned by so many degrees; `saturation`: and made so many times as
      strong; `gamma`: of the brightness.
    - `barrel`: strength of a wide-angle lens; the corners are drawn in by about this share.
    - `vignette`: by how much the corners are darker, 0 to 1.
    - `veil`: share of the picture that is stray light, as of a misty lens: contrast is lost.
    - `noise`: of the sensor, grey levels (standard deviation); `blur`: share of the width (ditto).
    """

    hue_deg: float = 0.0
    saturation: float = 1.0
    gamma: float = 1.0
    barrel: float = 0.0
    vignette: float = 0.0
    veil: float = 0.0
    noise: float = 0.0
    blur: float = 0.0

    def show(self, image: np.ndarray, seed: int) -> np.ndarray:
        """Return how the camera shows an image, uint8 RGB (H, W, 3); the noise is the seed's."""
        height, width = image.shape[:2]
        shown = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
        turned = np.arange(256) + round(self.hue_deg / 360 * 256)
        tables = np.stack([turned % 256, np.clip(np.arange(256) * self.saturation, 0, 255),
                           255 * (np.arange(256) / 255) ** self.gamma], axis=1)
        shown = cv2.LUT(shown, tables.round().astype(np.uint8)[None])
        shown = cv2.cvtColor(shown, cv2.COLOR_HSV2RGB_FULL)
        if self.barrel:
            shown = cv2.remap(shown, *_lens(width, height, self.barrel), cv2.INTER_LINEAR)
        if self.blur:
            shown = cv2.GaussianBlur(shown, (0, 0), self.blur * width)
        rng = np.random.default_rng(seed)
        light = _light(width, height, self.vignette) * (1 - self.veil)
        noise = rng.standard_normal((height, width, 1), np.float32) * self.noise
        return np.clip(shown * light + self.veil * STRAY + noise, 0, 255).astype(np.uint8)


#: Not what the shipped model knows: through a misty lens, but what matters can be seen.
STRANGE = Style(hue_deg=20.0, saturation=1.2, barrel=0.03, vignette=0.1, veil=0.42, noise=6.0)


@lru_cache(maxsize=8)
def _radius(width: int, height: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x and y, -1 to 1, and the squared distance from the centre, 1 in the corners."""
    x, y = np.meshgrid(np.linspace(-1, 1, width, dtype=np.float32),
                       np.linspace(-1, 1, height, dtype=np.float32))
    return x, y, (x * x + y * y) / 2


@lru_cache(maxsize=8)
def _lens(width: int, height: int, barrel: float) -> tuple[np.ndarray, np.ndarray]:
    x, y, squared = _radius(width, height)
    gain = (1 + barrel * squared) / (1 + barrel)  # the corners stay where they are
    return (x * gain + 1) / 2 * (width - 1), (y * gain + 1) / 2 * (height - 1)


@lru_cache(maxsize=8)
def _light(width: int, height: int, vignette: float) -> np.ndarray:
    return (1 - vignette * _radius(width, height)[2])[..., None]
