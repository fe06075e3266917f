"""The node over real DDS, with one executor thread and a model that is not there."""

import array
import threading
import time

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from diagnostic_msgs.msg import DiagnosticStatus
from fake_model import FakeModel, FakeStream
from rcl_interfaces.msg import Parameter
from rcl_interfaces.srv import GetParameters, ListParameters, SetParameters
from rclpy.qos import QoSReliabilityPolicy, qos_profile_sensor_data
from ros_peer import LATCHED, images_of, system  # sets the environment for rclpy
from sensor_msgs.msg import CompressedImage, Image
from waiting import wait_for

from vlm_decisions.msg import Decision, Event, Question, QuestionArray
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.ros.convert import rgb_to_msg, time_to_ns
from vlm_decisions.ros.session import Session
from vlm_decisions.runtime.log import read_log
from vlm_decisions.runtime.throttle import Throttle
from vlm_decisions.srv import AddQuestion, Ask, ListQuestions, RemoveQuestion, SaveQuestions

ERROR, OK = DiagnosticStatus.ERROR, DiagnosticStatus.OK


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """One running node for the tests that only look at it."""
    with system(tmp_path_factory.mktemp("live")) as s:
        s.peer.start_camera()
        s.peer.answered()
        yield s


def test_decision_carries_evidence_and_age(live):
    decision = live.peer.answered()
    assert decision.tier == Decision.TIER_VLM and decision.depth == 4
    assert decision.p == pytest.approx(0.8808, abs=1e-4) and decision.model == "fake"
    assert decision.header.frame_id == "cam" and decision.header.stamp == decision.t_end
    assert time_to_ns(decision.t_end) in live.peer.stamps
    assert time_to_ns(decision.t_start) in live.peer.stamps
    age_s = (time_to_ns(decision.t_decided) - time_to_ns(decision.t_end)) / 1e9
    assert decision.age == pytest.approx(age_s) and 0 < decision.age <= 2.0  # max_age_s
    assert time_to_ns(decision.since) <= time_to_ns(decision.t_end)


def test_choice_and_health_are_decisions_too(live):
    choice = wait_for(lambda: live.peer.newest("activity"))
    assert list(choice.options) == ["typing", "idle", "away"]
    assert sum(choice.probabilities) == pytest.approx(1)
    assert choice.p == max(choice.probabilities)
    for name in ("dark", "bright", "blurred", "frozen", "occluded"):
        assert wait_for(lambda n=name: live.peer.newest(f"camera_{n}")).tier == 0


def test_late_subscriber_gets_the_last_decision_and_the_questions(live):
    one, sets = [], []
    live.peer.stop_camera()
    # The evidence is a little older than the last image: "no answer for" may come first.
    wait_for(lambda: "no image for" in live.peer.newest("person").reason)
    a = live.peer.create_subscription(Decision, "/decision_node/decisions/person", one.append,
                                      LATCHED)
    b = live.peer.create_subscription(QuestionArray, "/decision_node/questions", sets.append,
                                      LATCHED)
    wait_for(lambda: one and sets, 3)
    assert one[0].question_id == "person" and one[0].answer == "unknown"
    assert np.isnan(one[0].p) and "no image for" in one[0].reason
    assert time_to_ns(one[0].t_end) in live.peer.stamps  # enough to judge it by
    assert one[0].age == pytest.approx(
        (time_to_ns(one[0].t_decided) - time_to_ns(one[0].t_end)) / 1e9) and one[0].age > 1
    assert [question.id for question in sets[0].questions] == ["person", "activity"]
    live.peer.destroy_subscription(a)
    live.peer.destroy_subscription(b)
    live.peer.start_camera()
    live.peer.answered()


@pytest.mark.slow
def test_diagnostics_when_all_is_well(live):
    for part in ("model", "image", "camera", "runtime", "questions"):
        # What was refused or missing before is soon no longer new.
        live.peer.status(part, OK)
    values = {pair.key: pair.value for pair in live.peer.status("model").values}
    assert values["model"] == "fake" and values["device"] == "cpu" and values["state"] == "active"
    rate = {pair.key: pair.value for pair in live.peer.status("image").values}["rate"]
    assert 10 < float(rate.split()[0]) < 30


def test_overlay_only_while_subscribed(live):
    publisher = live.node._outlets._overlay
    assert publisher.get_subscription_count() == 0
    drawn = []
    subscription = live.peer.create_subscription(Image, "/decision_node/overlay", drawn.append, 2)
    image = wait_for(lambda: drawn and drawn[-1])
    assert (image.width, image.height, image.encoding) == (64, 48, "rgb8")
    assert image.header.frame_id == "cam" and time_to_ns(image.header.stamp) in live.peer.stamps
    live.peer.destroy_subscription(subscription)
    wait_for(lambda: publisher.get_subscription_count() == 0)
    count = len(drawn)
    live.peer.more_decisions(10)
    assert len(drawn) <= count + 1


def test_ask_about_now(live):
    response = live.peer.call(Ask, "ask", text="Is it raining?", timeout_s=5.0)
    assert response.success and response.decision.answer == "yes"
    assert response.decision.p == response.decision.p_raw
    assert "yes" in response.message
    response = live.peer.call(Ask, "ask", text="Which?", options=["a", "b"], timeout_s=5.0)
    assert response.success and response.decision.answer == "a"
    # It leaves no trace among those that stand.
    assert len(live.peer.call(ListQuestions, "list_questions").questions) == 2


