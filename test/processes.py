"""Processes for tests: a Python program with its output by line, and an ordinary camera driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent

NODE = """
import sys
sys.path.insert(0, {here!r})
from fake_model import FakeModel
from vlm_decisions.ros.node import DecisionNode
from vlm_decisions.ros.process import run
raise SystemExit(run(lambda stop: DecisionNode(
    engine_factory=lambda name, budget: FakeModel(load_s={load_s}, ask_s={ask_s}))))
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

    def __init__(self, *args: str, domain: int | None = None) -> None:
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
        env = {name: value for name, value in os.environ.items()
               if not name.startswith(("FASTDDS_", "FASTRTPS_"))}
        env |= {"ROS_DOMAIN_ID": str(domain or 1 + os.getpid() % 99),
                "RCUTILS_COLORIZED_OUTPUT": "0", "RCUTILS_LOGGING_BUFFERED_STREAM": "0"}
        self.lines: list[str] = []
        self.popen = subprocess.Popen([sys.executable, *args], env=env, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exception) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()

    def _read(self) -> None:
        for line in self.popen.stdout:
            self.lines.append(line.rstrip())

    def wait_line(self, text: str, timeout_s: float = 60.0) -> str:
        """Return the first line with a text; fail where the process ends without it."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            ended = self.popen.poll() is not None
            if ended:
                self._reader.join()
            line = next((line for line in self.lines if text in line), None)
            if line is not None:
                return line
            assert not ended and time.monotonic() < deadline_s, f"no {text!r} in {self.lines}"
            time.sleep(0.02)

    def end(self, *numbers: signal.Signals, apart_s: float = 0.0) -> tuple[int, float, str]:
        """Send signals, `apart_s` apart; return exit code, seconds it took, and all output."""
        began_s = time.monotonic()
        for n, number in enumerate(numbers):
            if n:
                time.sleep(apart_s)
            self.popen.send_signal(number)
        try:
            code = self.popen.wait(20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise
        took_s = time.monotonic() - began_s
        self._reader.join()
        return code, took_s, "\n".join(self.lines)


def node(*args: str, load_s: float = 0.0, ask_s: float = 0.0, domain: int | None = None) -> Process:
    """Start a decision node with a fake model."""
    return Process("-c", NODE.format(here=str(HERE), load_s=load_s, ask_s=ask_s),
                   "--ros-args", "-p", "heads_dir:=none", *args, domain=domain)


def camera(reliability: str, size: tuple[int, int], count: int, subscribers: int,
           domain: int) -> Process:
    """Start a driver that publishes `count` images at 15 Hz once it has so many subscribers."""
    return Process("-c", CAMERA, reliability, *map(str, (*size, count, subscribers)),
                   domain=domain)
