"""Messages and dataclasses: what goes in comes out, to the nanosecond."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from vlm_decisions import decision as core
from vlm_decisions.events import TRANSITION, Event
from vlm_decisions.files.extras import missing
from vlm_decisions.kinds import KINDS, NONE
from vlm_decisions.msg import Decision as DecisionMsg
from vlm_decisions.msg import Event as EventMsg
from vlm_decisions.msg import Question as QuestionMsg
from vlm_decisions.questions import ASKS, SMOOTHINGS, TIERS, Question, QuestionError
from vlm_decisions.ros import convert
from vlm_decisions.ros.convert import (
    decision_from_msg,
    decision_to_msg,
    event_from_msg,
    event_to_msg,
    ns_to_time,
    question_from_msg,
    question_to_msg,
    questions_to_msg,
    rgb_to_msg,
    time_to_ns,
)
from vlm_decisions.sources.images import image_to_rgb

DECISION = core.Decision(  # as a score and an any_of would fill it together
    "activity", "typing", 0.5, 0.25, ("typing", "idle"), (0.5, 0.5), 2, 24,
    1_700_000_000_123_456_789, 1_700_000_000_999_999_999, 1_700_000_001_000_000_001, True,
    1_699_999_999_000_000_000, "sim_desk", "camera", "", core.OK, 1_700_000_000_500_000_001,
    "", 1.5, ("yes", "no"), 1_699_999_998_750_000_001, 0.125, ("cup",))


@pytest.mark.parametrize("stamp_ns", [
    0, 1, 999_999_999, 1_000_000_000, 1_700_000_000_123_456_789, -1, -1_500_000_000,
    2**31 * 10**9 - 1])
def test_stamps_round_trip(stamp_ns):
    stamp = ns_to_time(stamp_ns)
    assert 0 <= stamp.nanosec < 1_000_000_000 and time_to_ns(stamp) == stamp_ns


@pytest.mark.parametrize("stamp_ns", [2**31 * 10**9, -(2**31) * 10**9])
def test_stamps_out_of_range(stamp_ns):
    with pytest.raises(ValueError, match="outside"):
        ns_to_time(stamp_ns)


def test_decision_round_trips():
    msg = decision_to_msg(DECISION)
    assert decision_from_msg(msg) == DECISION
    assert msg.header.stamp == msg.t_end and msg.header.frame_id == "camera"
    assert msg.age == pytest.approx(1e-9 * 2)


def test_event_round_trips():
    event = Event("drink", "drinking", "idle", TRANSITION, "drinks", 3, "activity", "typing", 0.75,
                  1_700_000_000_123_456_789, 1_700_000_001_123_456_789, 1_700_000_001_200_000_001,
                  1_699_999_990_000_000_001, "camera", 1_700_000_000_000_000_001, 0.25)
    msg = event_to_msg(event)
    assert event_from_msg(msg) == event
    assert (msg.cause, msg.count) == (EventMsg.CAUSE_TRANSITION, 3)
    assert time_to_ns(msg.header.stamp) == event.t_end_ns and msg.header.frame_id == "camera"


def test_unknown_decision_round_trips():
    unknown = dataclasses.replace(DECISION, answer="unknown", p=float("nan"), p_raw=float("nan"),
                                  options=(), probabilities=(), reason="no image yet", depth=0,
                                  status=core.NO_IMAGE)
    back = decision_from_msg(decision_to_msg(unknown))
    assert np.isnan(back.p) and back.reason == "no image yet" and back.options == ()
    assert back.status == DecisionMsg.STATUS_NO_IMAGE


@pytest.mark.parametrize("question", [
    Question("a", "Is it?"),
    Question("b", "Which?", kind="choice", options=("x", "y"), tier="vlm", depth=3, ema=1.0),
    Question("c", "Is it?", tier="heads", head="person", rate_hz=0.5, enter=1.0, exit=0.0,
             scale=2.0, bias=-1.0),
    Question("d", "Is it?", ask="on_change", change=0.25, refresh_s=9.0, when="a and not b == x",
             needs="a", min_evidence_s=2.5),
    Question("e", "How many?", kind="score", options=("0", "1", "5"), thresholds=(0.5, 2.0)),
    Question("f", "Is there a {}?", kind="any_of", options=("cup", "pen"), bias=0.5),
    Question("g", "Is it?", smoothing="filter", switch_hz=0.75),
    Question("h", "Is it?", depth="auto", shallow_depth=4, shallow_margin=1.5, shallow_scale=2.0,
             shallow_bias=-1.0),
    Question("i", "Is it?", implies=("a", "not b"), unsure="window")])
def test_question_round_trips(question):
    assert question_from_msg(question_to_msg(question)) == question


def test_defaults_of_the_message_are_those_of_the_question():
    assert question_from_msg(QuestionMsg(id="a", text="Is it?")) == Question("a", "Is it?")


def test_constants_agree():
    assert (DecisionMsg.YES, DecisionMsg.NO) == (core.YES, core.NO)
    assert (DecisionMsg.UNCERTAIN, DecisionMsg.UNKNOWN) == (core.UNCERTAIN, core.UNKNOWN)
    assert (DecisionMsg.TIER_HEALTH, DecisionMsg.TIER_HEADS, DecisionMsg.TIER_VLM) == (
        core.TIER_HEALTH, core.TIER_HEADS, core.TIER_VLM)
    assert core.STATUSES == (
        DecisionMsg.STATUS_OK, DecisionMsg.STATUS_NOT_ASKED, DecisionMsg.STATUS_NO_IMAGE,
        DecisionMsg.STATUS_STALE, DecisionMsg.STATUS_CAMERA_UNUSABLE,
        DecisionMsg.STATUS_NOT_ENOUGH_EVIDENCE, DecisionMsg.STATUS_FAULT)
    assert (QuestionMsg.ASK_ALWAYS, QuestionMsg.ASK_ON_CHANGE) == ASKS
    assert [QuestionMsg.KIND_YES_NO, QuestionMsg.KIND_CHOICE, QuestionMsg.KIND_SCORE,
            QuestionMsg.KIND_ANY_OF] == list(KINDS)
    assert DecisionMsg.ANSWER_NONE == NONE
    assert (QuestionMsg.SMOOTHING_EMA, QuestionMsg.SMOOTHING_FILTER) == SMOOTHINGS
    assert (QuestionMsg.TIER_AUTO, QuestionMsg.TIER_HEADS, QuestionMsg.TIER_VLM) == TIERS


def test_a_message_that_is_no_question_is_refused():
    with pytest.raises(QuestionError, match="not a ROS name"):
        question_from_msg(QuestionMsg())


def test_question_array():
    msg = questions_to_msg([Question("a", "Is it?"), Question("b", "Is it?")], 5)
    assert [question.id for question in msg.questions] == ["a", "b"]
    assert time_to_ns(msg.header.stamp) == 5 and msg.header.frame_id == ""


def test_image_message_round_trips():
    rgb = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    msg = rgb_to_msg(rgb[:, ::-1], 123, "cam")
    np.testing.assert_array_equal(image_to_rgb(msg), rgb[:, ::-1])
    assert time_to_ns(msg.header.stamp) == 123 and msg.header.frame_id == "cam"


def test_messages_of_an_older_build_are_told_from_these(monkeypatch):
    convert.check_interfaces()
    fields = dict(convert.QuestionMsg.get_fields_and_field_types())
    del fields["unsure"], fields["view"]
    monkeypatch.setattr(convert.QuestionMsg, "get_fields_and_field_types", lambda: fields)
    with pytest.raises(ImportError, match="Question has no unsure, view") as caught:
        convert.check_interfaces()
    assert "older than the package: build it again" in missing(caught.value)
