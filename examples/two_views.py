"""The node in a program of one's own, with two views, in the program's executor.

It answers about the images of ``/front/image_raw``: the whole picture, and its right half, which is
a view of its own with more of the model's attention.
"""

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import QoSDurabilityPolicy, QoSProfile

from vlm_decisions.msg import Decision
from vlm_decisions.ros.node import DecisionNode

QUESTIONS = """
views:
  front: {image: /front/image_raw}
  right: {image: /front/image_raw, region: [0.5, 0, 1, 1], priority: 2}
questions:
  - {id: person, text: "Is a person present?"}
  - {id: cup, text: "Is there a cup?", view: right}
"""


def main() -> None:
    """Spin the node and a listener of one view until a signal."""
    with open("two_views.yaml", "w") as file:
        file.write(QUESTIONS)
    rclpy.init()
    decisions = DecisionNode(
        parameter_overrides=[Parameter("questions_file", value="two_views.yaml")])
    mine = Node("mine")
    mine.create_subscription(
        Decision, "decision_node/right/decisions/cup",
        lambda msg: print(f"{msg.view}: {msg.question_id} is {msg.answer}", flush=True),
        QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL))
    executor = SingleThreadedExecutor()
    executor.add_node(decisions)
    executor.add_node(mine)
    try:
        executor.spin()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        decisions.close()  # ends the engine's thread
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
