"""Whether the node looks at the simulated desk, and so may ask the model that knows only that."""

from __future__ import annotations

from rclpy.node import Node

from ..model_scope import OUT_OF_SCOPE, scope_warning
from ..sources.messages import base_of

UNKNOWN_NAME = "_NODE_NAME_UNKNOWN_"
"""What the middleware tells of a publisher until it has found its node."""


class Scope:
    """What a user is told where the model cannot know the camera; `warning` is empty until then.

    The camera is taken for the simulated one where `sim_camera` publishes the topic, or where a
    topic `truth` is published beside it: a recording of the desk is played with its truth. Of a
    camera that has gone, or whose name is not known yet, the last judgement stands.
    """

    def __init__(self, node: Node) -> None:
        """Look at nothing yet."""
        self._node = node
        self._looks = 0
        self.warning = ""

    @property
    def mark(self) -> str:
        """What the picture is marked with, or empty."""
        return OUT_OF_SCOPE if self.warning else ""

    def look(self, topic: str, model: str) -> None:
        """Judge the topic, once it has images; log a warning when it begins to hold."""
        simulated = self._is_simulated(topic)
        if simulated is None:
            return
        warning = scope_warning(model, simulated=simulated)
        # What publishes the truth may be found a little later than the images.
        self._looks = self._looks + 1 if warning else 0
        before, self.warning = self.warning, warning if self._looks > 1 else ""
        if self.warning and not before:
            self._node.get_logger().warning(f"{self.warning} (parameter model)")

    def _is_simulated(self, topic: str) -> bool | None:
        """Return whether it is; None while there is nobody to be judged."""
        names = {info.node_name for info in self._node.get_publishers_info_by_topic(topic)}
        folder = base_of(topic).rpartition("/")[0]
        if "sim_camera" in names or self._node.count_publishers(f"{folder}/truth") > 0:
            return True
        return None if not names or UNKNOWN_NAME in names else False
