"""The launch files: launch_testing runs them, where launch is installed."""

import importlib.util
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import cv2
import pytest
from bag_tools import START_NS, image, make_bag

from vlm_decisions.files import resources
from vlm_decisions.runtime.log import read_log
from vlm_decisions.sim.script import Script
from vlm_decisions.sim.world import World
from vlm_decisions.sources.bag_writer import BagWriter
from vlm_decisions.sources.messages import IMAGE

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
@pytest.mark.parametrize("name", ["desk", "replay", "cameras"])
def test_launch_file(name, video, monkeypatch):
    monkeypatch.setenv("TEST_VIDEO", str(video))
    helpers = str(HERE.parent)
    monkeypatch.setenv("PYTHONPATH", f"{helpers}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"))
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
    assert done.returncode == 1 and "/no/such.mp4: there is no such bag or video file" in output


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
    ("desk", {}), ("cameras", {}), ("replay", {"source": str(HERE / "test_launch.py")})])
def test_the_viewer_is_started_where_it_is_wanted(name, given):
    def executables(**more):
        actions, _ = started(name, **given, **more)
        return [getattr(action, "node_executable", None) for action in actions]
    assert "viewer" not in executables()
    assert executables(viewer="true", viewer_port="9000").count("viewer") == 1


def parameters(action, context):
    """Return the parameters that a node action gives, by name; those of a file left out."""
    from launch_ros.utilities import evaluate_parameters

    return {name: value for group in evaluate_parameters(context, action._Node__parameters)
            if isinstance(group, dict) for name, value in group.items()}


def remappings(action, context):
    """Return the remappings of a node action."""
    return {text(old, context): text(new, context)
            for old, new in action._Node__remappings or ()}


@pytest.mark.parametrize(("compressed", "topic", "transport", "renamed"), [
    (False, "/front/image_raw", "raw", "image"),
    (True, "/front/image/compressed", "compressed", "image/compressed"),
    (True, "/jpegs", "compressed", "image/compressed")])
def test_a_bag_is_played_as_it_is_stored_with_its_clock(tmp_path, compressed, topic, transport,
                                                        renamed):
    bag = make_bag(tmp_path / "bag", 2, topic=topic, compressed=compressed)
    (node, player, *_), context = started("replay", source=str(bag), speed="2.0", loop="true",
                                          namespace="robot")
    assert parameters(player, context) == {
        "source": str(bag), "topics": topic, "rate": 2.0, "loop": True, "clock": True,
        "wait_s": 600.0, "unseen": False}
    given = parameters(node, context)
    assert (given["use_sim_time"], given["image_transport"]) == (True, transport)
    assert remappings(node, context) == {renamed: topic} and remappings(player, context) == {}
    (node, player, *_), context = started("replay", source=str(bag), use_sim_time="false")
    assert parameters(player, context)["clock"] is False
    assert parameters(node, context)["use_sim_time"] is False


def test_of_several_cameras_in_a_bag_one_must_be_chosen(tmp_path):
    from vlm_decisions.sources.bag_files import BagError

    with BagWriter(tmp_path / "bag") as bag:
        for k, topic in enumerate(("/a", "/b")):
            bag.write(topic, IMAGE, START_NS + k, image(k, START_NS + k))
    bag = tmp_path / "bag"
    with pytest.raises(BagError, match="several image topics"):
        started("replay", source=str(bag))
    (node, player, *_), context = started("replay", source=str(bag), image="/b")
    assert parameters(player, context)["topics"] == "/b"


@pytest.mark.parametrize("name", ["desk", "replay", "cameras"])
def test_what_the_launch_files_hand_on(name, video):
    given = {"source": str(video)} if name == "replay" else {}
    actions, context = started(
        name, **given, model="2026", questions="desk", reliability="reliable", respawn="true",
        stamp_source="arrival", log_file="/tmp/07", use_sim_time="true")
    own = {} if name != "cameras" else {
        "views_file": str(resources.share_file("config", "views", "cameras.yaml"))}
    values = parameters(actions[0], context)
    assert values == own | {
        "autostart": True, "model": "2026", "questions_file": "desk", "reliability": "reliable",
        "stamp_source": "arrival", "log_file": "/tmp/07", "use_sim_time": True}
    assert actions[0]._ExecuteLocal__respawn is True
    actions, context = started(name, **given)
    assert parameters(actions[0], context) == own | {"autostart": True}
    assert actions[0]._ExecuteLocal__respawn is False


@pytest.mark.slow
@pytest.mark.parametrize("compressed", [False, True])
def test_a_recorded_desk_is_answered(tmp_path, compressed):
    """What `record --sim` makes gives answers, and the launch ends with it."""
    from vlm_decisions import cli

    bag, log = tmp_path / "bag", tmp_path / "log.jsonl"
    assert cli.main(["record", "--sim", "--segments", "2", "--size", "320x240", "--out", str(bag),
                     *([] if compressed else ["--raw"])]) == 0
    done = launch("replay", f"source:={bag}", f"log_file:={log}")
    output = done.stdout + done.stderr
    assert done.returncode == 0 and "the recording ended" in output, output
    answers = Counter(record["answer"] for record in read_log(log) if record["tier"] == 2)
    assert answers["yes"] > 5 and answers["no"] > 5, answers


@pytest.mark.slow
def test_it_fails_where_the_player_does(tmp_path):
    """The bag declares more images than it holds, which is seen at its end."""
    bag = make_bag(tmp_path / "bag", 24)
    metadata = bag / "metadata.yaml"
    told = metadata.read_text()
    assert "message_count: 24" in told
    metadata.write_text(told.replace("message_count: 24", "message_count: 25"))
    done = launch("replay", f"source:={bag}")
    output = done.stdout + done.stderr
    assert done.returncode == 1 and "the player failed with exit code 1" in output, output


@pytest.mark.slow
def test_it_fails_where_the_node_does(video):
    done = launch("replay", f"source:={video}", "log_level:=nonsense")
    output = done.stdout + done.stderr
    assert done.returncode == 1 and "decision_node failed with exit code 1" in output, output
