"""Recordings over real DDS: played as a camera, recorded again, and benchmarked in real time."""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")
pytest.importorskip("rosbags", reason="rosbags is not installed")

from bag_tools import START_NS, make_bag, picture
from fake_model import FakeModel, FakeStream
from rclpy.parameter import Parameter
from ros_peer import plain_node, spinning, system
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String
from waiting import wait_for

from vlm_decisions import cli
from vlm_decisions.frames import NS
from vlm_decisions.lab.replay.bench import bench_replay
from vlm_decisions.lab.replay.modes import chosen
from vlm_decisions.lab.replay.realtime import realtime_player
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.ros.convert import time_to_ns
from vlm_decisions.ros.parameters import ParameterError
from vlm_decisions.ros.recorder import record_live
from vlm_decisions.ros.replay_camera import ReplayCamera, restamped
from vlm_decisions.runtime.settings import RuntimeSettings
from vlm_decisions.sources.bags import Bag, BagError, read_images
from vlm_decisions.sources.images import compressed_to_rgb, image_to_rgb
from vlm_decisions.sources.recording import open_recording


@pytest.fixture
def ros():
    """Return a context and a node that spins in it."""
    with plain_node("viewer") as node:
        yield SimpleNamespace(context=node.context, node=node)


def play(ros, source, subscriptions, *, done=None, **parameters):
    """Play until the recording ends, or `done`; return the messages by topic."""
    got = {topic: [] for topic in subscriptions}
    for topic, kind in subscriptions.items():
        ros.node.create_subscription(kind, topic, got[topic].append, 50)
    ended = threading.Event()
    camera = ReplayCamera(ended.set, context=ros.context, parameter_overrides=[
        Parameter(name, value=value)
        for name, value in {"source": str(source), **parameters}.items()])
    try:
        with spinning(camera):
            wait_for(lambda: done(got) if done else ended.is_set(), 20.0)
            time.sleep(0.3)
    finally:
        camera.close()
        camera.destroy_node()
    return got


def facts(k: int):
    return {"person": "yes" if k % 8 < 4 else "no"}, k // 4


def test_a_bag_is_published_as_it_is_stored_in_the_present(ros, tmp_path):
    bag = make_bag(tmp_path / "bag", 6, truth=facts)
    before_ns = time.time_ns()
    got = play(ros, bag, {"/image": Image, "/truth": String})
    images, told = got["/image"], [json.loads(m.data) for m in got["/truth"]]
    assert len(images) == 6 and np.array_equal(image_to_rgb(images[5]), picture(5))
    stamps = [time_to_ns(m.header.stamp) for m in images]
    assert before_ns < stamps[0] < time.time_ns()
    assert np.allclose(np.diff(stamps), NS / 8, atol=2)
    assert [row["stamp_ns"] for row in told] == stamps  # the truth moves with the images
    assert told[5]["facts"] == {"person": "no"}


def test_compressed_images_stay_compressed_and_can_be_decoded(ros, tmp_path):
    bag = make_bag(tmp_path / "bag", 3, topic="/cam/compressed", compressed=True)
    got = play(ros, bag, {"/cam/compressed": CompressedImage}, rate=4.0)
    assert np.array_equal(compressed_to_rgb(got["/cam/compressed"][2]), picture(2))
    got = play(ros, bag, {"/image": Image}, decoded=True, rate=4.0)
    assert [m.encoding for m in got["/image"]] == ["rgb8"] * 3
    stamps = [time_to_ns(m.header.stamp) for m in got["/image"]]
    assert np.allclose(np.diff(stamps), NS / 32, atol=2)