def test_scores_and_labels_come_and_go_by_the_services(live, tmp_path):
    peer = live.peer
    score = Question(id="people", text="How many?", kind="score", options=["0", "1", "5"],
                     thresholds=[0.5, 1.5], ema=1.0)
    labels = Question(id="on_desk", text="Is there a {}?", kind="any_of", options=["cup", "pen"],
                      ema=1.0)
    for question in (score, labels):
        response = peer.call(AddQuestion, "add_question", question=question)
        assert response.success and response.tokens > 0, response.message
    d = wait_for(lambda: peer.newest("people"))
    wait_for(lambda: peer.newest("people").answer != "unknown")
    d = peer.newest("people")
    p = np.exp([2.0, 1.0, 0.0]) / np.exp([2.0, 1.0, 0.0]).sum()
    assert list(d.probabilities) == pytest.approx(list(p))
    assert d.value == pytest.approx(p[1] + 5 * p[2]) and d.answer == "1"
    d = wait_for(lambda: (one := peer.newest("on_desk")) and one.answer != "unknown" and one)
    assert d.answer == "cup" and list(d.answers) == ["yes", "no"] and list(d.options) == [
        "cup", "pen"]
    assert list(d.probabilities) == pytest.approx([0.8808, 0.1192], abs=1e-4)
    assert d.p == pytest.approx(0.8808, abs=1e-4) and np.isnan(d.value)
    guarded = Question(id="full", text="Is it full?", needs="on_desk[pen]")
    assert peer.call(AddQuestion, "add_question", question=guarded).success
    full = wait_for(lambda: (one := peer.newest("full")) and one.status == "not_asked" and one)
    assert full.reason == "it needs 'on_desk[pen]', which is no"
    kept = peer.call(RemoveQuestion, "remove_question", question_id="on_desk")
    assert not kept.success and "in a condition of full" in kept.message
    listed = {q.id: q for q in peer.call(ListQuestions, "list_questions").questions}
    assert list(listed["people"].thresholds) == [0.5, 1.5] and listed["people"].kind == "score"
    assert listed["on_desk"].kind == "any_of" and list(listed["on_desk"].options) == ["cup", "pen"]
    path = str(tmp_path / "saved.yaml")
    assert peer.call(SaveQuestions, "save_questions", path=path).success
    book = QuestionBook.load(path)
    assert book.get("people").thresholds == (0.5, 1.5) and book.get("on_desk").kind == "any_of"
    assert peer.set_parameters(questions__on_desk__enter=0.95)[0].successful
    wait_for(lambda: list(peer.newest("on_desk").answers) == ["yes", "no"])  # held
    for name in ("full", "people", "on_desk"):
        assert peer.call(RemoveQuestion, "remove_question", question_id=name).success


def test_scores_and_labels_are_asked_once(live):
    response = live.peer.call(Ask, "ask", text="How many?", kind="score",
                              options=["1", "2"], timeout_s=5.0)
    assert response.success and response.decision.answer == "1"
    assert response.message == "1 (1.12) (p=0.881)"
    response = live.peer.call(Ask, "ask", text="Is there a {}?", kind="any_of",
                              options=["cup", "pen"], timeout_s=5.0)
    assert response.success and response.decision.answer == "cup"
    assert list(response.decision.answers) == ["yes", "no"]
    response = live.peer.call(Ask, "ask", text="?", kind="any_of", options=["a, b"])
    assert not response.success and "cannot hold a comma" in response.message
    response = live.peer.call(Ask, "ask", text="?", kind="scores", options=["a", "b"])
    assert not response.success and "kind must be one of yes_no, choice" in response.message


@pytest.mark.parametrize(("fields", "reason"), [
    ({"text": ""}, "text is empty"), ({"text": "x" * 501}, "501 characters"),
    ({"text": "a?", "options": ["one"]}, "options"),
    ({"text": "a?", "timeout_s": 0.0}, "timeout_s"),
    ({"text": "a?", "timeout_s": float("nan")}, "timeout_s"),
    ({"text": "a fault?"}, "at fault")])
def test_bad_asks_say_what_is_wrong(live, fields, reason):
    response = live.peer.call(Ask, "ask", **fields)
    assert not response.success and reason in response.message


def test_a_question_is_checked_and_its_cost_told_before_it_is_added(live):
    peer, standing = live.peer, [q.id for q in live.node.questions()]
    snow = Question(id="snow", text="Is it snowing?")
    peer.answered()  # something was asked, so that milliseconds are known

    def check(**fields):
        return peer.call(AddQuestion, "add_question", check_only=True, **fields)

    once, long = check(question=snow), check(question=Question(id="long", text="snow " * 50))
    assert once.success and once.message == "'snow' can be added"
    assert long.tokens > once.tokens > 0 and long.cost_ms > once.cost_ms > 0
    person = Question(id="person", text="Who is it?")
    assert not check(question=person).success and check(question=person, replace=True).success
    refused = check(question=Question(id="deep", text="Is it?", depth=60))
    assert not refused.success and "depth" in refused.message
    assert [q.id for q in live.node.questions()] == standing


def test_question_comes_and_goes(live):
    peer = live.peer
    question = Question(id="rain", text="Is it raining?", rate_hz=4.0)
    response = peer.call(AddQuestion, "add_question", question=question)
    assert response.success and response.message == "added 'rain'" and response.tokens > 0
    peer.answered("rain")
    assert peer.set_parameters(questions__rain__rate_hz=2.0)[0].successful
    again = peer.call(AddQuestion, "add_question", question=question)
    assert not again.success and "exists already" in again.message
    question.enter, question.text = 0.95, "Is it pouring?"
    replaced = peer.call(AddQuestion, "add_question", question=question, replace=True)
    assert replaced.success, replaced.message
    assert live.node.get_parameter("questions.rain.enter").value == 0.95
    assert live.node.get_parameter("questions.rain.rate_hz").value == 4.0
    wait_for(lambda: "Is it pouring?" in live.model.asked)
    peer.answered("rain", "uncertain")
    assert peer.call(RemoveQuestion, "remove_question", question_id="rain").success
    assert not live.node.has_parameter("questions.rain.enter")
    peer.more_decisions(4)  # what was under way has come
    count = sum(d.question_id == "rain" for d in peer.decisions)
    peer.more_decisions(10)
    assert sum(d.question_id == "rain" for d in peer.decisions) == count
    gone = peer.call(RemoveQuestion, "remove_question", question_id="rain")
    assert not gone.success and "no question 'rain'" in gone.message


