"""decision_node: answers standing questions about a camera, as probabilities with ages.

A lifecycle node that configures (loads the model) and activates by itself, unless started with
``autostart:=false``. It answers only while active; where configuring fails, the reason is logged
and is on /diagnostics, and ``ros2 lifecycle set /decision_node configure`` tries again.

Subscribes:

- ``image`` (sensor_msgs/Image, any picture encoding), or with ``image_transport`` the topic that
  ``image`` resolves to + ``/compressed`` (sensor_msgs/CompressedImage: JPEG, PNG, h264 or h265),
  ``/ffmpeg`` (ffmpeg_image_transport_msgs/FFMPEGPacket) or ``/foxglove``
  (foxglove_msgs/CompressedVideo);
  as reliable as its publishers, unless ``reliability`` says otherwise. Bad images are counted,
  reported and dropped; what is lost on the way is told. With views described (``views_file``, or
  the key ``views`` of the questions' file) their images in its place, each camera once.

Publishes:

- ``~/decisions`` (vlm_decisions/Decision): every decision; reliable, transient local, last 64.
- ``~/decisions/<question id>`` (vlm_decisions/Decision): the same by question, and by camera
  condition (camera_dark, _bright, _blurred, _frozen, _occluded); transient local, last 1.
- ``~/events`` (vlm_decisions/Event): state changes of the events that the questions' file names;
  transient local, last 64.
- ``~/questions`` (vlm_decisions/QuestionArray): those standing, and the views; transient local,
  last 1.
- ``~/evidence`` (std_msgs/String): the path of each entry of ``evidence_dir`` once it is written:
  what a change of an answer, or an event, rests on; transient local, last 1.
- ``~/learned`` (std_msgs/String): what was learned from corrections, as JSON: ``learned`` (by
  question and view, from how many spans, log loss and accuracy before and after on held-out ones),
  ``waiting`` (why nothing is in use yet), ``refused`` (files of ``learn_dir`` that are not used);
  transient local, last 1.
- ``~/overlay`` (sensor_msgs/Image, rgb8): the newest image with the answers drawn on it (of several
  views: all side by side); drawn only while subscribed.
- With several views, for each: ``~/<view>/decisions``, ``~/<view>/decisions/<question id>`` in
  place of those by question above, and ``~/<view>/overlay``.
- ``~/statistics`` (std_msgs/String) at 1 Hz: the same numbers as /diagnostics as one JSON object,
  whose fields runtime/system.py lists; transient local, last 1.
- ``/diagnostics`` (diagnostic_msgs/DiagnosticArray) at 1 Hz: model, image, camera, runtime,
  questions.

Services, each replying ``success`` and a ``message`` that says what was wrong or done:

- ``~/add_question``, ``~/remove_question``, ``~/list_questions``, ``~/save_questions``
- ``~/ask``: one question about now, not smoothed and not added to the standing ones.
- ``~/add_view``, ``~/remove_view``
- ``~/correct``, ``~/list_corrections``, ``~/undo_correction``: what the right answer is, or was for
  a while; kept in ``learn_dir`` with what the model saw and read there
- ``~/undo_learning``: answer a question as before anything was learned of it

Action:

- ``~/wait_for`` (vlm_decisions/WaitFor): ends when a condition over the answers has held for a
  time; hundreds may wait at once.

Parameters read when the node configures (``ros2 param describe`` tells units and ranges):
``model``, ``heads_dir``, ``questions_file``, ``views_file``, ``image_transport``, ``reliability``,
``stamp_source``, ``mode``, ``sample_hz`` (Hz), ``window_groups``, ``queue_groups``, ``max_age_s``
(s), ``scene_change``, ``cut``, ``tier2_budget_s`` (s), ``pixel_budget`` (pixels), ``dtype``,
``self_check``, ``outer_vision_tokens``, ``max_image_pixels`` (pixels), ``min_image_value``,
``max_image_value``, ``load_timeout_s`` (s), ``overlay_hz`` (Hz), ``learn_dir``, ``learn``,
``learn_keep``, ``evidence_dir``,
``evidence_max_mb`` (MB), ``clip_before_s`` (s), ``clip_after_s`` (s), ``log_file``,
``log_max_mb`` (MB), ``log_keep``, ``questions_save_file``, ``save_dir``; at start only:
``autostart``.

Parameters that act at once, for each standing question, validated together:
``questions.<id>.rate_hz`` (Hz), ``.enter``, ``.exit`` (probabilities), ``.ema`` (weight).
"""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.clock import Clock, ClockChange, ClockType, JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from ..decision import UNKNOWN, YES, Decision
from ..learn.corrections import Correction
from ..questions import Question, QuestionError
from ..runtime.costs import Cost
from ..runtime.intake import CLOCK_JUMP_NS
from ..runtime.settings import RuntimeSettings
from ..runtime.statistics import ViewStats, percentiles
from ..views import View, address
from .cameras import Cameras
from .correction_services import CorrectionServices
from .diagnostics import Diagnostics, NodeState, SeenView, system_of
from .parameters import (
    NAMES,
    SPECS,
    ParameterError,
    ParameterGate,
    ParameterRules,
    declare_all,
    question_names,
    read_all,
    unknown_overrides,
    unused,
    value_range,
)
from .publishers import Outlets
from .scope import Scope
from .services import QuestionServices, Refused
from .session import ConfigureError, EngineFactory, Session
from .subscription import message_type
from .wait_server import WaitServer

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE

