"""The launch files: launch_testing runs them, where launch is installed."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import cv2
import pytest

from vlm_decisions.files import resources
from vlm_decisions.sim.script import Script
from vlm_decisions.sim.world import World

for _name in ("rclpy", "launch", "launch_ros", "launch_testing"):
    pytest.importorskip(_name, reason=f"{_name} is not importable here, so the launch files "
                                      "cannot be run")

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Find this environment's packages."""
    if "AMENT_PREFIX_PATH" not in os.environ:
        monkeypatch.setenv("AMENT_PREFIX_PATH", sys.prefix)


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Two seconds of the simulated desk in a file."""
    path = tmp_path_factory.mktemp("video") / "desk.mp4"
    world = World(1, Script.demo(1))
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 10.0, (320, 240))
    for n in range(20):
        writer.write(world.render(4.0 + n / 10, 320, 240)[..., ::-1].copy())
    writer.release()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["desk", "replay"])
def test_launch_file(name, video, monkeypatch):
    monkeypatch.setenv("TEST_VIDEO", str(video))
    done = subprocess.run(
        [sys.executable, "-m", "launch_testing.launch_test", str(HERE / "launches" / f"{name}.py")],
        capture_output=True, text=True, timeout=180)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "Traceback" not in output, output


def launch(name, *args):
    """Run a launch file to its own end."""
    script = ("import sys\n"
              "from launch import LaunchDescription, LaunchService\n"
              "from launch.actions import IncludeLaunchDescription\n"
              "from launch.launch_description_sources import PythonLaunchDescriptionSource\n"
              "pairs = [arg.split(':=', 1) for arg in sys.argv[2:]]\n"
              "service = LaunchService()\n"
              "service.include_launch_description(LaunchDescription([IncludeLaunchDescription(\n"
              "    PythonLaunchDescriptionSource(sys.argv[1]), launch_arguments=pairs)]))\n"
              "sys.exit(service.run())\n")
    path = str(resources.share_file("launch", f"{name}.launch.py"))
    return subprocess.run([sys.executable, "-c", script, path, *args],
                          capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_replay_ends_with_the_video(video):
    began_s = time.monotonic()
    done = launch("replay", f"source:={video}")
    output = done.stdout + done.stderr
    assert done.returncode == 0 and "the recording ended" in output, output
    assert output.count("process has finished cleanly") == 2, output
    assert time.monotonic() - began_s > 2.0


def test_replay_of_nothing_says_so():
    done = launch("replay", "source:=/no/such.mp4")
    output = done.stdout + done.stderr
    assert done.returncode == 1 and "there is no file or folder '/no/such.mp4'" in output


def module(name):
    path = resources.share_file("launch", f"{name}.launch.py")
    spec = importlib.util.spec_from_file_location(f"{name}_launch", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def started(name, **given):
    """Return the actions that a launch file makes of its arguments."""
    from launch.actions import DeclareLaunchArgument

    from launch import LaunchContext

    context = LaunchContext()
    for argument in module(name).generate_launch_description().entities:
        if isinstance(argument, DeclareLaunchArgument):
            value = given.get(argument.name)
            if value is None and argument.default_value is not None:
                value = "".join(part.perform(context) for part in argument.default_value)
            context.launch_configurations[argument.name] = value
    assert set(given) <= set(context.launch_configurations)
    return module(name).start(context), context


def text(parts, context):
    """Return the text of a list of substitutions."""
    from launch.utilities import normalize_to_list_of_substitutions, perform_substitutions

    return perform_substitutions(context, normalize_to_list_of_substitutions(parts))


def test_desk_without_the_simulated_camera():
    actions, _ = started("desk")
    assert [action.node_executable for action in actions] == ["decision_node", "sim_camera"]
    actions, _ = started("desk", sim="false", image="/camera/image_raw")
    assert [action.node_executable for action in actions] == ["decision_node"]


@pytest.mark.parametrize(("name", "given"), [
    ("desk", {}), ("replay", {"source": str(HERE / "test_launch.py")})])
def test_the_viewer_is_started_where_it_is_wanted(name, given):
    def executables(**more):
        actions, _ = started(name, **given, **more)
        return [getattr(action, "node_executable", None) for action in actions]
    assert "viewer" not in executables()
    assert executables(viewer="true", viewer_port="9000").count("viewer") == 1


@pytest.mark.parametrize("name", ["bag", "bag.mcap", "bag.db3"])
def test_a_bag_is_played_with_its_clock(tmp_path, name):
    source = tmp_path / name
    source.touch() if "." in name else source.mkdir()
    actions, context = started("replay", source=str(source), image="/front", speed="2.0",
                               loop="true")
    command = [text(part, context) for part in actions[1].cmd]
    assert command == ["ros2", "bag", "play", str(source), "--clock", "100", "--rate", "2.0",
                       "--loop"]
