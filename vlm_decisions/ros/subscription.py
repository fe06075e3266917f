"""The image subscription: messages to frames; a bad one is counted, reported and dropped."""

from __future__ import annotations

import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from rclpy.node import Node

from ..frames import Frame
from ..runtime.statistics import MEMORY
from ..runtime.throttle import Throttle
from ..sources.images import ImageError, range_hint
from ..sources.messages import TRANSPORTS, PictureReader, head_of, topic_of
from .convert import message_class, time_to_ns
from .matching import Link, MatchingSubscription
from .parameters import ParameterError

DEPTHS = {"raw": 10, "compressed": 30, "ffmpeg": 250, "foxglove": 250}
"""Messages that may wait for the executor, by transport; a newer one replaces the oldest.

Of single images a few are enough, of a video each packet is needed up to the next keyframe.
"""

REPORT_S = 5.0
"""A cause of refusals is logged at most this often, seconds."""

TROUBLE_S = 60.0
"""What is wrong on the way from the publishers is logged at most this often while it lasts."""

HINT_S = 30.0
"""Seconds between looks at how much of its range a 16-bit image uses."""

MAX_FRAME_ID = 256
"""Characters; a frame id goes into every decision about the image."""


class ImageSubscription:
    """Subscribes the camera of the topic ``image`` and hands each good image to ``push``.

    ``link`` tells of the publishers and of what is lost on the way, ``trouble`` why no image comes,
    ``hint`` what a user should change though images come.
    Counters for diagnostics: ``received`` messages, ``refused`` by cause, ``last_refusal`` (its
    reason), ``offset_s`` (clock minus the newest header stamp), ``by_arrival`` (the header's is not
    used), ``newest`` (frame or None), ``converted_ms`` and ``handled_ms`` (milliseconds of the last
    good images from message to frame, and to the end of what the runtime does with it at once).
    """

    def __init__(self, node: Node, push: Callable[[Frame], Any], *, image: str = "image",
                 transport: str, reliability: str, stamp_source: str, max_pixels: int,
                 value_range: tuple[int, int], vectors: bool = False) -> None:
        self._node, self._push = node, push
        self.by_arrival = stamp_source == "arrival"
        self._value_range = value_range
        self.received = 0
        self.refused: Counter[str] = Counter()
        self.last_refusal = ""
        self.offset_s = 0.0
        self.newest: Frame | None = None
        self.converted_ms: deque[float] = deque(maxlen=MEMORY)
        self.handled_ms: deque[float] = deque(maxlen=MEMORY)
        self._reports = Throttle(REPORT_S)
        self._reported: Counter[str] = Counter()
        self._troubles = Throttle(TROUBLE_S)
        self._hints = Throttle(HINT_S)
        self.hint = ""
        self._good = True  # the newest image was not refused
        # Remapping applies to `image`; the transport's suffix belongs to the topic it leads to.
        topic = topic_of(node.resolve_topic_name(image), transport)
        self._reader = PictureReader(max_pixels=max_pixels, value_range=value_range,
                                     vectors=vectors)
        self._subscription = MatchingSubscription(
            node, message_type(transport), topic, self.receive, reliability=reliability,
            depth=DEPTHS[transport])

    @property
    def topic(self) -> str:
        """The topic subscribed, after remapping."""
        return self._subscription.topic

    @property
    def link(self) -> Link:
        """How the topic is received."""
        return self._subscription.link

    def trouble(self) -> str:
        """Return why images do not come, or not as they should; empty while all is well."""
        trouble = self.link.trouble
        if not trouble:
            self._troubles = Throttle(TROUBLE_S)  # what comes next is news
        elif self._troubles.passes(""):
            self._node.get_logger().warning(trouble)
        return trouble or ("" if self._good else f"images are refused: {self.last_refusal}")

    def close(self) -> None:
        """Stop receiving, and let the last image go."""
        self._subscription.close()
        self.newest = None

    def receive(self, msg: Any) -> None:
        """Take an image message (the subscription's callback)."""
        began_s = time.perf_counter()
        now_ns = self._node.get_clock().now().nanoseconds
        self.received += 1
        stamp, frame_id = head_of(msg)
        stamp_ns = time_to_ns(stamp)
        try:
            pictures = self._reader.read(msg, now_ns if self.by_arrival else stamp_ns)
            if not self.by_arrival:
                check_stamp(stamp)
            if len(frame_id) > MAX_FRAME_ID:
                raise ImageError("frame_id", f"the header's frame_id has {len(frame_id)} "
                                             f"characters, the limit is {MAX_FRAME_ID}")
        except ImageError as error:
            self._refuse(error)
            return
        except Exception as error:  # no image may end the node, not even by a fault of ours
            self._node.get_logger().error(traceback.format_exc(), once=True)
            self._refuse(ImageError("fault", "reading it failed, which is a fault of this package: "
                                             f"{type(error).__name__}: {error}"))
            return
        self._good = True
        if self._hints.passes():
            self.hint = range_hint(msg, self._value_range)
            if self.hint:
                self._node.get_logger().warning(self.hint)
        self.offset_s = (now_ns - stamp_ns) / 1e9 if stamp_ns else 0.0
        frames = [Frame(rgb, shown_ns, frame_id, now_ns, self._reader.motion(shown_ns))
                  for rgb, shown_ns in pictures]
        if not frames:  # a packet whose picture comes with a later one
            return
        self.newest = frames[-1]
        self.converted_ms.append((time.perf_counter() - began_s) * 1e3)
        for frame in frames:
            self._push(frame)
        self.handled_ms.append((time.perf_counter() - began_s) * 1e3)

    def _refuse(self, error: ImageError) -> None:
        self._good = False
        self.refused[error.cause] += 1
        self.last_refusal = str(error)
        if not self._reports.passes(error.cause):
            return
        total, count = self.refused[error.cause], self._reported[error.cause]
        more = f" ({total - count} refused since the last report)" if count else ""
        self._node.get_logger().warning(f"image refused: {error}{more}")
        self._reported[error.cause] = total


def check_stamp(stamp: Any) -> None:
    """Raise ImageError for a header stamp that no clock gives."""
    if stamp.sec == 0 and stamp.nanosec == 0:
        raise ImageError("stamp", "the header's stamp is zero (a driver that does not stamp needs "
                                  "stamp_source: arrival)")
    if stamp.sec < 0 or stamp.nanosec >= 1_000_000_000:
        raise ImageError("stamp", f"the header's stamp is no time: {stamp.sec} s and "
                                  f"{stamp.nanosec} ns")


def message_type(transport: str) -> type:
    """Return a transport's message class. Raises ParameterError where it is not installed."""
    try:
        return message_class(TRANSPORTS[transport])
    except ImportError as error:
        raise ParameterError(f"image_transport: {transport}: {error}") from error