@pytest.mark.parametrize(("fields", "reason"), [
    ({"id": "2bad"}, "not a ROS name"), ({"id": "camera_dark"}, "camera_"),
    ({"id": "a", "text": " "}, "text is empty"), ({"id": "a", "enter": 0.2}, "enter"),
    ({"id": "a", "rate_hz": float("nan")}, "rate_hz"), ({"id": "a", "ema": 0.0}, "ema"),
    ({"id": "a", "kind": "maybe"}, "kind"), ({"id": "a", "options": ["x", "y"]}, "options"),
    ({"id": "a", "kind": "choice", "options": ["x", "X"]}, "twice"),
    ({"id": "a", "tier": "best"}, "tier"), ({"id": "a", "ask": "often"}, "ask"),
    ({"id": "a", "when": "person and nobody"}, "no question 'nobody'"),
    ({"id": "a", "needs": "nobody"}, "no question 'nobody'"),
    ({"id": "a", "implies": ["person", "nobody"]}, "implies there is no question 'nobody'"),
    ({"id": "a", "smoothing": "kalman"}, "smoothing must be one of ema, filter"),
    ({"id": "a", "switch_hz": 99.0}, "switch_hz must be above 0 and at most 10"),
    ({"id": "a", "unsure": "often"}, "unsure there is no view 'often' (there are: window)"),
    ({"id": "a", "depth": Question.DEPTH_AUTO, "shallow_depth": 60}, "shallow_depth 60"),
    ({"id": "a", "shallow_margin": -1.0}, "shallow_margin"),
    ({"id": "a", "min_evidence_s": -1.0}, "min_evidence_s")])
def test_bad_questions_are_refused_by_field(live, fields, reason):
    question = Question(**{"text": "Is it so?", **fields})
    response = live.peer.call(AddQuestion, "add_question", question=question)
    assert not response.success and reason in response.message
    assert live.peer.call(ListQuestions, "list_questions").message == "2 questions"


def test_what_is_worth_asking_goes_through_the_services(live):
    peer = live.peer
    question = Question(
        id="hat", text="Is it a hat?", ask="on_change", change=0.5, refresh_s=60.0, when="person",
        needs="person", min_evidence_s=0.5, smoothing="filter", switch_hz=0.2, implies=["person"],
        unsure=Question.UNSURE_WINDOW)
    response = peer.call(AddQuestion, "add_question", question=question)
    assert response.success, response.message
    listed = {q.id: q for q in peer.call(ListQuestions, "list_questions").questions}
    assert listed["hat"] == question
    answered = peer.answered("hat")
    assert answered.status == Decision.STATUS_OK and not answered.contradicts
    wait_for(lambda: any(d.question_id == "hat" and d.model.endswith("+reuse")
                         for d in peer.decisions))
    kept = peer.call(RemoveQuestion, "remove_question", question_id="person")
    assert not kept.success and "it is in a condition of hat" in kept.message
    assert peer.call(RemoveQuestion, "remove_question", question_id="hat").success


def test_save_questions(live, tmp_path):
    path = tmp_path / "kept.yaml"
    response = live.peer.call(SaveQuestions, "save_questions", path=str(path))
    assert response.success and response.path == str(path)
    assert [q.id for q in QuestionBook.load(path)] == ["person", "activity"]
    assert live.peer.call(SaveQuestions, "save_questions").path == str(live.file)
    other = tmp_path / "other.yaml"
    other.write_text("controller: {gains: [1, 2]}\n")
    for bad, reason in (("kept.yaml", "absolute"), (str(tmp_path / "x.txt"), "yaml"),
                        (str(tmp_path / "no" / "x.yaml"), "No such file"),
                        (str(other), "not overwritten")):
        response = live.peer.call(SaveQuestions, "save_questions", path=bad)
        assert not response.success and reason in response.message and response.path == ""
    assert other.read_text().startswith("controller")


def test_bad_images_are_counted_and_dropped(live, monkeypatch):
    peer = live.peer
    publisher = peer.create_publisher(Image, "image", 10)
    wait_for(lambda: publisher.get_subscription_count() > 0)
    good = rgb_to_msg(np.zeros((8, 8, 3), np.uint8), peer.get_clock().now().nanoseconds, "cam")
    depth = rgb_to_msg(np.zeros((8, 8, 3), np.uint8), time_to_ns(good.header.stamp), "cam")
    depth.encoding = "16UC1"
    short = rgb_to_msg(np.zeros((8, 8, 3), np.uint8), time_to_ns(good.header.stamp), "cam")
    short.data = array.array("B", bytes(10))
    unstamped = rgb_to_msg(np.zeros((8, 8, 3), np.uint8), 0, "cam")
    peer.diagnostics.clear()
    refused = images_of(live.node).refused
    early = rgb_to_msg(np.zeros((8, 8, 3), np.uint8), -5_000_000_000, "cam")
    beyond = rgb_to_msg(np.zeros((8, 8, 3), np.uint8), 10**18, "cam")
    beyond.header.stamp.nanosec = 2_000_000_000
    named = rgb_to_msg(np.zeros((8, 8, 3), np.uint8), 10**18, "c" * 300)
    bayer = Image(encoding="bayer_rggb8", width=1, height=1, step=1, data=array.array("B", b"x"))
    bayer.header.stamp = good.header.stamp
    for msg, cause in ((depth, "encoding"), (short, "data"), (unstamped, "stamp"),
                       (Image(encoding="rgb8"), "size"), (bayer, "size"), (named, "frame_id"),
                       (early, "stamp"), (beyond, "stamp")):
        before = refused[cause]

        def seen(msg=msg, cause=cause, before=before):  # best effort: one may be lost
            publisher.publish(msg)
            return refused[cause] > before
        wait_for(seen)
    with monkeypatch.context() as patched:  # an image that meets a fault of ours ends no node
        patched.setattr(images_of(live.node)._reader, "read", lambda msg, stamp_ns: msg.nothing)

        def met():
            publisher.publish(good)
            return refused["fault"]
        wait_for(met)
        assert "fault of this package: AttributeError" in images_of(live.node).last_refusal
    assert set(refused) == {"encoding", "data", "stamp", "size", "frame_id", "fault"}
    status = wait_for(lambda: next((s for a in peer.diagnostics for s in a.status
                                    if s.name.endswith(": image") and s.level != OK), None))
    assert "refused" in status.message and status.level == DiagnosticStatus.WARN
    peer.more_decisions(10)  # and life goes on
    peer.destroy_publisher(publisher)


