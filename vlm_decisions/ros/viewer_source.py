"""The viewer's source in ROS: follows a decision node by its topics, and calls its services."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from rcl_interfaces.srv import SetParametersAtomically
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.parameter import Parameter
from std_msgs.msg import String

from vlm_decisions.msg import Decision as DecisionMsg
from vlm_decisions.msg import Event as EventMsg
from vlm_decisions.msg import QuestionArray
from vlm_decisions.srv import (
    AddQuestion,
    AddView,
    Ask,
    Correct,
    RemoveQuestion,
    UndoLearning,
)

from ..decision import Decision
from ..questions import Question
from ..runtime.system import System
from ..sources.images import ImageError
from ..sources.messages import PictureReader, base_of, head_of, transport_of
from ..sources.pictures import decode_picture
from ..sources.truth import TruthError, read_row
from ..viewer.board import Board
from ..viewer.camera_grid import CameraGrid
from ..viewer.complaints import Complaints
from ..viewer.pictures import Pictures
from ..viewer.source import (
    CAMERA,
    DYNAMIC,
    OVERLAY,
    PageSourceError,
    Unavailable,
)
from ..views import View, named
from .convert import (
    decision_from_msg,
    event_from_msg,
    ns_to_time,
    question_from_msg,
    question_to_msg,
    time_to_ns,
    view_from_msg,
    view_to_msg,
)
from .matching import MatchingSubscription
from .parameters import ParameterError
from .publishers import latched
from .subscription import DEPTHS, message_type

CALL_S = 5.0
"""A service that has not replied by then counts as unavailable, seconds."""

SILENT_S = 4.0
"""Statistics come every second: without any for this long, the node does not run, seconds."""


class RosSource:
    """Follows the decision node `target` (a name, relative to the namespace of `node`).

    Pictures are subscribed only while somebody looks at them, and the newest only, so that a
    viewer costs the decision node nothing but a draw of the overlay.
    """

    kind = "ros"

    def __init__(self, node: Node, target: str, board: Board, pictures: Pictures,
                 complain: Complaints) -> None:
        self._node, self._board, self._pictures = node, board, pictures
        self._complain = complain
        topic = node.resolve_topic_name(f"{target}/decisions")
        self.name = topic.removesuffix("/decisions")
        self._topic = topic
        self._system = System()
        self._heard_s: float | None = None
        self._wanted: frozenset[str] = frozenset()
        self._pictured: dict[tuple[str, str], MatchingSubscription] = {}  # by channel and topic
        self._grids: dict[str, CameraGrid] = {}  # by channel
        self._views: dict[str, View] = {}
        self._beside: dict[str, list[str]] = {}  # the views whose truth a topic tells
        self._truths: dict[str, Any] = {}  # subscriptions, by topic
        node.create_subscription(DecisionMsg, topic, self._decided, latched(64))
        node.create_subscription(QuestionArray, f"{self.name}/questions", self._told, latched(1))
        node.create_subscription(EventMsg, f"{self.name}/events", self._happened, 10)
        node.create_subscription(String, f"{self.name}/statistics", self._measured, latched(1))
        node.create_subscription(String, f"{self.name}/evidence", self._kept, 10)
        self._clients = {
            kind: node.create_client(kind, f"{self.name}/{name}") for kind, name in (
                (AddQuestion, "add_question"), (RemoveQuestion, "remove_question"), (Ask, "ask"),
                (Correct, "correct"), (AddView, "add_view"), (UndoLearning, "undo_learning"),
                (SetParametersAtomically, "set_parameters_atomically"))}
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
        self._views = {view.name: view_from_msg(view) for view in msg.views}
        self._board.views(self._views.values())
        self._board.questions([question_from_msg(question) for question in msg.questions],
                              list(self._views) or [""])

    def _happened(self, msg: EventMsg) -> None:
        self._board.machine_event(event_from_msg(msg))

    def _measured(self, msg: String, info: Mapping[str, Any]) -> None:
        try:
            self._system = System.from_json(msg.data)
        except ValueError as error:
            self._complain(f"{self.name}/statistics: {error}", "statistics")
            return
        # A latched message of a node that hangs is no sign of life.
        elapsed_s = (info["received_timestamp"] - info["source_timestamp"]) / 1e9
        self._heard_s = time.monotonic() - max(0.0, elapsed_s)
        self._board.system(self._system)
        self._check_link()

    def _check_link(self) -> None:
        heard_s, now_s = self._heard_s, time.monotonic()
        if heard_s is not None and now_s - heard_s < SILENT_S:
            self._board.link(True, "")
        elif heard_s is not None and self._node.count_publishers(self._topic):
            self._board.link(False, f"no word from {self.name} for {now_s - heard_s:.0f} s")
        else:
            self._board.link(False, f"waiting for {self.name}")

    def _follow_truth(self, topics: Mapping[str, str]) -> None:
        """Listen to the truth that is told beside the cameras, of the views `topics` names."""
        beside: dict[str, list[str]] = {}
        for view, topic in topics.items():
            if topic and not (view in self._views and self._views[view].region):
                truth = f"{base_of(topic).rpartition('/')[0]}/truth"
                beside.setdefault(truth, []).append(view)
        self._beside = beside
        for topic in self._truths.keys() - beside.keys():
            self._node.destroy_subscription(self._truths.pop(topic))
        for topic in beside.keys() - self._truths.keys():
            if self._node.count_publishers(topic):
                self._truths[topic] = self._node.create_subscription(
                    String, topic, partial(self._true, topic), 10)

    def _true(self, topic: str, msg: String) -> None:
        try:
            self._board.truth(read_row(msg.data, f"a message on {topic}"),
                              self._beside.get(topic, ()))
        except TruthError as error:
            self._complain(str(error), "truth")

    def _kept(self, msg: String) -> None:
        """Take the picture of an entry of the node's evidence_dir, where it is of this machine."""
        folder = Path(msg.data)
        try:
            view = json.loads((folder / "decision.json").read_text("utf-8")).get("view", "")
            jpeg = (folder / "frame.jpg").read_bytes()
        except (OSError, ValueError, AttributeError):  # another machine's, or of an event
            return
        if self._pictures.moments.due(view):
            with suppress(ImageError):
                self._pictures.moments.put(decode_picture(jpeg), view)

    # -- pictures --------------------------------------------------------------------------------

    def watch(self, channels: frozenset[str]) -> None:
        """Take what is looked at; the node's own thread acts on it."""
        self._wanted = channels

    def _subscribe(self) -> None:
        cameras = dict.fromkeys(seen["topic"] for seen in self._system.views.values())
        topics = {OVERLAY: [f"{self.name}/overlay"], CAMERA: [*cameras] or [self._system.topic]}
        for view, seen in self._system.views.items():
            topics |= {f"{OVERLAY}/{view}": [f"{self.name}/{view}/overlay"],
                       f"{CAMERA}/{view}": [seen["topic"]]}
        self._follow_truth({view: seen["topic"] for view, seen in self._system.views.items()}
                           or {"": self._system.topic})
        wanted = [(channel, topic) for channel in self._wanted
                  for topic in topics.get(channel, ()) if topic]
        for key in self._pictured.keys() - wanted:
            self._pictured.pop(key).close()
        self._grids = {channel: self._grids.get(channel) or CameraGrid()
                       for channel in dict(wanted)}
        for channel, shown in self._grids.items():
            shown.keep(topics[channel])
        for channel, topic in wanted:
            if (channel, topic) in self._pictured:
                continue
            transport = transport_of(topic)
            try:
                kind = message_type(transport)
            except ParameterError as error:  # the node may run on another machine
                self._complain(str(error), "pictures")
                continue
            self._pictured[channel, topic] = MatchingSubscription(
                self._node, kind, topic, self._put(channel, topic),
                depth=1 if transport == "raw" else DEPTHS[transport])

    def _put(self, channel: str, topic: str) -> Callable[[Any], None]:
        reader, shown = PictureReader(), self._grids[channel]

        def take(msg: Any) -> None:
            if not reader.codec(msg):
                # Converted where it is encoded: pictures that are skipped cost nothing.
                picture = cache(lambda: reader.read(msg, 0)[0][0])
            else:
                try:
                    stamp, _ = head_of(msg)
                    pictures = reader.read(msg, time_to_ns(stamp))
                except ImageError:  # the node tells of it
                    return
                if not pictures:
                    return
                newest = pictures[-1][0]
                picture = lambda: newest  # noqa: E731
            shown.put(topic, picture)
            self._pictures.put(channel, shown.draw)
        return take

    # -- what is asked of the node ---------------------------------------------------------------

    def add(self, question: Question) -> str:
        """Add a standing question. Raises PageSourceError."""
        return self._reply(self._call(AddQuestion, question=question_to_msg(question)))

    def remove(self, question_id: str) -> str:
        """Remove a standing question. Raises PageSourceError."""
        return self._reply(self._call(RemoveQuestion, question_id=question_id))

    def change(self, question: Question, changes: Mapping[str, Any]) -> str:
        """Change fields of a standing question, all or none. Raises PageSourceError."""
        if not changes.keys() <= set(DYNAMIC):
            changed = dataclasses.replace(question, **changes)
            return self._reply(self._call(AddQuestion, question=question_to_msg(changed),
                                          replace=True))
        parameters = [Parameter(f"questions.{question.id}.{name}", Parameter.Type.DOUBLE,
                                float(value)).to_parameter_msg()
                      for name, value in changes.items()]
        result = self._call(SetParametersAtomically, parameters=parameters).result
        if not result.successful:
            raise PageSourceError(result.reason or f"{self.name} refused the change")
        return f"changed '{question.id}'"

    def ask(self, question: Question, timeout_s: float) -> Decision:
        """Answer one question about now. Raises PageSourceError."""
        reply = self._call(Ask, wait_s=timeout_s + 2.0, text=question.text,
                           kind=question.kind, options=list(question.options),
                           thresholds=list(question.thresholds), timeout_s=timeout_s)
        if not reply.success and reply.decision.answer != "unknown":
            raise PageSourceError(reply.message)
        return decision_from_msg(reply.decision)

    def cost(self, question: Question) -> tuple[int, float] | None:
        """Return what a question would cost, None while the model loads. Raises PageSourceError."""
        reply = self._call(AddQuestion, question=question_to_msg(question), replace=True,
                           check_only=True)
        self._reply(reply)
        if not reply.tokens and math.isnan(reply.cost_ms):
            return None
        return reply.tokens, reply.cost_ms

    def correct(self, question_id: str, view: str, answer: str, start_ns: int, end_ns: int) -> str:
        """Keep what the right answer is, or was. Raises PageSourceError."""
        return self._reply(self._call(
            Correct, question_id=question_id, view=view, answer=answer,
            t_start=ns_to_time(start_ns), t_end=ns_to_time(end_ns)))

    def add_view(self, view: View, of: str) -> str:
        """Add a view of the camera of the view `of`. Raises ViewError and PageSourceError."""
        base = named(self._views.values(), of)
        added = dataclasses.replace(view, image=base.image, transport=base.transport)
        return self._reply(self._call(AddView, view=view_to_msg(added)))

    def undo_learning(self, question_id: str, view: str) -> str:
        """Answer as before anything was learned. Raises PageSourceError."""
        return self._reply(self._call(UndoLearning, question_id=question_id, view=view))

    def _reply(self, reply: Any) -> str:
        if not reply.success:
            raise PageSourceError(reply.message)
        return reply.message

    def _call(self, service: type, /, wait_s: float = CALL_S, **fields: Any) -> Any:
        """Call a service from a thread that is not the executor's. Raises Unavailable."""
        client = self._clients[service]
        if not client.service_is_ready():
            raise Unavailable(f"{self.name} is not there: its service {client.srv_name} is missing")
        done = threading.Event()
        future = client.call_async(service.Request(**fields))
        future.add_done_callback(lambda _: done.set())
        if not done.wait(wait_s):
            client.remove_pending_request(future)
            raise Unavailable(f"{self.name} did not reply within {wait_s:g} s")
        return future.result()
