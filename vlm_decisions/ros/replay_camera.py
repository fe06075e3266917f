"""replay_camera: play a bag or a video file as a camera, at its own pace.

Publishes:

- the bag's image topics (those of ``topics``, else all) and its topic ``truth``, under their own
  names, as they are stored;
- with ``decoded``, or for a video: ``image`` (sensor_msgs/Image, rgb8, relative name) instead; of
  several videos (``source`` is ``TOPIC=VIDEO,TOPIC=VIDEO``) each on its topic, from one moment on;
- ``/clock`` (rosgraph_msgs/Clock) at 100 Hz with ``clock``;
- ``~/playing`` (std_msgs/String, transient local): JSON ``{"first_ns", "start_ns", "rate"}``; a
  stamp of the recording is published as ``start_ns + (stamp - first_ns) / rate``.

With ``clock`` stamps stay as recorded, and nodes with ``use_sim_time`` follow; without it they are
moved to the present, images and truth alike.

Parameters: ``source`` (bag or video, or several videos as above), ``topics`` (empty: all images),
``rate`` (2: twice as fast), ``loop`` (start again at the end; otherwise the node ends), ``clock``,
``decoded``, ``reliability`` (reliable or best_effort), ``wait_s`` (for a subscriber of the images,
seconds; 0: do not wait),
``unseen`` (whether to play where none came; otherwise the node ends with exit code 1).

The exit code is 1 where not all was played: a damaged recording, or SIGTERM before its end. SIGINT
is the user's wish: 0.
"""

from __future__ import annotations

import heapq
import json
import re
import signal
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from builtin_interfaces.msg import Time
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, QoSReliabilityPolicy
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image
from std_msgs.msg import String

from ..frames import Frame
from ..sources.bags import IMAGES, STRING, Bag, BagError
from ..sources.recording import is_bag, video_frames
from ..sources.video import SourceError
from .convert import message_class, ns_to_time, rgb_to_msg
from .parameters import ParameterError, ParameterRules, Spec, declare_own

SPECS = (
    Spec("source", "", "Bag or video file to play, or TOPIC=VIDEO,TOPIC=VIDEO.", read_only=True),
    Spec("topics", "", "Image topics to play, comma-separated; all if empty.", read_only=True),
    Spec("rate", 1.0, "Pace: 2 plays twice as fast.", 0.05, 20.0, read_only=True),
    Spec("loop", False, "Start again at the end; otherwise the node ends.", read_only=True),
    Spec("clock", False, "Publish /clock and leave stamps as recorded.", read_only=True),
    Spec("decoded", False, "Publish rgb8 images on `image` instead.", read_only=True),
    Spec("reliability", "reliable", "QoS of the images.", choices=("reliable", "best_effort"),
         read_only=True),
    Spec("wait_s", 30.0, "Seconds to wait for a subscriber.", 0.0, 3600.0, read_only=True),
    Spec("unseen", True, "Play where nobody subscribes within wait_s; otherwise the node fails.",
         read_only=True),
)

_FILM = re.compile(r"([~/a-zA-Z_][~/\w]*)=(.+)")

TICK_S = 0.002
CLOCK_S = 0.01
LOOP_GAP_NS = 1_000_000_000  # between the last image and the first of the next round

Item = tuple[int, Callable[[Callable[[int], int]], None]]
"""(time on the recording's clock, publish it with stamps passed through a function)."""


