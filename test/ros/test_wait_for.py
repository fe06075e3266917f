"""The action ~/wait_for and the leaf that uses it, over real DDS."""

import math
import threading

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from action_msgs.msg import GoalStatus
from fake_model import ScriptedModel
from rclpy.action import ActionClient
from ros_peer import Waiter, result_of, system
from waiting import wait_for

from vlm_decisions.msg import Question
from vlm_decisions.ros.wait_server import MAX_WAITS
from vlm_decisions.srv import AddQuestion, RemoveQuestion

SUCCEEDED, ABORTED = GoalStatus.STATUS_SUCCEEDED, GoalStatus.STATUS_ABORTED
QUESTIONS = """
- {id: person, text: "Is a person present?", ema: 1.0}
- {id: cup, text: "Is there a cup?", ema: 1.0}
"""


@pytest.fixture
def desk(tmp_path):
    """Run a node that sees nobody, and a client that waits."""
    model = ScriptedModel()
    with system(tmp_path, questions=QUESTIONS, fake=model) as s:
        s.peer.start_camera()
        s.peer.answered("person", "no")
        s.peer.answered("cup", "no")
        s.waiter = Waiter(s.peer)
        yield s
        s.waiter.destroy()


def test_a_wait_ends_when_the_condition_has_held_long_enough(desk):
    sent = desk.waiter.send("person and not cup", for_s=0.5)
    wait_for(lambda: desk.waiter.feedback)
    assert not sent[1].done() and not desk.waiter.feedback[-1].holds
    desk.model.true = {"Is a person present?"}
    status, result = result_of(sent)
    assert status == SUCCEEDED and result.success
    assert result.message == "held: person yes, cup no" and result.waited_s > 0.5
    assert [d.question_id for d in result.decisions] == ["person", "cup"]
    held = [told for told in desk.waiter.feedback if told.holds]
    told = held[-1] if held else desk.waiter.feedback[-1]
    assert list(told.names) == ["person", "cup"] and 0.0 < told.age < 2.0
    assert list(told.p)[1] == pytest.approx(1 / (1 + math.exp(-4.0)))
    # What holds already is over at once.
    assert result_of(desk.waiter.send("person"))[1].success


@pytest.mark.parametrize("fields, why", [
    ({"condition": "nobody"}, "there is no question 'nobody' (there are: person, cup"),
    ({"condition": "person and"}, "cannot be read"),
    ({"condition": ""}, "must be a condition"),
    ({"condition": "person", "for_s": -1.0}, "for_s must be seconds from 0 on, not -1"),
    ({"condition": "person", "timeout_s": math.nan}, "timeout_s must be seconds from 0 on"),
    ({"condition": "person", "view": "door"}, "there is no view 'door'"),
])
def test_bad_goals_are_refused_by_name(desk, fields, why):
    status, result = result_of(desk.waiter.send(**fields))
    assert status == ABORTED and not result.success and why in result.message


def test_a_timeout_and_a_cancel_end_the_wait(desk):
    status, result = result_of(desk.waiter.send("person", timeout_s=0.3))
    assert status == ABORTED and result.message == "not within 0.3 s: person no"
    sent = desk.waiter.send("person")
    sent[0].cancel_goal_async()
    status, result = result_of(sent)
    assert status == GoalStatus.STATUS_CANCELED and result.message == "cancelled"


def test_what_is_taken_away_ends_the_waits_on_it_alone(desk):
    person, cup = desk.waiter.send("person or cup"), desk.waiter.send("cup")
    assert desk.peer.call(RemoveQuestion, "remove_question", question_id="person").success
    status, result = result_of(person)
    assert status == ABORTED and "there is no question 'person'" in result.message
    # Replaced by a choice, it cannot be waited for as it was.
    choice = Question(id="cup", text="What?", kind="choice", options=["cup", "mug"])
    assert desk.peer.call(AddQuestion, "add_question", question=choice, replace=True).success
    assert "'cup' is a choice" in result_of(cup)[1].message


