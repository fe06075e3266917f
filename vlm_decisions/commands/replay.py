"""`vlm-decisions replay`: publish a bag's images and truth."""

from __future__ import annotations

import argparse

from . import INTERRUPTED
from .arguments import Commands, positive


def add(commands: Commands) -> None:
    replay = commands.add_parser("replay", help="publish a bag's images and truth",
                                 example="door_bag --loop")
    replay.add_argument("source", nargs="+", metavar="BAG|VIDEO",
                        help="bag, video file, or TOPIC=VIDEO of each of several cameras")
    replay.add_argument("--rate", type=positive, default=1.0, help="2: twice as fast [1]")
    replay.add_argument("--loop", action="store_true", help="start again at the end")
    replay.add_argument("--clock", action="store_true",
                        help="publish /clock and leave stamps as recorded (use_sim_time)")
    replay.add_argument("--topics", default="", metavar="T,T", help="image topics [all]")
    replay.add_argument("--decoded", action="store_true",
                        help="publish rgb8 images on `image` instead of what is stored")
    replay.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import json

    from ..ros.programs import main as run_node
    from ..sources.bags import Bag
    from ..sources.recording import is_bag
    from ..sources.source import SourceError

    source = ",".join(options.source)
    if len(options.source) > 1 and not all("=" in one for one in options.source):
        raise SourceError("several sources: TOPIC=VIDEO of each, since each needs a topic")
    if "=" not in source and is_bag(source):
        with Bag(source) as bag:  # what is wrong with it is said here, without ROS's logs
            for name in options.topics.split(",") if options.topics else ():
                bag.image_topic(name.strip())
            if not options.topics and options.decoded:
                bag.image_topic()
    values = {"source": source, "topics": options.topics, "rate": float(options.rate),
              "loop": options.loop, "clock": options.clock, "decoded": options.decoded}
    arguments = [part for name, value in values.items()
                 for part in ("-p", f"{name}:={json.dumps(value)}")]
    return run_node("replay_camera", ["--ros-args", *arguments], signalled=INTERRUPTED)
