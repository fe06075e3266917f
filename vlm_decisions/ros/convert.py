"""Between the core's dataclasses and ROS messages. Stamps round-trip exactly."""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Iterable
from importlib import import_module

import numpy as np
from builtin_interfaces.msg import Time
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from vlm_decisions.msg import Correction as CorrectionMsg
from vlm_decisions.msg import Decision as DecisionMsg
from vlm_decisions.msg import Event as EventMsg
from vlm_decisions.msg import Question as QuestionMsg
from vlm_decisions.msg import QuestionArray
from vlm_decisions.msg import View as ViewMsg

from ..decision import Decision
from ..events import Event
from ..learn.corrections import Correction
from ..questions import AUTO, Question
from ..views import View

_NS = 1_000_000_000
_MESSAGES = {QuestionMsg: Question, ViewMsg: View, DecisionMsg: Decision, EventMsg: Event}
_IN_HEADER = {"frame_id", "t_end"}
_MAX_NS = 2**31 * _NS - 1


def message_class(name: str) -> type:
    """Return the class of a message type like sensor_msgs/msg/Image.

    Raises ImportError that names the package where it is not installed.
    """
    package, _, kind = name.partition("/msg/")
    try:
        return getattr(import_module(f"{package}.msg"), kind)
    except (ImportError, AttributeError) as error:
        raise ImportError(f"{name} needs the package {package}, which is not installed here (apt "
                          f"install ros-$ROS_DISTRO-{package.replace('_', '-')})") from error


def time_to_ns(stamp: Time) -> int:
    """Return a stamp as integer nanoseconds."""
    return stamp.sec * _NS + stamp.nanosec


def ns_to_time(stamp_ns: int) -> Time:
    """Return integer nanoseconds as a stamp. Raises ValueError outside the message's range."""
    if not -_MAX_NS <= stamp_ns <= _MAX_NS:
        raise ValueError(f"{stamp_ns} ns is outside builtin_interfaces/Time")
    sec, nanosec = divmod(int(stamp_ns), _NS)
    return Time(sec=sec, nanosec=nanosec)


def correction_to_msg(correction: Correction) -> CorrectionMsg:
    """Return the message of a correction."""
    return CorrectionMsg(
        id=correction.id, question_id=correction.question_id, text=correction.text,
        view=correction.view, answer=correction.answer, said=correction.said,
        t_start=ns_to_time(correction.t_start_ns), t_end=ns_to_time(correction.t_end_ns),
        looks=correction.looks)


def decision_to_msg(decision: Decision) -> DecisionMsg:
    """Return the message of a decision; its header is the newest frame's."""
    # Everything in the call: default fields, made only to be replaced, would double its time.
    t_end = ns_to_time(decision.t_end_ns)
    return DecisionMsg(
        header=Header(stamp=t_end, frame_id=decision.frame_id),
        question_id=decision.question_id,
        answer=decision.answer,
        p=float(decision.p),
        p_raw=float(decision.p_raw),
        options=list(decision.options),
        probabilities=[float(p) for p in decision.probabilities],
        tier=int(decision.tier),
        depth=int(decision.depth),
        t_start=ns_to_time(decision.t_start_ns),
        t_end=t_end,
        t_decided=ns_to_time(decision.t_decided_ns),
        age=decision.age_s,
        changed=bool(decision.changed),
        since=ns_to_time(decision.since_ns),
        model=decision.model,
        reason=decision.reason,
        status=decision.status,
        t_asked=ns_to_time(decision.t_asked_ns),
        view=decision.view,
        value=float(decision.value),
        answers=list(decision.answers),
        t_onset=ns_to_time(decision.t_onset_ns),
        t_onset_sd_s=float(decision.t_onset_sd_s),
        contradicts=list(decision.contradicts))


def decision_from_msg(msg: DecisionMsg) -> Decision:
    """Return the decision that a message carries."""
    return Decision(
        question_id=msg.question_id, answer=msg.answer, p=msg.p, p_raw=msg.p_raw,
        options=tuple(msg.options), probabilities=tuple(msg.probabilities),
        tier=msg.tier, depth=msg.depth, t_start_ns=time_to_ns(msg.t_start),
        t_end_ns=time_to_ns(msg.t_end), t_decided_ns=time_to_ns(msg.t_decided),
        changed=msg.changed, since_ns=time_to_ns(msg.since), model=msg.model,
        frame_id=msg.header.frame_id, reason=msg.reason, status=msg.status,
        t_asked_ns=time_to_ns(msg.t_asked), t_onset_ns=time_to_ns(msg.t_onset),
        t_onset_sd_s=msg.t_onset_sd_s, contradicts=tuple(msg.contradicts),
        value=msg.value, answers=tuple(msg.answers), view=msg.view)


def event_to_msg(event: Event) -> EventMsg:
    """Return the message of an event; its header is the newest frame's."""
    msg = EventMsg(
        event_id=event.event_id, from_state=event.from_state, to_state=event.to_state,
        cause=event.cause, counter=event.counter, count=event.count,
        question_id=event.question_id, answer=event.answer, p=float(event.p),
        t_start=ns_to_time(event.t_start_ns), t_decided=ns_to_time(event.t_decided_ns),
        state_since=ns_to_time(event.state_since_ns), t_onset=ns_to_time(event.t_onset_ns),
        t_onset_sd_s=float(event.t_onset_sd_s), view=event.view)
    msg.header.stamp = ns_to_time(event.t_end_ns)
    msg.header.frame_id = event.frame_id
    return msg


