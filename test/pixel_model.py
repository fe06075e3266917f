"""A model that sees brightness, for tests of training: fast, and right for the right reason.

A group's pooled features are the mean brightness of 8 columns of its two frames, so presence of a
bright square is readable from one group and its direction only from several. Asked a question, it
says yes with the brightness; text that holds `upside` gets the opposite answer, `constant` the
same for all.
"""

from __future__ import annotations

from types import SimpleNamespace

import cv2
import numpy as np

COLUMNS = 8


class PixelStream:
    def __init__(self) -> None:
        self.group = None

    def append(self, group, t_s: float) -> None:
        self.group = group

    def ask(self, queries):
        out = []
        for query in queries:
            z = 6.0 * (float(self.group.mean.sum()) - 0.4)
            z = -z if "upside" in query.text else 1.0 if "constant" in query.text else z
            out.append(SimpleNamespace(logits=np.array([z, 0.0]), depth=query.depth or 4))
        return out

    def reset(self) -> None:
        self.group = None

    def idle(self) -> bool:
        return False


class PixelModel:
    name, pixel_budget, dtype = "pixels", 1024, "float32"

    def __init__(self, fingerprint: str = "pixels-1", spoil: bool = False) -> None:
        self.fingerprint, self.spoil = fingerprint, spoil
        self.encoded = 0

    def encode(self, frames):
        self.encoded += 1
        # The newer frame counts more, so that a group played backwards is another group.
        grey = 0.25 * frames[0].mean(axis=2) + 0.75 * frames[1].mean(axis=2)
        means = cv2.resize(grey.astype(np.float32) / 255.0, (COLUMNS, 1),
                           interpolation=cv2.INTER_AREA)[0]
        if self.spoil:
            means = means * np.nan
        return SimpleNamespace(mean=means, max=means + 0.1)

    def stream(self, window_groups: int = 8, mode: str = "stream") -> PixelStream:
        return PixelStream()


def square(x: float | None, width: int = 96, height: int = 64, seed: int = 0) -> np.ndarray:
    """Return uint8 RGB with a bright square centred at `x` (share of the width), or none."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 30, (height, width, 3), dtype=np.uint8)
    if x is not None:
        left = int(x * width) - 12
        image[16:48, max(0, left):max(0, left + 24)] = 220
    return image


def write_video(path, images, fps: float = 8.0):
    """Write uint8 RGB images as an mp4 file and return its path."""
    height, width = images[0].shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), fps, (width, height))
    assert writer.isOpened()
    for image in images:
        writer.write(image[..., ::-1])
    writer.release()
    return path


def noise_video(path, count: int):
    """Write a video of so many different pictures, 16 a second, and return its path."""
    rng = np.random.default_rng(0)
    return write_video(path, [cv2.resize(rng.integers(0, 255, (12, 16, 3), np.uint8), (160, 120))
                              for _ in range(count)], 16.0)


def presence_video(path, seed: int, order=(True, False), seconds: float = 2.0):
    """Write a video in which the square is there for `seconds`, then not (or as `order` says)."""
    rng = np.random.default_rng(seed)
    x = float(rng.uniform(0.3, 0.7))
    images = [square(x if there else None, seed=1000 * seed + k)
              for there in order for k in range(int(seconds * 8))]
    return write_video(path, images)


def motion_video(path, seed: int, right: bool, seconds: float = 2.5):
    """Write a video in which the square moves right (or left) all the time."""
    rng = np.random.default_rng(seed)
    start = float(rng.uniform(0.25, 0.4))
    n = int(seconds * 8)
    places = start + 0.35 * np.arange(n) / n
    return write_video(path, [square(float(x if right else 1 - x), seed=1000 * seed + k)
                              for k, x in enumerate(places)])
