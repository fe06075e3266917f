"""Video that comes packet by packet, as messages or from a network: only whole pictures of it.

A lost packet is silent: the decoder goes on with pictures that are wrong until the next keyframe.
Here they are left out, and so is all that comes before the first keyframe.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import av
import numpy as np

from ..motion import CodedMotion, MotionLog
from .bitstream import H264, HEVC, BitstreamError, Framing, H264Reader, HevcReader, annex_b
from .pictures import MAX_PIXELS, ImageError, check_size
from .video import reason, rgb_of

CODECS = {H264: ("h264", "avc", "x264"), HEVC: ("hevc", "h265", "x265")}
"""Codecs that are decoded packet by packet, by FFmpeg's name, and what their names contain."""

MAX_HELD = 64
"""Units kept that come before a picture (parameter sets); a real stream has about five."""


def codec_named(text: str) -> str:
    """Return the codec that a message names (FFmpeg's name, also behind an encoder's), else ``""``.

    ``"h264"``, ``"libx264"``, ``"hevc_nvenc;yuv420p;bgr8"`` and the like.
    """
    name = text.partition(";")[0].strip().lower().replace(".", "")
    return next((codec for codec, parts in CODECS.items()
                 if any(part in name for part in parts)), "")


class Continuity:
    """Says of each packet of a stream whether its picture can be right.

    It can from a keyframe on, until a picture is lost.
    """

    def __init__(self, codec: str, extradata: bytes = b"") -> None:
        """``codec``: h264 or hevc; ``extradata``: parameter sets that are not in the packets."""
        self._framing = Framing(codec)
        self._reader: H264Reader | HevcReader = H264Reader() if codec == H264 else HevcReader()
        self._missing = "the stream was joined between two keyframes"
        if extradata:
            with suppress(BitstreamError):  # then they are in the packets, or nothing can be read
                self._reader.read(self._framing.units(extradata))

    def take(self, data: bytes) -> tuple[list[bytes], bool, str]:
        """Return a packet's units, whether they hold a picture, and why it cannot be right or "".

        Raises BitstreamError for a damaged packet; the pictures after it cannot be right either.
        """
        try:
            units = self._framing.units(data)
            content = self._reader.read(units)
        except BitstreamError as error:
            self.lose(str(error))
            raise
        if content.lost:
            self.lose(f"a packet was lost ({content.lost})")
        elif content.begins:
            self._missing = ""
        return units, content.picture, self._missing if content.picture else ""

    def lose(self, why: str) -> None:
        """Note that a picture is missing or damaged, and why."""
        self._missing = why
        self._reader.restart()


class PacketDecoder:
    """Decodes a topic's packets of H.264 or H.265, Annex B or with lengths, one picture each."""

    def __init__(self, codec: str, *, max_pixels: int = MAX_PIXELS, vectors: bool = False) -> None:
        """``codec``: h264 or hevc; larger pictures than ``max_pixels`` are refused.

        ``vectors``: keep the motion of the pictures decoded last, ``motions`` by their stamps; of
        h264 only.
        """
        self.codec = codec
        self.motions: dict[int, CodedMotion] = {}
        self._log = MotionLog() if vectors and codec == H264 else None
        self._max_pixels = max_pixels
        self._continuity = Continuity(codec)
        self._context: Any = av.CodecContext.create(codec, "r")
        self._context.thread_count = 1  # more threads add frames of delay
        if codec == HEVC:  # of which only the decoder sees what is missing
            self._context.options = {"err_detect": "explode"}
        if self._log is not None:
            self._context.options = {"flags2": "+export_mvs"}
        self._held: list[bytes] = []
        self._from_ns: int | None = None

    def decode(self, data: bytes, stamp_ns: int) -> list[tuple[np.ndarray, int]]:
        """Return the pictures that are whole now: uint8 RGB (H, W, 3), each with its own stamp.

        Of a stream with B frames they come later than their packets, and in the order of their
        times. Raises ImageError for a packet whose picture is left out, with the reason.
        """
        try:
            units, picture, missing = self._continuity.take(data)
        except BitstreamError as error:
            raise self._refused(str(error)) from error
        if missing:
            raise self._refused(missing)
        if not picture:
            self._held = (self._held + units)[-MAX_HELD:]
            return []
        if self._from_ns is None:
            self._from_ns = stamp_ns
        packet = av.Packet(annex_b(self._held + units))
        packet.pts = packet.dts = stamp_ns
        self._held = []
        return self._pictures(packet)

    def rest(self) -> list[tuple[np.ndarray, int]]:
        """Return the pictures that are still held at the end. Raises ImageError."""
        if self._from_ns is None:
            return []
        pictures = self._pictures(None)
        self._context.flush_buffers()
        return pictures

    def _pictures(self, packet: av.Packet | None) -> list[tuple[np.ndarray, int]]:
        try:
            frames = self._context.decode(packet)
        except av.FFmpegError as error:
            raise self._damaged(reason(error)) from error
        if any(frame.is_corrupt for frame in frames):
            raise self._damaged("its data is damaged")
        for frame in frames:
            check_size(frame.width, frame.height, self._max_pixels)
        if self._log is not None:
            self.motions = {frame.pts: self._log.push(frame) for frame in frames}
        # B frames from before the keyframe refer to what was before it too.
        return [(rgb_of(frame), frame.pts) for frame in frames if frame.pts >= self._from_ns]

    def _damaged(self, why: str) -> ImageError:
        why = f"a picture cannot be decoded ({why})"
        self._continuity.lose(why)
        return self._refused(why)

    def _refused(self, why: str) -> ImageError:
        self._context.flush_buffers()
        self._from_ns = None
        if self._log is not None:
            self._log.lose()
        return ImageError("video", f"{self.codec} video: {why}; waiting for the next keyframe")
