"""Parts that the launch files share. Imports launch, so only launch files import this."""

from __future__ import annotations

from typing import Any

from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from launch import LaunchContext

from ..files import resources

NODE_PARAMETERS = {
    "model": ("model", "embedded model (sim_desk), local path, or hub name"),
    "questions": ("questions_file", "YAML file of questions, or the name of a shipped set (desk)"),
    "image_transport": ("image_transport",
                        "raw reads the image topic; compressed, ffmpeg and foxglove "
                        "one beside it, with that name"),
    "reliability": ("reliability", "of the image subscription: auto, reliable or best_effort"),
    "stamp_source": ("stamp_source", "frame time: header (its stamp), or arrival"),
    "log_file": ("log_file", "JSONL file to append every decision to"),
}
"""Arguments that are handed on as parameters: the parameter's name, and what it means."""

RESPAWN_S = 2.0


def given(context: LaunchContext, name: str) -> str:
    """Return the value of a launch argument."""
    return LaunchConfiguration(name).perform(context)


def text(value: str) -> ParameterValue:
    """Return a parameter's value that stays text, whatever YAML would take it for."""
    return ParameterValue(value, value_type=str)


def node_arguments() -> list[DeclareLaunchArgument]:
    """Return the arguments of the decision node. An empty one leaves it to the params file."""
    argument = DeclareLaunchArgument
    return [
        *(argument(name, default_value="", description=meaning)
          for name, (_, meaning) in NODE_PARAMETERS.items()),
        argument("use_sim_time", default_value="", choices=["", "true", "false"],
                 description="follow /clock instead of the system's clock"),
        argument("respawn", default_value="false", choices=["true", "false"],
                 description="start the decision node again when it ends"),
        argument("namespace", default_value="", description="namespace of the nodes"),
        argument("params_file", default_value=str(resources.share_file("config", "desk.yaml")),
                 description="YAML file of node parameters"),
        argument("autostart", default_value="true", choices=["true", "false"],
                 description="configure and activate the node at start"),
        argument("log_level", default_value="info", description="of the decision node"),
        argument("viewer", default_value="false", choices=["true", "false"],
                 description="serve a page that shows the decisions, on this machine only"),
        argument("viewer_port", default_value="8321", description="port of that page"),
    ]


def viewer_nodes(context: LaunchContext) -> list[Node]:
    """Return the viewer, where it is wanted."""
    if given(context, "viewer") != "true":
        return []
    return [Node(
        package="vlm_decisions", executable="viewer", name="viewer",
        namespace=given(context, "namespace"), output="screen",
        parameters=[{"port": int(given(context, "viewer_port"))}])]


def decision_node(context: LaunchContext, remappings: dict[str, str], **parameters: Any) -> Node:
    """Return the decision node with the arguments applied; those given win over `parameters`."""
    values: dict[str, Any] = {"autostart": given(context, "autostart") == "true", **parameters}
    for argument, (parameter, _) in NODE_PARAMETERS.items():
        if given(context, argument):
            values[parameter] = text(given(context, argument))
    if given(context, "use_sim_time"):
        values["use_sim_time"] = given(context, "use_sim_time") == "true"
    return Node(
        package="vlm_decisions", executable="decision_node", name="decision_node",
        namespace=given(context, "namespace"), output="screen", emulate_tty=True,
        respawn=given(context, "respawn") == "true", respawn_delay=RESPAWN_S,
        parameters=[given(context, "params_file"), values],
        remappings=[pair for pair in remappings.items() if pair[0] != pair[1]],
        arguments=["--ros-args", "--log-level", f"decision_node:={given(context, 'log_level')}"])
