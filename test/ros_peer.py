"""A ROS peer for tests: the node under test and its user, in one process over real DDS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from fake_model import FakeModel
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import SetParameters, SetParametersAtomically
from rclpy.action import ActionClient
from rclpy.exceptions import InvalidHandle
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from sensor_msgs.msg import Image
from waiting import wait_for

from vlm_decisions.action import WaitFor
from vlm_decisions.msg import Decision
from vlm_decisions.ros.convert import ns_to_time, rgb_to_msg
from vlm_decisions.ros.domain import private_domain
from vlm_decisions.ros.node import DecisionNode
from vlm_decisions.ros.wait_server import MAX_WAITS

QUESTIONS = """
- {id: person, text: "Is a person present?"}
- {id: activity, text: "What?", kind: choice, options: [typing, idle, away], rate_hz: 2.0}
"""
LATCHED = QoSProfile(depth=100, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)


@contextmanager
def rclpy_context(args: list[str] | None = None,
                  domain: int | None = None) -> Iterator[rclpy.Context]:
    """Yield an initialised context, of the test's own DDS domain where no other is given."""
    context = rclpy.Context()
    rclpy.init(context=context, args=args, domain_id=domain)
    try:
        yield context
    finally:
        rclpy.shutdown(context=context)


@contextmanager
def plain_node(name: str) -> Iterator[Node]:
    """Spin a node without anything in it, in the test's DDS domain."""
    with rclpy_context() as context:
        node = rclpy.create_node(name, context=context)
        try:
            with spinning(node):
                yield node
        finally:
            node.destroy_node()


@contextmanager
def spinning(*nodes: Node) -> Iterator[None]:
    """Spin nodes in one thread, in one executor."""
    executor = SingleThreadedExecutor(context=nodes[0].context)
    for node in nodes:
        executor.add_node(node)
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            # Jazzy's rclpy may still wait for what a test has just destroyed in its own thread.
            with suppress(InvalidHandle):
                executor.spin_once(timeout_sec=0.1)

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        executor.shutdown()


def images_of(node: DecisionNode) -> Any:
    """Return the image subscription of a node with one view, None while it has none."""
    return node._cameras and node._cameras.of(node._session.runtime.views()[0])


class Peer(Node):
    """Publishes a camera, listens to decisions and diagnostics, and calls services."""

    def __init__(self, context, node_path: str = "/decision_node") -> None:
        super().__init__("peer", context=context)
        self.path = node_path
        self.decisions: list[Decision] = []
        self.diagnostics: list[DiagnosticArray] = []
        self.create_subscription(Decision, f"{node_path}/decisions", self.decisions.append, LATCHED)
        self.create_subscription(DiagnosticArray, "/diagnostics", self.diagnostics.append, 10)
        self._camera: threading.Thread | None = None
        self._stop = threading.Event()
        self.stamps: list[int] = []
        self.rng = np.random.default_rng(0)

    def start_camera(self, topic="image", *, qos=10, fps=20.0, size=(48, 64),
                     make: Callable[[np.ndarray, int], Any] | None = None, kind=Image) -> None:
        """Publish noise images; `make(rgb, stamp_ns)` returns the message."""
        make = make or (lambda rgb, stamp_ns: rgb_to_msg(rgb, stamp_ns, "cam"))
        publisher = self.create_publisher(kind, topic, qos)
        self._stop.clear()

        def play() -> None:
            while not self._stop.wait(1.0 / fps):
                rgb = self.rng.integers(0, 256, (*size, 3), dtype=np.uint8)
                stamp_ns = self.get_clock().now().nanoseconds
                self.stamps.append(stamp_ns)
                publisher.publish(make(rgb, stamp_ns))

        self._camera = threading.Thread(target=play)
        self._camera.start()

    def stop_camera(self) -> None:
        """Publish no more images."""
        self._stop.set()
        if self._camera is not None:
            self._camera.join()
            self._camera = None

    def call(self, service: type, name: str, /, **fields: Any) -> Any:
        """Call a service of the node and return its response."""
        return self.call_later(service, name, **fields)()

    def call_later(self, service: type, name: str, /, **fields: Any) -> Callable[[float], Any]:
        """Call a service; return a function that waits for the response."""
        client = self.create_client(service, f"{self.path}/{name}")
        assert client.wait_for_service(20.0), f"no service {name}"
        future = client.call_async(service.Request(**fields))

        def wait(timeout_s: float = 20.0) -> Any:
            wait_for(future.done, timeout_s)
            self.destroy_client(client)
            return future.result()
        return wait

    def set_parameters(self, atomically: bool = False, **values: Any) -> list[Any]:
        """Set parameters from outside (`__` in a name stands for a dot); return the results."""
        parameters = [Parameter(name.replace("__", "."), value=value).to_parameter_msg()
                      for name, value in values.items()]
        if atomically:
            return [self.call(SetParametersAtomically, "set_parameters_atomically",
                              parameters=parameters).result]
        return self.call(SetParameters, "set_parameters", parameters=parameters).results

    def transition(self, label: str) -> bool:
        """Request a lifecycle transition."""
        request = ChangeState.Request()
        request.transition.label = label
        return self.call(ChangeState, "change_state", transition=request.transition).success

    def state(self) -> str:
        """Return the node's lifecycle state."""
        return self.call(GetState, "get_state").current_state.label

    def newest(self, question_id: str) -> Decision | None:
        """Return the newest decision on a question."""
        return next((d for d in reversed(self.decisions) if d.question_id == question_id), None)

    def more_decisions(self, count: int) -> None:
        """Wait until this many more decisions have come."""
        until = len(self.decisions) + count
        wait_for(lambda: len(self.decisions) >= until)

    def more_images(self, count: int) -> None:
        """Wait until the camera has published this many more images."""
        until = len(self.stamps) + count
        wait_for(lambda: len(self.stamps) >= until)

    def answered(self, question_id: str = "person", answer: str = "yes",
                 timeout_s: float = 20.0) -> Decision:
        """Wait until a question's newest decision has this answer."""
        return wait_for(lambda: (lambda d: d if d and d.answer == answer else None)(
            self.newest(question_id)), timeout_s)

    def status(self, what: str, level: bytes | None = None, timeout_s: float = 20.0) -> Any:
        """Wait for the next diagnostic status of a part of the node (with this level)."""
        self.diagnostics.clear()
        return wait_for(lambda: next(
            (s for array in list(self.diagnostics) for s in array.status
             if s.name.endswith(f": {what}") and level in (None, s.level)), None), timeout_s)


