"""launch_testing: replay.launch.py playing a video file round and round."""

import os
import unittest

import launch_testing.actions
import launch_testing.asserts
import rclpy
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from rclpy.qos import QoSDurabilityPolicy, QoSProfile

from launch import LaunchDescription
from vlm_decisions.files import resources
from vlm_decisions.msg import Decision

LATCHED = QoSProfile(depth=100, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)


def generate_test_description():
    """Start the launch file as a user would, with the video that the test made."""
    replay = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(resources.share_file("launch", "replay.launch.py"))),
        launch_arguments={"source": os.environ["TEST_VIDEO"], "loop": "true"}.items())
    return LaunchDescription([replay, launch_testing.actions.ReadyToTest()])


class TestReplay(unittest.TestCase):
    """While it runs."""

    def test_the_video_is_seen(self):
        """The camera's health and a question are decided on the video's frames."""
        rclpy.init()
        node = rclpy.create_node("listener")
        got = []
        node.create_subscription(Decision, "/decision_node/decisions", got.append, LATCHED)

        def seen(name):
            return any(m.question_id == name and m.answer != Decision.UNKNOWN for m in got)
        end_ns = node.get_clock().now().nanoseconds + 60e9
        while not (seen("camera_dark") and seen("person")):
            self.assertLess(node.get_clock().now().nanoseconds, end_ns)
            rclpy.spin_once(node, timeout_sec=0.1)
        node.destroy_node()
        rclpy.shutdown()


@launch_testing.post_shutdown_test()
class TestEnd(unittest.TestCase):
    """After the launch was ended."""

    def test_all_exit_with_0(self, proc_info):
        """SIGINT ends both processes cleanly."""
        launch_testing.asserts.assertExitCodes(proc_info, [0])
