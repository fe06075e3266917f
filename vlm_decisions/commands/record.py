"""`vlm-decisions record`: a bag of the simulated desk with its truth, or of a live camera."""

from __future__ import annotations

import argparse

from .arguments import Commands, count, positive, size


def add(commands: Commands) -> None:
    record = commands.add_parser("record", help="record a bag: the simulated desk, or live topics",
                                 example="--topics /camera/image_raw --out door_bag --seconds 60")
    what = record.add_mutually_exclusive_group(required=True)
    what.add_argument("--sim", action="store_true",
                      help="the simulated desk with its truth, as fast as it can be drawn")
    what.add_argument("--topics", metavar="T,T",
                      help="live topics: a camera's images, ...; with what the node decides")
    record.add_argument("--out", required=True, metavar="DIR", help="folder to make (rosbag2 mcap)")
    record.add_argument("--segments", type=count, default=100, metavar="N",
                        help="of --sim: scenes of 2 to 4 s [100]")
    record.add_argument("--seed", type=int, default=0, help="of --sim: which desks [0]")
    record.add_argument("--size", type=size(32, 4096), default=(640, 480), metavar="WxH",
                        help="of --sim [640x480]")
    record.add_argument("--fps", type=positive, default=16.0, help="of --sim [16]")
    record.add_argument("--raw", action="store_true", help="of --sim: raw images instead of JPEG")
    record.add_argument("--questions", default="desk", metavar="F",
                        help="of --sim: the questions whose truth is told [desk]")
    record.add_argument("--node", default="/decision_node",
                        help="of --topics: whose decisions and events [/decision_node]")
    record.add_argument("--seconds", type=positive, default=None,
                        help="of --topics: stop after so long [at Ctrl-C]")
    record.only("--sim", lambda options: options.sim,
                "--segments", "--seed", "--size", "--fps", "--raw", "--questions")
    record.only("--topics", lambda options: options.topics, "--node", "--seconds")
    record.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return _record_sim(options) if options.sim else _record_live(options)


def _record_sim(options: argparse.Namespace) -> int:
    from ..lab.replay.record_sim import record_sim
    from ..question_book import QuestionBook, questions_path

    book = QuestionBook.load(questions_path(options.questions))
    width, height = options.size
    made = record_sim(options.out, options.segments, seed=options.seed,
                      facts=tuple(question.id for question in book), width=width, height=height,
                      fps=options.fps, compressed=not options.raw)
    print(f"{options.out}: {made['segments']} scenes at {made['desks']} desks, "
          f"{made['images']} images, {made['duration_s']:.0f} s")
    return 0


def _record_live(options: argparse.Namespace) -> int:
    from ..ros.recorder import record_live

    names = [name.strip() for name in options.topics.split(",") if name.strip()]
    counts = record_live(names, options.out, node=options.node, seconds=options.seconds)
    for name, written in counts.items():
        print(f"{name:<40} {written} messages")
    return 0
