"""Behaviour-tree leaves and the example tree, over real DDS."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

py_trees = pytest.importorskip("py_trees", reason="py_trees is not installed")
pytest.importorskip("rclpy", reason="rclpy is not installed")

from fake_model import ScriptedModel
from py_trees.common import Status
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from ros_peer import plain_node, system
from std_msgs.msg import String
from waiting import wait_for

from vlm_decisions.decision import probability
from vlm_decisions.msg import Decision
from vlm_decisions.ros.behaviours import AnswerIs, AskOnce, DecisionToBlackboard
from vlm_decisions.ros.convert import ns_to_time

LATCHED = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
QUESTIONS = """
- {id: person, text: "Is a person present?", ema: 1.0}
- {id: cup, text: "Is there a cup?", ema: 1.0}
- {id: holding_cup, text: "Is the person holding a cup?", ema: 1.0}
- {id: approaching, text: "Is the person approaching?", ema: 1.0}
"""


@pytest.fixture
def robot():
    """Return a node with a publisher of decisions on `person`, in a context of its own."""
    with plain_node("robot") as node:
        publisher = node.create_publisher(Decision, "/decision_node/decisions/person", LATCHED)

        def say(answer: str, p: float = 0.9, age_s: float = 0.0, **fields) -> None:
            now_ns = node.get_clock().now().nanoseconds
            publisher.publish(Decision(question_id="person", answer=answer, p=p,
                                       t_end=ns_to_time(now_ns - round(age_s * 1e9)), **fields))

        yield SimpleNamespace(node=node, say=say)


def ticked(leaf, feedback: str = "") -> Status:
    """Tick until the feedback says so (a message has arrived); return the status."""
    def tick():
        leaf.tick_once()
        return feedback in leaf.feedback_message
    wait_for(tick)
    return leaf.status


def test_a_label_of_an_any_of_is_judged_by_itself(robot):
    cup = AnswerIs("cup?", "person", label="cup", min_p=0.8, max_age_s=5.0)
    no_pen = AnswerIs("no pen?", "person", "no", label="pen", min_p=0.8, max_age_s=5.0)
    hat = AnswerIs("hat?", "person", label="hat", max_age_s=5.0)
    whole = AnswerIs("both?", "person", "cup, phone", min_p=0.8, max_age_s=5.0)
    for leaf in (cup, no_pen, hat, whole):
        leaf.setup(node=robot.node)
    told = {"options": ["cup", "pen", "phone"]}
    robot.say("uncertain", 0.6, **told, probabilities=[0.9, 0.1, 0.6],
              answers=["yes", "no", "uncertain"])
    assert ticked(cup, "person[cup]: yes (0.90)") == Status.SUCCESS
    assert ticked(no_pen, "person[pen]: no (0.90)") == Status.SUCCESS
    assert ticked(hat, "no label 'hat' (its labels: cup, pen, phone)") == Status.FAILURE
    assert ticked(whole, "uncertain") == Status.FAILURE
    robot.say("cup, phone", 0.7, **told, probabilities=[0.95, 0.1, 0.7],
              answers=["yes", "no", "yes"])
    assert ticked(whole, "cup, phone (0.70)") == Status.FAILURE  # not sure enough
    assert ticked(cup, "(0.95)") == Status.SUCCESS
    robot.say("yes")
    assert ticked(cup, "its labels: none") == Status.FAILURE  # a yes/no question


def test_a_condition_judges_answer_probability_and_age(robot):
    leaf = AnswerIs("person?", "person", min_p=0.8, max_age_s=5.0)
    leaf.setup(node=robot.node)
    assert ticked(leaf, "no decision yet") == Status.FAILURE
    robot.say("yes", 0.9)
    assert ticked(leaf, "yes (0.90)") == Status.SUCCESS
    robot.say("yes", 0.7)
    assert ticked(leaf, "yes (0.70)") == Status.FAILURE  # not sure enough
    robot.say("no", 0.05)
    assert ticked(leaf, "no (0.95)") == Status.FAILURE
    robot.say("yes", 0.9, age_s=6.0)
    assert ticked(leaf, "stale: the evidence is 6.") == Status.FAILURE
    robot.say("unknown", math.nan, reason="no image for 2.1 s")
    assert ticked(leaf, "unknown: no image for 2.1 s") == Status.FAILURE
    leaf.shutdown()


def test_a_decision_grows_stale_by_itself(robot):
    leaf = AnswerIs("person?", "person", max_age_s=0.3, when_lapsed=Status.RUNNING)
    leaf.setup(node=robot.node)
    robot.say("yes")
    assert ticked(leaf, "yes") == Status.SUCCESS
    assert ticked(leaf, "stale") == Status.RUNNING  # nothing more was published
    leaf.shutdown()


def test_no_is_an_answer_with_a_probability_of_its_own(robot):
    leaf = AnswerIs("nobody?", "person", "no", min_p=0.9, max_age_s=5.0)
    leaf.setup(node=robot.node)
    robot.say("no", 0.05)
    assert ticked(leaf, "no (0.95)") == Status.SUCCESS
    robot.say("no", 0.2)
    assert ticked(leaf, "no (0.80)") == Status.FAILURE
    choice = Decision(answer="no", p=0.7, options=["no", "maybe"])
    assert probability(choice) == 0.7
    assert math.isnan(probability(Decision(answer="uncertain", p=0.5)))
    leaf.shutdown()


def test_a_leaf_set_up_late_gets_the_newest_decision(robot):
    robot.say("yes", 0.8)
    leaf = AnswerIs("person?", "person", max_age_s=30.0)
    leaf.setup(node=robot.node)
    assert ticked(leaf, "yes (0.80)") == Status.SUCCESS
    leaf.shutdown()


def test_the_blackboard_never_holds_an_old_decision(robot):
    leaf = DecisionToBlackboard("look", "person", key="seen", max_age_s=0.3)
    leaf.setup(node=robot.node)
    reader = py_trees.blackboard.Client(name="reader")
    reader.register_key(key="seen", access=py_trees.common.Access.READ)
    assert ticked(leaf, "no decision yet") == Status.FAILURE and reader.seen is None
    robot.say("yes", 0.9)
    assert ticked(leaf, "yes") == Status.SUCCESS and reader.seen.p == 0.9
    assert ticked(leaf, "stale") == Status.FAILURE and reader.seen is None
    leaf.shutdown()


BAD = [
    (lambda: AnswerIs("x", ""), "no question is named"),
    (lambda: AnswerIs("x", "person", ""), "no answer is named for 'person'"),
    (lambda: AnswerIs("x", "person", []), "no answer is named for 'person'"),
    (lambda: AnswerIs("x", "person", "unknown"), "what when_lapsed is for"),
    (lambda: AnswerIs("x", "person", min_p=1.5), "min_p must be 0 to 1, not 1.5"),
    (lambda: AnswerIs("x", "person", max_age_s=0.0), "max_age_s must be above 0"),
    (lambda: AnswerIs("x", "person", max_age_s=math.nan), "max_age_s must be above 0"),
    (lambda: AnswerIs("x", "person", when_lapsed=Status.SUCCESS), "must be FAILURE or RUNNING"),
    (lambda: AskOnce("x", " "), "the text is empty"),
    (lambda: AskOnce("x", "\u200b"), "the text is empty"),
    (lambda: AskOnce("x", "Open?", timeout_s=0.0), "timeout_s must be above 0"),
    (lambda: AskOnce("x", "Open?", "maybe"), "cannot be answered 'maybe': it never"),
    (lambda: AskOnce("x", "Is it {}?", "red", options=["cup"], kind="any_of"), "no label 'red'"),
    (lambda: AskOnce("x", "What?", options=["a", "b"], kind="rank"), "kind must be one of"),
    (lambda: AskOnce("x", "What?", "red", options=["green", "blue"]), "its answers: green, blue"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_settings_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_answers_are_compared_as_the_node_gives_them():
    """It composes letters and leaves blanks at the ends out."""
    assert AnswerIs("x", "place", ["cafe\u0301", "bar "]).answers == ("caf\u00e9", "bar")
    leaf = AskOnce("x", "Where?", "cafe\u0301", options=["caf\u00e9", "bar"])
    assert leaf.answers == ("caf\u00e9",) and leaf.options == ["caf\u00e9", "bar"]


def test_setup_without_a_node_says_what_is_missing():
    for leaf in (AnswerIs("a leaf", "person"), AskOnce("a leaf", "Open?"),
                 DecisionToBlackboard("a leaf", "person")):
        with pytest.raises(KeyError, match="'a leaf' needs the ROS node"):
            leaf.setup()


def test_asking_once_over_the_service(tmp_path):
    model = ScriptedModel()
    model.true = {"Is the door open?"}
    with system(tmp_path, questions=QUESTIONS, fake=model) as s:
        s.peer.start_camera()
        s.peer.answered("person", "no")
        leaf = AskOnce("door?", "Is the door open?", key="door")
        leaf.setup(node=s.peer)
        leaf.tick_once()
        assert leaf.status == Status.RUNNING
        assert ticked(leaf, "yes") == Status.SUCCESS
        assert leaf.decision.answer == "yes" and leaf.decision.p > 0.9
        model.true = set()
        leaf.tick_once()  # entered again: asked again
        assert leaf.status == Status.RUNNING and leaf.decision is None
        assert ticked(leaf, "no") == Status.FAILURE
        leaf.shutdown()


def test_asking_where_nobody_answers(robot):
    leaf = AskOnce("door?", "Is the door open?", timeout_s=0.3)
    leaf.setup(node=robot.node)
    leaf.tick_once()
    assert leaf.status == Status.RUNNING
    assert ticked(leaf, "/decision_node/ask is not there") == Status.FAILURE
    leaf.tick_once()
    leaf.stop(Status.INVALID)  # interrupted by something more important
    leaf.shutdown()


def example():
    path = Path(__file__).resolve().parents[2] / "examples" / "desk_tree.py"
    spec = importlib.util.spec_from_file_location("desk_tree", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_example_tree_reacts_to_the_desk(tmp_path):
    desk_tree = example()
    person, cup = "Is a person present?", "Is there a cup?"
    holding, approaching = "Is the person holding a cup?", "Is the person approaching?"
    model = ScriptedModel()
    said: list[str] = []
    with system(tmp_path, questions=QUESTIONS, fake=model) as s:
        s.peer.create_subscription(String, "robot_says", lambda m: said.append(m.data), 10)
        tree = desk_tree.make_tree(max_age_s=2.0)
        tree.setup(node=s.peer)
        s.peer.start_camera()

        def tree_says(text: str) -> None:
            def tick() -> bool:
                tree.tick()
                return tree.tip().name == text
            wait_for(tick, 20.0)

        tree_says(desk_tree.WAIT)
        model.true = {person, cup}
        tree_says(desk_tree.REFILL)
        model.true = {person, cup, holding}
        tree_says(desk_tree.WAIT)  # the cup is in the hand
        model.true = {person, cup, approaching}
        tree_says(desk_tree.PAUSE)
        model.true = {person, cup}
        tree_says(desk_tree.REFILL)
        s.peer.stop_camera()
        tree_says(desk_tree.WAIT)  # nothing is known any more
        wait_for(lambda: said[-3:] == [desk_tree.PAUSE, desk_tree.REFILL, desk_tree.WAIT])
        tree.shutdown()