class Waiter:
    """Sends goals to a node's action."""

    def __init__(self, peer) -> None:
        self.peer = peer
        # By default a client keeps ten results that it has not read yet. It is made and destroyed
        # in the executor's thread: rclpy waits for a client that is half made, or half gone.
        self.client = self.act(lambda: ActionClient(
            peer, WaitFor, "/decision_node/wait_for",
            result_service_qos_profile=QoSProfile(depth=MAX_WAITS)))
        assert self.client.wait_for_server(20.0)
        self.feedback: list[WaitFor.Feedback] = []

    def send(self, condition: str, **fields):
        """Send a goal; return its handle and the future of its result."""
        sent = self.act(lambda: self.client.send_goal_async(
            WaitFor.Goal(condition=condition, **fields),
            feedback_callback=lambda msg: self.feedback.append(msg.feedback)))
        handle = wait_for(lambda: sent.done() and sent.result())
        assert handle.accepted
        return handle, self.act(handle.get_result_async)

    def destroy(self) -> None:
        """Destroy the client."""
        self.act(self.client.destroy)

    def act(self, call):
        """Call in the executor's thread: rclpy can lose a reply that another one waits for."""
        task = self.peer.executor.create_task(call)
        wait_for(task.done)
        return task.result()


def result_of(sent, timeout_s=20.0):
    """Wait for the end of a goal; return its status and result."""
    wait_for(sent[1].done, timeout_s)
    return sent[1].result().status, sent[1].result().result


@contextmanager
def system(tmp_path, *, questions: str = QUESTIONS, fake: Any = None, args: list[str] | None = None,
           path: str = "/decision_node", factory: Any = None,
           **parameters: Any) -> Iterator[SimpleNamespace]:
    """Run a decision node with a fake model and its peer; both single-threaded."""
    file = tmp_path / "questions.yaml"
    file.write_text(questions)
    parameters = {"questions_file": str(file), "heads_dir": "none", **parameters}
    fake = fake or FakeModel()
    with private_domain() as domain, rclpy_context(args, domain) as context:
        node = DecisionNode(
            context=context, engine_factory=factory or (lambda name, budget: fake),
            parameter_overrides=[Parameter(name.replace("__", "."), value=value)
                                 for name, value in parameters.items()])
        peer = Peer(context, path)
        try:
            with spinning(peer):
                try:
                    with spinning(node):
                        yield SimpleNamespace(node=node, peer=peer, model=fake, file=file,
                                              domain=domain)
                finally:
                    peer.stop_camera()
        finally:
            node.close()
            node.destroy_node()
            peer.destroy_node()


def stamped(msg: Image, stamp_ns: int) -> Image:
    """Return the message with another stamp."""
    msg.header.stamp = ns_to_time(stamp_ns)
    return msg
