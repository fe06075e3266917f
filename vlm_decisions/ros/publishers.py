"""Publishers of all that the node offers as topics. Decisions come from any thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
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
from ..views import View
from .convert import decision_to_msg, event_to_msg, questions_to_msg, rgb_to_msg

HISTORY = 64
"""Decisions that a late subscriber of ~/decisions still gets; events of ~/events."""

VIEW_TOPICS = ("decisions", "overlay")
"""Topics of a view of its own, below its name."""


def latched(depth: int) -> QoSProfile:
    """Return the QoS of what a late subscriber should still get."""
    return QoSProfile(depth=depth, reliability=QoSReliabilityPolicy.RELIABLE,
                      durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)


class Outlets:
    """Publishes decisions (all, by view and by id), events, questions, statistics, the overlay.

    Topics of a view are offered from ``open`` to ``close``, those of a question's answers from
    ``offer`` to ``withdraw``.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._all = node.create_publisher(DecisionMsg, "~/decisions", latched(HISTORY))
        self._events = node.create_publisher(EventMsg, "~/events", latched(HISTORY))
        self._questions = node.create_publisher(QuestionArray, "~/questions", latched(1))
        self._overlay = node.create_publisher(Image, "~/overlay", 2)
        self._learned = node.create_publisher(String, "~/learned", latched(1))
        self._evidence = node.create_publisher(String, "~/evidence", latched(1))
        self._statistics = node.create_publisher(String, "~/statistics", latched(1))
        self._views: dict[str, ViewOutlets] = {}
        self._lock = threading.Lock()

    def open(self, view: str, own_topics: bool) -> None:
        """Begin the topics of a view: its own, or the node's where there is no other."""
        with self._lock:
            self._views[view] = ViewOutlets(self._node, f"{view}/" if own_topics else "")

    def close(self, view: str) -> None:
        """End a view's topics."""
        with self._lock:
            outlets = self._views.pop(view, None)
        if outlets is not None:
            outlets.close()

    def offer(self, question_id: str, view: str) -> None:
        """Begin a question's own topic."""
        self._views[view].offer(question_id, self._lock)

    def withdraw(self, question_id: str, view: str) -> None:
        """End a question's own topic and forget its last decision."""
        self._views[view].withdraw(question_id, self._lock)

    def close_all(self) -> None:
        """End every topic of views and questions."""
        for view in list(self._views):
            self.close(view)

    def latest(self, view: str) -> dict[str, Decision]:
        """Return a view's newest decisions by question id."""
        with self._lock:
            outlets = self._views.get(view)
            return dict(outlets.latest) if outlets else {}

    def forget(self, question_id: str) -> None:
        """Forget the last decisions on a question that asks something else now."""
        with self._lock:
            for outlets in self._views.values():
                outlets.latest.pop(question_id, None)

    def decision(self, decision: Decision) -> None:
        """Publish a decision, from any thread; one on a question without a topic is dropped."""
        msg = decision_to_msg(decision)
        with self._lock:
            outlets = self._views.get(decision.view)
            publisher = outlets.each.get(decision.question_id) if outlets else None
            if publisher is None:  # removed while it was being answered
                return
            outlets.latest[decision.question_id] = decision
            self._publish(self._all, msg)
            if outlets.all is not None:
                self._publish(outlets.all, msg)
            self._publish(publisher, msg)

    def event(self, event: Event) -> None:
        """Publish an event, from any thread."""
        self._publish(self._events, event_to_msg(event))

    def evidence(self, path: Path) -> None:
        """Publish where evidence was written, from any thread."""
        self._publish(self._evidence, String(data=str(path)))

    def learned(self, state: Mapping[str, Any]) -> None:
        """Publish what was learned, as JSON, from any thread."""
        self._publish(self._learned, String(data=json.dumps(state, ensure_ascii=False)))

    def _publish(self, publisher: Publisher, msg: Any) -> None:
        try:
            publisher.publish(msg)
        except (InvalidHandle, rclpy_implementation.RCLError):
            if self._node.context.ok():
                raise  # else: shut down while it was being answered

    def questions(
        self, questions: Iterable[Question], views: Iterable[View], changed_ns: int
    ) -> None:
        """Publish the standing questions and the views."""
        self._questions.publish(questions_to_msg(questions, changed_ns, views))

    def statistics(self, system: System) -> None:
        """Publish how the node does, as JSON."""
        self._statistics.publish(String(data=system.to_json()))

    def draw(self, seen: Sequence[tuple[View, Frame | None]], questions: Sequence[Question],
             now_ns: int, mark: str) -> None:
        """Publish the overlays that anybody looks at, of views with an image; `mark` is on them.

        ``~/overlay`` is that of the only view, or all of them side by side.
        """
        grid_wanted = self._overlay.get_subscription_count() > 0
        abreast = overlay.per_row(sum(frame is not None for _, frame in seen))
        drawn: list[np.ndarray] = []
        newest: Frame | None = None
        for view, frame in seen:
            outlets = self._views.get(view.name)
            own = outlets.overlay if outlets else None
            own_wanted = own is not None and own.get_subscription_count() > 0
            if frame is None or not (grid_wanted or own_wanted):
                continue
            draw = partial(overlay.draw_view, view, frame.image, questions,
                           self.latest(view.name), now_ns, mark)
            if own_wanted:
                own.publish(rgb_to_msg(draw(), frame.stamp_ns, frame.frame_id))
            if grid_wanted:
                drawn.append(draw(abreast=abreast))
            newest = frame if newest is None or frame.stamp_ns > newest.stamp_ns else newest
        if grid_wanted and drawn:
            self._overlay.publish(
                rgb_to_msg(overlay.grid(drawn), newest.stamp_ns, newest.frame_id))


class ViewOutlets:
    """The topics of one view; ``latest`` holds its newest decision by question id."""

    def __init__(self, node: Node, prefix: str) -> None:
        self._node, self._prefix = node, prefix
        self.all: Publisher | None = None
        self.overlay: Publisher | None = None
        if prefix:
            decisions, pictures = (f"~/{prefix}{topic}" for topic in VIEW_TOPICS)
            self.all = node.create_publisher(DecisionMsg, decisions, latched(HISTORY))
            self.overlay = node.create_publisher(Image, pictures, 2)
        self.each: dict[str, Publisher] = {}
        self.latest: dict[str, Decision] = {}

    def offer(self, question_id: str, lock: threading.Lock) -> None:
        """Begin a question's own topic."""
        if question_id not in self.each:
            publisher = self._node.create_publisher(
                DecisionMsg, f"~/{self._prefix}decisions/{question_id}", latched(1))
            with lock:
                self.each[question_id] = publisher

    def withdraw(self, question_id: str, lock: threading.Lock) -> None:
        """End a question's own topic and forget its last decision."""
        with lock:
            publisher = self.each.pop(question_id, None)
            self.latest.pop(question_id, None)
        if publisher is not None:
            self._node.destroy_publisher(publisher)

    def close(self) -> None:
        """End all topics; nothing is published by them any more."""
        for publisher in (self.all, self.overlay, *self.each.values()):
            if publisher is not None:
                self._node.destroy_publisher(publisher)
        self.each.clear()
