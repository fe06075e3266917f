"""Answer questions about a recording: a bag or a video file, played as a camera.

    ros2 launch vlm_decisions replay.launch.py source:=desk.mp4
    ros2 launch vlm_decisions replay.launch.py source:=my_bag image:=/camera/image_raw

The player waits until the node looks. A bag is played as it is stored, raw or compressed, with its
clock, which the node follows; with use_sim_time:=false its stamps are moved to the present, as
those of a video are. The launch ends with the recording, and fails where player or node does.
"""

from pathlib import Path

from launch.action import Action
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    OpaqueFunction,
    RegisterEventHandler,
    TimerAction,
)
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown
from launch.events.process import ProcessExited
from launch_ros.actions import Node

from launch import LaunchContext, LaunchDescription
from vlm_decisions.files.extras import missing
from vlm_decisions.ros.launching import decision_node, given, node_arguments, text, viewer_nodes
from vlm_decisions.sources.bags import Bag
from vlm_decisions.sources.messages import TRANSPORT_BY_TYPE, topic_of
from vlm_decisions.sources.recording import is_bag

WAIT_S = 600.0
"""The player waits so long for the node, which may have a large model to load, seconds."""

LAST_S = 1.0
"""For the answers to the last images, seconds."""


def start(context: LaunchContext) -> list[Action]:
    """Make the player and the node from the arguments given."""
    source, image = str(Path(given(context, "source")).expanduser()), given(context, "image")
    playing = {"source": text(source), "rate": float(given(context, "speed")),
               "loop": given(context, "loop") == "true", "wait_s": WAIT_S, "unseen": False}
    if is_bag(source):
        try:
            with Bag(source) as bag:
                topic = bag.image_topic(image or None)
        except ImportError as error:
            raise RuntimeError(missing(error)) from error
        transport = TRANSPORT_BY_TYPE[topic.type]
        follow = given(context, "use_sim_time") != "false"
        playing |= {"topics": text(topic.name), "clock": follow}
        renamed = {}  # they are published under their own names
        node = decision_node(
            context, {topic_of("image", transport): topic.name},
            use_sim_time=follow, image_transport=transport)
    else:
        renamed = {"image": image or "image"}
        node = decision_node(context, renamed)
    player = Node(
        package="vlm_decisions", executable="replay_camera", name="replay_camera",
        namespace=given(context, "namespace"), output="screen", parameters=[playing],
        remappings=list(renamed.items()))
    return [node, player, *viewer_nodes(context),
            RegisterEventHandler(OnProcessExit(target_action=player, on_exit=played)),
            RegisterEventHandler(OnProcessExit(target_action=node, on_exit=decided))]


def played(event: ProcessExited, context: LaunchContext) -> list[Action]:
    """End with the player, or fail with the player; not where all of the launch ends."""
    if context.is_shutdown:
        return []
    if event.returncode:
        raise RuntimeError(f"the player failed with exit code {event.returncode}: see above")
    shutdown = EmitEvent(event=Shutdown(reason="the player ended"))  # it says why
    return [TimerAction(period=LAST_S, actions=[shutdown])]


def decided(event: ProcessExited, context: LaunchContext) -> list[Action]:
    """Fail with the node, unless it is started again."""
    if event.returncode and given(context, "respawn") != "true":
        raise RuntimeError(f"decision_node failed with exit code {event.returncode}: see above")
    return []


def generate_launch_description() -> LaunchDescription:
    """Return the launch description."""
    argument = DeclareLaunchArgument
    return LaunchDescription([
        argument("source", description="video file, or bag (folder, .mcap, .db3, .bag)"),
        argument("image", default_value="",
                 description="image topic of the bag, where there are several"),
        argument("speed", default_value="1.0", description="pace: 2.0 plays twice as fast"),
        argument("loop", default_value="false", choices=["true", "false"],
                 description="start again at the end"),
        *node_arguments(),
        OpaqueFunction(function=start),
    ])
