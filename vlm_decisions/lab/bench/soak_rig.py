"""The node for a soak test: real DDS services and publishers, and a clock that the driver sets.

Images are given to the subscription's callback, so that none is lost on the way. Requests go
through the node's services. One thread is executor and driver, as in the node's own process.
"""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from rclpy.clock import ClockType
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.time import Time
from sensor_msgs.msg import Image

from vlm_decisions.srv import AddQuestion, Ask, RemoveQuestion, SaveQuestions

from ...decision import Decision
from ...frames import FPS
from ...questions import Question
from ...ros.convert import question_to_msg, rgb_to_msg
from ...ros.diagnostics import rss_mb
from ...ros.node import DecisionNode
from ...ros.services import MAX_TIMEOUT_S
from ...ros.session import EngineFactory, load_engine
from ...runtime.log import read_log
from .faulty_engine import FaultyEngine
from .soak import Soak
from .soak_images import BAD_IMAGES, ENCODINGS, encoded
from .stderr_watch import StderrWatch

TRIES = 240
"""Waits of a quarter of a second for one thing to be done; counted, not timed, so that a machine
that sleeps or a process that is stopped meanwhile does not count."""


class SoakError(RuntimeError):
    """The soak test could not run, or the program failed. The message says what."""


class SoakNode(DecisionNode):
    """The node, with access to the parts that the rig needs."""

    def deliver(self, msg: Image) -> None:
        """Process an image message as if it had arrived."""
        self._cameras.of(self.runtime.views()[0]).receive(msg)

    def refused(self) -> int:
        """Return how many images were refused."""
        return sum(self._cameras.of(self.runtime.views()[0]).refused.values())

    def last_refusal(self) -> str:
        """Return why the newest refused image was refused."""
        return self._cameras.of(self.runtime.views()[0]).last_refusal

    def tend(self, slowly: bool) -> None:
        """Do what the timers do: check freshness, and sometimes publish diagnostics and draw."""
        self._check_freshness()
        if slowly:
            self._diagnose()
            self._draw()

    @property
    def runtime(self) -> Any:
        return self._session.runtime


BAD_REQUESTS: tuple[tuple[type, str, dict[str, Any]], ...] = (
    (AddQuestion, "add_question", {"question": ("bad id", "Is it?")}),
    (AddQuestion, "add_question", {"question": ("long", "x" * 10_000)}),
    (RemoveQuestion, "remove_question", {"question_id": "nobody"}),
    (SaveQuestions, "save_questions", {"path": "../../etc/passwd"}),
    (Ask, "ask", {"text": ""}),
    (Ask, "ask", {"text": "Is it?", "timeout_s": 2 * MAX_TIMEOUT_S}),
)


