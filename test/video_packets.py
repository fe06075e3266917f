"""Real encodes made on the spot: packets of H.264 and H.265, with the picture that each shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy as np

ENCODERS = {"h264": "libx264", "hevc": "libx265"}
QUIET = {"h264": {"preset": "veryfast"},
         "hevc": {"preset": "ultrafast", "x265-params": "log-level=none"}}


@dataclass(frozen=True)
class Packet:
    """A packet in the order of decoding; ``number`` is that of its picture in time."""

    data: bytes
    number: int
    key: bool


def picture(number: int, size: tuple[int, int] = (120, 160)) -> np.ndarray:
    """Return the picture of that number: noise that moves, with a bright box."""
    noise = np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8)
    rgb = np.roll(noise, 3 * number, axis=1)
    left = 4 * number % (size[1] - 20)
    rgb[20:50, left:left + 20] = 255
    return rgb


def encoded(codec: str, count: int = 40, *, gop: int = 20, b_frames: int = 0,
            options: dict[str, str] | None = None, size: tuple[int, int] = (120, 160),
            global_header: bool = False, paint: Callable[..., np.ndarray] = picture
            ) -> tuple[list[Packet], bytes]:
    """Return the packets of `count` pictures that `paint` makes, and the encoder's extradata."""
    context = av.CodecContext.create(ENCODERS[codec], "w")
    context.height, context.width = size
    context.pix_fmt, context.time_base, context.framerate = "yuv420p", Fraction(1, 10), 10
    context.gop_size, context.max_b_frames = gop, b_frames
    context.options = QUIET[codec] | (options or {})
    if global_header:
        context.flags |= av.codec.context.Flags.global_header
    packets = []
    for number in [*range(count), None]:
        frame = None
        if number is not None:
            frame = av.VideoFrame.from_ndarray(paint(number, size), format="rgb24")
            frame.pts = number
        packets += [Packet(bytes(packet), packet.pts, packet.is_keyframe)
                    for packet in context.encode(frame)]
    return packets, context.extradata or b""


def shown(codec: str, packets: list[Packet]) -> dict[int, np.ndarray]:
    """Return the pictures as FFmpeg's decoder gives them when nothing is missing, by number."""
    context = av.CodecContext.create(codec, "r")
    pictures = {}
    for packet in [*packets, None]:
        sent = None
        if packet is not None:
            sent = av.Packet(packet.data)
            sent.pts = packet.number
        for frame in context.decode(sent):
            pictures[frame.pts] = frame.to_ndarray(format="rgb24")
    return pictures
