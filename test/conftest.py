"""What every test needs before anything else is imported."""

import os

# Before rclpy is initialised: nothing leaves the machine.
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"

# Loads the BLAS, before a test imports MLX.
import vlm_decisions.engine  # noqa: F401
