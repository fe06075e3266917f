"""Four simulated desks, seen by four cameras, and one node that answers about all of them.

ros2 launch vlm_decisions cameras.launch.py viewer:=true
"""

from launch.action import Action
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch_ros.actions import Node

from launch import LaunchContext, LaunchDescription
from vlm_decisions.files import resources
from vlm_decisions.ros.launching import decision_node, given, node_arguments, text, viewer_nodes
from vlm_decisions.views import load_views


def start(context: LaunchContext) -> list[Action]:
    """Make a camera for each view, and the node."""
    path = given(context, "views")
    cameras = [
        Node(package="vlm_decisions", executable="sim_camera", name="sim_camera",
             namespace="/".join(filter(None, [given(context, "namespace"), view.name])),
             output="screen",
             parameters=[{"seed": seed, "script": given(context, "script"), "frame_id": view.name,
                          "width": int(given(context, "width")),
                          "height": int(given(context, "height"))}])
        for seed, view in enumerate(load_views(path))]
    node = decision_node(context, {}, views_file=text(path))
    return [node, *viewer_nodes(context), *cameras]


def generate_launch_description() -> LaunchDescription:
    """Return the launch description."""
    argument = DeclareLaunchArgument
    return LaunchDescription([
        argument("views", default_value=str(
            resources.share_file("config", "views", "cameras.yaml")),
                 description="YAML file of views; each view's image is <its name>/image"),
        argument("script", default_value="demo", choices=["demo", "random"],
                 description="simulated desks: what happens"),
        argument("width", default_value="320", description="simulated cameras, pixels"),
        argument("height", default_value="240", description="simulated cameras, pixels"),
        *node_arguments(),
        OpaqueFunction(function=start),
    ])