FRESHNESS_S = 0.2
"""Seconds between checks for answers that have become stale."""

STOP_S, ABANDON_S = 5.0, 0.5
"""How long the group in work is waited for, and a model that could not be loaded, seconds."""


Transition = Callable[[Any, LifecycleState], TransitionCallbackReturn]


def reported(transition: Transition) -> Transition:
    """Log what a transition raises, and return that it is an error.

    What rclpy itself makes of an exception is different from distribution to distribution.
    """
    @functools.wraps(transition)
    def wrapped(self: DecisionNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(self, state)
        except Exception as error:
            self.failed(f"{transition.__name__}: {type(error).__name__}: {error}",
                        traceback.format_exc())
            return TransitionCallbackReturn.ERROR
    return wrapped


class DecisionNode(ParameterRules, LifecycleNode):
    """The node. ``engine_factory(model, pixel_budget)`` replaces the loading of a model (tests).

    Further arguments go to rclpy's Node. Raises rclpy's ParameterException for a parameter given
    at start that has a wrong type or is out of its range.
    """

    def __init__(self, *, engine_factory: EngineFactory | None = None, **kwargs: Any) -> None:
        super().__init__("decision_node", **kwargs)
        self._engine_factory = engine_factory
        self._session: Session | None = None
        self._cameras: Cameras | None = None
        self._scope = Scope(self)
        self._failure = ""
        self._label = "unconfigured"
        self._closing = False
        self._diagnosed_s = 0.0  # on the monotonic clock
        self._max_age_s = 2.0
        declare_all(self, SPECS)
        self._gate = ParameterGate(self, lambda: self._session is not None, self._find,
                                   lambda question: self._need().apply(question))
        self._outlets = Outlets(self)
        self._question_services = QuestionServices(self, self)
        self._correction_services = CorrectionServices(self, self)
        self._waits = WaitServer(self, self)
        self._diagnostics = Diagnostics(self.get_fully_qualified_name(),
                                        self.resolve_topic_name("image"))
        self._diagnostics_pub = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        # Real time: with a simulated clock that stands still these must go on.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(1.0, self._diagnose, clock=steady)
        self.create_timer(FRESHNESS_S, self._check_freshness, clock=steady)
        self._overlay_timer = self.create_timer(
            1.0 / self.get_parameter("overlay_hz").value, self._draw, clock=steady)
        self._jump = self.get_clock().create_jump_callback(
            JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-CLOCK_JUMP_NS),
                          on_clock_change=True), post_callback=self._clock_jumped)
        if self.get_parameter("autostart").value:
            self._autostart_timer = self.create_timer(0.0, self._autostart, clock=steady)

    def close(self) -> None:
        """End the work, from any thread; before the node is destroyed."""
        self._closing = True
        session, cameras = self._session, self._cameras
        self._question_services.close()
        self._waits.end_all("the node is shutting down")
        if session is not None:
            if cameras is not None:
                session.runtime.reset("the node is shutting down")
            session.runtime.stop(1.0)

    # -- lifecycle -------------------------------------------------------------------------------

    @reported
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the questions and the model."""
        self._failure = ""
        try:
            values = read_all(self, SPECS)
            value_range(values)
            for message in unused(values):
                self.get_logger().warning(message)
            message_type(values["image_transport"])
            self._label = "configuring"
            self.get_logger().info(f"loading model {values['model']}")
            self._session = Session(self, self._gate, self._outlets, values,
                                    self._engine_factory)
            for view in self._session.runtime.views():
                message_type(view.transport or "raw")
            self._session.runtime.listen(self._waits.decision)
            self._session.wait_loaded(self._while_loading)
        except (ConfigureError, ParameterError) as error:
            self._failure = f"cannot configure: {error}"
            self._label = "unconfigured"
            if not self._closing:
                self.get_logger().error(self._failure)
                self._diagnose()  # a model that hangs in loading is waited for below
            self._end_session(ABANDON_S)
            return FAILURE
        self._overlay_timer.timer_period_ns = round(1e9 / values["overlay_hz"])
        self._max_age_s = values["max_age_s"]
        ids = [question.id for question in self._session.questions()]
        for message in unknown_overrides(self, [*NAMES, *question_names(ids)]):
            self.get_logger().warning(message)
        stats = self._session.stats()
        self.get_logger().info(
            f"configured: model {stats.model}, {len(stats.heads)} heads, {len(ids)} questions")
        self._label = "inactive"
        return super().on_configure(state)

    def _while_loading(self) -> bool:
        """Go on with diagnostics, as the executor waits; return whether to give up."""
        now_s = time.monotonic()
        if now_s - self._diagnosed_s >= 1.0:
            self._diagnose()
        return self._closing

    @reported
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Begin to read the camera."""
        self._cameras = Cameras(self, self._session.runtime, read_all(self, SPECS))
        self._scope = Scope(self)
        self.get_logger().info(f"active, reading {', '.join(self._cameras.topics)}")
        self._label = "active"
        return super().on_activate(state)

    @reported
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop reading the camera; every answer becomes unknown."""
        self._end_images("the node was deactivated")
        self._label = "inactive"
        return super().on_deactivate(state)

    @reported
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let the model go."""
        self._end_session()
        self._label = "unconfigured"
        return super().on_cleanup(state)

    @reported
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End from any state."""
        self._end_images("the node was shut down")
        self._end_session()
        self._label = "finalized"
        return super().on_shutdown(state)

    def failed(self, reason: str, detail: str) -> None:
        """Note why a transition failed."""
        self._failure = reason
        self.get_logger().error(detail)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Return to unconfigured after a transition that raised."""
        self._end_images(self._failure)
        self._end_session()
        self._label = "unconfigured"
        return SUCCESS

    def _autostart(self) -> None:
        self._autostart_timer.cancel()
        if self._label == "unconfigured" and self.trigger_configure() == SUCCESS:
            self.trigger_activate()

    def _end_images(self, reason: str) -> None:
        if self._cameras is not None:
            self._cameras.close()
            self._cameras = None
            self._waits.end_all(reason)
            self._session.runtime.reset(reason)

    def _end_session(self, wait_s: float = STOP_S) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close(wait_s)

    # -- what the services act on ----------------------------------------------------------------

    def questions(self) -> Sequence[Question]:
        """Return the standing questions."""
        return self._need().questions()

    def add_question(self, question: Question, replace: bool) -> str:
        """Add a standing question; return what was done."""
        said = self._need().add_question(question, replace)
        self._waits.questions_changed()
        return said

    def check_question(self, question: Question, replace: bool) -> str:
        """Return that a question could be added."""
        return self._need().check_question(question, replace)

    def cost(self, question: Question) -> Cost | None:
        """Return what a question costs, None before the model is loaded."""
        return self._need().cost(question)

    def remove_question(self, question_id: str) -> str:
        """Remove a standing question; return what was done."""
        said = self._need().remove_question(question_id)
        self._waits.questions_changed()
        return said

    def save_questions(self, path: str) -> str:
        """Write the standing questions; return the file written."""
        return self._need().save_questions(path)

    def add_view(self, view: View) -> str:
        """Add a view, and read its camera; return what was done."""
        try:
            message_type(view.transport or "raw")
        except ParameterError as error:
            raise Refused(f"view '{view.name}': {error}") from error
        said = self._need().add_view(view)
        self._waits.questions_changed()
        if self._cameras is not None:
            self._cameras.follow()
        return said

    def remove_view(self, name: str) -> str:
        """Remove a view; return what was done."""
        said = self._need().remove_view(name)
        self._waits.questions_changed()
        if self._cameras is not None:
            self._cameras.follow()
        return said

    def ask(self, question: Question, timeout_s: float) -> list[Decision]:
        """Answer a question about now, of each view that it is of; blocks its caller."""
        return self._need_active().ask(question, timeout_s)

    def correct(self, question_id: str, view: str, answer: str, start_ns: int, end_ns: int
                ) -> tuple[Correction, str]:
        """Keep what the right answer to a question is, or was; return it and what to say."""
        return self._need_active().correct(question_id, view, answer, start_ns, end_ns)

    def corrections(self, question_id: str, view: str) -> list[Correction]:
        """Return what was corrected of a question and of a view, or of all."""
        return self._need().corrections(question_id, view)

    def undo_correction(self, number: int) -> Correction:
        """Take a correction back, the newest for 0."""
        return self._need().undo_correction(number)

    def undo_learning(self, question_id: str, view: str) -> str:
        """Answer as before anything was learned; return what was done."""
        return self._need().undo_learning(question_id, view)

    def watched(self) -> tuple[Sequence[Question], Sequence[View]]:
        """Return the questions that are answered now, and the views."""
        session = self._need_active()
        return session.questions(), session.runtime.views()

    def newest(self, view: str) -> dict[str, Decision]:
        """Return a view's newest decisions by question id."""
        return self._outlets.latest(view)

    def _need_active(self) -> Session:
        session = self._need()
        if self._cameras is None:
            raise Refused("the node is not active")
        return session

    def _need(self) -> Session:
        if self._session is None:
            raise Refused(self._failure or "the node is not configured")
        return self._session

    def _find(self, question_id: str) -> Question:
        if self._session is None:
            raise QuestionError("the node is not configured")
        return self._session.find(question_id)

    # -- timers ----------------------------------------------------------------------------------

    def _clock_jumped(self, jump: TimeJump) -> None:
        if self._cameras is None:
            return
        if jump.clock_change in (ClockChange.ROS_TIME_ACTIVATED, ClockChange.ROS_TIME_DEACTIVATED):
            self._session.runtime.reset("the clock was changed")
        else:
            self._session.runtime.check_freshness()  # sees that it went backwards

    def _check_freshness(self) -> None:
        if self._cameras is not None:
            self._cameras.check()
            self._session.runtime.check_freshness()

    def _draw(self) -> None:
        if self._cameras is not None:
            views = self._session.runtime.views()
            self._outlets.draw([(view, self._cameras.newest(view)) for view in views],
                               self._session.questions(), self.get_clock().now().nanoseconds,
                               self._scope.mark)

    def _diagnose(self) -> None:
        self._diagnosed_s = time.monotonic()
        state = self.snapshot()
        seen = next((one for one in state.views.values() if one.frame_id is not None), None)
        if seen is not None:
            self._scope.look(seen.topic, state.runtime.model)
        msg = DiagnosticArray(status=self._diagnostics.report(state))
        msg.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics_pub.publish(msg)
        session = self._session
        self._outlets.statistics(system_of(
            self.get_fully_qualified_name(), state, msg.status,
            session.runtime.settings if session else RuntimeSettings()))

    def snapshot(self) -> NodeState:
        """Return the node as it is now, for diagnostics and benchmarks."""
        session = self._session
        if session is None:
            return NodeState(self._label, self._failure)
        runtime = session.stats()
        return NodeState(
            self._label, self._failure, mark=self._scope.mark, runtime=runtime,
            clock_ns=self.get_clock().now().nanoseconds,
            wanted_hz={address(view.name, one.id): one.rate_hz
                       for view in session.runtime.views()
                       for one in session.questions() if one.is_of(view.name)},
            engine=session.engine, corrections=session.corrector is not None,
            learning=session.learning(),
            views={view.name: self._seen(view, runtime.views[view.name])
                   for view in session.runtime.views() if view.name in runtime.views})

    def _seen(self, view: View, stats: ViewStats) -> SeenView:
        cameras, latest = self._cameras, self._outlets.latest(view.name)
        images = cameras.of(view) if cameras else None
        max_age_s = view.max_age_s or self._max_age_s
        return SeenView(
            stats, max_age_s=max_age_s, topic=images.topic if images else "",
            frame_id=images.newest.frame_id if images and images.newest else None,
            link=images.link if images else None, trouble=images.trouble() if images else "",
            remark=(images.hint or self._scope.warning) if images else "",
            received=images.received if images else 0,
            refused=dict(images.refused) if images else {},
            last_refusal=images.last_refusal if images else "",
            stamp_offset_s=images.offset_s if images else 0.0,
            by_arrival=images is not None and images.by_arrival,
            conditions=tuple(sorted(name for name, decision in latest.items()
                                    if name.startswith("camera_") and decision.answer == YES)),
            unknown={name: decision.reason for name, decision in latest.items()
                     if not name.startswith("camera_") and decision.answer == UNKNOWN},
            converted_ms=percentiles(list(images.converted_ms) if images else []),
            handled_ms=percentiles(list(images.handled_ms) if images else []))


def make_node(stop: Callable[[], None]) -> DecisionNode:
    """Return the node of the process; it goes on until a signal."""
    return DecisionNode()
