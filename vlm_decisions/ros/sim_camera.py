"""sim_camera: a camera that films the simulated desk, and publishes its truth.

Publishes (relative names):

- ``image`` (sensor_msgs/Image, rgb8)
- ``image/compressed`` (sensor_msgs/CompressedImage, jpeg), drawn only while subscribed
- ``truth`` (std_msgs/String): JSON ``{"stamp_ns": int, "facts": {question id: answer}}`` with the
  same stamp as the image of that moment

Each image shows the world at exactly its stamp (ROS time, so ``use_sim_time`` is honoured).

Parameters: ``seed`` (int), ``script`` (demo or random), ``duration_s`` (length of a random
script, s), ``loop`` (start again at the end, else end the process), ``width`` and ``height``
(pixels, 96 to 1280), ``fps`` (Hz), ``frame_id``, ``reliability`` (reliable or best_effort).
"""

from __future__ import annotations

import array
import json
from collections.abc import Callable

import cv2
from rclpy.node import Node
from rclpy.qos import QoSProfile, QoSReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String

from ..sim.script import Script
from ..sim.world import MAX_SIZE, MIN_SIZE, World
from .convert import rgb_to_msg
from .parameters import ParameterRules, Spec, declare_own

SPECS = (
    Spec("seed", 0, "Picks the desk, its light and its noise.", 0, 2**31 - 1, read_only=True),
    Spec("script", "demo", "What happens.", choices=("demo", "random"), read_only=True),
    Spec("duration_s", 60.0, "Length of a random script, seconds.", 1.0, 86400.0, read_only=True),
    Spec("loop", True, "Start again at the end; otherwise the node ends.", read_only=True),
    Spec("width", 640, "Pixels.", MIN_SIZE, MAX_SIZE, read_only=True),
    Spec("height", 480, "Pixels.", MIN_SIZE, MAX_SIZE, read_only=True),
    Spec("fps", 16.0, "Images a second, Hz.", 0.5, 60.0, read_only=True),
    Spec("frame_id", "camera", "Frame id of the images.", read_only=True),
    Spec("reliability", "reliable", "QoS of the images.", choices=("reliable", "best_effort"),
         read_only=True),
)


class SimCamera(ParameterRules, Node):
    """The node; ``stop`` is called at the end of a script that does not loop."""

    def __init__(self, stop: Callable[[], None] = lambda: None, **kwargs) -> None:
        super().__init__("sim_camera", **kwargs)
        values = declare_own(self, SPECS)
        self._stop = stop
        self._size = values["width"], values["height"]
        self._frame_id = values["frame_id"]
        self._loop = values["loop"]
        seed = values["seed"]
        script = (Script.demo(seed) if values["script"] == "demo"
                  else Script.random(seed, values["duration_s"]))
        self.world = World(seed, script)
        qos = QoSProfile(depth=2, reliability=QoSReliabilityPolicy[values["reliability"].upper()])
        self._image = self.create_publisher(Image, "image", qos)
        self._compressed = self.create_publisher(CompressedImage, "image/compressed", qos)
        self._truth = self.create_publisher(String, "truth", 10)
        self._start_ns: int | None = None
        self.create_timer(1.0 / values["fps"], self._tick)

    def _tick(self) -> None:
        stamp_ns = self.get_clock().now().nanoseconds
        if stamp_ns == 0:  # use_sim_time, and no clock yet
            return
        if self._start_ns is None or stamp_ns < self._start_ns:
            self._start_ns = stamp_ns
        t_s = (stamp_ns - self._start_ns) / 1e9
        if t_s >= self.world.duration_s:
            if not self._loop:
                self._stop()
                return
            t_s %= self.world.duration_s
        self._publish(stamp_ns, t_s)

    def _publish(self, stamp_ns: int, t_s: float) -> None:
        plain = self._image.get_subscription_count() > 0
        compressed = self._compressed.get_subscription_count() > 0
        if plain or compressed:
            rgb = self.world.render(t_s, *self._size)
            msg = rgb_to_msg(rgb, stamp_ns, self._frame_id)
            if plain:
                self._image.publish(msg)
            if compressed:
                jpeg = cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
                self._compressed.publish(CompressedImage(
                    header=msg.header, format="rgb8; jpeg compressed bgr8",
                    data=array.array("B", jpeg.tobytes())))
        facts = {"stamp_ns": stamp_ns, "facts": self.world.truth(t_s)}
        self._truth.publish(String(data=json.dumps(facts)))


make_node = SimCamera
