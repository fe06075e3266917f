"""A subscription that is as reliable as its publishers, and that knows what gets lost."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from rclpy.clock import Clock, ClockType
from rclpy.event_handler import SubscriptionEventCallbacks, UnsupportedEventTypeError
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy

from ..sources.messages import transport_of
from .middleware import is_fast_dds, profile, profiles_variable

RELIABLE, BEST_EFFORT = QoSReliabilityPolicy.RELIABLE, QoSReliabilityPolicy.BEST_EFFORT

RELIABILITIES = ("auto", "reliable", "best_effort")

CHECK_S = 0.5
"""Seconds between looks at the publishers."""

WINDOW_S = 4.0
"""Losses and silence are judged over this long, seconds."""

LOST_SHARE, LOST_LEAST = 0.1, 3
"""Losses are reported above this share, and above so many messages in the window."""


@dataclass(frozen=True)
class Link:
    """How a topic is received at the moment.

    ``topic`` is the one subscribed, after remapping; ``publishers`` how many there are of its
    type; ``reliable`` the subscription's kind; ``received`` and ``lost`` messages so far (``lost``
    as the middleware counts them, 0 where it does not); ``trouble`` says what is wrong and what
    helps, and is empty while all is well.
    """

    topic: str
    publishers: int
    reliable: bool
    received: int
    lost: int
    trouble: str


class MatchingSubscription:
    """Subscribes ``topic`` with the reliability that its publishers offer.

    With ``reliability`` auto the subscription is reliable where every publisher is, and best
    effort where one is not: a best-effort one loses large images on the way, a reliable one gets
    nothing from a best-effort publisher. It is made anew when publishers come and go and that
    changes, and is reliable while there are none: a reliable publisher is matched from its first
    moment on, and of a best-effort one the middleware tells at once. ``reliable`` and
    ``best_effort`` are kept whatever there is.
    """

    def __init__(self, node: Node, kind: type, topic: str, callback: Callable[[Any], Any], *,
                 depth: int, reliability: str = "auto", latched: bool = False,
                 raw: bool = False) -> None:
        self._node, self._kind, self._name, self._raw = node, kind, topic, raw
        self._callback = callback
        self._depth, self._choice = depth, reliability
        self._durability = (QoSDurabilityPolicy.TRANSIENT_LOCAL if latched
                            else QoSDurabilityPolicy.VOLATILE)
        self._received = self._lost = 0
        self._history: deque[tuple[float, int, int]] = deque()  # time, received, lost
        self._known: set[tuple[int, ...]] = set()
        self._closed = self._silent = False
        self._subscription: Any = None
        self._subscribe(reliability != "best_effort")
        self._link = Link(self.topic, 0, self._reliable, 0, 0, "")
        # Real time: with a simulated clock that stands still this must go on.
        self._timer = node.create_timer(CHECK_S, self._check,
                                        clock=Clock(clock_type=ClockType.STEADY_TIME))
        self._check()

    @property
    def topic(self) -> str:
        """The topic subscribed, after remapping."""
        return self._subscription.topic_name

    @property
    def link(self) -> Link:
        """How the topic was received when last looked at."""
        return self._link

    def close(self) -> None:
        """Stop receiving."""
        self._closed = True
        self._node.destroy_timer(self._timer)
        self._node.destroy_subscription(self._subscription)
        # The subscription knows the callback's object: without this it would wait for Python's
        # collector, which does not know how large an image is.
        self._callback = None

    def _subscribe(self, reliable: bool) -> None:
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
        self._reliable = reliable
        qos = QoSProfile(depth=self._depth, durability=self._durability,
                         reliability=RELIABLE if reliable else BEST_EFFORT)

        def create(**events: Any) -> Any:
            return self._node.create_subscription(
                self._kind, self._name, self._receive, qos, raw=self._raw,
                event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False, **events))
        try:
            self._subscription = create(message_lost=self._count_lost,
                                        incompatible_qos=self._incompatible)
        except UnsupportedEventTypeError:  # a middleware that tells less
            self._subscription = create()

    def _receive(self, msg: Any) -> None:
        self._received += 1
        if self._silent:  # it is over; the next look at the publishers may be a while off
            self._silent = False
            self._link = replace(self._link, received=self._received, trouble="")
        if self._callback is not None:  # else: taken by the executor before the end
            self._callback(msg)

    def _count_lost(self, event: Any) -> None:
        self._lost += event.total_count_change

    def _incompatible(self, event: Any) -> None:
        # Not in the subscription's own event, which may replace it.
        if self._node.executor is not None:
            self._node.executor.create_task(self._check)

    def _check(self) -> None:
        if self._closed:  # a task that was waiting
            return
        infos = self._node.get_publishers_info_by_topic(self.topic)
        known, self._known = self._known, {tuple(info.endpoint_gid) for info in infos}
        name = type_name(self._kind)
        offered = [info.qos_profile.reliability for info in infos if info.topic_type == name]
        reliable = matching(offered) if self._choice == "auto" else self._reliable
        if reliable != self._reliable:
            self._subscribe(reliable)
            self._history.clear()
        if known != self._known:
            self._history.clear()
        now_s = time.monotonic()
        self._history.append((now_s, self._received, self._lost))
        while self._history[0][0] < now_s - WINDOW_S:
            self._history.popleft()
        others = sorted({info.topic_type for info in infos} - {name})
        trouble = self._trouble(offered, others)
        self._link = Link(self.topic, len(offered), self._reliable, self._received, self._lost,
                          trouble)

    def _trouble(self, offered: list[QoSReliabilityPolicy], others: list[str]) -> str:
        """Return what is wrong with the way from the publishers to here, else empty."""
        (began_s, received, lost), (now_s, *_) = self._history[0], self._history[-1]
        received, lost = self._received - received, self._lost - lost
        silent = received == lost == 0 and now_s - began_s > WINDOW_S - 2 * CHECK_S
        self._silent = silent
        if not offered:
            if others:
                return (f"{self.topic} is published as {', '.join(others)}, and read as "
                        f"{type_name(self._kind)} (see image_transport)")
            return f"nobody publishes {self.topic}" if silent else ""
        one = len(offered) == 1
        what = f"{len(offered)} publisher{'' if one else 's'} on {self.topic}"
        whose = "its" if one else "their"
        if self._reliable and RELIABLE not in offered:
            return (f"{what}, best effort only, and this subscription takes reliable ones only: "
                    "set reliability: auto")
        if lost and (lost >= LOST_LEAST and lost > LOST_SHARE * (received + lost) or not received):
            return (f"{what}, {whose} images are lost in the middleware ({lost} of the last "
                    f"{received + lost}): {self._remedy(BEST_EFFORT in offered)}")
        if silent and self._reliable:
            return f"{what}, but nothing comes: {whose} images are not sent, or do not get through"
        if silent:
            return (f"{what}, but nothing comes: {whose} images are not sent, or are lost in the "
                    f"middleware: {self._remedy(BEST_EFFORT in offered)}")
        return ""

    def _remedy(self, best_effort: bool) -> str:
        """Return what helps against losses, in this case."""
        if not self._reliable and not best_effort:
            return "set reliability: auto"
        ways = [] if self._reliable else ["make the publisher reliable"]
        if transport_of(self._name) == "raw":
            ways.append("read compressed images")
        if is_fast_dds():
            ways.append(f"start the publisher with {profiles_variable()}={profile()}")
        ways.append("use another middleware (RMW_IMPLEMENTATION)")
        return ", or ".join(ways)


def matching(offered: Iterable[QoSReliabilityPolicy]) -> bool:
    """Return whether a subscription of publishers that offer this should be reliable."""
    return all(one == RELIABLE for one in offered)


def type_name(kind: type) -> str:
    """Return a message class's name as the graph tells it, like sensor_msgs/msg/Image."""
    return f"{kind.__module__.partition('.')[0]}/msg/{kind.__name__}"
