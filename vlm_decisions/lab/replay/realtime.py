"""`vlm-decisions bench replay --realtime`: the recording over DDS into the node, mode by mode."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import String

from vlm_decisions.msg import Decision as DecisionMsg
from vlm_decisions.msg import Event as EventMsg

from ...decision import Decision
from ...events import Event
from ...question_book import QuestionBook
from ...ros.convert import decision_from_msg, event_from_msg
from ...ros.domain import stay_private
from ...ros.middleware import let_images_pass
from ...ros.node import DecisionNode
from ...runtime.engine_protocol import EngineLike
from ...runtime.settings import RuntimeSettings
from ..demo import DemoError, process
from .bench import Player
from .engines import MeteredEngine
from .modes import Mode
from .playback import Playback

START_S = 120.0
LAST_S = 2.0  # to wait for the answers to the last images


def realtime_player(
    source: str,
    topic: str,
    load: Callable[[], EngineLike],
    settings: RuntimeSettings,
    head_paths: Sequence[Any],
    seconds: float,
) -> Player:
    """Return a player that runs the node in this process and the camera in another.

    Args:
        source: bag or video.
        topic: of the bag's images; empty for a video.
        load: loads the model, in the node's engine thread.
        settings: of the runtime.
        head_paths: files and folders of heads.
        seconds: how long to play.

    Raises:
        DemoError: the node or the camera fails.
    """
    stay_private()
    let_images_pass()

    def play(mode: Mode, book: QuestionBook) -> Playback:
        return _play(mode, book, source, topic, load, mode.settings(settings), head_paths, seconds)
    return play


class _Listener(Node):
    """Stores the decisions, the events and the time at which playing began."""

    def __init__(self) -> None:
        super().__init__("vlm_decisions_bench")
        self.decisions: list[Decision] = []
        self.events: list[Event] = []
        self.playing: dict[str, Any] | None = None
        latched = QoSProfile(depth=1000, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.create_subscription(
            DecisionMsg, "decision_node/decisions",
            lambda msg: self.decisions.append(decision_from_msg(msg)), latched)
        self.create_subscription(
            EventMsg, "decision_node/events",
            lambda msg: self.events.append(event_from_msg(msg)), latched)
        self.create_subscription(String, "replay_camera/playing", self._began, latched)

    def _began(self, msg: String) -> None:
        self.playing = json.loads(msg.data)


def _play(mode: Mode, book: QuestionBook, source: str, topic: str,
          load: Callable[[], EngineLike], settings: RuntimeSettings, head_paths: Sequence[Any],
          seconds: float) -> Playback:
    metered: list[MeteredEngine] = []

    def factory(name: str, budget: int | None) -> EngineLike:
        metered.append(MeteredEngine(mode.engine(load())))
        return metered[0]

    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "questions.yaml"
        book.save(file)
        heads = str(head_paths[0]) if mode.uses_heads and head_paths else "none"
        values = {"questions_file": str(file), "heads_dir": heads, "mode": settings.mode,
                  "sample_hz": settings.fps, "window_groups": settings.window_groups,
                  "max_age_s": settings.max_age_s}
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        try:
            node = DecisionNode(engine_factory=factory, parameter_overrides=[
                Parameter(name, value=value) for name, value in values.items()])
            listener = _Listener()
            try:
                with _spinning(node), _spinning(listener):
                    _wait(lambda: node.snapshot().state == "active", "the node is not active")
                    _film(source, topic, listener, seconds)
                    stats = node.snapshot().runtime
            finally:
                node.close()
                node.destroy_node()
                listener.destroy_node()
        finally:
            rclpy.try_shutdown()
    shift_ns = listener.playing["start_ns"] - listener.playing["first_ns"]
    first_ns = listener.playing["first_ns"]
    outcome = Playback(
        decisions=[moved for d in listener.decisions
                   if (moved := _moved(d, -shift_ns)).t_decided_ns >= first_ns],
        events=[_moved(event, -shift_ns) for event in listener.events],
        errors=[stats.last_error] if stats.last_error else [],
        stage_s=metered[0].spent_s, turns_s=metered[0].turns, frames=stats.frames,
        groups=stats.groups, dropped=dict(stats.dropped), period_s=2.0 / settings.fps,
        first_ns=first_ns, wall_s=time.monotonic() - began_s, heads=stats.heads,
        model=stats.model)
    return outcome


def _film(source: str, topic: str, listener: _Listener, seconds: float) -> None:
    with process("replay_camera", f"source:={json.dumps(source)}",
                 f"topics:={json.dumps(topic)}", "decoded:=true") as camera:
        _wait(lambda: listener.playing or camera.poll() is not None, "the camera does not play")
        end_s = time.monotonic() + seconds
        while camera.poll() is None and time.monotonic() < end_s:
            time.sleep(0.05)
        if camera.poll() not in (None, 0) or not listener.playing:
            raise DemoError(f"the camera ended with exit code {camera.returncode}; its output is "
                            "above")
    time.sleep(LAST_S)


def _moved(one: Any, by_ns: int) -> Any:
    """Return a decision or event with its stamps shifted; a stamp of 0 (none) stays 0."""
    stamps = {field.name: getattr(one, field.name) + by_ns for field in dataclasses.fields(one)
              if field.name.endswith("_ns") and getattr(one, field.name)}
    return dataclasses.replace(one, **stamps)


def _wait(ready: Callable[[], Any], fault: str) -> None:
    end_s = time.monotonic() + START_S
    while not ready():
        if time.monotonic() > end_s:
            raise DemoError(f"{fault} after {START_S:.0f} s")
        time.sleep(0.05)


@contextlib.contextmanager
def _spinning(node: Node) -> Iterator[None]:
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            executor.spin_once(timeout_sec=0.1)

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5.0)
        executor.shutdown()
