"""Write docs/node.md from the nodes' own declarations: `python -m vlm_decisions.lab.node_docs`.

Topics, services and their types come from a running node's graph, what they are for from the
nodes' docstrings and the interface files, parameters from their declarations. Nothing is kept by
hand, so a test can compare the page with what this module writes.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import rclpy
from rclpy.action import get_action_server_names_and_types_by_node
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

from ..files import resources
from ..ros import node, replay_camera, sim_camera, viewer
from ..ros.domain import stay_private
from ..ros.parameters import QUESTION_PREFIX, QUESTION_SPECS, SPECS, Spec

HEAD = """\
# Nodes, topics, services and parameters

This page is written by `make docs` from the declarations in the code; do not edit it by hand.
`ros2 param describe` and `ros2 interface show` tell the same on a running system.
"""
#: What every rclpy node has; nobody needs to read of it here.
COMMON = re.compile(r"/(rosout|parameter_events|decision_node/transition_event)$|/_action/|"
                    "/decision_node/(get_|set_parameters|list_parameters|describe_parameters|"
                    "change_state)")
EXAMPLE = "person"
WAIT_S = 10.0


def page() -> str:
    """Return the whole page. Needs ROS and the embedded model.

    Raises LookupError for a topic that the node's docstring does not name.
    """
    with _running() as found:
        interface = [*_graph(found)]
    parts = [
        HEAD,
        "## decision_node\n", _prose(node.__doc__),
        *interface,
        "### Parameters, read when the node configures\n", *_parameters(SPECS),
        "### Parameters of each standing question, which act at once\n",
        *_parameters(QUESTION_SPECS, f"{QUESTION_PREFIX}<id>."),
    ]
    for module in (sim_camera, replay_camera, viewer):
        name = module.__name__.rpartition(".")[2]
        parts += [f"## {name}\n", _text(module.__doc__), *_parameters(module.SPECS)]
    parts += ["## Messages, services and actions\n"]
    for kind in ("msg", "srv", "action"):
        for path in sorted(resources.share_file(kind).glob(f"*.{kind}")):
            parts += [f"### {kind}/{path.name}\n", f"```\n{path.read_text().strip()}\n```\n"]
    return "\n".join(parts).rstrip() + "\n"


@contextmanager
def _running() -> Iterator[Node]:
    """Yield an active decision node with one question and one event."""
    stay_private()
    with tempfile.TemporaryDirectory() as folder:
        questions = Path(folder) / "questions.yaml"
        questions.write_text(f'- {{id: {EXAMPLE}, text: "Is a person present?"}}\n')
        context = rclpy.Context()
        rclpy.init(args=[], context=context)
        made = node.DecisionNode(context=context, parameter_overrides=[
            Parameter("autostart", value=False), Parameter("heads_dir", value="none"),
            Parameter("questions_file", value=str(questions))])
        try:
            made.trigger_configure()
            made.trigger_activate()
            yield made
        finally:
            made.close()
            made.destroy_node()
            rclpy.shutdown(context=context)


def _graph(found: Node) -> Iterator[str]:
    """Yield the tables of topics and services of a running node."""
    told = _told(node.__doc__)
    name, namespace = found.get_name(), found.get_namespace()
    end_s = time.monotonic() + WAIT_S
    while not (heard := _named(found.get_subscriber_names_and_types_by_node(name, namespace))):
        if time.monotonic() > end_s:
            raise RuntimeError(f"{name} did not subscribe to anything within {WAIT_S:g} s")
        time.sleep(0.05)
    for title, topics, ends in (
            ("Subscribes", heard, found.get_subscriptions_info_by_topic),
            ("Publishes", _named(found.get_publisher_names_and_types_by_node(name, namespace)),
             found.get_publishers_info_by_topic)):
        yield f"### {title}\n"
        rows = []
        for topic, kind in topics:
            qos = next(end.qos_profile for end in ends(topic) if end.node_name == name)
            shown = _shown(topic)
            if shown not in told:
                raise LookupError(f"the docstring of {node.__name__} does not name {shown}")
            rows.append((f"`{shown}`", f"`{kind}`", _qos(qos), told[shown]))
        yield _table(("topic", "type", "QoS", "what"), rows)
    yield "### Services\n"
    services = _named(found.get_service_names_and_types_by_node(name, namespace))
    yield _table(("service", "type", "what"), [
        (f"`{_shown(service)}`", f"`{kind}`", _first_comment(kind)) for service, kind in services])
    yield "### Actions\n"
    actions = _named(get_action_server_names_and_types_by_node(found, name, namespace))
    yield _table(("action", "type", "what"), [
        (f"`{_shown(action)}`", f"`{kind}`", _first_comment(kind)) for action, kind in actions])


def _named(pairs: Iterable[tuple[str, list[str]]]) -> list[tuple[str, str]]:
    """Return (name, type) of what belongs on the page; of the topics by question, the example's."""
    return [(name, kinds[0]) for name, kinds in sorted(pairs)
            if not COMMON.search(name) and "/decisions/camera_" not in name]


