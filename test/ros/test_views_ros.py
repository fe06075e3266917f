"""Several views over real DDS: topics, services, a camera that dies, views that come and go."""

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from diagnostic_msgs.msg import DiagnosticStatus
from fake_model import SeeingModel
from ros_peer import LATCHED, Waiter, result_of, system
from sensor_msgs.msg import Image
from waiting import wait_for

from vlm_decisions import views as described
from vlm_decisions.msg import Decision, Question, QuestionArray, View
from vlm_decisions.ros.convert import rgb_to_msg
from vlm_decisions.srv import AddQuestion, AddView, Ask, Correct, ListCorrections, RemoveView

ERROR, OK = DiagnosticStatus.ERROR, DiagnosticStatus.OK
QUESTIONS = """
views:
  front: {image: /front}
  back: {image: /back, max_age_s: 1.0}
questions:
  - {id: person, text: Is a person present}
  - {id: door, text: Is the door open, view: back}
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """One node, two views, and cameras of both."""
    with system(tmp_path_factory.mktemp("two"), questions=QUESTIONS) as s:
        s.peer.start_camera("/front")
        s.peer.front = s.peer._camera
        s.peer._camera = None
        s.peer.start_camera("/back")
        wait_for(lambda: newest(s.peer, "front", "person") and newest(s.peer, "back", "person"))
        yield s
        s.peer.stop_camera()  # both
        s.peer.front.join()


def newest(peer, view, question_id):
    return next((d for d in reversed(peer.decisions)
                 if (d.view, d.question_id) == (view, question_id)), None)


def known(peer, view, question_id="person"):
    return wait_for(lambda: (lambda d: d if d and d.answer == "yes" else None)(
        newest(peer, view, question_id)))


def listened(s, kind, topic, qos=LATCHED):
    got = []
    subscription = s.peer.create_subscription(kind, topic, got.append, qos)
    try:
        wait_for(lambda: got)
    finally:
        s.peer.destroy_subscription(subscription)
    return got


def test_decisions_are_of_their_view(two):
    assert known(two.peer, "front").view == "front" and known(two.peer, "back").view == "back"
    known(two.peer, "back", "door")
    assert newest(two.peer, "front", "door") is None


def test_each_view_has_topics_of_its_own(two):
    known(two.peer, "front")
    known(two.peer, "back", "door")
    assert {d.view for d in listened(two, Decision, "/decision_node/front/decisions")} == {"front"}
    one = listened(two, Decision, "/decision_node/back/decisions/door")[0]
    assert (one.view, one.question_id) == ("back", "door")
    assert one.header.frame_id == "cam"
    dark = listened(two, Decision, "/decision_node/back/decisions/camera_dark")[0]
    assert (dark.view, dark.tier) == ("back", 0)
    names = {name for name, _ in two.peer.get_topic_names_and_types()}
    assert "/decision_node/decisions/person" not in names
    assert "/decision_node/front/decisions/door" not in names


def test_pictures_of_a_view_and_of_all(two):
    known(two.peer, "front")
    known(two.peer, "back")
    alone = listened(two, Image, "/decision_node/front/overlay", 1)[0]
    both = listened(two, Image, "/decision_node/overlay", 1)[0]
    assert (alone.width, alone.height) == (64, 48)
    wait_for(lambda: listened(two, Image, "/decision_node/overlay", 1)[0].width == 128)
    assert both.height == 48


def test_views_are_announced_with_the_questions(two):
    told = listened(two, QuestionArray, "/decision_node/questions")[-1]
    assert [(view.name, view.image) for view in told.views] == [("front", "/front"),
                                                                ("back", "/back")]
    assert [question.view for question in told.questions] == ["", "back"]


def test_ask_of_a_view_and_of_each(two):
    known(two.peer, "front")
    known(two.peer, "back")
    each = two.peer.call(Ask, "ask", text="Is it so", timeout_s=5.0)
    assert each.success and [d.view for d in each.decisions] == ["front", "back"], each.message
    assert "front: yes" in each.message and "back: yes" in each.message
    one = two.peer.call(Ask, "ask", text="Is it so", view="back", timeout_s=5.0)
    assert one.success and one.decision.view == "back" and len(one.decisions) == 1
    none = two.peer.call(Ask, "ask", text="Is it so", view="top", timeout_s=5.0)
    assert not none.success and "no view 'top' (there are: front, back)" in none.message


@pytest.mark.slow
def test_diagnostics_by_view(two):
    for part in ("front image", "front camera", "back image", "back camera", "questions"):
        two.peer.status(part, OK)
    values = {pair.key: pair.value for pair in two.peer.status("runtime").values}
    assert "put off" in values["view front"] and "tick p50" in values["view back"]
    values = {pair.key for pair in two.peer.status("questions").values}
    assert values == {"front/person", "back/person", "back/door"}


def test_views_come_and_go(two):
    added = two.peer.call(AddView, "add_view",
                          view=View(name="left", image="/front", region=[0.0, 0.0, 0.5, 1.0]))
    assert added.success and added.message == "added view 'left'"
    assert known(two.peer, "left").view == "left"
    assert {d.view for d in listened(two, Decision, "/decision_node/left/decisions")} == {"left"}
    question = Question(id="cup", text="Is there a cup", view="left")
    assert two.peer.call(AddQuestion, "add_question", question=question).success
    known(two.peer, "left", "cup")
    refused = two.peer.call(RemoveView, "remove_view", name="left")
    assert not refused.success and "cup asked of it" in refused.message
    question.view = "back"
    assert two.peer.call(AddQuestion, "add_question", question=question, replace=True).success
    known(two.peer, "back", "cup")
    assert two.peer.call(RemoveView, "remove_view", name="left").success
    known(two.peer, "front")
    names = {view.name for view in two.node._session.runtime.views()}
    assert names == {"front", "back"}


@pytest.mark.parametrize("view, told", [
    (View(name="front", image="/x"), "view 'front': the name exists already"),
    (View(name="Front", image="/x"), "overlaps with 'front'"),
    (View(name="x", image="/front"), "differs in nothing from 'front'"),
    (View(name="x", image="/front", region=[0.0, 0.0, 1.2, 1.0]), "region lies outside"),
    (View(name="", image="/x"), "a view needs a name"),
    (View(name="x", image="/0x"), "view 'x': image must be the name of a topic"),
    (View(name="x", image="x" * 250), "view 'x': image: failed to resolve name: topic length"),
    (View(name="x", image="/" + "x" * 240, transport="compressed"),
     "view 'x': image: Invalid topic name: topic length"),
    (View(name="x", image="/x", sample_hz=-1.0), "sample_hz must be 0.5 to 60"),
    (View(name="x", image="/front", region=[0.5, 0.5, 0.5001, 0.6]),
     "view 'x': its region is 1x5 pixels of a 64x48 picture, thinner than a visual token"),
    *((View(name="x", image=image, transport=transport),
       "view 'x': image /decision_node/" + image.partition("/")[2].removeprefix("decision_node/")
       + " is a topic of this node itself, which would see what it publishes: give the topic of a "
       "camera")
      for image, transport in (
          ("/decision_node/overlay", ""), ("~/overlay", ""), ("~/front/overlay", ""),
          ("~/x/overlay", ""), ("~/overlay", "compressed"), ("~/overlay/compressed", ""),
          ("~/decisions", ""))),
])
def test_a_view_that_does_not_do_is_refused(two, view, told):
    reply = two.peer.call(AddView, "add_view", view=view)
    assert not reply.success and told in reply.message
    known(two.peer, "front")


def test_a_camera_that_dies_is_of_its_view_alone(tmp_path):
    with system(tmp_path, questions=QUESTIONS) as s:
        s.peer.start_camera("/front")
        known(s.peer, "front")
        wait_for(lambda: newest(s.peer, "back", "door") and newest(s.peer, "back", "door").answer
                 == "unknown")  # it is late
        assert "no image yet" in newest(s.peer, "back", "door").reason
        s.peer.status("back image", ERROR)
        s.peer.status("front image", OK)
        front, s.peer._camera = s.peer._camera, None
        s.peer.start_camera("/back")
        known(s.peer, "back", "door")
        s.peer.decisions.clear()
        s.peer.stop_camera()  # both
        front.join()
        wait_for(lambda: newest(s.peer, "back", "door") and newest(s.peer, "back", "door").answer
                 == "unknown")
        s.peer.start_camera("/front")
        known(s.peer, "front")
        assert newest(s.peer, "back", "person").answer == "unknown"


def test_views_from_a_file_of_their_own(tmp_path):
    file = tmp_path / "views.yaml"
    file.write_text(QUESTIONS.split("questions:")[0])
    with system(tmp_path, questions="- {id: person, text: Is a person present}",
                views_file=str(file)) as s:
        s.peer.start_camera("/back")
        known(s.peer, "back")


def test_a_file_of_views_that_is_wrong_is_told(tmp_path):
    file = tmp_path / "views.yaml"
    file.write_text("views:\n  a:\n  b: {region: [0, 0, 2, 1]}\n")
    with system(tmp_path, views_file=str(file)) as s:
        status = s.peer.status("model", ERROR)
        assert "views.yaml:3: view 'b': region lies outside the picture: 2" in status.message


@pytest.mark.parametrize("views, args, told", [
    ("a: {image: ~/b/overlay}, b: {image: /b}", [], "view 'a': image /decision_node/b/overlay"),
    ("a: {image: /shown}, b: {image: /b}", ["-r", "~/b/overlay:=/shown"], "view 'a': image /shown"),
    ("", ["-r", "image:=/decision_node/overlay"], ": image /decision_node/overlay"),
])
def test_views_do_not_see_what_the_node_publishes(tmp_path, views, args, told):
    questions = f"views: {{{views}}}\nquestions: []" if views else "[]"
    with system(tmp_path, questions=questions, args=["--ros-args", *args] if args else None) as s:
        message = s.peer.status("model", ERROR).message
        assert f"{told} is a topic of this node itself" in message


def test_no_view_is_called_like_something_of_the_node(two):
    def own():
        graph = two.node.get_publisher_names_and_types_by_node("decision_node", "/")
        graph += two.node.get_service_names_and_types_by_node("decision_node", "/")
        names = (name.removeprefix("/decision_node/").partition("/")[0]
                 for name, _ in graph if name.startswith("/decision_node/"))
        return set(names) - {"front", "back"}

    wait_for(lambda: own() >= set(described.NODE_NAMES))  # the graph becomes known bit by bit
    assert own() == set(described.NODE_NAMES)
    for name in own() | {"all", "window"}:
        with pytest.raises(described.ViewError, match="that name is taken"):
            described.View(name)


def test_a_private_topic_that_the_node_does_not_publish_is_a_camera(two):
    camera = View(name="own", image="~/picture")
    assert two.peer.call(AddView, "add_view", view=camera).success
    assert two.peer.call(RemoveView, "remove_view", name="own").success


def lit(value):
    """Return what makes a camera's messages with a first pixel of that value."""
    def make(rgb, stamp_ns):
        rgb[0, 0] = value
        return rgb_to_msg(rgb, stamp_ns, "cam")
    return make


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """One node whose views disagree: yes at the front, no at the back."""
    folder = tmp_path_factory.mktemp("apart")
    with system(folder, questions=QUESTIONS, fake=SeeingModel(),
                learn_dir=str(folder / "learned")) as s:
        s.peer.start_camera("/front", make=lit(255))
        s.peer.front = s.peer._camera
        s.peer.start_camera("/back", make=lit(0))
        wait_for(lambda: all((d := newest(s.peer, view, "person")) and d.answer == answer
                             for view, answer in (("front", "yes"), ("back", "no"))))
        s.waiter = Waiter(s.peer)
        yield s
        s.waiter.destroy()
        s.peer.stop_camera()
        s.peer.front.join()


