"""launch_testing: cameras.launch.py: four cameras, one node, in a namespace."""

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


def generate_test_description():
    """Start the launch file as a user would."""
    cameras = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(resources.share_file("launch", "cameras.launch.py"))),
        launch_arguments={"namespace": "robot", "questions": "desk"}.items())
    return LaunchDescription([cameras, launch_testing.actions.ReadyToTest()])


class TestCameras(unittest.TestCase):
    """While it runs."""

    def setUp(self):
        """Listen."""
        rclpy.init()
        self.node = rclpy.create_node("listener")
        self.got = {}
        self.questions = []
        self.node.create_subscription(
            Decision, "/robot/decision_node/decisions",
            lambda msg: self.got.setdefault((msg.view, msg.question_id), []).append(msg), LATCHED)
        self.node.create_subscription(QuestionArray, "/robot/decision_node/questions",
                                      self.questions.append, LATCHED)

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

    def test_every_question_is_answered_about_each_desk(self):
        """Questions of the shipped set, each asked of every view."""
        self.until(lambda: self.questions)
        ids = [question.id for question in self.questions[-1].questions]
        views = [view.name for view in self.questions[-1].views]
        self.assertEqual(views, ["desk_1", "desk_2", "desk_3", "desk_4"])

        def answered(view, question_id):
            return any(msg.answer != Decision.UNKNOWN
                       for msg in self.got.get((view, question_id), []))
        self.until(lambda: all(answered(view, name) for view in views for name in ids))
        self.assertEqual(self.got["desk_3", "person"][-1].header.frame_id, "desk_3")


@launch_testing.post_shutdown_test()
class TestEnd(unittest.TestCase):
    """After the launch was ended."""

    def test_all_exit_with_0(self, proc_info):
        """SIGINT ends both processes cleanly."""
        launch_testing.asserts.assertExitCodes(proc_info, [0])
