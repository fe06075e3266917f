"""The programs: each runs a node as its process.

A signal in the seconds that the imports take ends the process as quietly as one later does, so this
module takes care of signals before it imports anything large.
"""

import os
import signal
import sys
from importlib import import_module

NODES = {"decision_node": "node", "replay_camera": "replay_camera", "sim_camera": "sim_camera",
         "viewer": "viewer"}
"""Module by name of the program; each has `make_node(stop)`, and a docstring for --help."""


def main(name: str, args: "list[str] | None" = None, *, signalled: int = 0,
         until_input_ends: bool = False) -> int:
    """Run the node `name` until a signal, or its own end; return the exit code.

    `signalled`: the code where a signal ended it. `until_input_ends`: so does the end of the
    standard input.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        # Nothing has begun yet that must be ended.
        signal.signal(number, lambda *_: os._exit(signalled))
    # Whoever started this process may have held signals back until they are taken care of.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        run = import_module(".process", __package__).run
        module = import_module(f".{NODES[name]}", __package__)
        import_module(".convert", __package__).check_interfaces()
        return run(module.make_node, args, about=module.__doc__, signalled=signalled,
                   until_input_ends=until_input_ends)
    except ImportError as error:
        from ..files.extras import missing

        print(f"{name}: {missing(error)}", file=sys.stderr)
        return 1


def decision_node(args: "list[str] | None" = None) -> int:
    """Run the decision node."""
    return main("decision_node", args)


def replay_camera(args: "list[str] | None" = None) -> int:
    """Run the camera that plays a recording."""
    return main("replay_camera", args)


def sim_camera(args: "list[str] | None" = None) -> int:
    """Run the camera of the simulated desk."""
    return main("sim_camera", args)


def viewer(args: "list[str] | None" = None) -> int:
    """Run the viewer."""
    return main("viewer", args)
