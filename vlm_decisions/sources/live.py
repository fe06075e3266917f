"""Live cameras: network streams and webcams, opened again whenever they fail."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import av
import numpy as np

from ..files.listing import there_are
from .bitstream import BitstreamError
from .packets import CODECS, Continuity
from .video import SourceError, codec_of, reason, rgb_of

SCHEMES = ("rtsp", "rtsps", "rtmp", "rtmps", "srt", "udp", "rtp", "tcp", "http", "https")
"""Protocols of network streams that are opened."""

WAIT_S = 0.2
"""Longest that next() waits for a frame, so that its caller can see to other things."""

PAUSES_S = (0.25, 0.5, 1.0, 1.5)
"""Waits before a camera is opened again; the last one is repeated."""

OPEN_S, REOPEN_S, READ_S = 15.0, 3.0, 3.0
"""Longest times for a stream to open at first and again, and for its next packet to come."""

LISTEN_S = 5.0
"""Longest time at first for a stream that is sent here; its sender may also start later."""

SENT_HERE = ("udp", "rtp")

NO_ANSWER = "no answer in time"

DRIFT = 500e-6
"""Seconds a second by which a camera's clock may run slower than this machine's."""


class SilentError(SourceError):
    """Nothing came yet on an address that a stream is sent to."""


class Reader(Protocol):
    """One connection to a camera, until it fails."""

    def frames(self) -> Iterator[tuple[Callable[[], np.ndarray], float | None]]:
        """Yield frames as they come: what returns the picture, and its time on the camera's clock.

        Ends, or raises SourceError, when the connection is lost.
        """

    def close(self) -> None:
        """Let the camera go."""


class LiveSource:
    """The newest frame of a camera, whose connection is made anew whenever it is lost.

    Times are seconds of this machine's steady clock (`time.monotonic`), of the moment at which a
    frame was taken as far as that can be told: by the camera's own clock, set by the frame that
    came with the least delay. A frame that waited on its way is as old as it is. `trouble` says
    what is wrong now. Raises SourceError where the camera cannot be opened at first, within
    `open_s` seconds; a stream that is sent here is waited for on and on.
    """

    ended = False
    shortfall = ""

    def __init__(self, name: str, connect: Callable[[float], Reader],
                 open_s: float = OPEN_S) -> None:
        """Open the camera; `connect` is given the longest time that may take, in seconds."""
        self.name = name
        self.trouble = ""
        self._connect = connect
        self._newest: tuple[Callable[[], np.ndarray], float] | None = None
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._reader: Reader | None = None
        # Opened in the other thread: a signal to this one does not wait until it is.
        first: Future[Reader | None] = Future()
        self._thread = threading.Thread(target=self._open, args=(first, open_s), name="camera",
                                        daemon=True)
        self._thread.start()
        try:
            first.result()
        except BaseException:
            self._stop.set()
            raise

    def next(self, from_s: float = 0.0) -> tuple[np.ndarray, float] | None:
        """Return the newest frame not yet returned: (uint8 RGB (H, W, 3), seconds).

        None where none came within WAIT_S. What came in between is passed over.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not None or self.ended, WAIT_S)
            taken, self._newest = self._newest, None
        return None if taken is None or taken[1] < from_s else (taken[0](), taken[1])

    def __iter__(self) -> Iterator[tuple[np.ndarray, float]]:
        """Yield frames until the source is closed."""
        while not self.ended:
            taken = self.next()
            if taken is not None:
                yield taken

    def close(self) -> None:
        """Let the camera go; what waits in next() returns."""
        self._stop.set()
        with self._changed:
            self.ended = True
            self._changed.notify_all()
        if self._reader is not None:  # what is still being opened is not waited for
            self._thread.join(READ_S + 1.0)

    def _open(self, first: Future[Reader | None], open_s: float) -> None:
        try:
            reader = self._connect(open_s)
        except SilentError as error:
            reader, self.trouble = None, str(error)
        except BaseException as error:
            first.set_exception(error)
            return
        first.set_result(reader)
        self._read(reader)

    def _read(self, reader: Reader | None) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                self._reader = reader = reader or self._connect(REOPEN_S)
                for picture, t_s in _on_one_clock(reader.frames()):
                    if self._stop.is_set():
                        break
                    failures, self.trouble = 0, ""
                    with self._changed:
                        self._newest = picture, t_s
                        self._changed.notify_all()
                else:
                    raise SourceError(f"{self.name}: the stream ended")
            except Exception as error:  # whatever it was: the camera is opened again
                self.trouble = str(error) or type(error).__name__
            finally:
                if reader is not None:
                    reader.close()
                self._reader = reader = None
            self._stop.wait(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
            failures += 1


def _on_one_clock(
    frames: Iterator[tuple[Callable[[], np.ndarray], float | None]],
) -> Iterator[tuple[Callable[[], np.ndarray], float]]:
    """Yield the frames with times on this machine's steady clock, in seconds."""
    offset_s = before_s = arrived_s = None
    for picture, camera_s in frames:
        now_s = time.monotonic()
        if camera_s is None:
            yield picture, now_s
            continue
        if offset_s is None or camera_s < before_s:  # the camera's clock began anew
            offset_s = now_s - camera_s
        else:
            offset_s = min(now_s - camera_s, offset_s + DRIFT * (now_s - arrived_s))
        before_s, arrived_s = camera_s, now_s
        yield picture, camera_s + offset_s


class NetworkStream:
    """A stream that FFmpeg opens: RTSP over TCP, RTMP, HTTP, ..."""

    def __init__(self, url: str, wait_s: float) -> None:
        """Connect within `wait_s`. Raises SourceError."""
        self.name = without_password(url)
        options = {"fflags": "nobuffer", "flags": "low_delay", "analyzeduration": "1000000"}
        if url.startswith("rtsp"):
            options["rtsp_transport"] = "tcp"  # nothing of a picture is lost on the way
        try:
            self._container = av.open(url, options=options, timeout=(wait_s, READ_S))
        except (av.FFmpegError, OSError) as error:
            why = _why(error)
            if url.startswith(SENT_HERE) and why == NO_ANSWER:
                raise SilentError(f"{self.name}: nothing came within {wait_s:g} s (is something "
                                  "sent to this address and port?)") from error
            raise SourceError(f"{self.name} cannot be opened: {why}") from error
        if not self._container.streams.video:
            self._container.close()
            raise SourceError(f"{self.name} has no video")
        if self._container.duration and not url.startswith("rtsp"):
            length_s = self._container.duration / av.time_base
            self._container.close()
            raise SourceError(f"{self.name} is a recording of {length_s:.0f} s, no live stream: "
                              "download it and give the file")
        self._stream = self._container.streams.video[0]
        if self._stream.codec_context is None:
            codec = codec_of(self._container)
            self._container.close()
            raise SourceError(f"{self.name}: no decoder here for its video: {codec}")
        context = self._stream.codec_context
        context.thread_type = "SLICE"  # frame threads add delay
        # RTSP over UDP, RTP and the like lose packets.
        self._continuity = (Continuity(context.name, context.extradata or b"")
                            if context.name in CODECS else None)

    def frames(self) -> Iterator[tuple[Callable[[], np.ndarray], float | None]]:
        """Yield frames until the connection is lost; damaged ones are left out."""
        try:
            for packet in self._container.demux(self._stream):
                if not self._can_be_right(packet):
                    continue
                try:
                    frames = packet.decode()
                except av.FFmpegError as error:
                    self._lose(reason(error))
                    continue
                if any(frame.is_corrupt for frame in frames):
                    self._lose("damaged data")
                    continue
                for frame in frames:
                    yield lambda frame=frame: rgb_of(frame), frame.time
        except (av.FFmpegError, OSError) as error:
            raise SourceError(f"{self.name}: the connection is lost: {_why(error)}") from error

    def _can_be_right(self, packet: av.Packet) -> bool:
        """Whether all that a packet's picture refers to has come."""
        if self._continuity is None or not packet.size:
            return True
        try:
            _, picture, missing = self._continuity.take(bytes(packet))
        except BitstreamError:
            return False
        if missing and picture:
            self._stream.codec_context.flush_buffers()
        return not missing

    def _lose(self, why: str) -> None:
        if self._continuity is not None:
            self._continuity.lose(why)

    def close(self) -> None:
        """Disconnect."""
        self._container.close()


class Webcam:
    """A camera of this machine, through OpenCV."""

    GONE_S = 2.0
    """Failed reads for so long mean that the camera is gone; a single one means nothing."""

    def __init__(self, index: int) -> None:
        """Open camera `index`. Raises SourceError where there is none."""
        import cv2

        self.name = f"camera {index}"
        there = sorted(Path("/dev").glob("video*")) if sys.platform == "linux" else []
        if sys.platform == "linux" and Path(f"/dev/video{index}") not in there:
            known = there_are(path.name.removeprefix("video") for path in there)
            raise SourceError(f"there is no camera {index} on this machine ({known}); "
                              "--source FILE plays a video file")
        level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        try:
            self._capture = cv2.VideoCapture(index)
        finally:
            cv2.utils.logging.setLogLevel(level)
        if not self._capture.isOpened():
            raise SourceError(f"camera {index} cannot be opened (in use by another program, or not "
                              "permitted); --source FILE plays a video file")

    def frames(self) -> Iterator[tuple[Callable[[], np.ndarray], float | None]]:
        """Yield frames, without times of their own, until the camera is gone."""
        good_s = time.monotonic()
        while time.monotonic() - good_s < self.GONE_S:
            ok, bgr = self._capture.read()
            if ok:
                good_s = time.monotonic()
                yield lambda bgr=bgr: np.ascontiguousarray(bgr[..., ::-1]), None
            else:
                time.sleep(0.02)
        raise SourceError(f"{self.name} gives no image any more")

    def close(self) -> None:
        """Let the camera go."""
        self._capture.release()


def is_url(source: str) -> bool:
    """Tell whether a source is written as a network address."""
    return re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", source) is not None


def open_stream(url: str) -> LiveSource:
    """Open a network stream. Raises SourceError."""
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise SourceError(f"{without_password(url)}: {scheme}:// is not supported; streams are "
                          f"{', '.join(f'{name}://' for name in SCHEMES)}")
    url = scheme + url[len(scheme):]  # FFmpeg knows only small letters
    return LiveSource(without_password(url), lambda wait_s: NetworkStream(url, wait_s),
                      LISTEN_S if scheme in SENT_HERE else OPEN_S)


def open_webcam(index: int) -> LiveSource:
    """Open a camera of this machine. Raises SourceError."""
    return LiveSource(f"camera {index}", lambda wait_s: Webcam(index))


def without_password(url: str) -> str:
    """Return an address as it may be shown: what logs in is left out."""
    return re.sub(r"(://)[^/@]*@", r"\1", url)


def _why(error: Exception) -> str:
    text = reason(error)
    return NO_ANSWER if "immediate exit" in text.lower() else text
