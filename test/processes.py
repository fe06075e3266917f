"""Processes for tests: a Python program with its output by line, and an ordinary camera driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from shared_memory import segments_of
from waiting import wait_for

HERE = Path(__file__).parent

NODE = """
import sys
sys.path.insert(0, {here!r})
from fake_model import FakeModel, FakeStream
from vlm_decisions.ros.node import DecisionNode
from vlm_decisions.ros.process import run

class Telling(FakeModel):
    def __init__(self):
        print("the model loads", flush=True)
        super().__init__(load_s={load_s}, ask_s={ask_s})

    def stream(self, window_groups, mode):
        return Asked(self, window_groups)

class Asked(FakeStream):
    def ask(self, queries):
        print("the model is asked", flush=True)
        return super().ask(queries)

raise SystemExit(run(lambda stop: DecisionNode(engine_factory=lambda name, budget: Telling())))
"""
CAMERA = """
import array, sys, time
import numpy as np
import rclpy
from rclpy.qos import QoSProfile, QoSReliabilityPolicy
from sensor_msgs.msg import Image

reliability, width, height, count, subscribers = sys.argv[1], *map(int, sys.argv[2:])
rclpy.init()
node = rclpy.create_node("driver")
publisher = node.create_publisher(Image, "image", QoSProfile(
    depth=10, reliability=QoSReliabilityPolicy[reliability.upper()]))
pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
msg = Image(width=width, height=height, encoding="rgb8", step=3 * width,
            data=array.array("B", pixels.tobytes()))
msg.header.frame_id = "camera"
while publisher.get_subscription_count() < subscribers:
    time.sleep(0.05)
time.sleep(1.5)  # for both sides to know each other
began_s = time.monotonic()
for n in range(count):
    time.sleep(max(0.0, began_s + n / 15.0 - time.monotonic()))
    msg.header.stamp = node.get_clock().now().to_msg()
    publisher.publish(msg)
time.sleep(1.0)
print("sent", count, flush=True)
time.sleep(60.0)
"""


class Process:
    """A Python process with its output by line, without a profile of Fast DDS."""

    def __init__(self, *args: str) -> None:
        env = {name: value for name, value in os.environ.items()
               if not name.startswith(("FASTDDS_", "FASTRTPS_"))}
        env |= {"RCUTILS_COLORIZED_OUTPUT": "0", "RCUTILS_LOGGING_BUFFERED_STREAM": "0"}
        self.lines: list[str] = []
        self.popen = subprocess.Popen([sys.executable, *args], env=env, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exception) -> None:
        segments = segments_of(self.popen.pid)
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for path in segments:
            for left in (path, Path(f"{path}_el")):
                left.unlink(missing_ok=True)

    def _read(self) -> None:
        for line in self.popen.stdout:
            self.lines.append(line.rstrip())

    def wait_line(self, text: str, timeout_s: float = 60.0) -> str:
        """Return the first line with a text; fail where the process ends without it."""
        def said() -> str | None:
            ended = self.popen.poll() is not None
            if ended:
                self._reader.join()
            line = next((line for line in self.lines if text in line), None)
            assert line is not None or not ended, self.lines
            return line
        return wait_for(said, timeout_s)

    def end(self, *numbers: signal.Signals, apart_s: float = 0.0) -> tuple[int, str]:
        """Send signals, `apart_s` apart; return exit code and all output.

        A process that ends by itself leaves nothing in shared memory.
        """
        segments = segments_of(self.popen.pid)
        for n, number in enumerate(numbers):
            if n:
                time.sleep(apart_s)
            self.popen.send_signal(number)
        try:
            code = self.popen.wait(60)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise
        self._reader.join()
        assert not [path for path in segments if path.exists()]
        return code, "\n".join(self.lines)


def node(*args: str, load_s: float = 0.0, ask_s: float = 0.0) -> Process:
    """Start a decision node with a fake model."""
    return Process("-c", NODE.format(here=str(HERE), load_s=load_s, ask_s=ask_s),
                   "--ros-args", "-p", "heads_dir:=none", *args)


def camera(reliability: str, size: tuple[int, int], count: int, subscribers: int) -> Process:
    """Start a driver that publishes `count` images at 15 Hz once it has so many subscribers."""
    return Process("-c", CAMERA, reliability, *map(str, (*size, count, subscribers)))