@pytest.mark.parametrize("condition, view, success, told", [
    ("front.person and not back.person", "", True, "front.person yes, back.person no"),
    ("person", "front", True, "person yes"),
    ("person", "back", False, "not within 0.5 s: person no"),
    ("person and door", "front", False, "person yes, door no"),
    ("person", "", False, "several views, name one: front, back"),
    ("front.door", "", False, "'door' is not asked of view 'front' (it is of: back)"),
    ("left.person", "", False, "there is no view 'left' (there are: front, back)"),
])
def test_a_wait_is_for_the_view_that_is_meant(apart, condition, view, success, told):
    sent = apart.waiter.send(condition, view=view, timeout_s=0.5)
    _, result = result_of(sent)
    assert (result.success, told in result.message) == (success, True), result.message
    if condition.startswith("front.person"):
        assert [(one.view, one.answer) for one in result.decisions] == [
            ("front", "yes"), ("back", "no")]


def test_leaves_act_on_the_view_that_is_meant(apart):
    py_trees = pytest.importorskip("py_trees", reason="py_trees is not installed")
    from vlm_decisions.ros.behaviours import AnswerIs, AskOnce, DecisionToBlackboard

    success, failure = py_trees.common.Status.SUCCESS, py_trees.common.Status.FAILURE

    def ended(leaf, feedback):
        leaf.setup(node=apart.peer)
        def over():
            leaf.tick_once()
            return feedback in leaf.feedback_message
        try:
            wait_for(over)
            return leaf.status
        finally:
            leaf.shutdown()

    fields = {"max_age_s": 5.0}
    assert ended(AnswerIs("f", "person", view="front", **fields), "person: yes") == success
    assert ended(AnswerIs("b", "person", view="back", **fields), "person: no (") == failure
    assert ended(AnswerIs("d", "door", "no", **fields), "door: no (") == success  # of one only
    assert ended(AnswerIs("w", "person", **fields),
                 "person: it is answered of several views, name one: front, back") == failure
    assert ended(AnswerIs("l", "person", view="left", **fields),
                 "there is no view 'left' (there are: front, back)") == failure
    assert ended(AnswerIs("c", "camera_dark", "no", view="back", max_age_s=60.0),
                 "camera_dark: no (") == success
    seen = DecisionToBlackboard("s", "person", key="seen", view="front", **fields)
    assert ended(seen, "person: yes") == success
    assert seen.blackboard.get("seen").view == "front"
    assert ended(AskOnce("a", "Is it so", view="front"), "yes") == success
    assert ended(AskOnce("n", "Is it so"), "several views, name one: front, back") == failure


