"""Frames of a video file, with their times."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np

from ..motion import CodedMotion, MotionLog
from .bag_files import BagError, file_kind
from .matroska import broken_at

FPS = 25.0
"""Frames a second of a file that does not say."""

INTRA_ONLY = ("mjpeg", "png", "ffv1", "huffyuv", "prores", "dnxhd", "jpeg2000")
"""Codecs whose pictures stand alone: a damaged one is left out rather than patched."""

#: Matroska's element CodecID of a video track: its length, then the name.
_MATROSKA_CODEC = re.compile(rb"\x86([\x83-\xc0])(V_[ -~]+)")
_HEAD = 1 << 20

MAX_FAULTS = 100
"""Failed reads one after the other that end a file."""


class SourceError(ValueError):
    """A file, stream or camera that gives no video; the message names it."""


class VideoFile:
    """A video file that FFmpeg decodes, rotated upright.

    Times are the file's own presentation times in seconds, 0 at its beginning, made to rise where
    it has none (raw streams) or repeats them (damaged ones). A frame that cannot be decoded is left
    out and reading goes on; `shortfall` says so. Raises SourceError for a file that cannot be read.
    """

    def __init__(self, path: str | Path, *, vectors: bool = False) -> None:
        """Open the file and check that a first frame can be decoded.

        `vectors`: read the motion vectors of H.264 (`motion`: up to the frame returned last).
        """
        self._path, self._vectors = str(path), vectors
        self.motion: CodedMotion | None = None
        self.ended = False
        self.rewind()
        codec = self._stream.codec_context.name
        if self.next() is None:
            raise SourceError(f"{self._path!r}: no frame of its video ({codec}) can be decoded")
        self.rewind()

    def rewind(self) -> None:
        """Start again at the first frame."""
        self._container = _opened(self._path)
        self._stream = _video_of(self._container, self._path)
        context = self._stream.codec_context
        context.thread_type = "AUTO"
        if context.name in INTRA_ONLY:
            context.options = {"err_detect": "explode"}
        self._log = MotionLog() if self._vectors and context.name == "h264" else None
        if self._log is not None:
            context.options = {"flags2": "+export_mvs"}
        rate = float(self._stream.average_rate or 0)
        self._period_s = 1.0 / (rate if 1.0 <= rate <= 240.0 else FPS)
        self._t_s = -self._period_s
        self._first_s: float | None = None
        if self._stream.start_time is not None:
            self._first_s = float(self._stream.start_time * self._stream.time_base)
        self._frames = self._decoded()
        self._read = self._damaged = self._left_out = 0
        self.ended = False

    def next(self, from_s: float = 0.0) -> tuple[np.ndarray, float] | None:
        """Return (uint8 RGB (H, W, 3), presentation time in seconds), or None at the end.

        Frames before `from_s` are passed over, which costs less than to convert them.
        """
        for frame in self._frames:
            t_s = self._time(frame)
            if self._log is not None:
                self.motion = self._log.push(frame)
            if t_s >= from_s:
                return rgb_of(frame), t_s
        self.ended = True
        return None

    def __iter__(self) -> Iterator[tuple[np.ndarray, float]]:
        """Yield what next() returns, from here to the end."""
        while (taken := self.next()) is not None:
            yield taken

    @property
    def _declared(self) -> int:
        """The frames that the file states to hold, 0 where it does not."""
        told = next((value for name, value in self._stream.metadata.items()
                     if name.startswith("NUMBER_OF_FRAMES")), "")  # Matroska's statistics
        return self._stream.frames or (int(told) if told.isdigit() else 0)

    @property
    def duration_s(self) -> float | None:
        """Seconds that the file states for its video; None where it does not."""
        if self._declared:
            return self._declared * self._period_s
        if self._stream.duration:
            return float(self._stream.duration * self._stream.time_base)
        return _clock(self._stream.metadata.get("DURATION", ""))  # Matroska's

    def length_s(self) -> float:
        """Return its seconds: as it states, else by the packets that are in it, undecoded."""
        if self.duration_s:
            return self.duration_s
        with _opened(self._path) as container:
            packets = container.demux(_video_of(container, self._path))
            return sum(packet.size > 0 for packet in packets) * self._period_s

    @property
    def shortfall(self) -> str:
        """After the end: what of the file could not be read; empty otherwise."""
        if not self.ended:
            return ""
        declared = self._declared and self._declared - self._left_out
        damaged = f"{self._damaged} damaged packet{'s' * (self._damaged != 1)}"
        if declared > self._read:
            more = f" ({damaged})" if self._damaged else ""
            return f"{self._path}: {self._read} of {declared} frames could be read{more}"
        if self._damaged:
            return f"{self._path}: the video has {damaged}"
        matroska = "matroska" in self._container.format.name
        # Matroska states when its video ends, others the length of all, sound included.
        slack_s = 2 * self._period_s if matroska else max(0.5, 2 * self._period_s)
        stated_s, end_s = self.duration_s, self._t_s + self._period_s
        last_s = end_s + max(0.0, self._first_s or 0.0)
        if not declared and stated_s and last_s < stated_s - slack_s:
            return f"{self._path}: it ends after {end_s:.1f} of {stated_s:.1f} s"
        if matroska and (at := broken_at(self._path)) is not None:
            return f"{self._path}: damaged at byte {at}, where frames are lost"
        return ""

    def _time(self, frame: av.VideoFrame) -> float:
        self._read += 1
        t_s = frame.time
        if t_s is not None:
            self._first_s = t_s if self._first_s is None else self._first_s
            t_s -= self._first_s
        self._t_s = t_s if t_s is not None and t_s > self._t_s else self._t_s + self._period_s
        return self._t_s

    def _decoded(self) -> Iterator[av.VideoFrame]:
        """Yield every frame that can be decoded; count what cannot."""
        faults = 0
        while faults < MAX_FAULTS:
            try:
                for packet in self._container.demux(self._stream):
                    yield from self._frames_of(packet)
                    faults = 0
                return
            except av.FFmpegError:  # of the container: what comes next may be whole
                faults += 1
                self._damage()

    def _frames_of(self, packet: av.Packet) -> list[av.VideoFrame]:
        last = packet.dts is None and packet.pts is None and packet.size == 0
        if packet.size == 0 and not last:  # a frame that repeats the one before
            self._left_out += 1
            return []
        try:
            frames = packet.decode()
        except av.EOFError:
            return []
        except av.FFmpegError:
            self._damage()
            return []
        self._left_out += packet.is_discard
        for frame in frames:
            if frame.is_corrupt:
                self._damage()
        return frames

    def _damage(self) -> None:
        self._damaged += 1
        if self._log is not None:
            self._log.lose()


def _opened(path: str) -> av.container.InputContainer:
    if not os.path.exists(path):
        raise SourceError(f"there is no file {path!r}")
    if os.path.isdir(path):
        raise SourceError(f"{path!r} is a folder; a video file is wanted")
    try:
        kind = file_kind(Path(path))
    except BagError as error:
        raise SourceError(str(error)) from error
    if kind:
        raise SourceError(f"{path!r} is a bag ({kind}), no video file: `vlm-decisions replay` "
                          "plays it to the node, `bench replay` scores it")
    try:
        return av.open(path)
    except (av.FFmpegError, OSError) as error:
        raise SourceError(f"{path!r} holds no video: {reason(error)}") from error


def _video_of(container: av.container.InputContainer, path: str) -> av.VideoStream:
    stream = container.streams.best("video")
    if stream is None and container.streams.video:
        stream = container.streams.video[0]  # of a codec that is not there
    if stream is None:
        raise SourceError(f"{path!r} holds no video")
    if stream.codec_context is None:
        raise SourceError(f"{path!r}: no decoder here for its video: {codec_of(container, path)}")
    return stream


def codec_of(container: av.container.InputContainer, path: str = "") -> str:
    """Return what is known of the codec of a stream that FFmpeg cannot decode.

    `path`: the file, where it is one. Matroska's own name of a codec that FFmpeg does not know is
    read from there.
    """
    av.logging.set_level(av.logging.INFO)
    try:
        text = container.dumps_format()
    finally:
        av.logging.set_level(None)
    found = re.search(r"Video: ([^,\n]+)", text)
    tag = re.search(r"\((.+?)(?: / .*)?\)", found[1]) if found else None
    if not tag and path and "matroska" in container.format.name:
        with open(path, "rb") as file:
            own = _MATROSKA_CODEC.search(file.read(_HEAD))
        if own and len(own[2]) >= own[1][0] & 0x7F:
            return f"codec {own[2][:own[1][0] & 0x7F].decode('ascii')}"
    return f"codec {tag[1]}" if tag else "an unknown codec"


def rgb_of(frame: av.VideoFrame) -> np.ndarray:
    """Return a frame as uint8 RGB (H, W, 3), upright and contiguous."""
    rgb = frame.to_ndarray(format="rgb24")
    return np.ascontiguousarray(np.rot90(rgb, round(frame.rotation / 90) % 4))


def _clock(text: str) -> float | None:
    """Return the seconds of `hours:minutes:seconds`."""
    found = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", text.strip())
    return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3]) if found else None


def reason(error: Exception) -> str:
    """Return what FFmpeg says, without its number and the name."""
    text = getattr(error, "strerror", None) or str(error)
    return text[:1].lower() + text[1:]
