"""`vlm-decisions record --topics`: live topics into a bag, as they are serialized."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy

from ..files.listing import listed, there_are
from ..sources.bag_files import BagError
from ..sources.bag_writer import BagWriter, types
from .convert import message_class
from .matching import MatchingSubscription
from .middleware import let_images_pass

WAIT_S = 10.0
DEPTH = 200


class Recorder(Node):
    """Subscribes topics as others publish them, and writes each message as it comes.

    QoS follows the publishers: reliable where all are, latched where all are.
    """

    def __init__(self, bag: BagWriter, **kwargs: Any) -> None:
        """Subscribe to nothing yet."""
        super().__init__("vlm_decisions_recorder", **kwargs)
        self._bag = bag
        self.counts: Counter[str] = Counter()
        self._links: dict[str, MatchingSubscription] = {}

    def follow(self, topic: str, kind: str) -> None:
        """Begin to record a topic of a type like sensor_msgs/msg/Image. Raises BagError."""
        if kind not in types().fielddefs:
            raise BagError(f"{topic}: the message type {kind} cannot be recorded")
        offered = [info.qos_profile for info in self.get_publishers_info_by_topic(topic)]
        latched = bool(offered) and all(
            q.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL for q in offered)
        try:
            cls = message_class(kind)
        except ImportError as error:
            raise BagError(f"{topic}: {error}") from error
        self.counts[topic] = 0

        def write(data: bytes) -> None:
            self._bag.write_cdr(topic, kind, self.get_clock().now().nanoseconds, data)
            self.counts[topic] += 1

        self._links[topic] = MatchingSubscription(
            self, cls, topic, write, depth=DEPTH, latched=latched, raw=True)

    @property
    def lost(self) -> dict[str, int]:
        """Messages that the middleware lost on their way here, by topic; none are left out."""
        return {topic: link.link.lost for topic, link in self._links.items() if link.link.lost}

    def types_of(self, topics: Sequence[str], timeout_s: float) -> dict[str, str]:
        """Return the type of each topic once all are published. Raises BagError that lists them."""
        wanted = [self.resolve_topic_name(topic) for topic in topics]
        end_s = time.monotonic() + timeout_s
        while True:
            there = dict(self.get_topic_names_and_types())
            missing = [topic for topic in wanted
                       if topic not in there or not self.count_publishers(topic)]
            if not missing:
                break
            if time.monotonic() > end_s:
                published = sorted(name for name in there if self.count_publishers(name))
                raise BagError(f"nobody publishes {listed(missing)} (waited {timeout_s:g} s); "
                               f"{there_are(published, missing[0])}")
            time.sleep(0.1)
        several = [topic for topic in wanted if len(there[topic]) > 1]
        if several:
            raise BagError(f"{several[0]} is published with several types: "
                           f"{', '.join(there[several[0]])}")
        return {topic: there[topic][0] for topic in wanted}


def record_live(
    topics: Sequence[str], out: str, *, node: str = "/decision_node",
    seconds: float | None = None, timeout_s: float = WAIT_S, context: Any = None,
) -> dict[str, int]:
    """Record until Ctrl-C, or for `seconds`; return the messages written by topic.

    Beside `topics`, what `node` decides (its decisions, events and questions) and a topic `/truth`
    are recorded where they are there at the start. Raises BagError for topics that nobody
    publishes, and if no message came at all.
    """
    if not topics:
        raise BagError("no topic is named")
    own = context is None
    if own:
        let_images_pass()
        rclpy.init()
    try:
        with BagWriter(out) as bag:
            recorder = Recorder(bag, context=context)
            executor = SingleThreadedExecutor(context=context)
            executor.add_node(recorder)
            try:
                kinds = recorder.types_of(topics, timeout_s)
                there = dict(recorder.get_topic_names_and_types())
                for name in (f"{node}/decisions", f"{node}/events", f"{node}/questions", "/truth"):
                    if name in there and recorder.count_publishers(name):
                        kinds.setdefault(name, there[name][0])
                for name, kind in kinds.items():
                    recorder.follow(name, kind)
                end_s = time.monotonic() + (seconds or float("inf"))
                while time.monotonic() < end_s:
                    executor.spin_once(timeout_sec=0.1)
            except (KeyboardInterrupt, ExternalShutdownException):
                pass
            finally:
                counts = dict(recorder.counts)
                for topic, count in recorder.lost.items():
                    recorder.get_logger().warning(
                        f"{topic}: {count} messages were lost in the middleware and are not in "
                        "the bag")
                executor.shutdown()
                recorder.destroy_node()
    finally:
        if own:
            rclpy.try_shutdown()
    if not any(counts.values()):
        raise BagError(f"{out}: not a single message came on {', '.join(counts)}")
    return counts
