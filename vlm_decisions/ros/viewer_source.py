"""The viewer's source in ROS: follows a decision node by its topics, and calls its services."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import GetParameters, SetParametersAtomically
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import CompressedImage, Image

from vlm_decisions.msg import Decision as DecisionMsg
from vlm_decisions.msg import Event as EventMsg
from vlm_decisions.msg import QuestionArray
from vlm_decisions.srv import AddQuestion, Ask, RemoveQuestion

from ..decision import Decision
from ..questions import Question
from ..runtime.statistics import Percentiles
from ..sources.images import compressed_to_rgb, image_to_rgb
from ..viewer.board import Board
from ..viewer.pictures import Pictures
from ..viewer.source import CAMERA, OVERLAY, SourceError, Status, System, Unavailable
from .convert import decision_from_msg, event_from_msg, question_from_msg, question_to_msg
from .matching import MatchingSubscription
from .publishers import latched

CALL_S = 5.0
"""A service that has not replied by then counts as unavailable, seconds."""

SILENT_S = 4.0
"""Diagnostics come every second: without any for this long, the node does not run, seconds."""


class RosSource:
    """
    Follows the decision node `target` (a name, relative to the namespace of `node`).

    Pictures are subscribed only while somebody looks at them, and the newest only, so that a
    viewer costs the decision node nothing but a draw of the overlay.
    """

    kind = "ros"

    def __init__(self, node: Node, target: str, board: Board, pictures: Pictures) -> None:
        self._node, self._board, self._pictures = node, board, pictures
        topic = node.resolve_topic_name(f"{target}/decisions")
        self.name = topic.removesuffix("/decisions")
        self._topic = topic
        self._system = System()
        self._max_age_s = System.max_age_s
        self._heard_s: float | None = None
        self._wanted: frozenset[str] = frozenset()
        self._pictured: dict[str, tuple[str, MatchingSubscription]] = {}
        node.create_subscription(DecisionMsg, topic, self._decided, latched(64))
        node.create_subscription(QuestionArray, f"{self.name}/questions", self._told, latched(1))
        node.create_subscription(EventMsg, f"{self.name}/events", self._happened, 10)
        node.create_subscription(DiagnosticArray, "/diagnostics", self._diagnosed, 10)
        self._clients = {
            kind: node.create_client(kind, f"{self.name}/{name}") for kind, name in (
                (AddQuestion, "add_question"), (RemoveQuestion, "remove_question"), (Ask, "ask"),
                (SetParametersAtomically, "set_parameters_atomically"),
                (GetParameters, "get_parameters"))}
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        node.create_timer(0.2, self._subscribe, clock=steady)
        node.create_timer(1.0, self._check_link, clock=steady)
        self._check_link()

    # -- what comes from the node ----------------------------------------------------------------

    def _decided(self, msg: DecisionMsg, info: Mapping[str, Any]) -> None:
        # A latched decision was published a while ago; both stamps are of the system's clock.
        elapsed_s = (info["received_timestamp"] - info["source_timestamp"]) / 1e9
        self._board.decision(decision_from_msg(msg), elapsed_s if elapsed_s > 0.5 else 0.0)

    def _told(self, msg: QuestionArray) -> None:
        self._board.questions([question_from_msg(question) for question in msg.questions])

    def _happened(self, msg: EventMsg) -> None:
        self._board.machine_event(event_from_msg(msg))

    def _diagnosed(self, msg: DiagnosticArray) -> None:
        mine = [status for status in msg.status if status.name.startswith(f"{self.name}: ")]
        if mine:
            self._heard_s = time.monotonic()
            self._system = system_of(mine, self._max_age_s)
            self._board.system(self._system)

    def _check_link(self) -> None:
        heard_s, now_s = self._heard_s, time.monotonic()
        if heard_s is not None and now_s - heard_s < SILENT_S:
            state = self._system.state
            self._board.link(state == "active", "" if state == "active" else
                             self._failure() or f"{self.name} is {state}")
            self._read_max_age()
        elif heard_s is not None and self._node.count_publishers(self._topic):
            self._board.link(False, f"no word from {self.name} for {now_s - heard_s:.0f} s")
        else:
            self._board.link(False, f"waiting for {self.name}")

    def _failure(self) -> str:
        return next((s.message for s in self._system.statuses if s.name == "model" and s.level > 1),
                    "")

    def _read_max_age(self) -> None:
        client = self._clients[GetParameters]
        if not client.service_is_ready():
            return

        def take(future: Any) -> None:
            values = future.result().values if future.exception() is None else []
            if values and values[0].double_value > 0:
                self._max_age_s = values[0].double_value

        client.call_async(GetParameters.Request(names=["max_age_s"])).add_done_callback(take)

    # -- pictures --------------------------------------------------------------------------------

    def watch(self, channels: frozenset[str]) -> None:
        """Take what is looked at; the node's own thread acts on it."""
        self._wanted = channels

    def _subscribe(self) -> None:
        topics = {OVERLAY: f"{self.name}/overlay", CAMERA: self._system.topic}
        wanted = {channel: topics[channel] for channel in self._wanted if topics[channel]}
        for channel, (topic, subscription) in list(self._pictured.items()):
            if wanted.get(channel) != topic:
                subscription.close()
                del self._pictured[channel]
        for channel, topic in wanted.items():
            if channel in self._pictured:
                continue
            packed = topic.endswith("/compressed")
            convert = compressed_to_rgb if packed else image_to_rgb
            subscription = MatchingSubscription(
                self._node, CompressedImage if packed else Image, topic,
                self._put(channel, convert), depth=1)
            self._pictured[channel] = topic, subscription

    def _put(self, channel: str, convert: Callable[[Any], np.ndarray]) -> Callable[[Any], None]:
        # Converted where it is encoded: pictures that are skipped cost nothing.
        return lambda msg: self._pictures.put(channel, lambda: convert(msg))

    # -- what is asked of the node ---------------------------------------------------------------

    def add(self, question: Question) -> str:
        """Let a new question stand. Raises SourceError."""
        return self._reply(self._call(AddQuestion, question=question_to_msg(question)))

    def remove(self, question_id: str) -> str:
        """Take a standing question away. Raises SourceError."""
        return self._reply(self._call(RemoveQuestion, question_id=question_id))

    def change(self, question_id: str, changes: Mapping[str, float]) -> str:
        """Set the question's parameters, all or none. Raises SourceError."""
        parameters = [Parameter(f"questions.{question_id}.{name}", Parameter.Type.DOUBLE,
                                float(value)).to_parameter_msg()
                      for name, value in changes.items()]
        result = self._call(SetParametersAtomically, parameters=parameters).result
        if not result.successful:
            raise SourceError(result.reason or f"{self.name} refused the change")
        return f"changed '{question_id}'"

    def ask(self, question: Question, timeout_s: float) -> Decision:
        """Answer one question about now. Raises SourceError."""
        reply = self._call(Ask, wait_s=timeout_s + 2.0, text=question.text,
                           options=list(question.options), timeout_s=timeout_s)
        if not reply.success and reply.decision.answer != "unknown":
            raise SourceError(reply.message)
        return decision_from_msg(reply.decision)

    def _reply(self, reply: Any) -> str:
        if not reply.success:
            raise SourceError(reply.message)
        return reply.message

    def _call(self, kind: type, wait_s: float = CALL_S, **fields: Any) -> Any:
        """Call a service from a thread that is not the executor's. Raises Unavailable."""
        client = self._clients[kind]
        if not client.service_is_ready():
            raise Unavailable(f"{self.name} is not there: its service {client.srv_name} is missing")
        done = threading.Event()
        future = client.call_async(kind.Request(**fields))
        future.add_done_callback(lambda _: done.set())
        if not done.wait(wait_s):
            client.remove_pending_request(future)
            raise Unavailable(f"{self.name} did not reply within {wait_s:g} s")
        return future.result()


