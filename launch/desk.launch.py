"""Answer the desk's questions about the simulated camera, or about a real one.

ros2 launch vlm_decisions desk.launch.py viewer:=true
ros2 launch vlm_decisions desk.launch.py sim:=false image:=/camera/image_raw model:=PATH
"""

from launch.action import Action
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch_ros.actions import Node

from launch import LaunchContext, LaunchDescription
from vlm_decisions.ros.launching import decision_node, given, node_arguments, viewer_nodes


def start(context: LaunchContext) -> list[Action]:
    """Make the nodes from the arguments given."""
    image = given(context, "image")
    actions: list[Action] = [decision_node(context, {"image": image}), *viewer_nodes(context)]
    if given(context, "sim") == "true":
        actions.append(Node(
            package="vlm_decisions", executable="sim_camera", name="sim_camera",
            namespace=given(context, "namespace"), output="screen",
            parameters=[{"seed": int(given(context, "seed")),
                         "script": given(context, "script"),
                         "width": int(given(context, "width")),
                         "height": int(given(context, "height")),
                         "use_sim_time": given(context, "use_sim_time") == "true"}],
            remappings=[("image", image), ("image/compressed", f"{image}/compressed")]))
    return actions


def generate_launch_description() -> LaunchDescription:
    """Return the launch description."""
    argument = DeclareLaunchArgument
    return LaunchDescription([
        argument("sim", default_value="true", choices=["true", "false"],
                 description="start the simulated camera"),
        argument("image", default_value="image",
                 description="image topic to read (and for the simulated camera to publish)"),
        argument("seed", default_value="0", description="simulated desk: picks its look"),
        argument("script", default_value="demo", choices=["demo", "random"],
                 description="simulated desk: what happens"),
        argument("width", default_value="640", description="simulated camera, pixels"),
        argument("height", default_value="480", description="simulated camera, pixels"),
        *node_arguments(),
        OpaqueFunction(function=start),
    ])
