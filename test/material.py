"""Where the shared test material (photos, videos, bags) lies, and how to read it."""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
import pytest

MATERIAL = Path(
    os.environ.get(
        "VLM_DECISIONS_MATERIAL", Path(__file__).resolve().parents[1].parent / "shared/material"
    )
)
ABSENT = "no material: "
"""How the reason of such a skip begins; conftest.py sums them up at the end of the run."""


def material(*parts: str) -> Path:
    """Return a file of the material; skip the test, with the reason, where it is absent."""
    path = MATERIAL.joinpath(*parts)
    if not path.exists():
        pytest.skip(ABSENT + path.relative_to(MATERIAL).as_posix())
    return path


def photo(name: str) -> np.ndarray:
    """Return a photo as uint8 RGB."""
    image = cv2.imread(str(material("photos", name)))
    assert image is not None, f"{name} cannot be read"
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def video(name: str, count: int = 60) -> list[np.ndarray]:
    """Return the first frames of a video as uint8 RGB."""
    capture = cv2.VideoCapture(str(material("videos", name)))
    frames = []
    while len(frames) < count:
        more, frame = capture.read()
        if not more:
            break
        frames.append(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    capture.release()
    assert frames, f"{name} cannot be decoded"
    return frames
