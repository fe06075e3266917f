"""Reads one question's answers from its topic, and judges each by its age.

export ROS_DOMAIN_ID=7      # without it the demo claims a domain of its own
vlm-decisions demo &        # or: ros2 launch vlm_decisions desk.launch.py
python examples/read_decisions.py [question id]
"""

import sys

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from rclpy.time import Time

from vlm_decisions.msg import Decision


def main() -> None:
    """Print the answers as they come, until a signal ends it."""
    name = sys.argv[1] if len(sys.argv) > 1 else "person"
    rclpy.init()
    node = rclpy.create_node("reader")

    def read(decision: Decision) -> None:
        age_s = (node.get_clock().now() - Time.from_msg(decision.t_end)).nanoseconds / 1e9
        print(f"{name}: {decision.answer} (p = {decision.p:.2f}), {age_s:.2f} s old"
              + (f": {decision.reason}" if decision.reason else ""), flush=True)

    # Transient local: the last answer comes at once, also to a late subscriber.
    latched = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
    node.create_subscription(Decision, f"/decision_node/decisions/{name}", read, latched)
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