def test_parameters_are_judged_together(live):
    peer, node = live.peer, live.node
    sets = []
    subscription = peer.create_subscription(QuestionArray, "/decision_node/questions",
                                            sets.append, LATCHED)
    ok = peer.set_parameters(questions__person__rate_hz=1.0)[0]
    assert ok.successful, ok.reason
    wait_for(lambda: sets and sets[-1].questions[0].rate_hz == 1.0)
    peer.destroy_subscription(subscription)
    listed = peer.call(ListQuestions, "list_questions").questions[0]
    assert listed.rate_hz == 1.0
    # enter below exit as a pair that would be fine, and pairs that are not.
    assert peer.set_parameters(True, questions__person__enter=0.3,
                               questions__person__exit=0.1)[0].successful
    for values, reason in (
            ({"questions__person__exit": 0.5}, "enter must be above exit"),
            ({"questions__person__enter": 0.9, "questions__person__exit": 0.95}, "above exit"),
            ({"questions__person__enter": 0.9, "questions__person__ema": float("nan")}, "ema"),
            ({"questions__person__enter": 0.9, "questions__person__rate_hz": -1.0}, "rate_hz"),
            ({"questions__person__enter": 0.9, "questions__activity__rate_hz": 0.0}, "rate_hz"),
            ({"questions__person__rate_hz": "fast"}, "Wrong parameter type")):
        result = peer.set_parameters(True, **values)[0]
        assert not result.successful and reason in result.reason, (values, result.reason)
        assert node.get_parameter("questions.person.enter").value == 0.3
        listed = peer.call(ListQuestions, "list_questions").questions[0]
        assert (listed.enter, listed.exit, listed.rate_hz, listed.ema) == (0.3, 0.1, 1.0, 0.7)
    assert peer.set_parameters(True, questions__person__enter=0.65,
                               questions__person__exit=0.35,
                               questions__person__rate_hz=4.0)[0].successful


def test_a_dump_of_all_parameters_can_be_loaded(live):
    """As `ros2 param dump` and `load` do it, parameter by parameter."""
    peer = live.peer
    names = peer.call(ListParameters, "list_parameters").result.names
    assert len(names) >= 30 and "questions.person.enter" in names and "autostart" in names
    values = peer.call(GetParameters, "get_parameters", names=names).values
    results = peer.call(SetParameters, "set_parameters", parameters=[
        Parameter(name=name, value=value) for name, value in zip(names, values)]).results
    assert [name for name, result in zip(names, results) if not result.successful] == []


def test_configure_time_parameters_say_so(live):
    result = live.peer.set_parameters(model="other")[0]
    assert not result.successful and "when the node configures" in result.reason
    assert live.node.get_parameter("model").value == "sim_desk"


@pytest.mark.parametrize("qos", [10, qos_profile_sensor_data], ids=["reliable", "best_effort"])
@pytest.mark.parametrize("first", ["node", "camera"])
def test_either_reliability_and_either_side_first(tmp_path, qos, first):
    with system(tmp_path, autostart=first == "node") as s:
        if first == "node":
            wait_for(lambda: images_of(s.node))  # subscribed, and nobody publishes
        s.peer.start_camera(qos=qos)
        if first == "camera":
            wait_for(lambda: len(s.peer.stamps) > 5)
            assert s.peer.transition("configure") and s.peer.transition("activate")
        s.peer.answered()


def test_reliable_subscription(tmp_path):
    with system(tmp_path, reliability="reliable") as s:
        s.peer.start_camera()
        s.peer.answered()
        info = s.node.get_subscriptions_info_by_topic("/image")
        assert info[0].qos_profile.reliability == QoSReliabilityPolicy.RELIABLE


def test_what_is_wrong_on_the_way_is_in_log_diagnostics_and_decisions(tmp_path, capfd):
    with system(tmp_path, reliability="reliable", max_age_s=0.5) as s:
        s.peer.start_camera(qos=qos_profile_sensor_data)
        what = "1 publisher on /image, best effort only"
        assert what in wait_for(lambda: next(
            (d.reason for d in reversed(s.peer.decisions) if what in d.reason), ""))
        status = wait_for(lambda: (lambda t: t if what in t.message else None)(
            s.peer.status("image", ERROR)))
        assert "set reliability: auto" in status.message
        values = {pair.key: pair.value for pair in status.values}
        assert (values["publishers"], values["reliability"]) == ("1", "reliable")
    assert "".join(capfd.readouterr()).count(what) == 1  # not at every look


def test_compressed_with_namespace_and_remap(tmp_path):
    def jpeg(rgb, stamp_ns):
        rgb[:32, :32] = (200, 30, 60)  # the rest is noise: a plain image is no camera
        msg = CompressedImage(format="jpeg", header=rgb_to_msg(rgb, stamp_ns, "cam").header)
        msg.data = array.array("B", cv2.imencode(".jpg", rgb[..., ::-1])[1].tobytes())
        return msg

    args = ["--ros-args", "-r", "__ns:=/robot", "-r", "image:=/front/rgb", "-r",
            "decision_node:__node:=eyes"]
    with system(tmp_path, image_transport="compressed", args=args, path="/robot/eyes") as s:
        s.peer.start_camera("/front/rgb/compressed", make=jpeg, kind=CompressedImage)
        assert wait_for(lambda: s.peer.newest("camera_frozen"))
        wait_for(lambda: s.model.corners)
        assert np.abs(np.array(s.model.corners[0]) - (200, 30, 60)).max() < 6


def test_a_remap_of_the_compressed_topic_itself_is_told(tmp_path):
    args = ["--ros-args", "-r", "image/compressed:=/front/jpeg"]
    with system(tmp_path, image_transport="compressed", args=args) as s:
        wait_for(lambda: images_of(s.node))
        assert images_of(s.node).topic == "/front/jpeg"
        assert "no image yet on /front/jpeg" in s.peer.status("image", ERROR).message


def test_raw_with_namespace_and_remap(tmp_path):
    args = ["--ros-args", "-r", "__ns:=/robot", "-r", "image:=/front/rgb"]
    with system(tmp_path, args=args, path="/robot/decision_node") as s:
        s.peer.start_camera("/front/rgb")
        assert s.peer.answered().question_id == "person"
        assert s.peer.count_publishers("/robot/decision_node/decisions/person") == 1
        told = s.peer.status("image")
        assert (told.name, told.hardware_id) == ("/robot/decision_node: image", "/front/rgb")


