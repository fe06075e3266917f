"""The pictures of a topic's messages, whichever of the four kinds they are.

- ``sensor_msgs/Image``; ``sensor_msgs/CompressedImage`` with a JPEG or PNG: one picture each;
- ``sensor_msgs/CompressedImage`` of format h264 or h265, ``foxglove_msgs/CompressedVideo``,
  ``ffmpeg_image_transport_msgs/FFMPEGPacket``: packets of a video.

The functions take any object with the message's fields, so nothing here needs ROS.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..motion import CodedMotion
from .images import FULL_RANGE, compressed_to_rgb, image_to_rgb
from .packets import CODECS, PacketDecoder, codec_named
from .pictures import MAX_PIXELS, ImageError

IMAGE = "sensor_msgs/msg/Image"
COMPRESSED = "sensor_msgs/msg/CompressedImage"
FFMPEG = "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"
FOXGLOVE = "foxglove_msgs/msg/CompressedVideo"

TRANSPORTS = {"raw": IMAGE, "compressed": COMPRESSED, "ffmpeg": FFMPEG, "foxglove": FOXGLOVE}
"""Message type by image transport. All but raw publish on the image's topic + their own name."""

TRANSPORT_BY_TYPE = {kind: transport for transport, kind in TRANSPORTS.items()}

DEFINITIONS = {
    FFMPEG: "std_msgs/Header header\nint32 width\nint32 height\nstring encoding\nuint64 pts\n"
            "uint8 flags\nbool is_bigendian\nuint8[] data",
    FOXGLOVE: "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format",
}
"""Fields of the types that no distribution has by itself, for bags."""


def topic_of(base: str, transport: str) -> str:
    """Return the topic that a transport publishes an image topic's pictures on."""
    return base if transport == "raw" else f"{base}/{transport}"


def transport_of(topic: str) -> str:
    """Return the transport whose topics are named like this one."""
    last = topic.rpartition("/")[2]
    return last if last in TRANSPORTS and last != "raw" else "raw"


def base_of(topic: str) -> str:
    """Return the image topic that a transport's topic belongs to."""
    return topic.removesuffix(topic_of("", transport_of(topic)))


def head_of(msg: Any) -> tuple[Any, str]:
    """Return the stamp and the frame id of a message of any of the kinds."""
    if hasattr(msg, "header"):
        return msg.header.stamp, msg.header.frame_id
    return msg.timestamp, msg.frame_id


class PictureReader:
    """Reads one topic's messages in their order; of a video it keeps the decoder's state."""

    def __init__(self, *, max_pixels: int = MAX_PIXELS,
                 value_range: tuple[int, int] = FULL_RANGE, vectors: bool = False) -> None:
        """``max_pixels`` bounds width x height; ``value_range``: see images.image_to_rgb.

        ``vectors``: keep what a video's motion vectors say, see ``motion``.
        """
        self._max_pixels, self._value_range, self._vectors = max_pixels, value_range, vectors
        self._decoder: PacketDecoder | None = None

    def read(self, msg: Any, stamp_ns: int) -> list[tuple[np.ndarray, int]]:
        """Return the pictures that are there now: uint8 RGB (H, W, 3), each with its stamp.

        One for an image; for a packet of a video with B frames none, or that of an earlier packet.
        Raises ImageError for a message that gives no picture, with the reason.
        """
        codec, named = self.codec(msg), _named(msg)
        if codec:
            if self._decoder is None or self._decoder.codec != codec:
                self._decoder = PacketDecoder(codec, max_pixels=self._max_pixels,
                                              vectors=self._vectors)
            return self._decoder.decode(bytes(msg.data), stamp_ns)
        if hasattr(msg, "format") and hasattr(msg, "header"):
            convert = compressed_to_rgb
        elif hasattr(msg, "step"):
            convert = image_to_rgb
        else:
            raise ImageError("encoding", f"video of codec {named[:40]!r}; supported are "
                                         f"{', '.join(CODECS)}")
        rgb = convert(msg, max_pixels=self._max_pixels, value_range=self._value_range)
        return [(rgb, stamp_ns)]

    def motion(self, stamp_ns: int) -> CodedMotion | None:
        """Return what changed up to a picture of those just read, where that is known."""
        return None if self._decoder is None else self._decoder.motions.get(stamp_ns)

    def rest(self) -> list[tuple[np.ndarray, int]]:
        """Return the pictures that a video's decoder still holds, at the end."""
        return [] if self._decoder is None else self._decoder.rest()

    @staticmethod
    def codec(msg: Any) -> str:
        """Return the codec of a video's packet, which later ones need; empty for an image."""
        named = _named(msg)
        return "" if named is None else codec_named(named)


def _named(msg: Any) -> str | None:
    """Return what a message says of its codec; None of an image, whose encoding is another."""
    if hasattr(msg, "step"):
        return None
    return str(msg.format if hasattr(msg, "format") else msg.encoding)
