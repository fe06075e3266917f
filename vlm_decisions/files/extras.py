"""What to install where a package is missing."""

from __future__ import annotations

from importlib.util import find_spec

EXTRAS = {
    "study": ("Statistics", ("matplotlib", "scipy", "sklearn")),
    "train": ("Training", ("torch", "transformers", "safetensors")),
    "replay": ("Bags", ("rosbags", "mcap", "zstandard")),
    "trees": ("Behaviour trees", ("py_trees",)),
    "complete": ("Shell completions", ("argcomplete",)),
    "test": ("Pictures of the page", ("playwright",)),
}
"""By optional dependency of this package: what needs it, and the modules that it brings."""

ROS = ("rclpy", "launch", "launch_ros", "sensor_msgs", "std_msgs", "diagnostic_msgs",
       "rcl_interfaces", "vlm_decisions")
"""Modules of a ROS installation, and this package's own messages."""


def missing(error: ImportError) -> str:
    """Return what is missing and which package to install."""
    name = (error.name or "").partition(".")[0]
    for extra, (what, modules) in EXTRAS.items():
        if name in modules:
            return (f"{error}. {what} need the extra packages: "
                    f"pip install 'vlm_decisions[{extra}]'")
    if name == __package__.partition(".")[0] and find_spec(f"{name}.msg") is not None:
        return (f"{error}. The messages and services that were generated are older than the "
                "package: build it again (make, pip install . or colcon build).")
    if name in ROS:
        return f"{error}. This needs ROS 2: source its setup file, or use `make demo`."
    if name:
        return f"{error}. It belongs to this package's dependencies: pip install {name}"
    return str(error)