def test_refusals_are_logged_now_and_then(tmp_path, capfd):
    def depth(rgb, stamp_ns):
        msg = rgb_to_msg(rgb, stamp_ns, "cam")
        msg.encoding = "16UC1"
        return msg

    with system(tmp_path) as s:
        images = wait_for(lambda: images_of(s.node))
        s.peer.start_camera(make=depth, fps=50.0)
        wait_for(lambda: images.refused["encoding"] >= 20)
        images._reports = Throttle(60.0)  # some time has passed
        count = images.refused["encoding"]
        wait_for(lambda: images.refused["encoding"] > count + 5)
        # Whoever reads decisions only is told as well.
        wait_for(lambda: any("no image" in d.reason and "depth image" in d.reason
                             for d in s.peer.decisions))
    said = [line for line in "".join(capfd.readouterr()).splitlines() if "image refused" in line]
    assert len(said) == 2 and "depth image" in said[0]
    assert "refused since the last report" in said[1]


def test_encoding_and_padding_reach_the_model_right(tmp_path):
    def padded(rgb, stamp_ns):
        rgb[0, 0] = (10, 20, 30)
        msg = rgb_to_msg(rgb, stamp_ns, "cam")
        rows = np.zeros((rgb.shape[0], rgb.shape[1] * 3 + 5), np.uint8)
        rows[:, :-5] = rgb[..., ::-1].reshape(rgb.shape[0], -1)
        msg.encoding, msg.step = "bgr8", rows.shape[1]
        msg.data = array.array("B", rows.tobytes())
        return msg

    with system(tmp_path) as s:
        s.peer.start_camera(make=padded, size=(47, 63))
        wait_for(lambda: s.model.corners)
        assert set(s.model.corners) == {(10, 20, 30)}


def test_arrival_stamps(tmp_path):
    with system(tmp_path, stamp_source="arrival") as s:
        s.peer.start_camera(make=lambda rgb, stamp_ns: rgb_to_msg(rgb, 0, "cam"))
        decision = s.peer.answered()
        assert abs(time_to_ns(decision.t_end) - s.peer.get_clock().now().nanoseconds) < 2e9


def test_stale_stamps_are_unknown_and_reported(tmp_path):
    with system(tmp_path) as s:
        s.peer.start_camera(
            make=lambda rgb, stamp_ns: rgb_to_msg(rgb, stamp_ns - 60_000_000_000, "cam"))
        decision = s.peer.answered(answer="unknown")
        wait_for(lambda: "s old" in s.peer.newest("person").reason)
        assert decision.tier >= 0
        assert "behind the clock" in s.peer.status("image", DiagnosticStatus.WARN).message


def test_services_answer_while_the_model_is_busy(tmp_path):
    busy, go = threading.Event(), threading.Event()

    class Slow(FakeStream):
        def ask(self, queries):
            if any(query.text.startswith("Is it ") for query in queries):
                busy.set()
                assert go.wait(30)
            return super().ask(queries)

    class Model(FakeModel):
        def stream(self, window_groups=8, mode="stream"):
            return Slow(self, window_groups)

    with system(tmp_path, fake=Model()) as s:
        s.peer.start_camera()
        s.peer.answered()
        asked = [s.peer.call_later(Ask, "ask", text=f"Is it {n}?", timeout_s=60.0)
                 for n in range(3)]
        try:
            assert busy.wait(20)
            for _ in range(5):
                assert s.peer.call(ListQuestions, "list_questions").success
        finally:
            go.set()
        for wait in asked:
            response = wait(20.0)
            assert response.success, response.message


def test_too_many_asks_and_an_ask_that_cannot_be_met(tmp_path):
    with system(tmp_path) as s:
        wait_for(lambda: s.peer.state() == "active")
        waits = [s.peer.call_later(Ask, "ask", text="Is it so?", timeout_s=1.5)
                 for _ in range(6)]
        messages = sorted(wait().message for wait in waits)
        assert sum("asks are waiting already" in m for m in messages) == 2
        assert sum("no image yet" in m for m in messages) == 4


def test_model_that_cannot_load_then_can(tmp_path):
    names = []

    def load(name, budget):
        names.append((name, budget))
        if name == "missing":
            raise ValueError("there is no model 'missing'")
        return FakeModel()

    with system(tmp_path, factory=load, model="missing") as s:
        status = s.peer.status("model", ERROR)
        assert "there is no model 'missing'" in status.message
        assert s.peer.state() == "unconfigured"
        response = s.peer.call(ListQuestions, "list_questions")
        assert not response.success and "there is no model 'missing'" in response.message
        assert not s.peer.transition("configure")
        assert s.peer.state() == "unconfigured"
        assert s.peer.set_parameters(model="found", pixel_budget=4096)[0].successful
        assert s.peer.transition("configure") and s.peer.transition("activate")
        s.peer.start_camera()
        s.peer.answered()
        assert names == [("missing", None), ("missing", None), ("found", 4096)]
        assert s.peer.status("model").level == OK


@pytest.mark.parametrize(("parameters", "reason"), [
    ({"questions_file": "/no/such.yaml"}, "/no/such.yaml"),
    ({"questions_file": "kitchen"}, "no shipped set 'kitchen'"),
    ({"heads_dir": "/no/heads"}, "/no/heads"),
    ({"log_file": "/no/such/log.jsonl"}, "/no/such/log.jsonl"),
    ({"questions_save_file": "/no/such/q.yaml"}, "questions_save_file: there is no folder"),
    ({"questions_save_file": "/tmp/q.txt"}, "questions_save_file must end in"),
    ({"save_dir": "/no/such"}, "save_dir: there is no folder"),
    ({"mode": "sideways"}, "mode must be one of"),
    ({"questions__person__enter": 0.1}, "enter must be above exit"),
    ({"questions__person__rate_hz": "2"}, "must be a number")])
def test_bad_configuration_names_the_thing(tmp_path, parameters, reason):
    with system(tmp_path, autostart=False, **parameters) as s:
        assert not s.peer.transition("configure")
        assert s.peer.state() == "unconfigured"
        assert reason in s.peer.status("model", ERROR).message