# -- diagnostics -------------------------------------------------------------------------------

_COUNTS = ("frames", "groups", "ticks", "decisions", "windows", "scene changes", "put off",
           "errors")
_MS = re.compile(r"p50 (\S+) ms, p95 (\S+) ms")


def system_of(statuses: list[Any], max_age_s: float) -> System:
    """Return what the page shows of a node's diagnostics (DiagnosticStatus messages)."""
    values: dict[str, dict[str, str]] = {}
    lines = []
    for status in statuses:
        what = status.name.partition(": ")[2]
        values[what] = {pair.key: pair.value for pair in status.values}
        level = status.level[0] if isinstance(status.level, bytes) else int(status.level)
        lines.append(Status(what, level, status.message))
    model, image = values.get("model", {}), values.get("image", {})
    camera, runtime = values.get("camera", {}), values.get("runtime", {})
    return System(
        state=model.get("state", ""), model=model.get("model", ""),
        device=model.get("device", ""), topic=image.get("topic", ""),
        image_rate_hz=_number(image.get("rate")), image_age_s=_number(image.get("age")),
        queue=round(_number(runtime.get("queue"), 0.0)),
        counts={name: round(_number(runtime[name], 0.0)) for name in _COUNTS if name in runtime},
        dropped=_totals(runtime, "dropped, ") | _totals(image, "refused, "),
        tick_ms=_percentiles(runtime, "tick "), age_ms=_percentiles(runtime, "decision age, "),
        memory_mb=_number(model.get("memory")), condition=camera.get("condition", ""),
        last_error=runtime.get("last error", ""), max_age_s=max_age_s, statuses=tuple(lines))


def _totals(values: Mapping[str, str], prefix: str) -> dict[str, int]:
    kind = "" if prefix.startswith("dropped") else "image: "
    return {f"{kind}{key.removeprefix(prefix)}": round(_number(value, 0.0))
            for key, value in values.items() if key.startswith(prefix)}


def _percentiles(values: Mapping[str, str], prefix: str) -> dict[str, Percentiles]:
    out = {}
    for key, value in values.items():
        match = _MS.fullmatch(value) if key.startswith(prefix) else None
        if match:
            out[key.removeprefix(prefix)] = Percentiles(
                _number(match[1]), _number(match[2]), 0)
    return out


def _number(text: str | None, default: float = float("nan")) -> float:
    """Return the number at the start of a value such as `12 Hz`."""
    try:
        return float((text or "").partition(" ")[0])
    except ValueError:
        return default
