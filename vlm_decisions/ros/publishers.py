"""Publishers of all that the node offers as topics. Decisions come from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from rclpy.exceptions import InvalidHandle
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy
from sensor_msgs.msg import Image
from std_msgs.msg import String

from vlm_decisions.msg import Decision as DecisionMsg
from vlm_decisions.msg import Event as EventMsg
from vlm_decisions.msg import QuestionArray

from ..decision import Decision
from ..events import Event
from ..frames import Frame
from ..questions import Question
from ..runtime.system import System
from ..viewer import overlay
from .convert import decision_to_msg, event_to_msg, questions_to_msg, rgb_to_msg

HISTORY = 64
"""Decisions that a late subscriber of ~/decisions still gets; events of ~/events."""


def latched(depth: int) -> QoSProfile:
    """Return the QoS of what a late subscriber should still get."""
    return QoSProfile(depth=depth, reliability=QoSReliabilityPolicy.RELIABLE,
                      durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)


class Outlets:
    """Publishes decisions (all and by id), events, questions, statistics and the overlay.

    ``latest`` holds the newest decision by question id. A topic of its own is offered for the
    ids given to ``offer`` until they are withdrawn.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._all = node.create_publisher(DecisionMsg, "~/decisions", latched(HISTORY))
        self._events = node.create_publisher(EventMsg, "~/events", latched(HISTORY))
        self._questions = node.create_publisher(QuestionArray, "~/questions", latched(1))
        self._overlay = node.create_publisher(Image, "~/overlay", 2)
        self._statistics = node.create_publisher(String, "~/statistics", latched(1))
        self._each: dict[str, Publisher] = {}
        self._lock = threading.Lock()
        self.latest: dict[str, Decision] = {}

    def offer(self, question_id: str) -> None:
        """Begin a question's own topic."""
        if question_id not in self._each:
            publisher = self._node.create_publisher(
                DecisionMsg, f"~/decisions/{question_id}", latched(1))
            with self._lock:
                self._each[question_id] = publisher

    def withdraw(self, question_id: str) -> None:
        """End a question's own topic and forget its last decision."""
        with self._lock:
            publisher = self._each.pop(question_id, None)
            self.latest.pop(question_id, None)
        if publisher is not None:
            self._node.destroy_publisher(publisher)

    def withdraw_all(self) -> None:
        """End every question's own topic."""
        for question_id in list(self._each):
            self.withdraw(question_id)

    def decision(self, decision: Decision) -> None:
        """Publish a decision, from any thread; one on a question without a topic is dropped."""
        msg = decision_to_msg(decision)
        with self._lock:
            publisher = self._each.get(decision.question_id)
            if publisher is None:  # removed while it was being answered
                return
            self.latest[decision.question_id] = decision
            self._publish(self._all, msg)
            self._publish(publisher, msg)

    def event(self, event: Event) -> None:
        """Publish an event, from any thread."""
        self._publish(self._events, event_to_msg(event))

    def _publish(self, publisher: Publisher, msg: Any) -> None:
        try:
            publisher.publish(msg)
        except (InvalidHandle, rclpy_implementation.RCLError):
            if self._node.context.ok():
                raise  # else: shut down while it was being answered

    def questions(self, questions: Iterable[Question], changed_ns: int) -> None:
        """Publish the standing questions."""
        self._questions.publish(questions_to_msg(questions, changed_ns))

    def statistics(self, system: System) -> None:
        """Publish how the node does, as JSON."""
        self._statistics.publish(String(data=system.to_json()))

    def draw(self, frame: Frame | None, questions: Iterable[Question], now_ns: int,
             mark: str) -> None:
        """Publish the overlay, where anybody looks at it and there is an image; `mark` is on it."""
        if frame is None or self._overlay.get_subscription_count() == 0:
            return
        with self._lock:
            latest = dict(self.latest)
        image = overlay.draw(frame.image, [question.id for question in questions], latest, now_ns,
                             mark=mark)
        self._overlay.publish(rgb_to_msg(image, frame.stamp_ns, frame.frame_id))