def event_from_msg(msg: EventMsg) -> Event:
    """Return the event that a message carries."""
    return Event(
        event_id=msg.event_id, from_state=msg.from_state, to_state=msg.to_state, cause=msg.cause,
        counter=msg.counter, count=msg.count, question_id=msg.question_id, answer=msg.answer,
        p=msg.p, t_start_ns=time_to_ns(msg.t_start), t_end_ns=time_to_ns(msg.header.stamp),
        t_decided_ns=time_to_ns(msg.t_decided), state_since_ns=time_to_ns(msg.state_since),
        frame_id=msg.header.frame_id, t_onset_ns=time_to_ns(msg.t_onset),
        t_onset_sd_s=msg.t_onset_sd_s, view=msg.view)


def question_to_msg(question: Question) -> QuestionMsg:
    """Return the message of a question; an absent head is empty, an absent depth 0."""
    return QuestionMsg(
        id=question.id, text=question.text, kind=question.kind, options=list(question.options),
        tier=question.tier, head=question.head or "", rate_hz=question.rate_hz,
        enter=question.enter, exit=question.exit, ema=question.ema,
        depth=QuestionMsg.DEPTH_AUTO if question.depth == AUTO else question.depth or 0,
        scale=question.scale, bias=question.bias, ask=question.ask, change=question.change,
        refresh_s=question.refresh_s, when=question.when or "", needs=question.needs or "",
        min_evidence_s=question.min_evidence_s, thresholds=list(question.thresholds),
        smoothing=question.smoothing, switch_hz=question.switch_hz,
        shallow_depth=question.shallow_depth, shallow_margin=question.shallow_margin,
        shallow_scale=question.shallow_scale, shallow_bias=question.shallow_bias,
        implies=list(question.implies), unsure=question.unsure,
        view=question.view)


def question_from_msg(msg: QuestionMsg) -> Question:
    """Return a valid question. Raises QuestionError naming the field."""
    return Question(
        id=msg.id, text=msg.text, kind=msg.kind, options=tuple(msg.options), tier=msg.tier,
        head=msg.head or None, rate_hz=msg.rate_hz, enter=msg.enter, exit=msg.exit, ema=msg.ema,
        depth=AUTO if msg.depth == QuestionMsg.DEPTH_AUTO else msg.depth or None,
        scale=msg.scale, bias=msg.bias, ask=msg.ask,
        change=msg.change, refresh_s=msg.refresh_s, when=msg.when or None,
        needs=msg.needs or None, min_evidence_s=msg.min_evidence_s,
        thresholds=tuple(msg.thresholds),
        smoothing=msg.smoothing, switch_hz=msg.switch_hz,
        shallow_depth=msg.shallow_depth, shallow_margin=msg.shallow_margin,
        shallow_scale=msg.shallow_scale, shallow_bias=msg.shallow_bias,
        implies=tuple(msg.implies), unsure=msg.unsure, view=msg.view)


def view_to_msg(view: View) -> ViewMsg:
    """Return the message of a view; what is not set is 0."""
    return ViewMsg(
        name=view.name, image=view.image, transport=view.transport or "",
        region=list(view.region), sample_hz=view.sample_hz or 0.0,
        window_groups=view.window_groups or 0, pixel_budget=view.pixel_budget or 0,
        priority=float(view.priority), max_age_s=view.max_age_s or 0.0)


def view_from_msg(msg: ViewMsg) -> View:
    """Return a valid view. Raises ViewError naming the field."""
    return View(
        name=msg.name, image=msg.image, transport=msg.transport or None, region=tuple(msg.region),
        sample_hz=msg.sample_hz or None, window_groups=msg.window_groups or None,
        pixel_budget=msg.pixel_budget or None, priority=msg.priority,
        max_age_s=msg.max_age_s or None)


def check_interfaces() -> None:
    """Raise ImportError where the messages that were generated lack fields of this package's.

    They would be left out without a word: a message takes any keyword.
    """
    for message, core in _MESSAGES.items():
        names = {field.name.removesuffix("_ns") for field in dataclasses.fields(core)
                 if field.compare}
        lacking = names - _IN_HEADER - message.get_fields_and_field_types().keys()
        if lacking:
            raise ImportError(f"{message.__name__} has no {', '.join(sorted(lacking))}",
                              name=message.__module__)


def questions_to_msg(
    questions: Iterable[Question], changed_ns: int, views: Iterable[View] = ()
) -> QuestionArray:
    """Return the message of questions and views that last changed at ``changed_ns``."""
    msg = QuestionArray(questions=[question_to_msg(question) for question in questions],
                        views=[view_to_msg(view) for view in views])
    msg.header.stamp = ns_to_time(changed_ns)
    return msg


def rgb_to_msg(rgb: np.ndarray, stamp_ns: int, frame_id: str) -> Image:
    """Return an ``rgb8`` image message of a uint8 array (height, width, 3)."""
    height, width = rgb.shape[:2]
    msg = Image(height=height, width=width, encoding="rgb8", step=3 * width)
    msg.header.stamp = ns_to_time(stamp_ns)
    msg.header.frame_id = frame_id
    msg.data = array.array("B", np.ascontiguousarray(rgb).tobytes())  # bytes would be checked
    return msg
