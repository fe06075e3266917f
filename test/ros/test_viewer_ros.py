"""The viewer as a node, with a decision node and a camera over real DDS."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from diagnostic_states import GOOD, having
from rclpy.parameter import Parameter
from ros_peer import plain_node, rclpy_context, spinning, system
from std_msgs.msg import String
from viewer_site import call, decision, until
from waiting import wait_for
from websockets.sync.client import connect

from vlm_decisions.msg import Event, QuestionArray
from vlm_decisions.questions import Question
from vlm_decisions.ros.diagnostics import Diagnostics, system_of
from vlm_decisions.ros.viewer import ViewerNode
from vlm_decisions.runtime.settings import RuntimeSettings
from vlm_decisions.runtime.system import System

WAIT_S = 30.0


class Page:
    """What a page does, without a browser."""

    def __init__(self, node: ViewerNode) -> None:
        self.node, self.port = node, node.server.port

    def state(self) -> dict:
        return self.call("GET", "/api/state")[1]

    def row(self, question_id: str) -> dict | None:
        return next((r for r in self.state().get("rows", ()) if r["id"] == question_id), None)

    def call(self, method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
        return call(self.port, method, path, body)

    def wait_row(self, question_id: str, answer: str) -> dict:
        return wait_for(lambda: (lambda row: row if row and row["answer"] == answer else None)(
            self.row(question_id)), WAIT_S)


@contextmanager
def viewer_node(context, of="/decision_node"):
    """Spin the viewer of a node on a free port."""
    node = ViewerNode(context=context, parameter_overrides=[
        Parameter("port", value=0), Parameter("node", value=of)])
    try:
        with spinning(node):
            yield node
    finally:
        node.close()
        node.destroy_node()


@contextmanager
def viewing(tmp_path, **parameters):
    with (system(tmp_path, **parameters) as ros,
          viewer_node(ros.peer.context) as node):
        yield SimpleNamespace(**ros.__dict__, page=Page(node), viewer=node)


@pytest.mark.slow
def test_it_follows_the_node_and_acts_on_it(tmp_path):
    with viewing(tmp_path, evidence_dir=str(tmp_path / "evidence")) as ros:
        page, peer = ros.page, ros.peer
        peer.start_camera()
        row = page.wait_row("person", "yes")
        assert row["p"] > 0.8 and row["tier"] == 2 and row["age"] < 5
        system_ = wait_for(lambda: (lambda s: s if s and s["tick_ms"].get("total") else None)(
            page.state().get("system")), WAIT_S)
        assert system_["model"] == "fake" and system_["topic"] == "/image"
        assert system_["counts"]["frames"] > 0 and system_["image_rate_hz"] > 0
        assert wait_for(lambda: page.state()["link"]["ok"], WAIT_S)

        status, reply = page.call("POST", "/api/questions", {
            "text": "Is <i>it</i> raining?", "id": "raining"})
        assert status == 201, reply
        peer.answered("raining", "yes", WAIT_S)  # on the topic
        page.wait_row("raining", "yes")
        assert [q["text"] for q in page.state()["questions"]][-1] == "Is <i>it</i> raining?"

        status, reply = page.call("PATCH", "/api/questions/raining", {"rate_hz": 1, "enter": 0.9})
        assert status == 200, reply
        assert ros.node.get_parameter("questions.raining.enter").value == 0.9
        assert wait_for(lambda: page.state()["questions"][-1]["enter"] == 0.9, WAIT_S)

        cost = wait_for(lambda: (lambda c: c if c["tokens"] else None)(
            page.call("POST", "/api/cost", {"text": "Is it snowing?"})[1]), WAIT_S)
        assert cost["ms"] > 0 and "snowing" not in str(page.state()["questions"])
        wait_for(lambda: page.state()["system"]["costs"].keys() >= {"person", "raining"}, WAIT_S)

        status, reply = page.call("PATCH", "/api/questions/raining", {"text": "Is it wet?"})
        assert status == 200, reply
        assert wait_for(lambda: page.state()["questions"][-1]["text"] == "Is it wet?", WAIT_S)
        assert page.state()["questions"][-1]["enter"] == 0.9  # the rest stays

        status, reply = page.call("POST", "/api/ask", {
            "text": "Is there a {}?", "kind": "any_of", "options": ["cup", "pen"]})
        assert status == 200 and (reply["answer"], reply["answers"]) == ("cup", ["yes", "no"])
        status, reply = page.call("POST", "/api/ask", {
            "text": "How many?", "kind": "score", "options": ["1", "2"]})
        assert (reply["answer"], round(reply["value"], 2)) == ("1", 1.12)
        status, reply = page.call("POST", "/api/ask", {"text": "Which?", "options": ["a", "b"]})
        assert status == 200 and reply["answer"] == "a" and len(reply["probabilities"]) == 2

        assert page.call("DELETE", "/api/questions/raining")[0] == 200
        assert wait_for(lambda: page.row("raining") is None, WAIT_S)

        for body, status, said in (
                ({"name": "door", "region": [0.0, 0.0, 0.5, 1.0]}, 201, "added view 'door'"),
                ({"name": "door", "region": [0.5, 0.0, 1.0, 1.0]}, 400, "exists already"),
                ({"name": "gate", "region": [0.5, 0.0, 1.0, 1.0], "of": "x"}, 400, "no view 'x'")):
            got, reply = page.call("POST", "/api/views", body)
            assert got == status and said in (reply.get("message") or reply["error"])
        assert page.wait_row("door/person", "yes")["p"] > 0.8

        # Pictures of moments come from the node's evidence, though no page looks at the camera.
        moment = page.call("GET", f"/api/moment?t={time.time()}")[1]
        assert moment["pictures"] and moment["rows"][0]["answer"] == "yes"

        told = peer.create_publisher(String, "truth", 10)  # beside the camera's images

        def judged():
            for answer in ("yes", "no"):
                told.publish(String(data=json.dumps({"stamp_ns": time.time_ns() - 10**8,
                                                     "facts": {"person": answer}})))
                time.sleep(0.2)
            return page.call("GET", "/api/timeline")[1]["scores"].get("person", [0, 0])

        wait_for(lambda: (lambda score: 0 < score[0] < score[1])(judged()), WAIT_S)
        assert all(question.id != "raining" for question in ros.node.questions())


def test_a_question_taken_meanwhile_is_refused_by_the_node(tmp_path):
    from vlm_decisions.ros.convert import question_to_msg
    from vlm_decisions.srv import AddQuestion

    with viewing(tmp_path) as ros:
        wait_for(lambda: ros.page.state().get("questions"), WAIT_S)
        # The viewer does not know of it: the news of a change is kept from its board.
        ros.viewer.board.questions = lambda *told: None
        assert ros.peer.call(AddQuestion, "add_question",
                             question=question_to_msg(Question("late", "Q?"))).success
        status, reply = ros.page.call("POST", "/api/questions", {"text": "Q?", "id": "late"})
        assert status == 400 and "exists already" in reply["error"]


@pytest.mark.slow
def test_a_stopped_camera_turns_rows_to_unknown(tmp_path):
    with viewing(tmp_path, max_age_s=1.0) as ros:
        ros.peer.start_camera()
        ros.page.wait_row("person", "yes")
        wait_for(lambda: ros.page.state().get("system", {}).get("max_age_s") == 1.0, WAIT_S)
        ros.peer.stop_camera()

        def row():
            return ros.page.wait_row("person", "unknown")

        # The viewer may notice by itself, a moment before the node says so.
        wait_for(lambda: "no image" in row()["reason"], WAIT_S)
        assert row()["p"] is None
        assert any(event["kind"] == "unknown" for event in ros.page.state()["events"])


@pytest.mark.slow
def test_pictures_are_subscribed_only_while_watched(tmp_path):
    with viewing(tmp_path) as ros:
        peer = ros.peer
        peer.start_camera()
        ros.page.wait_row("person", "yes")
        wait_for(lambda: ros.page.state().get("system", {}).get("topic"), WAIT_S)
        topics = {"overlay": "/decision_node/overlay", "camera": "/image"}
        before = {name: peer.count_subscribers(topic) for name, topic in topics.items()}
        assert before == {"overlay": 0, "camera": 1}  # the node's own
        with connect(f"ws://127.0.0.1:{ros.page.port}/live", proxy=None) as live:
            for channel, topic in topics.items():
                live.send(json.dumps({"watch": channel}))
                for _ in range(2):
                    assert until(live, lambda m: isinstance(m, bytes))[:2] == b"\xff\xd8"
                wait_for(lambda t=topic, n=before[channel]: peer.count_subscribers(t) == n + 1,
                         WAIT_S)
            wait_for(lambda: peer.count_subscribers(topics["overlay"]) == 0, WAIT_S)
        wait_for(lambda: peer.count_subscribers("/image") == before["camera"], WAIT_S)


def test_events_of_the_node_are_shown(tmp_path):
    with viewing(tmp_path) as ros:
        publisher = ros.peer.create_publisher(Event, "/decision_node/events", 10)
        wait_for(lambda: publisher.get_subscription_count(), WAIT_S)
        publisher.publish(Event(event_id="drink", from_state="down", to_state="up",
                                counter="sips", count=3))
        events = wait_for(lambda: ros.page.state().get("events"), WAIT_S)
        assert (events[0]["ids"], events[0]["text"]) == (["drink"], "down → up, sips 3")


def test_a_late_viewer_sees_how_old_a_latched_decision_is():
    from ros_peer import LATCHED

    from vlm_decisions.msg import Decision
    from vlm_decisions.ros.convert import decision_to_msg, questions_to_msg

    with plain_node("other") as other:
        decisions = other.create_publisher(Decision, "/late/decisions", LATCHED)
        questions = other.create_publisher(QuestionArray, "/late/questions", LATCHED)
        questions.publish(questions_to_msg([Question("person", "Q?")], 0))
        decisions.publish(decision_to_msg(decision("person")))  # stamps of a simulated clock
        published_s = time.monotonic()
        time.sleep(1.0)  # it has to become old
        with viewer_node(other.context, "/late") as node:
            row = Page(node).wait_row("person", "yes")
        assert 1.0 < row["age"] <= time.monotonic() - published_s + 0.1


@pytest.mark.slow
def test_of_two_nodes_it_shows_its_own(tmp_path):
    """Nodes of one name in two namespaces: /b has a camera, /a has none and ends."""
    from fake_model import FakeModel
    from rclpy.parameter import Parameter
    from ros_peer import Peer

    from vlm_decisions.ros.node import DecisionNode

    (tmp_path / "q.yaml").write_text('- {id: person, text: "Is a person present?"}\n')
    with rclpy_context() as context:
        a, b = (DecisionNode(
            context=context, namespace=name, engine_factory=lambda *_: FakeModel(),
            parameter_overrides=[Parameter("questions_file", value=str(tmp_path / "q.yaml")),
                                 Parameter("heads_dir", value="none")]) for name in ("/a", "/b"))
        peer = Peer(context, "/b/decision_node")
        try:
            with viewer_node(context, "/a/decision_node") as viewer, spinning(peer, b):
                page = Page(viewer)
                with spinning(a):
                    peer.start_camera("/b/image")
                    peer.answered()
                    wait_for(lambda: page.state().get("system", {}).get("topic"), WAIT_S)
                    for _ in range(3):  # both tell of themselves meanwhile
                        peer.status("image")
                    shown = page.state()["system"]
                    assert shown["topic"] == "/a/image" and shown["counts"]["frames"] == 0
                a.close()
                a.destroy_node()
                wait_for(lambda: not page.state()["link"]["ok"], WAIT_S)
                peer.status("image")
                assert not page.state()["link"]["ok"] and peer.answered()
        finally:
            peer.stop_camera()
            b.close()
            for node in (b, peer):
                node.destroy_node()


def test_without_a_node_it_says_so():
    with rclpy_context() as context, viewer_node(context, "/robot/decider") as node:
        page = Page(node)
        assert page.state()["link"] == {"ok": False, "message": "waiting for /robot/decider"}
        status, reply = page.call("POST", "/api/questions", {"text": "Is it?"})
        assert status == 503 and "/robot/decider is not there" in reply["error"]


def test_statistics_say_what_diagnostics_say():
    state = having(GOOD, dropped={"queue": 3}, refused={"encoding": 2}, queue=1)
    statuses = Diagnostics("/decision_node").report(state)
    told = system_of("/a/decision_node", state, statuses, RuntimeSettings(max_age_s=1.5))
    shown = System.from_json(told.to_json())
    stats = state.runtime
    assert (shown.node, shown.state, shown.model) == ("/a/decision_node", "active", stats.model)
    assert shown.topic == state.topic and shown.queue == stats.queue and shown.max_age_s == 1.5
    assert shown.counts["frames"] == stats.frames and shown.memory_mb > 1
    assert shown.tick_ms["total"].p95 == stats.tick_ms["total"].p95
    assert shown.dropped == {"queue": 3, "image: encoding": 2}
    assert {s.name for s in shown.statuses} == {"model", "image", "camera", "runtime", "questions"}
    assert all(s.message for s in shown.statuses)
    bare = system_of("/n", having(GOOD, state="unconfigured", failure="no", runtime=None),
                     (), RuntimeSettings())
    assert (bare.state, bare.failure, bare.counts) == ("unconfigured", "no", {})


@pytest.mark.slow
def test_the_viewer_of_one_node_shows_nothing_of_another():
    """Two nodes of the same base name: /a/decision_node ends, /b/decision_node goes on."""
    import rclpy
    from rclpy.parameter import Parameter

    from vlm_decisions.ros.publishers import latched

    with rclpy_context() as context:
        nodes = {name: rclpy.create_node("decision_node", namespace=f"/{name}", context=context)
                 for name in ("a", "b", "a/b")}
        out = {name: node.create_publisher(String, "~/statistics", latched(1))
               for name, node in nodes.items()}

        def tell(*names):
            for name in names:
                out[name].publish(String(data=System(
                    node=f"/{name}/decision_node", state="active",
                    topic=f"/{name}/image").to_json()))

        viewer = ViewerNode(context=context, namespace="/a",
                            parameter_overrides=[Parameter("port", value=0)])
        try:
            with spinning(viewer):
                page = Page(viewer)
                tell("a", "b", "a/b")
                wait_for(lambda: page.state()["link"]["ok"], WAIT_S)
                for _ in range(5):
                    tell("b", "a/b")
                    time.sleep(0.2)
                    assert page.state()["system"]["topic"] == "/a/image"
                nodes.pop("a").destroy_node()

                def gone():
                    tell("b", "a/b")
                    return not page.state()["link"]["ok"]

                wait_for(gone, WAIT_S)
                assert page.state()["state"]["kind"] == "no_node"
                assert page.state()["system"]["topic"] == "/a/image"
        finally:
            viewer.close()
            viewer.destroy_node()
            for node in nodes.values():
                node.destroy_node()


def test_statistics_that_cannot_be_read_are_told_and_change_nothing(tmp_path):
    with viewing(tmp_path) as ros:
        wait_for(lambda: ros.page.state()["link"]["ok"], WAIT_S)
        said = []
        ros.viewer.source._complain = lambda message, kind=None: said.append(message)
        for text in ("{", "[]", '{"queue": "many"}'):
            ros.viewer.source._measured(String(data=text), {})
        assert len(said) == 3 and "/decision_node/statistics" in said[0]
        assert ros.page.state()["system"]["model"] == "fake"


def run_viewer(*parameters: str) -> subprocess.Popen:
    arguments = [a for p in parameters for a in ("-p", p)]
    return subprocess.Popen(
        [sys.executable, "-m", "vlm_decisions.ros", "viewer", "--ros-args", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
def test_the_process_serves_and_ends_on_a_signal():
    child = run_viewer("port:=0")
    line = next(line for line in child.stdout if "viewer of /decision_node" in line)
    port = int(line.strip().rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    child.send_signal(signal.SIGTERM)
    out = child.communicate(timeout=20)[0]
    assert child.returncode == 0 and "Traceback" not in out, out


@pytest.mark.slow
@pytest.mark.parametrize(("parameter", "said"), [
    ("port:={taken}", "is in use"), ("port:=99999", "port"), ("host:='203.0.113.7'", "203.0.113.7"),
])
def test_what_cannot_be_served_is_named(parameter, said):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        child = run_viewer(parameter.format(taken=taken.getsockname()[1]))
        out = child.communicate(timeout=60)[0]
    assert child.returncode == 1 and said in out and "Traceback" not in out, out
