"""`vlm-decisions demo`: the simulated desk and the node, two processes over DDS, watched live."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cv2
import rclpy
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image
from std_msgs.msg import String

from vlm_decisions.msg import Decision as DecisionMsg

from ..decision import Decision
from ..ros.convert import decision_from_msg
from ..ros.domain import stay_private
from ..ros.matching import MatchingSubscription
from ..ros.question_store import Keeper
from ..sources.images import image_to_rgb
from ..sources.truth import TruthRow, read_row, truth_of_rows
from ..viewer.table import Table
from .demo_summary import summarise

RECENT_ROWS = 100  # of the truth, for the live table
START_S = 60.0  # the model is loaded and the first decision published well within this


class DemoError(RuntimeError):
    """The demo could not run. The message says which part failed."""


def run_demo(duration_s: float = 30.0, seed: int = 0, width: int = 640, height: int = 480,
             fps: float = 16.0, questions: str = "desk", quiet: bool = False,
             picture: str | None = None) -> dict[str, Any]:
    """Run the camera and the node for `duration_s` and return the summary.

    Args:
        duration_s: seconds of decisions.
        seed: of the desk.
        width: of the camera's images.
        height: of the camera's images.
        fps: of the camera.
        questions: shipped set or YAML file for the node.
        quiet: no live table.
        picture: file to save the last overlay image to.

    Raises:
        QuestionError, ParameterError: questions that cannot be used.
        DemoError: a process ends early, or no decision arrives.
    """
    book = Keeper(questions).load()  # fail now: the node would wait for other questions
    stay_private()
    camera = ["sim_camera", f"seed:={seed}", f"width:={width}",
              f"height:={height}", f"fps:={fps}", "loop:=true"]
    node = ["decision_node", "model:=sim_desk",
            f"questions_file:={questions}"]
    with process(*node) as deciding, _watcher(bool(picture)) as watch:
        watch.wait(deciding, "decision_node", watch.ready)
        with process(*camera) as filming:
            watch.wait(filming, "sim_camera", lambda: len(watch.told) > 1)
            watch.wait(deciding, "decision_node", lambda: bool(watch.decisions))
            table = Table(sys.stdout, quiet)
            end = time.monotonic() + duration_s
            while (left := end - time.monotonic()) > 0:
                watch.spin(min(0.1, left))
                check_process(filming, "sim_camera")
                check_process(deciding, "decision_node")
                table.show(watch.newest.values(), watch.answer, watch.rates, left)
            table.done()
            if picture:
                watch.save_overlay(picture)
    return summarise(watch.decisions, truth_of_rows(watch.told), book)


class _DemoListener:
    """Stores the decisions and the truth in order of arrival."""

    def __init__(self, overlay: bool) -> None:
        self.told: list[TruthRow] = []
        self.decisions: list[Decision] = []
        self.newest: dict[str, Decision] = {}
        self.rates: dict[str, float] = {}
        self._times: dict[str, deque[int]] = {}
        self.node = Node("vlm_decisions_demo")
        latched = QoSProfile(depth=1000, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._subscription = self.node.create_subscription(
            DecisionMsg, "decision_node/decisions", self._decided, latched)
        self.node.create_subscription(String, "truth", self._told, QoSProfile(depth=100))
        self._overlay: Any = None
        if overlay:
            MatchingSubscription(self.node, Image, "decision_node/overlay", self._drawn, depth=1)

    def ready(self) -> bool:
        """Return whether the node publishes."""
        return self.node.count_publishers("decision_node/decisions") > 0

    def wait(self, process: subprocess.Popen, name: str, ready: Callable[[], bool]) -> None:
        """Spin until `ready`. Raises DemoError if `process` ends or nothing arrives."""
        end = time.monotonic() + START_S
        while not ready():
            check_process(process, name)
            if time.monotonic() > end:
                raise DemoError(f"{name} runs, but nothing came from it within {START_S:.0f} s")
            self.spin(0.1)

    def spin(self, timeout_s: float) -> None:
        """Process what has arrived for `timeout_s`."""
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            rclpy.spin_once(self.node, timeout_sec=left)

    def _decided(self, msg: Any) -> None:
        decision = decision_from_msg(msg)
        if not self.told:
            return  # before the camera there is no truth
        self.decisions.append(decision)
        self.newest[decision.question_id] = decision
        times = self._times.setdefault(decision.question_id, deque(maxlen=12))
        times.append(decision.t_end_ns)
        if len(times) > 1 and times[-1] > times[0]:
            self.rates[decision.question_id] = (len(times) - 1) * 1e9 / (times[-1] - times[0])

    def answer(self, question_id: str, t_ns: int) -> str | None:
        """Return the right answer to a question in the last seconds, None if it is not known."""
        return truth_of_rows(self.told[-RECENT_ROWS:]).answer(question_id, t_ns)

    def _drawn(self, msg: Any) -> None:
        self._overlay = msg

    def save_overlay(self, path: str) -> None:
        """Write the newest overlay image. Raises DemoError if there is none."""
        if self._overlay is None:
            raise DemoError("no overlay image came from decision_node")
        if not cv2.imwrite(path, image_to_rgb(self._overlay)[..., ::-1]):
            raise DemoError(f"{path}: the picture cannot be written")

    def _told(self, msg: Any) -> None:
        row = read_row(msg.data, "a message of the truth")
        if not self.told or row.stamp_ns > self.told[-1].stamp_ns:
            self.told.append(row)


@contextmanager
def _watcher(overlay: bool) -> Iterator[_DemoListener]:
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    try:
        watch = _DemoListener(overlay)
        try:
            yield watch
        finally:
            watch.node.destroy_node()
    finally:
        rclpy.try_shutdown()


@contextmanager
def process(name: str, *parameters: str) -> Iterator[subprocess.Popen]:
    """Run a node as a process with parameters `name:=value`; end it afterwards.

    It ends by itself where this process is killed: its input then ends.
    """
    arguments = [a for p in parameters for a in ("-p", p)]
    command = [sys.executable, "-m", "vlm_decisions.ros", "--until-input-ends", name, "--ros-args",
               "--log-level", "warn", *arguments]
    child = None
    try:
        with _signals_held_back():
            child = subprocess.Popen(command, stdin=subprocess.PIPE)
        yield child
    finally:
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(5.0)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if child is not None:
            child.stdin.close()


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Hold signals back while a child starts; one that came is raised at the end.

    The child inherits the mask: a signal that comes before its program can take care of it would
    end Python with a traceback. Here the mask is not enough: the system may give the signal to a
    library's thread, and Python would still run the handler in the main thread, inside Popen.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    came: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.signal(number, lambda number, _: came.append(number))
                    or signal.SIG_DFL for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if came:
        signal.raise_signal(came[0])


def check_process(child: subprocess.Popen, name: str) -> None:
    """Raise DemoError if the process `name` has ended."""
    if child.poll() is not None:
        raise DemoError(f"{name} ended with exit code {child.returncode}; its output is above")
