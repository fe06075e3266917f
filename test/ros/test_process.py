"""The node as a process: how it ends, and what it says about a bad start."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bag_tools import make_bag
from waiting import wait_for

pytest.importorskip("rclpy", reason="rclpy is not installed")

from processes import Process, node

from vlm_decisions.ros.programs import NODES

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
HANGS_S = 120.0
"""Longer than a test waits for the end of a process."""


@pytest.mark.parametrize("number, ask_s", [(signal.SIGINT, 0.2), (signal.SIGTERM, HANGS_S)])
def test_signal_in_the_middle_of_an_answer(number, ask_s, tmp_path):
    log = tmp_path / "decisions.jsonl"
    camera = Process("-m", "vlm_decisions.ros", "sim_camera", "--ros-args", "-p", "width:=160",
                     "-p", "height:=120")
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
    camera = Process("-m", "vlm_decisions.ros", "sim_camera")
    with camera, node(load_s=HANGS_S * loads, ask_s=HANGS_S) as process:
        process.wait_line(busy)
        for one in (process, camera):
            began_s = time.monotonic()
            assert one.end(signal.SIGTERM)[0] == 0
            assert time.monotonic() - began_s < 2.0


@pytest.mark.parametrize(("args", "reason"), [
    (["-p", "window_groups:=many"], "window_groups"),
    (["-p", "sample_hz:=fast"], "sample_hz"),
    (["-p", "max_age_s:=-1.0"], "max_age_s"),
    (["--log-level"], "log-level")])
def test_bad_start_says_why_and_exits_with_1(args, reason):
    with node(*args) as process:
        code, output = process.end()
    assert code == 1
    assert reason in output and "Traceback" not in output, output


def test_unknown_parameters_are_named():
    with node("-p", "windowgroups:=4", "-p", "qos_overrides./image.subscription.depth:=4",
              "-p", "questions.person.enter:=0.8", "-p", "questions.nobody.enter:=0.8") as process:
        process.wait_line("active, reading")
        code, output = process.end(signal.SIGINT)
    assert code == 0
    assert "unknown parameter 'windowgroups', did you mean 'window_groups'?" in output
    assert "unknown parameter 'questions.nobody.enter'" in output
    assert "'qos_overrides./image.subscription.depth' is not taken" in output
    assert "unknown parameter 'questions.person.enter'" not in output


@pytest.mark.parametrize(("name", "args", "reason"), [
    ("sim_camera", ["-p", "script:=opera"], "script must be one of demo, random"),
    ("sim_camera", ["-p", "width:=20"], "width"),
    ("replay_camera", ["-p", "source:=/no/such.mp4"], "/no/such.mp4"),
    ("replay_camera", ["-p", f"source:={__file__}"], "test_process.py")])
def test_camera_that_cannot_start(name, args, reason):
    with Process("-m", "vlm_decisions.ros", name, "--ros-args", *args) as process:
        code, output = process.end()
    assert code == 1 and reason in output and "Traceback" not in output, output


@pytest.mark.parametrize(("number", "looped", "code"), [
    (signal.SIGTERM, False, 1), (signal.SIGTERM, True, 0), (signal.SIGINT, False, 0)])
def test_a_player_that_is_stopped_before_the_end(number, looped, code, tmp_path):
    pytest.importorskip("rosbags", reason="rosbags is not installed")
    bag = make_bag(tmp_path / "bag", 24)
    with Process("-m", "vlm_decisions.ros", "replay_camera", "--ros-args", "-p", f"source:={bag}",
                 "-p", f"loop:={str(looped).lower()}", "-p", "rate:=0.05", "-p", "wait_s:=0.0",
                 "--log-level", "rcl:=debug") as process:
        wait_for(lambda: any("[rcl]" in line for line in process.lines))  # it is being made
        got, output = process.end(number)
    assert got == code, output
    said = f"not all of it was played: stopped by {number.name}"
    assert (said in output) is not looped and "the recording ended" not in output, output


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Make what pip makes of pyproject.toml: a script for each program; return them by name."""
    import tomllib

    folder = tmp_path_factory.mktemp("bin")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, entry in scripts.items():
        module, _, function = entry.partition(":")
        (folder / name).write_text(
            "import os, sys\nprint('here', flush=True)\n"
            f"from {module} import {function}\nsys.exit({function}())\n")
    return {name: str(folder / name) for name in scripts if name != "vlm-decisions"}


@pytest.mark.parametrize("after_s", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("name", NODES)
def test_signal_while_it_starts(programs, name, after_s):
    """In the first seconds, most of which go into imports, the end is as quiet as later."""
    args = ["-p", "port:=0"] if name == "viewer" else []
    with Process(programs[name], "--ros-args", *args) as process:
        process.wait_line("here")  # Python itself runs, and is with the program's first lines
        time.sleep(after_s)
        code, output = process.end(signal.SIGINT)
    if name == "replay_camera" and "cannot start" in output:
        pytest.skip("it had ended already: there is nothing to play")
    assert code == 0 and "Traceback" not in output, output


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("apart_s", [0.05, 0.5])
def test_a_second_signal_changes_nothing(second, apart_s):
    with node() as process:
        process.wait_line("active, reading")
        code, output = process.end(signal.SIGINT, second, apart_s=apart_s)
    assert code == 0 and "Traceback" not in output, output


def test_what_starts_a_node_imports_nothing_large():
    """Signals are taken care of before that."""
    code = ("import sys, vlm_decisions.ros.programs\n"
            "print(*sorted({'numpy', 'cv2', 'rclpy', 'mlx', 'yaml'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_large_images_pass_unharmed():
    """640x480 images reach a best-effort subscriber in another process."""
    from rclpy.qos import qos_profile_sensor_data
    from ros_peer import plain_node
    from sensor_msgs.msg import Image
    from std_msgs.msg import String

    images, truths = [], []
    with (plain_node("listener") as listener,
           Process("-m", "vlm_decisions.ros", "sim_camera", "--ros-args", "-p", "fps:=10.0")):
        listener.create_subscription(Image, "image", images.append, qos_profile_sensor_data)
        listener.create_subscription(String, "truth", truths.append, 50)
        wait_for(lambda: images and truths, 60)
        images.clear()
        truths.clear()
        wait_for(lambda: len(truths) >= 30, 60)
    assert len(images) >= 0.9 * 30