def test_a_correction_is_of_its_view(apart):
    reply = apart.peer.call(Correct, "correct", question_id="person", answer="no")
    assert not reply.success and "several views, name one: front, back" in reply.message
    for view, said in (("front", "yes"), ("back", "no")):
        reply = apart.peer.call(Correct, "correct", question_id="person", answer="no", view=view)
        assert reply.success and reply.correction.said == said, reply.message
    listed = apart.peer.call(ListCorrections, "list_corrections", view="back")
    assert [one.view for one in listed.corrections] == ["back"]
    assert len(apart.peer.call(ListCorrections, "list_corrections").corrections) == 2


def test_names_of_one_topic_are_one_camera(tmp_path):
    views = """
views:
  first: {}
  again: {image: /robot/cam, region: [0, 0, 0.5, 1], transport: raw}
  named: {image: image, region: [0.5, 0, 1, 1]}
questions: [{id: person, text: Is a person present}]
"""
    with system(tmp_path, questions=views, args=["--ros-args", "-r", "image:=/robot/cam"]) as s:
        s.peer.start_camera("/robot/cam")
        for view in ("first", "again", "named"):
            known(s.peer, view)
        assert s.node._cameras.topics == ["/robot/cam"]
        assert s.peer.count_subscribers("/robot/cam") == 1
        state = s.node.snapshot()
        assert state.runtime.frames <= state.views["first"].received + 1
        # Another name of the same topic that differs in nothing else is no other view.
        reply = s.peer.call(AddView, "add_view", view=View(name="twin", image="/robot/cam"))
        assert not reply.success and "differs in nothing from 'first'" in reply.message
        reply = s.peer.call(AddView, "add_view",
                            view=View(name="slow", image="/robot/cam", sample_hz=2.0))
        assert reply.success and s.node._cameras.topics == ["/robot/cam"]
        told = listened(s, QuestionArray, "/decision_node/questions")[-1]
        assert [view.image for view in told.views] == ["", "/robot/cam", "image", "/robot/cam"]
