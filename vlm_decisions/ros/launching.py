"""Parts that the launch files share. Imports launch, so only launch files import this."""

from __future__ import annotations

from typing import Any

from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import LaunchContext

from ..files import resources


def node_arguments() -> list[DeclareLaunchArgument]:
    """Return the arguments of the decision node. An empty one leaves it to the params file."""
    argument = DeclareLaunchArgument
    return [
        argument("model", default_value="",
                 description="embedded model (sim_desk), local path, or hub name"),
        argument("questions", default_value="",
                 description="YAML file of questions, or the name of a shipped set (desk)"),
        argument("image_transport", default_value="",
                 description="raw reads the image topic, compressed its /compressed"),
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
    def given(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    if given("viewer") != "true":
        return []
    return [Node(
        package="vlm_decisions", executable="viewer", name="viewer",
        namespace=given("namespace"), output="screen",
        parameters=[{"port": int(given("viewer_port"))}])]


def decision_node(context: LaunchContext, image: str, **parameters: Any) -> Node:
    """Return the decision node, reading the topic ``image``, with the arguments applied."""
    def given(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    values: dict[str, Any] = {"autostart": given("autostart") == "true", **parameters}
    for argument, parameter in (("model", "model"), ("questions", "questions_file"),
                                ("image_transport", "image_transport")):
        if given(argument):
            values[parameter] = given(argument)
    return Node(
        package="vlm_decisions", executable="decision_node", name="decision_node",
        namespace=given("namespace"), output="screen", emulate_tty=True,
        parameters=[given("params_file"), values],
        remappings=[("image", image)] if image != "image" else [],
        arguments=["--ros-args", "--log-level", f"decision_node:={given('log_level')}"])