def test_broken_question_file_names_the_line(tmp_path):
    with system(tmp_path, questions="- id: a\n  text: b\n  colour: red\n", autostart=False) as s:
        assert not s.peer.transition("configure")
        assert "questions.yaml:3" in s.peer.status("model", ERROR).message
        s.file.write_text('- {id: a, text: "Is it so?"}\n')
        assert s.peer.transition("configure")


def test_values_given_at_start_reach_the_questions(tmp_path):
    with system(tmp_path, questions__person__enter=0.9, questions__person__exit=0.8) as s:
        wait_for(lambda: s.peer.state() == "active")
        person = s.peer.call(ListQuestions, "list_questions").questions[0]
        assert (person.enter, person.exit) == (0.9, 0.8)


@pytest.mark.slow
def test_lifecycle_round_trips(tmp_path):
    log = tmp_path / "decisions.jsonl"
    with system(tmp_path, autostart=False, log_file=str(log)) as s:
        peer = s.peer
        assert peer.state() == "unconfigured"
        response = peer.call(ListQuestions, "list_questions")
        assert not response.success and "not configured" in response.message
        peer.start_camera()
        for _ in range(2):
            assert peer.transition("configure") and peer.state() == "inactive"
            response = peer.call(Ask, "ask", text="Is it so?")
            assert not response.success and "not active" in response.message
            peer.decisions.clear()
            peer.more_images(10)
            assert peer.decisions == []  # inactive is silent
            for _ in range(2):
                assert peer.transition("activate") and peer.state() == "active"
                peer.answered()
                assert peer.transition("deactivate") and peer.state() == "inactive"
                decision = peer.answered(answer="unknown")
                assert "deactivated" in decision.reason
            assert peer.transition("cleanup") and peer.state() == "unconfigured"
            assert not s.node.has_parameter("questions.person.enter")
        logged = [record["question_id"] for record in read_log(log)]
        assert logged.count("person") >= 8 and "camera_dark" in logged
        assert not peer.transition("activate")
        assert peer.transition("shutdown") and peer.state() == "finalized"


@pytest.mark.parametrize("state", ["unconfigured", "inactive", "active"])
def test_shutdown_from(tmp_path, state):
    with system(tmp_path, autostart=state == "active") as s:
        if state == "inactive":
            assert s.peer.transition("configure")
        wait_for(lambda: s.peer.state() == state)
        assert s.peer.transition("shutdown")
        assert s.peer.state() == "finalized"


def test_transition_that_raises_returns_to_unconfigured(tmp_path, monkeypatch):
    with system(tmp_path, autostart=False) as s:
        assert s.peer.transition("configure")
        monkeypatch.setattr("vlm_decisions.ros.node.Cameras", None)
        assert not s.peer.transition("activate")
        assert s.peer.state() == "unconfigured"
        assert "on_activate" in s.peer.status("model", ERROR).message
        monkeypatch.undo()
        assert s.peer.transition("configure") and s.peer.transition("activate")


def test_a_constructor_that_raises_fails_configure_with_the_reason(tmp_path, monkeypatch):
    """Whatever the cause: a fault of this program, or of an engine."""
    with system(tmp_path, autostart=False) as s:
        monkeypatch.setattr("vlm_decisions.ros.node.Session", lambda *args: {}["gone"])
        assert not s.peer.transition("configure")
        assert s.peer.state() == "unconfigured"
        assert "on_configure: KeyError: 'gone'" in s.peer.status("model", ERROR).message
        monkeypatch.undo()
        assert s.peer.transition("configure") and s.peer.transition("activate")
        s.peer.start_camera()
        s.peer.answered()


def test_a_session_that_raises_half_way_leaves_nothing_taken(tmp_path, monkeypatch):
    log = tmp_path / "decisions.jsonl"
    with system(tmp_path, autostart=False, log_file=str(log)) as s:
        def broken(self, question_id, view):
            raise RuntimeError("no more topics")

        with monkeypatch.context() as patch:
            patch.setattr("vlm_decisions.ros.publishers.Outlets.offer", broken)
            assert not s.peer.transition("configure")
        assert "no more topics" in s.peer.status("model", ERROR).message
        assert not s.node.has_parameter("questions.person.enter")
        assert s.peer.transition("configure") and s.peer.transition("activate")
        s.peer.start_camera()
        s.peer.answered()


def test_diagnostics_go_on_while_the_model_loads(tmp_path):
    with system(tmp_path, factory=lambda name, budget: FakeModel(load_s=3.0)) as s:
        status = s.peer.status("model")
        assert status.level == OK and status.message == "configuring"
        wait_for(lambda: s.peer.status("model").message == "fake active")


def test_a_model_that_does_not_load_is_told_before_it_is_waited_for(tmp_path, monkeypatch):
    told = []
    close = Session.close

    def closing(session, timeout_s):
        told.append(s.node._diagnostics._last.failure)
        close(session, timeout_s)

    with system(tmp_path, autostart=False, load_timeout_s=1.0,
                factory=lambda name, budget: FakeModel(load_s=8.0)) as s:
        monkeypatch.setattr(Session, "close", closing)
        assert not s.peer.transition("configure")
        assert len(told) == 1 and "was not loaded within 1 s" in told[0]
        assert "was not loaded within 1 s" in s.peer.status("model", ERROR).message


