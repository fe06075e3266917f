"""Subscriptions that match their publishers: an ordinary camera's images arrive, or it is said."""

from collections import deque
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from diagnostic_msgs.msg import DiagnosticArray
from processes import Process, camera, node
from rclpy.node import Node
from rclpy.qos import QoSProfile, QoSReliabilityPolicy
from ros_peer import plain_node, rclpy_context
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String
from waiting import wait_for

from vlm_decisions.ros import matching as module
from vlm_decisions.ros.matching import MatchingSubscription, matching

RELIABLE, BEST_EFFORT = QoSReliabilityPolicy.RELIABLE, QoSReliabilityPolicy.BEST_EFFORT

PLAIN = """
import sys
import rclpy
from rclpy.node import Node
from rclpy.qos import QoSProfile, QoSReliabilityPolicy
from sensor_msgs.msg import Image

rclpy.init()
node = rclpy.create_node("plain")
count = 0
def take(msg):
    global count
    count += 1
    print("plain", count, flush=True)
node.create_subscription(Image, "image", take, QoSProfile(
    depth=10, reliability=QoSReliabilityPolicy[sys.argv[1].upper()]))
rclpy.spin(node)
"""


def shares(reliability, size, count):
    """Return (share of the node, of a plain subscriber, what diagnostics said) of one camera."""
    statuses = []
    with ExitStack() as stack:
        listener = stack.enter_context(plain_node("listener"))
        listener.create_subscription(DiagnosticArray, "/diagnostics", lambda msg: statuses.extend(
            status for status in msg.status if status.name.endswith(": image")), 10)
        eyes = stack.enter_context(node())
        plain = stack.enter_context(Process("-c", PLAIN, reliability))
        eyes.wait_line("active, reading")
        stack.enter_context(camera(reliability, size, count, 2)).wait_line("sent")
        said = [status.message for status in statuses]
        statuses.clear()
        values = {pair.key: pair.value for pair in wait_for(lambda: statuses and statuses[-1])
                  .values}
        heard = [line for line in plain.lines if line.startswith("plain")]
    assert values["reliability"] == reliability.replace("_", " ")
    return int(values["received"]) / count, len(heard) / count, [*said, *eyes.lines]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(640, 480), (1280, 720)])
def test_images_of_an_ordinary_reliable_camera_arrive(size):
    """The best of three: a busy machine loses images of its own."""
    best = 0.0
    for _ in range(3):
        best = max(best, shares("reliable", size, 60)[0])
        if best >= 0.95:
            return
    assert best >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("size", [(640, 480), (1280, 720)])
def test_lost_images_of_an_ordinary_best_effort_camera_are_told(size):
    """No fewer come than to a plain subscriber, and 5 s of losses are enough to say so."""
    best = 0.0
    for _ in range(3):
        share, plain, said = shares("best_effort", size, 75)
        if plain < 0.8:
            assert any("1 publisher on /image, its images are lost in the middleware" in text
                       and "make the publisher reliable" in text for text in said), said
        best = max(best, share - plain)
        if best > -0.05:
            return
    assert best > -0.05


@pytest.fixture
def ros():
    """Return a node that listens and one that publishes, each a participant of its own."""
    with plain_node("listener") as listener, plain_node("driver") as driver:
        yield listener, driver


def offer(driver, reliability, kind=String, topic="topic"):
    return driver.create_publisher(kind, topic, QoSProfile(depth=5, reliability=reliability))


def test_it_follows_publishers_that_come_and_go(ros):
    listener, driver = ros
    got = []
    subscription = MatchingSubscription(listener, String, "topic", got.append, depth=5)

    def heard(publisher):
        got.clear()
        wait_for(lambda: publisher.publish(String(data="x")) or got)

    first = offer(driver, RELIABLE)
    wait_for(lambda: subscription.link.publishers == 1)
    assert subscription.link.reliable
    heard(first)
    second = offer(driver, BEST_EFFORT)  # a reliable subscription would hear nothing of it
    wait_for(lambda: not subscription.link.reliable)
    heard(second)
    heard(first)
    driver.destroy_publisher(second)
    wait_for(lambda: subscription.link.reliable)
    heard(first)
    assert subscription.link.trouble == ""
    wait_for(lambda: len(listener.get_subscriptions_info_by_topic("/topic")) == 1)
    subscription.close()
    wait_for(lambda: listener.get_subscriptions_info_by_topic("/topic") == [])


def test_a_choice_is_kept_and_its_cost_is_told(ros):
    listener, driver = ros
    subscription = MatchingSubscription(listener, String, "topic", print, depth=5,
                                        reliability="reliable")
    offer(driver, BEST_EFFORT)
    trouble = wait_for(lambda: subscription.link.trouble)
    assert subscription.link.reliable
    assert trouble == ("1 publisher on /topic, best effort only, and this subscription takes "
                       "reliable ones only: set reliability: auto")