class NodeRig:
    """The node as a rig (soak.Rig). Its log and its questions are written to `folder`."""

    bad_images = tuple(BAD_IMAGES)
    encodings = ENCODINGS

    def __init__(self, folder: Path, watch: StderrWatch,
                 engine_factory: EngineFactory | None = None, questions: str = "desk") -> None:
        self._folder, self._watch = folder, watch
        self._engine: FaultyEngine | None = None
        make = engine_factory or load_engine
        self._context = rclpy.Context()
        # Its own names: another node here would have another clock, and the same services.
        namespace = f"/soak_{os.getpid()}"
        rclpy.init(context=self._context, args=[
            "--ros-args", "-r", f"__ns:={namespace}", "-r", f"/clock:={namespace}/clock",
            "-r", f"/diagnostics:={namespace}/diagnostics"])
        parameters = {
            "use_sim_time": True, "autostart": False, "questions_file": questions,
            "log_file": str(folder / "decisions.jsonl"), "log_max_mb": 1.0, "log_keep": 2,
            "questions_save_file": str(folder / "questions.yaml"),
            "cut": 0.0}  # every group is to be answered, whatever its pictures show
        self.node = SoakNode(
            context=self._context, engine_factory=lambda *args: self._wrap(make(*args)),
            parameter_overrides=[Parameter(name, value=value)
                                 for name, value in parameters.items()])
        self._peer = rclpy.create_node("soak", context=self._context)
        # A subscriber, or nothing would be drawn.
        self._peer.create_subscription(Image, "decision_node/overlay", lambda msg: None, 1)
        self._clients: dict[str, Any] = {}
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._executor.add_node(self._peer)
        self._checks = 0
        self._libc = ctypes.CDLL(None)
        for transition in (self.node.trigger_configure, self.node.trigger_activate):
            if transition().name != "SUCCESS":
                reason = self.node.snapshot().failure
                self.close()
                raise SoakError(f"the node does not start: {reason}")
        self.max_age_s = self.node.runtime.settings.max_age_s

    def close(self) -> None:
        """End the node."""
        if self._engine is not None:
            self._engine.go.set()
        self.node.close()
        self._executor.shutdown()
        self.node.destroy_node()
        self._peer.destroy_node()
        rclpy.shutdown(context=self._context)

    def read_log(self) -> int:
        """Return the lines of the log files. Raises RecordError if one is torn."""
        return sum(1 for path in self._folder.glob("decisions.jsonl*") for _ in read_log(path))

    # -- soak.Rig ------------------------------------------------------------------

    def time(self, now_ns: int) -> None:
        self.node.get_clock().set_ros_time_override(
            Time(nanoseconds=now_ns, clock_type=ClockType.ROS_TIME))

    def image(self, rgb: np.ndarray, stamp_ns: int, encoding: str, padding: int) -> None:
        before = self.node.refused()
        self.node.deliver(encoded(rgb, stamp_ns, encoding, padding))
        _wanted(self.node.refused() == before, f"a good {encoding} image was refused: "
                                               f"{self.node.last_refusal()}")

    def bad_image(self, kind: str, stamp_ns: int) -> None:
        msg = rgb_to_msg(np.zeros((60, 80, 3), np.uint8), stamp_ns, "soak")
        BAD_IMAGES[kind](msg)
        before = self.node.refused()
        self.node.deliver(msg)
        _wanted(self.node.refused() == before + 1, f"a bad image ({kind}) was not refused")

    def settle(self) -> None:
        _wanted(any(self.node.runtime.wait_idle(0.25) for _ in range(TRIES)),
                "the engine does not finish")

    def check(self) -> None:
        self._checks += 1
        try:
            self.node.tend(slowly=self._checks % round(FPS) == 0)
        except Exception:
            traceback.print_exc()  # where the watch counts it; a timer's fault ends no node
        for _ in range(4):
            self._spin(0.0)

    def listen(self, listener: Callable[[Decision], None]) -> None:
        self.node.runtime.listen(listener)

    def questions(self) -> Sequence[Question]:
        return self.node.questions()

    def add(self, question: Question) -> None:
        response = self._call(AddQuestion, "add_question", question=question_to_msg(question))
        _wanted(response.success, response.message)

    def remove(self, question_id: str) -> None:
        response = self._call(RemoveQuestion, "remove_question", question_id=question_id)
        _wanted(response.success, response.message)

    def bad_request(self, number: int) -> None:
        kind, name, fields = BAD_REQUESTS[number % len(BAD_REQUESTS)]
        fields = dict(fields)
        if "question" in fields:
            request = kind.Request()
            request.question.id, request.question.text = fields["question"]
            fields = {"question": request.question}
        response = self._call(kind, name, **fields)
        _wanted(not response.success and response.message, f"{name} took {fields}")

    def ask(self, text: str) -> None:
        response = self._call(Ask, "ask", text=text, timeout_s=30.0)
        _wanted(response.success, response.message)

    def hold(self, held: bool) -> None:
        if held:
            self._engine.go.clear()
        else:
            self._engine.go.set()

    def fail(self, calls: int) -> None:
        self._engine.failures = calls

    def reactivate(self) -> None:
        for transition in (self.node.trigger_deactivate, self.node.trigger_activate):
            _wanted(transition().name == "SUCCESS", "a transition failed")

    def ticks(self) -> int:
        return self.node.runtime.stats().ticks

    def rss_mb(self) -> float:
        # What the allocator keeps of freed images comes and goes by tens of megabytes.
        gc.collect()
        if (trim := getattr(self._libc, "malloc_trim", None)) is not None:
            trim(0)
        return rss_mb()

    def tracebacks(self) -> int:
        return self._watch.count

    # -- internals ---------------------------------------------------------------------------------

    def _wrap(self, engine: Any) -> FaultyEngine:
        self._engine = FaultyEngine(engine)
        return self._engine

    def _spin(self, timeout_s: float) -> None:
        try:
            self._executor.spin_once(timeout_sec=timeout_s)
        except Exception:
            traceback.print_exc()  # where the watch counts it

    def _call(self, kind: type, name: str, **fields: Any) -> Any:
        client = self._clients.get(name)
        if client is None:
            client = self._peer.create_client(kind, f"decision_node/{name}")
            self._clients[name] = client
        self._spin_until(client.service_is_ready, f"there is no service {name}")
        future = client.call_async(kind.Request(**fields))
        self._spin_until(future.done, f"{name} does not reply")
        return future.result()

    def _spin_until(self, done: Callable[[], bool], otherwise: str) -> None:
        for _ in range(TRIES):
            end_s = time.monotonic() + 0.25
            while time.monotonic() < end_s:
                if done():
                    return
                self._spin(0.05)
        raise SoakError(otherwise)


def bench_soak(minutes: float, seed: int = 0, *, engine_factory: EngineFactory | None = None,
               questions: str = "desk", frame_s: float | None = None,
               kinds: Sequence[str] = (),
               say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Run the node under random faults and return Soak.result().

    The arguments `minutes` and `frame_s` limit real time and frame time; the first limit that is
    reached ends the test. `kinds`: only these faults. `say` gets lines of text: progress, and the
    findings of the judge. Raises SoakError if the node does not start.
    """
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, StderrWatch() as watch:
        rig = NodeRig(Path(folder), watch, engine_factory, questions)
        try:
            soak = Soak(rig, seed)
            begin_s = told_s = time.monotonic()

            def going() -> bool:
                nonlocal told_s
                now_s = time.monotonic()
                if now_s - told_s >= 60.0:
                    told_s = now_s
                    say(f"{(now_s - begin_s) / 60:.0f} min: {soak.frame_s:.0f} s of frames, "
                        f"{rig.ticks()} ticks, {sum(soak.faults.values())} faults, "
                        f"{rig.rss_mb():.0f} MB, missed {soak.judge.missed}, "
                        f"stale {soak.judge.stale_as_fresh}, tracebacks {watch.count}")
                return (now_s - begin_s < minutes * 60.0
                        and (frame_s is None or soak.frame_s < frame_s))

            result = soak.run(going, kinds)
            taken_s = time.monotonic() - begin_s
            say(f"{soak.frame_s:.0f} s of frame time in {taken_s:.0f} s, {soak.judge.answers} "
                f"answers, {rig.read_log()} lines in the last log files")
            for note in soak.judge.notes:
                say(note)
            return result
        finally:
            rig.close()


def _wanted(true: Any, message: str) -> None:
    """Raise SoakError with a message if a condition is not met."""
    if not true:
        raise SoakError(message)
