"""A behaviour tree that acts on what happens at the simulated desk.

    export ROS_DOMAIN_ID=7      # without it the demo claims a domain of its own
    vlm-decisions demo &        # or: ros2 launch vlm_decisions desk.launch.py
    python examples/desk_tree.py

It pauses while someone approaches, offers a refill while a person is there whose cup is on the
desk and not in the hand, and waits otherwise. What it does is printed and published on
``robot_says`` (std_msgs/String) whenever it changes.
"""

from __future__ import annotations

import argparse
import time

import py_trees
import rclpy
from py_trees.common import Status
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from std_msgs.msg import String

from vlm_decisions.ros.behaviours import AnswerIs

PAUSE, REFILL, WAIT = "pause: someone approaches", "offer a refill", "wait"
MAX_AGE_S = 1.5  # the cup is asked about twice a second


class Say(py_trees.behaviour.Behaviour):
    """Say what the robot does now, as long as it does it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._publisher = None

    def setup(self, **kwargs) -> None:
        """Publish on robot_says."""
        self._publisher = kwargs["node"].create_publisher(String, "robot_says", 10)

    def initialise(self) -> None:
        """Say it once, on entering."""
        print(self.name, flush=True)
        self._publisher.publish(String(data=self.name))

    def update(self) -> Status:
        """Go on until something more important comes."""
        return Status.RUNNING


def make_tree(
    server: str = "/decision_node", max_age_s: float = MAX_AGE_S
) -> py_trees.trees.BehaviourTree:
    """Return the tree; ``server`` is the decision node's name."""
    def asked(name: str, question: str, answer: str = "yes", **settings) -> AnswerIs:
        return AnswerIs(name, question, answer, max_age_s=max_age_s, server=server, **settings)

    pause = py_trees.composites.Sequence("pause", memory=False, children=[
        asked("someone approaches", "approaching", min_p=0.6), Say(PAUSE)])
    refill = py_trees.composites.Sequence("refill", memory=False, children=[
        asked("person is there", "person"),
        asked("cup is there", "cup"),
        asked("cup is down", "holding_cup", "no"),
        Say(REFILL)])
    # Without memory: each tick begins with the most important one.
    root = py_trees.composites.Selector("desk", memory=False, children=[pause, refill, Say(WAIT)])
    return py_trees.trees.BehaviourTree(root)


def main() -> int:
    """Tick the tree five times a second until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args()
    rclpy.init()
    node = Node("desk_tree")
    try:
        tree = make_tree()
        tree.setup(node=node)
        end_s = time.monotonic() + options.seconds
        while time.monotonic() < end_s:
            tick_s = time.monotonic() + 0.2
            while (left_s := tick_s - time.monotonic()) > 0:
                rclpy.spin_once(node, timeout_sec=left_s)
            tree.tick()
        tree.shutdown()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