def test_with_a_clock_stamps_stay_as_recorded(ros, tmp_path):
    from rosgraph_msgs.msg import Clock

    bag = make_bag(tmp_path / "bag", 4)
    got = play(ros, bag, {"/image": Image, "/clock": Clock}, clock=True)
    stamps = [time_to_ns(m.header.stamp) for m in got["/image"]]
    assert stamps == [START_NS + k * NS // 8 for k in range(4)]
    clock = [time_to_ns(m.clock) for m in got["/clock"]]
    assert clock == sorted(clock) and START_NS <= clock[0] < clock[-1] < START_NS + 10 * NS


@pytest.mark.slow
def test_a_loop_goes_on_and_with_a_clock_goes_back(ros, tmp_path):
    bag = make_bag(tmp_path / "bag", 2)
    got = play(ros, bag, {"/image": Image}, loop=True,
               done=lambda got: len(got["/image"]) >= 4)
    stamps = [time_to_ns(m.header.stamp) for m in got["/image"][:4]]
    assert stamps == sorted(stamps) and stamps[2] - stamps[1] >= NS
    got = play(ros, bag, {"/image": Image}, loop=True, clock=True,
               done=lambda got: len(got["/image"]) >= 4)
    assert time_to_ns(got["/image"][2].header.stamp) == START_NS


@pytest.mark.parametrize("unseen", [True, False])
def test_where_nobody_looks_it_plays_or_fails(ros, tmp_path, unseen):
    bag = make_bag(tmp_path / "bag", 2)
    ended = threading.Event()
    camera = ReplayCamera(ended.set, context=ros.context, parameter_overrides=[
        Parameter(name, value=value)
        for name, value in {"source": str(bag), "wait_s": 0.2, "unseen": unseen}.items()])
    try:
        with spinning(camera):
            wait_for(ended.is_set)
        assert camera.exit_code == (0 if unseen else 1)
    finally:
        camera.close()
        camera.destroy_node()


def test_a_ros_1_bag_is_published_to_ros_2(ros):
    from material import material

    path = material("bags", "ros_numpy_test.bag")
    got = play(ros, path, {"/image": Image}, topics="/image")
    assert image_to_rgb(got["/image"][0]).shape == (240, 360, 3)
    assert time_to_ns(got["/image"][0].header.stamp) == 0  # it has none, and gets none


BAD = [({"source": ""}, "name a bag or a video file"),
       ({"topics": "/other"}, "there is no topic /other; there are: /image"),
       ({"topics": "/truth"}, "/truth holds no images"),
       ({"topics": "/image,/image", "decoded": True}, "topics: one, with decoded")]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_camera_that_cannot_play(ros, tmp_path, change, message):
    bag = make_bag(tmp_path / "bag", 1, truth=facts)
    values = {"source": str(bag), **change}
    with pytest.raises(ParameterError, match=message):
        ReplayCamera(context=ros.context, parameter_overrides=[
            Parameter(name, value=value) for name, value in values.items()])


def test_the_command_says_what_is_wrong_with_a_bag(tmp_path, capsys):
    bag = make_bag(tmp_path / "bag", 1)
    for arguments, message in [((str(tmp_path / "none"),), "there is no such bag"),
                               ((str(bag), "--topics", "/other"), "there is no topic /other")]:
        assert cli.main(["replay", *arguments]) == 1
        assert message in capsys.readouterr().err


def film(path, frames):
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 8.0, (64, 48))
    for k in range(frames):
        writer.write(picture(k)[..., ::-1].copy())
    writer.release()
    return path


def test_several_videos_are_played_together_on_topics_of_their_own(ros, tmp_path):
    front, back = film(tmp_path / "front.avi", 8), film(tmp_path / "back.avi", 4)
    got = play(ros, f"/front/image={front},/back/image={back}",
               {"/front/image": Image, "/back/image": Image}, wait_s=20.0)
    assert (len(got["/front/image"]), len(got["/back/image"])) == (8, 4)
    stamps = [[time_to_ns(msg.header.stamp) for msg in got[topic]] for topic in got]
    assert stamps[0][:4] == stamps[1]
    for source, why in ((f"/a={front},/a={back}", "a topic is there twice"),
                        (f"/a={front},/b=none.avi", "there is no file 'none.avi'")):
        with pytest.raises(ParameterError, match=why):
            ReplayCamera(context=ros.context,
                         parameter_overrides=[Parameter("source", value=source)])
    assert cli.main(["replay", str(front), str(back)]) == 1


@pytest.mark.parametrize("order", ["<", ">"])
def test_stamps_are_moved_in_either_byte_order(order):
    import struct

    data = bytes([0, order == "<", 0, 0]) + struct.pack(f"{order}iI", 5, 7) + b"rest"
    moved = restamped(data, lambda stamp_ns: stamp_ns + NS + 1)
    assert struct.unpack_from(f"{order}iI", moved, 4) == (6, 8) and moved[12:] == b"rest"
    empty = bytes(12)
    assert restamped(empty, lambda stamp_ns: 1) == empty


# -- recording ------------------------------------------------------------------------------------

QUESTIONS = '- {id: person, text: "Is a person present?"}\n'


