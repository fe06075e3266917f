"""What the tests run by launch_testing share: starting a launch file, and listening to its node."""

import unittest

import launch_testing.actions
import launch_testing.asserts
import rclpy
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from rclpy.qos import QoSDurabilityPolicy, QoSProfile

from launch import LaunchDescription
from vlm_decisions.files import resources
from vlm_decisions.msg import Decision, QuestionArray

LATCHED = QoSProfile(depth=100, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)


def started(name, **arguments):
    """Return the description of a test that starts a launch file as a user would."""
    path = str(resources.share_file("launch", f"{name}.launch.py"))
    included = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(path), launch_arguments=arguments.items())
    return LaunchDescription([included, launch_testing.actions.ReadyToTest()])


class Listener(unittest.TestCase):
    """Listens to the node of a namespace; `got` holds the decisions by view and question."""

    path = "/robot/decision_node"

    def setUp(self):
        """Listen."""
        rclpy.init()
        self.node = rclpy.create_node("listener")
        self.got = {}
        self.questions = []
        self.node.create_subscription(
            Decision, f"{self.path}/decisions",
            lambda msg: self.got.setdefault((msg.view, msg.question_id), []).append(msg), LATCHED)
        self.node.create_subscription(
            QuestionArray, f"{self.path}/questions", self.questions.append, LATCHED)

    def tearDown(self):
        """Leave."""
        self.node.destroy_node()
        rclpy.shutdown()

    def until(self, what, timeout_s=60.0):
        """Spin until something is so."""
        end_ns = self.node.get_clock().now().nanoseconds + timeout_s * 1e9
        while not what() and self.node.get_clock().now().nanoseconds < end_ns:
            rclpy.spin_once(self.node, timeout_sec=0.1)
        self.assertTrue(what())

    def answered(self, question_id, view=""):
        """Tell whether a question was answered."""
        return any(msg.answer != Decision.UNKNOWN for msg in self.got.get((view, question_id), []))


class EndsCleanly(unittest.TestCase):
    """After the launch was ended."""

    def test_all_exit_with_0(self, proc_info):
        """SIGINT ends all processes cleanly."""
        launch_testing.asserts.assertExitCodes(proc_info, [0])
