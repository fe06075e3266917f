"""
Answer questions about a recording: a video file, or a bag played by ``ros2 bag play``.

    ros2 launch vlm_decisions replay.launch.py source:=desk.mp4
    ros2 launch vlm_decisions replay.launch.py source:=my_bag image:=/camera/image_raw

A bag plays with ``--clock`` and the node follows that clock. The launch ends with the recording.
"""

from pathlib import Path

from launch.action import Action
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
)
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import LaunchContext, LaunchDescription
from vlm_decisions.ros.launching import decision_node, node_arguments, viewer_nodes


def is_bag(source: Path) -> bool:
    """Tell a bag (folder, .mcap, .db3) from a video file."""
    return source.is_dir() or source.suffix in (".mcap", ".db3")


def start(context: LaunchContext) -> list[Action]:
    """Make the player and the node from the arguments given."""
    def given(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    source = Path(given("source")).expanduser()
    if not source.exists():
        raise RuntimeError(f"source: there is no file or folder '{source}'")
    loop = given("loop") == "true"
    if is_bag(source):
        player: Action = ExecuteProcess(
            cmd=["ros2", "bag", "play", str(source), "--clock", "100", "--rate", given("speed"),
                 *(["--loop"] if loop else [])], output="screen")
        node = decision_node(context, given("image"), use_sim_time=True)
    else:
        player = Node(
            package="vlm_decisions", executable="video_camera", name="video_camera",
            namespace=given("namespace"), output="screen",
            parameters=[{"file": str(source), "speed": float(given("speed")), "loop": loop}],
            remappings=[("image", given("image"))])
        node = decision_node(context, given("image"))
    ended = "the recording ended"
    end = RegisterEventHandler(OnProcessExit(
        target_action=player,
        on_exit=[LogInfo(msg=ended), EmitEvent(event=Shutdown(reason=ended))]))
    return [node, player, *viewer_nodes(context), end]


def generate_launch_description() -> LaunchDescription:
    """Return the launch description."""
    argument = DeclareLaunchArgument
    return LaunchDescription([
        argument("source", description="video file, or bag (folder, .mcap, .db3)"),
        argument("image", default_value="image", description="image topic (of the bag)"),
        argument("speed", default_value="1.0", description="pace: 2.0 plays twice as fast"),
        argument("loop", default_value="false", choices=["true", "false"],
                 description="start again at the end"),
        *node_arguments(),
        OpaqueFunction(function=start),
    ])
