"""Image messages for a soak test: good ones in any encoding, and bad ones of every kind."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
from sensor_msgs.msg import Image

from ...ros.convert import ns_to_time

ENCODINGS = ("rgb8", "bgr8", "rgba8", "bgra8", "mono8", "bgr16")


def _bad(**changes: Any) -> Callable[[Image], None]:
    def spoil(msg: Image) -> None:
        for name, value in changes.items():
            setattr(msg, name, value)
    return spoil


def _spoil_stamp(sec: int, nanosec: int) -> Callable[[Image], None]:
    def spoil(msg: Image) -> None:
        msg.header.stamp.sec, msg.header.stamp.nanosec = sec, nanosec
    return spoil


BAD_IMAGES: dict[str, Callable[[Image], None]] = {
    "depth": _bad(encoding="16UC1"),
    "unknown_encoding": _bad(encoding="x" * 1000),
    "no_data": _bad(data=array.array("B")),
    "short_data": _bad(data=array.array("B", bytes(99))),
    "short_step": _bad(step=3),
    "empty": _bad(width=0, height=0),
    "huge": _bad(width=2**32 - 1, height=2**32 - 1),
    "odd_yuv": _bad(encoding="nv12", width=7, height=7),
    "zero_stamp": _spoil_stamp(0, 0),
    "negative_stamp": _spoil_stamp(-5, 0),
    "no_stamp": _spoil_stamp(5, 4_000_000_000),
}


def encoded(rgb: np.ndarray, stamp_ns: int, encoding: str, padding: int) -> Image:
    """Return the message of an image in an encoding, with `padding` bytes after each row."""
    height, width = rgb.shape[:2]
    pixels = rgb
    if encoding == "mono8":
        pixels = rgb[..., 1]
    elif encoding.startswith("bgr"):
        pixels = rgb[..., ::-1]
    if encoding.endswith("a8"):
        order = rgb[..., ::-1] if encoding == "bgra8" else rgb
        pixels = np.dstack((order, np.full((height, width), 255, np.uint8)))
    if encoding.endswith("16"):
        pixels = pixels.astype("<u2") * 257
    rows = np.ascontiguousarray(pixels).reshape(height, -1).view(np.uint8)
    rows = np.pad(rows, ((0, 0), (0, padding)))
    msg = Image(height=height, width=width, encoding=encoding, step=rows.shape[1],
                data=array.array("B", rows.tobytes()))
    msg.header.stamp = ns_to_time(stamp_ns)
    msg.header.frame_id = "soak"
    return msg