def test_a_live_camera_is_recorded_with_its_decisions(tmp_path):
    with system(tmp_path, questions=QUESTIONS) as s:
        s.peer.start_camera()
        s.peer.answered("person", "yes")
        counts = record_live(["/image"], str(tmp_path / "bag"), seconds=2.0,
                             context=s.peer.context)
    assert counts["/image"] >= 10 and counts["/decision_node/decisions"] >= 2
    frames = list(read_images(tmp_path / "bag"))
    assert len(frames) == counts["/image"]
    assert {f.stamp_ns for f in frames} <= set(s.peer.stamps)
    with Bag(tmp_path / "bag") as bag:
        kinds = {topic.name: topic.type for topic in bag.topics}
    assert kinds["/decision_node/decisions"] == "vlm_decisions/msg/Decision"
    assert kinds["/decision_node/questions"] == "vlm_decisions/msg/QuestionArray"


def test_a_topic_that_nobody_publishes(ros, tmp_path):
    with pytest.raises(BagError, match=r"nobody publishes /cam/image .waited 0.2 s.; there are: /"):
        record_live(["/cam/image"], str(tmp_path / "bag"), timeout_s=0.2, context=ros.context)
    with pytest.raises(BagError, match="no topic is named"):
        record_live([], str(tmp_path / "bag"), context=ros.context)


def test_a_topic_on_which_nothing_comes(ros, tmp_path):
    ros.node.create_publisher(Image, "/image", 1)
    with pytest.raises(BagError, match="not a single message came on /image"):
        record_live(["/image"], str(tmp_path / "bag"), seconds=0.3, context=ros.context)


def test_a_type_that_cannot_be_recorded(ros, tmp_path):
    msgs = pytest.importorskip("service_msgs.msg", reason="service_msgs is not installed")
    ros.node.create_publisher(msgs.ServiceEventInfo, "/odd", 1)
    with pytest.raises(BagError, match="/odd: the message type service_msgs/msg/Servi"):
        record_live(["/odd"], str(tmp_path / "bag"), seconds=0.3, context=ros.context)


# -- in real time ---------------------------------------------------------------------------------

class Eye(FakeModel):
    """Says yes where the image is red."""

    def encode(self, frames):
        mean = frames[-1].reshape(-1, 3).mean(axis=0)
        return SimpleNamespace(features=None, mean=mean, max=mean)

    def stream(self, window_groups: int = 8, mode: str = "stream"):
        return EyeStream(self, window_groups)


class EyeStream(FakeStream):
    def append(self, group, stamps_ns, *, left_out_ns=0) -> None:
        super().append(group, stamps_ns, left_out_ns=left_out_ns)
        self.red = group.mean[0] > group.mean[2]

    def ask(self, queries):
        logits = np.array([4.0, 0.0] if self.red else [0.0, 4.0])
        return [SimpleNamespace(logits=logits, depth=4) for _ in queries]


@pytest.mark.slow
def test_the_node_is_benchmarked_over_dds(tmp_path, monkeypatch):
    import bag_tools

    tint = np.array([60, 0, 0], np.int16)

    def tinted(k: int) -> np.ndarray:
        sign = 1 if k // 16 % 2 else -1
        return (picture(k) // 2 + 30 + sign * tint // 2 + tint[::-1] // 4 * -sign).astype(np.uint8)

    with monkeypatch.context() as patch:
        patch.setattr(bag_tools, "picture", tinted)
        bag = make_bag(tmp_path / "bag", 64, truth=lambda k: (
            {"red": "yes" if k // 16 % 2 else "no"}, k // 16))
    book = QuestionBook.loads('- {id: red, text: "Is it red?", ema: 1.0}')
    with open_recording(bag, None, book) as recording:
        player = realtime_player(str(bag), recording.topic, Eye, RuntimeSettings(), (), 9.0)
        result = bench_replay(recording, book, chosen("stream,no_hysteresis"), player,
                              frozenset(), latency="realtime", rounds=50)
    assert "published over DDS" in result["latency_model"]
    for mode in result["modes"].values():
        assert mode["event_accuracy"] == 1.0 and mode["groups"] >= 16
        red = mode["questions"]["red"]
        # Times are those of the recording: an answer comes after what it tells of.
        assert red["event_latency_s"] > 0.0 and red["age_ms_p50"] > 0.0
        assert red["events"] == 3 and mode["event_recall"] > 0.0
