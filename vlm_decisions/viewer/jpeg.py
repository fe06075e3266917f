"""Pictures as JPEG, no larger than they are shown."""

from __future__ import annotations

import cv2
import numpy as np

MAX_SIDE = 1280
QUALITY = 82


def encode(rgb: np.ndarray, max_side: int = MAX_SIDE, quality: int = QUALITY) -> bytes:
    """Return a picture, uint8 RGB (H, W, 3), as JPEG; its longer side becomes at most `max_side`.

    Raises ValueError where it cannot be encoded.
    """
    height, width = rgb.shape[:2]
    scale = max_side / max(height, width)
    if scale < 1:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        rgb = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    ok, data = cv2.imencode(".jpg", np.ascontiguousarray(rgb[..., ::-1]),
                            [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not ok:
        raise ValueError(f"cannot encode a picture of {width} x {height}")
    return data.tobytes()