def test_questions_are_kept_at_each_change_and_read_again(tmp_path):
    kept = tmp_path / "kept.yaml"

    def ids():
        return [question.id for question in QuestionBook.load(kept)]

    with system(tmp_path, questions_save_file=str(kept)) as s:
        wait_for(lambda: s.peer.state() == "active")
        assert ids() == ["person", "activity"]
        rain = Question(id="rain", text="Is it raining?")
        assert s.peer.call(AddQuestion, "add_question", question=rain).message == "added 'rain'"
        assert ids() == ["person", "activity", "rain"]
        assert s.peer.call(RemoveQuestion, "remove_question", question_id="activity").success
        assert s.peer.set_parameters(questions__rain__rate_hz=2.0)[0].successful
        wait_for(lambda: QuestionBook.load(kept).get("rain").rate_hz == 2.0)
        rain.text = "Is it pouring?"
        assert s.peer.call(AddQuestion, "add_question", question=rain, replace=True).success
        assert s.peer.call(SaveQuestions, "save_questions").path == str(kept)
        # Where it cannot be kept, the question stands, and the reply says so.
        kept.unlink()
        kept.mkdir()
        response = s.peer.call(AddQuestion, "add_question",
                               question=Question(id="more", text="Is there more?"))
        assert response.success and "added 'more', but it will not last" in response.message
        kept.rmdir()
        assert s.peer.call(RemoveQuestion, "remove_question", question_id="more").success
    with system(tmp_path, questions_save_file=str(kept)) as s:
        wait_for(lambda: s.peer.state() == "active")
        listed = s.peer.call(ListQuestions, "list_questions").questions
        assert [(q.id, q.text, q.rate_hz) for q in listed] == [
            ("person", "Is a person present?", 4.0), ("rain", "Is it pouring?", 4.0)]
    kept.write_text("- {id: a}\n")
    with system(tmp_path, questions_save_file=str(kept), autostart=False) as s:
        assert not s.peer.transition("configure")
        assert "kept.yaml:1" in s.peer.status("model", ERROR).message


