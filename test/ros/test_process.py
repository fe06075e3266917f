"""The node as a process: how it ends, and what it says about a bad start."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from waiting import wait_for

pytest.importorskip("rclpy", reason="rclpy is not installed")

HERE = Path(__file__).parents[1]
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
HANGS_S = 120.0
"""Longer than a test waits for the end of a process."""


class Process:
    """A Python process with its output by line."""

    def __init__(self, *args: str) -> None:
        env = {name: value for name, value in os.environ.items()
               if not name.startswith(("FASTDDS_", "FASTRTPS_"))}
        env |= {"RCUTILS_COLORIZED_OUTPUT": "0", "RCUTILS_LOGGING_BUFFERED_STREAM": "0"}
        self.lines: list[str] = []
        self.popen = subprocess.Popen([sys.executable, *args], env=env, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *exception) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()

    def _read(self) -> None:
        for line in self.popen.stdout:
            self.lines.append(line.rstrip())

    def wait_line(self, text: str, timeout_s: float = 60.0) -> None:
        def said() -> bool:
            ended = self.popen.poll() is not None
            found = any(text in line for line in self.lines)
            assert found or not ended, self.lines
            return found
        wait_for(said, timeout_s)

    def end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Send a signal; return exit code and all output."""
        if number is not None:
            self.popen.send_signal(number)
        try:
            code = self.popen.wait(60)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise
        self._reader.join()
        return code, "\n".join(self.lines)


def node(*args: str, load_s: float = 0.0, ask_s: float = 0.0) -> Process:
    return Process("-c", NODE.format(here=str(HERE), load_s=load_s, ask_s=ask_s),
                   "--ros-args", "-p", "heads_dir:=none", *args)


@pytest.mark.parametrize("number, ask_s", [(signal.SIGINT, 0.2), (signal.SIGTERM, HANGS_S)])
def test_signal_in_the_middle_of_an_answer(number, ask_s, tmp_path):
    log = tmp_path / "decisions.jsonl"
    camera = Process("-m", "vlm_decisions.ros.sim_camera", "--ros-args", "-p", "width:=160", "-p",
                     "height:=120")
    with camera, node("-p", f"log_file:={log}", ask_s=ask_s) as process:
        process.wait_line("the model is asked")
        if ask_s < HANGS_S:
            wait_for(lambda: '"tier": 2' in log.read_text())
        code, output = process.end(number)
        camera_code, camera_output = camera.end(number)
    assert (code, camera_code) == (0, 0), output
    assert "Traceback" not in output + camera_output and "rror" not in output
    assert log.read_text().endswith("}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_the_model_loads(number):
    with node(load_s=HANGS_S) as process:
        process.wait_line("the model loads")
        code, output = process.end(number)
    assert code == 0
    assert "Traceback" not in output and "active" not in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_nothing_is_configured(number):
    with node("-p", "model:=missing", "-p", "questions_file:=/no/such.yaml") as process:
        process.wait_line("cannot configure")
        code, output = process.end(number)
    assert code == 0
    assert "Traceback" not in output


@pytest.mark.perf
@pytest.mark.parametrize("busy", ["the model is asked", "the model loads"])
def test_a_signal_ends_the_node_within_two_seconds(busy, tmp_path):
    loads = busy.endswith("loads")
    camera = Process("-m", "vlm_decisions.ros.sim_camera")
    with camera, node(load_s=HANGS_S * loads, ask_s=HANGS_S) as process:
        process.wait_line(busy)
        for one in (process, camera):
            began_s = time.monotonic()
            assert one.end(signal.SIGTERM)[0] == 0
            assert time.monotonic() - began_s < 2.0


@pytest.mark.parametrize(("args", "reason"), [
    (["-p", "window_groups:=many"], "window_groups"),
    (["-p", "sample_hz:=8"], "sample_hz"),
    (["-p", "max_age_s:=-1.0"], "max_age_s"),
    (["--log-level"], "log-level")])
def test_bad_start_says_why_and_exits_with_1(args, reason):
    with node(*args) as process:
        code, output = process.end()
    assert code == 1
    assert reason in output and "Traceback" not in output, output


def test_unknown_parameters_are_named():
    with node("-p", "windowgroups:=4", "-p", "questions.person.enter:=0.8",
              "-p", "questions.nobody.enter:=0.8") as process:
        process.wait_line("active, reading")
        code, output = process.end(signal.SIGINT)
    assert code == 0
    assert "unknown parameter 'windowgroups', did you mean 'window_groups'?" in output
    assert "unknown parameter 'questions.nobody.enter'" in output
    assert "unknown parameter 'questions.person.enter'" not in output


@pytest.mark.parametrize(("module", "args", "reason"), [
    ("sim_camera", ["-p", "script:=opera"], "script must be one of demo, random"),
    ("sim_camera", ["-p", "width:=20"], "width"),
    ("video_camera", ["-p", "file:=/no/such.mp4"], "/no/such.mp4"),
    ("video_camera", ["-p", f"file:={__file__}"], "no video that can be decoded")])
def test_camera_that_cannot_start(module, args, reason):
    with Process("-m", f"vlm_decisions.ros.{module}", "--ros-args", *args) as process:
        code, output = process.end()
    assert code == 1 and reason in output and "Traceback" not in output, output


def test_large_images_pass_unharmed():
    """640x480 images reach a best-effort subscriber in another process."""
    from rclpy.qos import qos_profile_sensor_data
    from ros_peer import plain_node
    from sensor_msgs.msg import Image
    from std_msgs.msg import String

    images, truths = [], []
    with (plain_node("listener") as listener,
          Process("-m", "vlm_decisions.ros.sim_camera", "--ros-args", "-p", "fps:=10.0")):
        listener.create_subscription(Image, "image", images.append, qos_profile_sensor_data)
        listener.create_subscription(String, "truth", truths.append, 50)
        wait_for(lambda: images and truths, 60)
        images.clear()
        truths.clear()
        wait_for(lambda: len(truths) >= 30, 60)
    assert len(images) >= 0.9 * 30