class ReplayCamera(ParameterRules, Node):
    """The node; ``stop`` is called at the end of a recording that does not loop."""

    def __init__(self, stop: Callable[[], None] = lambda: None, **kwargs: Any) -> None:
        super().__init__("replay_camera", **kwargs)
        values = declare_own(self, SPECS)
        self.exit_code = 0  # of the process
        self._stop, self._loop = stop, values["loop"]
        self._rate, self._wait_s = values["rate"], values["wait_s"]
        self._unseen = values["unseen"]
        self._source = values["source"]
        self._bag: Bag | None = None
        reliability = QoSReliabilityPolicy[values["reliability"].upper()]
        self._qos = QoSProfile(depth=10, reliability=reliability)
        self._pictures: list[Any] = []
        try:
            self._open(values)
            self._items = self._play()
            self._next: Item | None = next(self._items, None)
        except (BagError, SourceError) as error:
            raise ParameterError(str(error)) from error
        if self._next is None:
            raise ParameterError(f"source: {self._source} holds nothing to play")
        self._first_ns = self._next[0]
        self._start_ns: int | None = None
        self._last_ns: int | None = None  # of what was played last
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._playing = self.create_publisher(String, "~/playing", latched)
        self._time_pub = None
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._began_s = time.monotonic()
        if values["clock"]:
            from rosgraph_msgs.msg import Clock as ClockMsg

            self._time_type = ClockMsg
            self._time_pub = self.create_publisher(ClockMsg, "/clock", 10)
            self.create_timer(CLOCK_S, self._tell_time, clock=steady)
        self._timer = self.create_timer(TICK_S, self._tick, clock=steady)

    def close(self) -> None:
        """Remove what the bag unpacked."""
        if self._bag is not None:
            self._bag.close()

    def interrupted(self, number: int) -> None:
        """Say where a signal cuts the recording short; it is a failure unless the user wants it."""
        if self._loop or self._next is None:
            return
        played_s = 0.0 if self._last_ns is None else (self._last_ns - self._first_ns) / 1e9
        said = (f"not all of it was played: stopped by {signal.Signals(number).name} "
                f"{played_s:.1f} s into the recording")
        if number == signal.SIGINT:
            self.get_logger().info(said)
        else:
            self.get_logger().error(said)
            self.exit_code = 1

    # -- what is played --------------------------------------------------------------------------

    def _open(self, values: dict[str, Any]) -> None:
        if not values["source"]:
            raise ParameterError("source: name a bag or a video file")
        names = [name.strip() for name in values["topics"].split(",") if name.strip()]
        self._films: dict[str, Callable[[], Iterator[Frame]]] = {}  # by topic
        films = films_of(self._source) or ({} if is_bag(self._source) else {"image": self._source})
        if films:
            if names:
                raise ParameterError("topics: a video file has none")
            self._make = self._decoded
            self._films = {topic: partial(video_frames, path) for topic, path in films.items()}
        else:
            self._bag = Bag(self._source)
            if values["decoded"]:
                if len(names) > 1:
                    raise ParameterError("topics: one, with decoded")
                topic = self._bag.image_topic(names[0] if names else None).name
                self._make = self._decoded
                self._films = {"image": lambda: self._bag.images(topic)}
            else:
                self._topics = names or [t.name for t in self._bag.topics if t.type in IMAGES]
                if not self._topics:
                    self._bag.image_topic()  # says what there is
                for name in self._topics:
                    self._bag.image_topic(name)
                self._make = self._stored
        if self._make == self._decoded:
            self._pictures = [self.create_publisher(Image, topic, self._qos)
                              for topic in self._films]
            return
        self._by_topic: dict[str, Any] = {}
        for topic in self._bag.topics:
            truth = topic.type == STRING and topic.name.rpartition("/")[2] == "truth"
            if topic.name not in self._topics and not truth:
                continue
            try:
                cls = message_class(topic.type)
            except ImportError as error:
                raise ParameterError(f"source: {topic.name}: {error}; decoded: true plays its "
                                     "pictures as sensor_msgs/Image") from error
            publisher = self.create_publisher(cls, topic.name, self._qos)
            self._by_topic[topic.name] = publisher
            if not truth:
                self._pictures.append(publisher)

    def _play(self) -> Iterator[Item]:
        return self._make()

    def _decoded(self) -> Iterator[Item]:
        def played(number: int, frames: Iterator[Frame]) -> Iterator[tuple[int, int, Frame]]:
            return ((frame.stamp_ns, number, frame) for frame in frames)

        several = [played(number, make()) for number, make in enumerate(self._films.values())]
        for stamp_ns, number, frame in heapq.merge(*several, key=itemgetter(0, 1)):
            def publish(moved: Callable[[int], int], number: int = number,
                        frame: Frame = frame) -> None:
                self._pictures[number].publish(
                    rgb_to_msg(frame.image, moved(frame.stamp_ns), frame.frame_id))
            yield stamp_ns, publish

    def _stored(self) -> Iterator[Item]:
        bag = self._bag
        for number, raw in enumerate(bag.messages(self._by_topic), 1):
            data = bag.to_cdr(raw)
            text = None
            if raw.topic not in self._topics:
                text = bag.decode(raw, number).data

            def publish(moved: Callable[[int], int], topic: str = raw.topic, data: bytes = data,
                        text: str | None = text) -> None:
                message = restamped(data, moved) if text is None else _told(text, moved)
                self._by_topic[topic].publish(message)
            yield raw.log_ns, publish

    # -- playing ---------------------------------------------------------------------------------

    def _now_ns(self) -> int:
        return time.time_ns()  # the recording's pace is that of the real clock

    def _tick(self) -> None:
        if self._start_ns is None and not self._begin():
            return
        while self._next is not None:
            due_ns, publish = self._next
            if self._due(due_ns) > self._now_ns():
                return
            publish(self._moved)
            self._last_ns = due_ns
            try:
                self._next = next(self._items, None)
            except (BagError, SourceError) as error:
                self.get_logger().error(f"not all of it could be played: {error}")
                self.exit_code = 1
                self._next, self._loop = None, False
        if not self._loop:
            self._timer.cancel()
            if not self.exit_code:
                self.get_logger().info("the recording ended")
            self._stop()
            return
        self._items = self._play()
        self._next = next(self._items, None)
        pause_ns = LOOP_GAP_NS if self._time_pub is None else 0
        self._start(self._due(self._last_ns) + pause_ns)

    def _begin(self) -> bool:
        """Start once somebody looks, or has been waited for long enough."""
        looking = any(publisher.get_subscription_count() for publisher in self._pictures)
        if not looking and time.monotonic() - self._began_s < self._wait_s:
            return False
        if not looking and not self._unseen:
            if not self.exit_code:
                self.get_logger().error(f"nobody subscribed the images within {self._wait_s:g} s")
            self.exit_code = 1
            self._stop()
            return False
        self._start(self._now_ns())
        return True

    def _start(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._playing.publish(String(data=json.dumps({
            "first_ns": self._first_ns, "start_ns": start_ns, "rate": self._rate})))

    def _due(self, stamp_ns: int) -> int:
        return self._start_ns + round((stamp_ns - self._first_ns) / self._rate)

    def _moved(self, stamp_ns: int) -> int:
        return stamp_ns if self._time_pub is not None else self._due(stamp_ns)

    def _tell_time(self) -> None:
        if self._start_ns is None:
            return
        now_ns = self._first_ns + round((self._now_ns() - self._start_ns) * self._rate)
        self._time_pub.publish(self._time_type(clock=ns_to_time(now_ns)))


def films_of(source: str) -> dict[str, str]:
    """Return the video of each topic, of `TOPIC=VIDEO,TOPIC=VIDEO`; nothing for one file."""
    parts = [_FILM.fullmatch(part.strip()) for part in source.split(",")]
    if Path(source).exists() or not all(parts):
        return {}
    films = {part[1]: part[2] for part in parts}
    if len(films) < len(parts):
        raise ParameterError(f"source: {source}: a topic is there twice")
    return films


def restamped(data: bytes, moved: Callable[[int], int]) -> bytes:
    """Return a serialized message that begins with a std_msgs/Header, with its stamp moved.

    A stamp of zero, which says that there is none, stays.
    """
    order = "<" if data[1] & 1 else ">"
    sec, nanosec = struct.unpack_from(f"{order}iI", data, 4)
    if sec == nanosec == 0:
        return data
    stamp: Time = ns_to_time(moved(sec * 1_000_000_000 + nanosec))
    return data[:4] + struct.pack(f"{order}iI", stamp.sec, stamp.nanosec) + data[12:]


def _told(text: str, moved: Callable[[int], int]) -> bytes:
    """Return the truth with its stamp moved; what is not the truth stays as it is."""
    try:
        told = json.loads(text)
        told["stamp_ns"] = moved(int(told["stamp_ns"]))
        text = json.dumps(told)
    except (ValueError, KeyError, TypeError):
        pass
    return serialize_message(String(data=text))


make_node = ReplayCamera