def test_what_a_question_answered_before_it_was_changed_does_not_count(desk):
    desk.model.true = {"Is a person present?"}
    desk.peer.answered("person", "yes")
    other = Question(id="person", text="Is a dog present?")
    assert desk.peer.call(AddQuestion, "add_question", question=other, replace=True).success
    status, result = result_of(desk.waiter.send("person", timeout_s=0.5))
    assert status == ABORTED and result.message == "not within 0.5 s: person no"


def test_deactivation_ends_every_wait_and_refuses_more(desk):
    sent = desk.waiter.send("person")
    assert desk.peer.transition("deactivate")
    status, result = result_of(sent)
    assert status == ABORTED and result.message == "the node was deactivated"
    assert result_of(desk.waiter.send("person"))[1].message == "the node is not active"
    assert desk.peer.transition("activate")
    desk.model.true = {"Is a person present?"}
    assert result_of(desk.waiter.send("person"))[1].success


@pytest.mark.slow
def test_a_hundred_wait_at_once_without_threads(desk):
    first = result_of(desk.waiter.send("person", timeout_s=0.1))  # what one wait needs is there
    assert first[0] == ABORTED
    before = threading.active_count()
    sent = [desk.waiter.send("person") for _ in range(100)]
    assert threading.active_count() == before
    desk.model.true = {"Is a person present?"}
    assert all(result_of(one)[1].success for one in sent)


def test_more_than_can_wait_are_refused(desk, monkeypatch):
    monkeypatch.setattr("vlm_decisions.ros.wait_server.MAX_WAITS", 2)
    assert MAX_WAITS >= 100
    waiting = [desk.waiter.send("person") for _ in range(2)]
    assert result_of(desk.waiter.send("person"))[1].message == "2 goals are waiting already"
    waiting[0][0].cancel_goal_async()
    result_of(waiting[0])
    assert "not within" in result_of(desk.waiter.send("person", timeout_s=0.1))[1].message


def test_a_leaf_waits_and_is_cancelled_where_it_is_interrupted(desk, monkeypatch):
    py_trees = pytest.importorskip("py_trees", reason="py_trees is not installed")
    from vlm_decisions.ros import behaviours
    from vlm_decisions.ros.behaviours import WaitUntil

    made_in = []

    def make(*args):
        made_in.append(threading.current_thread())
        return ActionClient(*args)

    monkeypatch.setattr(behaviours, "ActionClient", make)
    running, failure = py_trees.common.Status.RUNNING, py_trees.common.Status.FAILURE

    def over(leaf):
        leaf.tick_once()
        return leaf.status != running

    leaf = WaitUntil("seated", "person", for_s=0.2)
    leaf.setup(node=desk.peer)
    wait_for(lambda: over(leaf) or "person no" in leaf.feedback_message)
    assert leaf.status == running
    leaf.stop(py_trees.common.Status.INVALID)
    wait_for(lambda: not desk.node._waits._goals)
    desk.model.true = {"Is a person present?"}
    wait_for(lambda: over(leaf))
    assert leaf.status == py_trees.common.Status.SUCCESS and leaf.result.success
    bad = WaitUntil("x", "nobody")
    bad.setup(node=desk.peer)
    wait_for(lambda: over(bad))
    assert bad.status == failure and "no question 'nobody'" in bad.feedback_message
    gone = WaitUntil("x", "person", timeout_s=0.2, server="/nowhere")
    gone.setup(node=desk.peer)
    wait_for(lambda: over(gone))
    assert gone.status == failure and gone.feedback_message == "/nowhere/wait_for is not there"
    for one in (leaf, bad, gone):
        one.shutdown()
    assert len(made_in) == 3 and threading.current_thread() not in made_in
    with pytest.raises(ValueError, match="cannot be read"):
        WaitUntil("x", "person and")
    with pytest.raises(ValueError, match="for_s must be seconds from 0 on, not -1"):
        WaitUntil("x", "person", for_s=-1)