def test_a_publisher_of_another_type_is_told(ros):
    listener, driver = ros
    subscription = MatchingSubscription(listener, Image, "image", print, depth=5)
    offer(driver, RELIABLE, CompressedImage, "image")
    assert wait_for(lambda: subscription.link.trouble) == (
        "/image is published as sensor_msgs/msg/CompressedImage, and read as "
        "sensor_msgs/msg/Image (see image_transport)")


def test_silence_is_told_with_who_is_there(ros):
    listener, driver = ros
    subscription = MatchingSubscription(listener, String, "topic", print, depth=5)
    assert subscription.link.trouble == ""  # not before there was time to find each other
    assert wait_for(lambda: subscription.link.trouble) == "nobody publishes /topic"
    offer(driver, RELIABLE)
    wait_for(lambda: subscription.link.trouble == "")
    assert "1 publisher on /topic, but nothing comes" in wait_for(lambda: subscription.link.trouble)
    subscription._receive(String())
    assert subscription.link.trouble == ""  # from the first message on, not from the next look on


def test_the_topic_is_the_one_after_remapping():
    with rclpy_context(["--ros-args", "-r", "image/compressed:=/front/jpeg"]) as context:
        one = Node("one", context=context)
        subscription = MatchingSubscription(one, CompressedImage, "/image/compressed", print,
                                            depth=1)
        assert subscription.topic == "/front/jpeg"
        one.destroy_node()


def test_all_must_be_reliable():
    assert matching([RELIABLE, RELIABLE]) and not matching([RELIABLE, BEST_EFFORT])
    assert matching([])


def test_no_reliable_publisher_meets_a_best_effort_subscription(ros):
    """Whoever was there before: what its first moments bring would be lost in a replacement."""
    listener, driver = ros
    subscription = MatchingSubscription(listener, String, "topic", print, depth=5)
    first = offer(driver, BEST_EFFORT)
    wait_for(lambda: not subscription.link.reliable)
    driver.destroy_publisher(first)
    wait_for(lambda: subscription.link.publishers == 0)
    assert subscription.link.reliable
    before = subscription._subscription
    publisher = offer(driver, RELIABLE)
    wait_for(lambda: subscription.link.publishers == 1)
    assert subscription._subscription is before
    publisher.publish(String(data="x"))
    wait_for(lambda: subscription._received == 1)


def test_a_best_effort_publisher_is_followed_at_once(ros, monkeypatch):
    monkeypatch.setattr(module, "CHECK_S", 3600.0)  # no look at the publishers comes in time
    listener, driver = ros
    got = []
    subscription = MatchingSubscription(listener, String, "topic", got.append, depth=5)
    publisher = offer(driver, BEST_EFFORT)
    wait_for(lambda: publisher.publish(String(data="x")) or got)
    assert not subscription.link.reliable


def trouble(reliable, *, received, lost, silent_s):
    """Return what is said of one publisher of images, from which so much came in a while."""
    link = MatchingSubscription.__new__(MatchingSubscription)
    link._subscription, link._kind, link._name = SimpleNamespace(topic_name="/image"), Image, ""
    link._reliable, link._received, link._lost = reliable, received, lost
    link._history = deque([(0.0, 0, 0), (silent_s, received, lost)])
    return link._trouble([RELIABLE if reliable else BEST_EFFORT], [])


@pytest.mark.parametrize("numbers", [
    {"received": 0, "lost": 1, "silent_s": 0.5},  # a slow camera
    {"received": 20, "lost": 10, "silent_s": 2.0},
    {"received": 0, "lost": 0, "silent_s": 5.0}])  # a middleware that does not count
def test_losses_of_best_effort_images_carry_the_remedy(numbers):
    said = trouble(False, **numbers)
    assert "1 publisher on /image" in said and "lost in the middleware" in said
    assert "make the publisher reliable, or read compressed images" in said


def test_single_losses_are_not_told():
    assert trouble(False, received=58, lost=2, silent_s=4.0) == ""


def test_following_is_no_busy_loop(ros):
    listener, driver = ros
    looks = []
    look = listener.get_publishers_info_by_topic
    listener.get_publishers_info_by_topic = lambda topic: looks.append(topic) or look(topic)
    MatchingSubscription(listener, String, "topic", print, depth=5)
    ticks = []
    listener.create_timer(0.5, lambda: ticks.append(1))
    wait_for(lambda: len(ticks) >= 4)
    assert 2 <= len(looks) <= 8