def test_requests_may_write_into_one_folder(tmp_path):
    folder = tmp_path / "book"
    folder.mkdir()
    (folder / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    with system(tmp_path, save_dir=str(folder)) as s:
        wait_for(lambda: s.peer.state() == "active")
        inside = folder / "a.yaml"
        assert s.peer.call(SaveQuestions, "save_questions", path=str(inside)).success
        for bad in (tmp_path / "outside.yaml", folder / ".." / "outside.yaml",
                    folder / "link.yaml"):
            response = s.peer.call(SaveQuestions, "save_questions", path=str(bad))
            assert not response.success and "save_dir" in response.message
        assert not (tmp_path / "outside.yaml").exists()


def test_the_log_is_rotated_by_size(tmp_path):
    log = tmp_path / "decisions.jsonl"
    with system(tmp_path, log_file=str(log), log_max_mb=0.004, log_keep=2) as s:
        s.peer.start_camera()
        wait_for(lambda: (tmp_path / "decisions.jsonl.2").exists())
    assert not (tmp_path / "decisions.jsonl.3").exists()
    for path in sorted(tmp_path.glob("decisions.jsonl*")):
        assert path.stat().st_size <= 4000
        assert all(record["question_id"] for record in read_log(path))


def test_events_are_published(tmp_path):
    questions = """
questions:
- {id: person, text: "Is a person present?"}
events:
- id: visit
  states: [away, here]
  transitions:
  - {from: away, to: here, when: {person: yes}, count: visits}
"""
    with system(tmp_path, questions=questions) as s:
        got = []
        s.peer.create_subscription(Event, "/decision_node/events", got.append, LATCHED)
        s.peer.start_camera()
        event = wait_for(lambda: got and got[0])
        assert (event.event_id, event.from_state, event.to_state) == ("visit", "away", "here")
        assert (event.counter, event.count, event.question_id) == ("visits", 1, "person")
        assert time_to_ns(event.header.stamp) in s.peer.stamps
        assert event.header.frame_id == "cam"
        response = s.peer.call(RemoveQuestion, "remove_question", question_id="person")
        assert not response.success and "event 'visit' listens to it" in response.message


def test_images_that_stop_and_start_again(tmp_path):
    with system(tmp_path, max_age_s=0.6) as s:
        s.peer.start_camera()
        s.peer.answered()
        s.peer.stop_camera()
        decision = s.peer.answered(answer="unknown")
        assert decision.age >= 0.6
        assert "no image for" in decision.reason and decision.changed
        assert "no image for" in s.peer.status("image", ERROR).message
        s.peer.start_camera()
        s.peer.answered()


def test_resolution_changes_mid_stream(tmp_path):
    with system(tmp_path) as s:
        for size in ((48, 64), (97, 33), (120, 160)):
            s.peer.start_camera(size=size)
            s.peer.decisions.clear()
            s.peer.answered()
            s.peer.stop_camera()


@pytest.mark.slow
def test_many_questions_come_and_go_under_load(tmp_path):
    with system(tmp_path) as s:
        s.peer.start_camera(fps=30)
        s.peer.answered()
        publishers = len(list(s.node.publishers))
        parameters = len(s.node._parameters)
        add = s.peer.create_client(AddQuestion, "/decision_node/add_question")
        remove = s.peer.create_client(RemoveQuestion, "/decision_node/remove_question")
        assert add.wait_for_service(5) and remove.wait_for_service(5)
        for n in range(300):
            name = f"q{n}"
            future = add.call_async(AddQuestion.Request(question=Question(id=name, text="Is it?")))
            wait_for(future.done)
            assert future.result().success, future.result().message
            future = remove.call_async(RemoveQuestion.Request(question_id=name))
            wait_for(future.done)
            assert future.result().success, future.result().message
        s.peer.more_decisions(5)  # answers under way are dropped
        assert len(list(s.node.publishers)) == publishers
        assert not {name for name in s.node._outlets.latest("") if name.startswith("q")}
        # DDS forgets their topics, too; they vanish from the graph a little later.
        wait_for(lambda: not [name for name, _ in s.peer.get_topic_names_and_types()
                              if name.startswith("/decision_node/decisions/q")])
        assert len(s.node._parameters) == parameters
        s.peer.more_decisions(5)


@pytest.mark.slow
def test_simulated_clock(tmp_path):
    """Without a clock nothing is known; with one there are answers; a reset starts anew."""
    from rosgraph_msgs.msg import Clock

    from vlm_decisions.ros.convert import ns_to_time

    with system(tmp_path, use_sim_time=True) as s:
        clock = s.peer.create_publisher(Clock, "/clock", 10)
        camera = s.peer.create_publisher(Image, "image", 10)
        now_ns = 0

        def play(seconds, start_ns):
            nonlocal now_ns
            now_ns = start_ns
            while now_ns < start_ns + seconds * 1e9:
                now_ns += 50_000_000
                clock.publish(Clock(clock=ns_to_time(now_ns)))
                time.sleep(0.01)
                rgb = s.peer.rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
                camera.publish(rgb_to_msg(rgb, now_ns, "cam"))
                time.sleep(0.02)

        assert "no image yet" in s.peer.answered(answer="unknown").reason
        play(3.0, 100_000_000_000)
        first = s.peer.answered()
        assert 100_000_000_000 < time_to_ns(first.t_end) <= now_ns
        assert 0 <= first.age <= 2.0  # max_age_s
        s.peer.decisions.clear()
        clock.publish(Clock(clock=ns_to_time(5_000_000_000)))
        decision = s.peer.answered(answer="unknown")
        assert "backwards" in decision.reason or "no image" in decision.reason
        for _ in range(2):  # a bag that loops: images and clock begin anew together
            s.peer.decisions.clear()
            play(3.0, 5_000_000_000)
            assert 5_000_000_000 < time_to_ns(s.peer.answered().t_end) <= now_ns


def test_simulated_time_without_a_clock_is_told(tmp_path):
    with system(tmp_path, use_sim_time=True) as s:
        s.peer.start_camera()
        wait_for(lambda: images_of(s.node))
        assert "nothing publishes /clock" in s.peer.status("image", ERROR).message
        wait_for(lambda: "simulated time has not begun" in s.node.snapshot().runtime.condition)
        s.peer.answered(answer="unknown")
        assert {d.answer for d in s.peer.decisions if d.question_id == "person"} == {"unknown"}


def test_a_looping_bag_without_its_clock_is_played_by_arrival(tmp_path):
    """Old stamps that jump back again and again say nothing: with `arrival` they play no part."""
    stamps = iter(n % 10 * 50_000_000 + 1_600_000_000_000_000_000 for n in range(10**6))
    with system(tmp_path, stamp_source="arrival") as s:
        s.peer.start_camera(make=lambda rgb, _: rgb_to_msg(rgb, next(stamps), "cam"))
        s.peer.answered()
        s.peer.more_images(30)
        assert "late" not in s.node.snapshot().runtime.dropped
        assert not [d.reason for d in s.peer.decisions if "backwards" in d.reason]


@pytest.mark.slow
def test_embedded_model_answers_about_its_own_world(tmp_path):
    """The real model on the simulated desk: a person in view is seen, an empty desk is not."""
    from vlm_decisions.ros.session import load_engine
    from vlm_decisions.sim.script import Script, Segment, State
    from vlm_decisions.sim.world import World

    questions = '- {id: person, text: "Is a person present?", tier: vlm}\n'
    with system(tmp_path, questions=questions, factory=load_engine) as s:
        for here, answer in ((True, "yes"), (False, "no")):
            scene = State(person=here, activity="idle" if here else "away")
            world = World(5, Script((Segment(60.0, scene),)))
            began_ns = s.peer.get_clock().now().nanoseconds
            s.peer.start_camera(fps=10.0, make=lambda _, t, w=world, b=began_ns: rgb_to_msg(
                w.render((t - b) / 1e9, 320, 240), t, "cam"))
            decision = s.peer.answered(answer=answer, timeout_s=30.0)
            assert decision.model == "sim_desk" and decision.depth > 0
            s.peer.stop_camera()


def test_what_the_engine_remarks_is_in_log_and_diagnostics(tmp_path, capfd):
    model = FakeModel(ask_s=0.4)
    model.remarks, model.tick_s, model.checked = ["pixel settings are assumed"], 0.4, "it passed"
    with system(tmp_path, factory=lambda *_: model) as s:
        wait_for(lambda: "measured at start" in s.node.snapshot().engine)
        engine = s.node.snapshot().engine
        assert (engine["checked"], engine["notes"]) == ("it passed", "pixel settings are assumed")
    told = capfd.readouterr()
    assert all((told.out + told.err).count(text) == 1 for text in ("it passed", "are assumed"))
    slow = engine["measured at start"]
    assert slow.startswith("the machine cannot keep up: a group of ")
    assert "with 2 questions takes 4" in slow and "and 4 come a second" in slow
    assert "It can hold 2.5 groups a second with these questions" in slow


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "image"])
def test_a_decision_model_has_the_same_contract(tmp_path, mode):
    from decision_checkpoints import write_d1

    from vlm_decisions.ros.session import load_engine

    folder = str(write_d1(tmp_path / "d1"))
    questions = """\
- {id: person, text: "Is a person present?", tier: vlm, rate_hz: 2.0}
- {id: colour, text: "Which colour is it?", kind: choice, options: [red, green, blue]}
"""
    with system(tmp_path, questions=questions, factory=load_engine, model=folder, mode=mode) as s:
        def told(name):
            return wait_for(lambda: (lambda d: d if d and d.p_raw >= 0 else None)(
                s.peer.newest(name)), 60.0)

        s.peer.start_camera(fps=16.0)
        told("person")
        colour = told("colour")
        assert colour.t_start == colour.t_end == colour.header.stamp
        assert time_to_ns(colour.t_end) in s.peer.stamps
        assert list(colour.options) == ["red", "green", "blue"]
        assert sum(colour.probabilities) == pytest.approx(1.0, abs=1e-4)
        assert (colour.tier, colour.depth, colour.model) == (Decision.TIER_VLM, 4, folder)
        refused = s.peer.call(AddQuestion, "add_question", question=Question(
            id="deep", text="Is it?", depth=2))
        assert not refused.success and "answers from its last layer" in refused.message
        added = s.peer.call(AddQuestion, "add_question", question=Question(
            id="door", text="Is the door open?"))
        assert added.success and added.tokens > 0
        told("door")
        now = s.peer.call(Ask, "ask", text="Is it dark?", timeout_s=10.0)
        assert now.success and now.decision.t_start == now.decision.t_end


def test_a_mode_that_a_decision_model_has_not_fails_configure_by_name(tmp_path):
    from decision_checkpoints import write_d1

    from vlm_decisions.ros.session import load_engine

    folder = str(write_d1(tmp_path / "d1"))
    with system(tmp_path, factory=load_engine, model=folder, mode="window") as s:
        wait_for(lambda: "has no mode 'window': its mode is image" in "".join(
            status.message for array in s.peer.diagnostics for status in array.status), 60.0)
