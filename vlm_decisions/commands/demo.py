"""`vlm-decisions demo`: the main job, live and then scored."""

from __future__ import annotations

import argparse

from .arguments import Commands, positive


def add(commands: Commands) -> None:
    demo = commands.add_parser("demo", help="simulated desk and node over DDS, live, then scored",
                               example="--seconds 60 --seed 3")
    demo.add_argument("--seconds", type=positive, default=30.0, help="how long [30]")
    demo.add_argument("--seed", type=int, default=0, help="which desk [0]")
    demo.add_argument("--questions", default="desk", help="shipped set or YAML file [desk]")
    demo.add_argument("--json", metavar="F", help="write the summary to F")
    demo.add_argument("--picture", metavar="F", help="save the last overlay image to F")
    demo.add_argument("--quiet", action="store_true", help="no live table")

    def run(options: argparse.Namespace) -> int:
        from ..files.atomic import write_json
        from ..lab.demo import run_demo
        from ..lab.demo_summary import print_summary

        summary = run_demo(options.seconds, options.seed, questions=options.questions,
                           quiet=options.quiet, picture=options.picture)
        print_summary(summary)
        if options.json:
            write_json(options.json, summary)
        return 0

    demo.set_defaults(run=run)