def _shown(name: str) -> str:
    """Return a name as the documentation has it: relative to the node, the question left open."""
    name = name.replace("/decision_node/", "~/").replace(f"/{EXAMPLE}", "/<question id>")
    return "image" if name == "/image" else name


def _told(text: str) -> dict[str, str]:
    """Return by topic what the bullets of a node's docstring say of it."""
    found = {}
    for bullet in re.findall(r"^- (``.*?)(?=\n- |\n\n|\Z)", text, re.MULTILINE | re.DOTALL):
        name = re.match(r"``(.*?)``", bullet)[1]
        text = " ".join(bullet.partition("``")[2].partition("``")[2].split())
        found[name] = _markdown(re.sub(r"^\([\w/]+\)(: | )", "", text))
    return found


def _first_comment(kind: str) -> str:
    """Return the first line of a service's or an action's file."""
    _, folder, name = kind.split("/")
    path = resources.share_file(folder, f"{name}.{folder}")
    return path.read_text().partition("\n")[0].removeprefix("# ")


def _qos(qos: object) -> str:
    words = ["reliable" if qos.reliability == ReliabilityPolicy.RELIABLE else "best effort"]
    if qos.durability == DurabilityPolicy.TRANSIENT_LOCAL:
        words.append("transient local")
    return ", ".join(words)


def _parameters(specs: Iterable[Spec], prefix: str = "") -> Iterator[str]:
    rows = []
    for spec in specs:
        limits = ", ".join(f"`{choice}`" for choice in spec.choices)
        if spec.low is not None:
            limits = f"{_number(spec, spec.low)} to {_number(spec, spec.high)}"
        default = str(spec.default).lower() if isinstance(spec.default, bool) else spec.default
        text = spec.text + (" Set at start only." if spec.read_only else "")
        rows.append((f"`{prefix}{spec.name}`", f"`{default}`" if default != "" else "empty",
                     limits, text))
    yield _table(("parameter", "default", "range or choices", "what"), rows)


def _number(spec: Spec, value: float) -> str:
    return str(int(value)) if isinstance(spec.default, int) else f"{value:g}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _prose(text: str) -> str:
    """Return a docstring up to its lists, which the tables replace."""
    return _markdown(text.strip().partition("\nSubscribes:")[0])


def _text(text: str) -> str:
    """Return a docstring without its list of parameters, which a table replaces."""
    return _markdown(re.sub(r"\n\nParameters:.*", "", text.strip(), flags=re.DOTALL)) + "\n"


def _markdown(text: str) -> str:
    return text.replace("``", "`")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the page of topics, services, parameters.")
    parser.add_argument("file", type=Path, help="where to, e.g. docs/node.md")
    parser.parse_args().file.write_text(page())
