"""
video_camera: play a video file as a camera, at its own pace.

Publishes ``image`` (sensor_msgs/Image, rgb8, relative name). Stamps are the time at which the
playing began (ROS time) plus the file's own presentation time divided by ``speed``.

Parameters: ``file`` (path), ``speed`` (1: as recorded), ``loop`` (start again at the end, else
end the process; stamps go on), ``frame_id``, ``reliability`` (reliable or best_effort).
"""

from __future__ import annotations

from collections.abc import Callable

from rclpy.node import Node
from rclpy.qos import QoSProfile, QoSReliabilityPolicy
from sensor_msgs.msg import Image

from ..sources.video import SourceError, VideoFile
from .convert import rgb_to_msg
from .parameters import ParameterError, Spec, declare_all, read_all
from .process import run

SPECS = (
    Spec("file", "", "Video file to play.", read_only=True),
    Spec("speed", 1.0, "Pace: 2 plays twice as fast.", 0.05, 20.0, read_only=True),
    Spec("loop", False, "Start again at the end; otherwise the node ends.", read_only=True),
    Spec("frame_id", "camera", "Frame id of the images.", read_only=True),
    Spec("reliability", "reliable", "QoS of the images.", choices=("reliable", "best_effort"),
         read_only=True),
)


class VideoCamera(Node):
    """The node; ``stop`` is called at the end of a file that does not loop."""

    def __init__(self, stop: Callable[[], None] = lambda: None, **kwargs) -> None:
        super().__init__("video_camera", **kwargs)
        declare_all(self, SPECS)
        values = read_all(self, SPECS)
        self._stop = stop
        self._loop = values["loop"]
        self._speed = values["speed"]
        self._frame_id = values["frame_id"]
        try:
            self._video = VideoFile(values["file"])
        except SourceError as error:
            raise ParameterError(f"file: {error}") from error
        self._next = self._video.next()
        self._start_ns: int | None = None
        self._last_ns = 0
        qos = QoSProfile(depth=2, reliability=QoSReliabilityPolicy[values["reliability"].upper()])
        self._publisher = self.create_publisher(Image, "image", qos)
        self.create_timer(0.005, self._tick)

    def _tick(self) -> None:
        now_ns = self.get_clock().now().nanoseconds
        if self._start_ns is None:
            if self._publisher.get_subscription_count() == 0:
                return  # nobody would see the beginning
            self._start_ns = now_ns
        if self._next is None:
            if self._video.shortfall:
                self.get_logger().warning(self._video.shortfall)
            if not self._loop:
                self._stop()
                return
            self._video.rewind()
            self._next = self._video.next()
            self._start_ns = self._last_ns + round(0.04e9 / self._speed)
        rgb, t_s = self._next
        stamp_ns = self._start_ns + round(t_s / self._speed * 1e9)
        if stamp_ns <= now_ns:
            self._publisher.publish(rgb_to_msg(rgb, stamp_ns, self._frame_id))
            self._last_ns = stamp_ns
            self._next = self._video.next()


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal, or the end of a file that does not loop."""
    return run(VideoCamera, args, about=__doc__)


if __name__ == "__main__":
    raise SystemExit(main())
