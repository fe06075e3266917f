"""`vlm-decisions study`: measure a model."""

from __future__ import annotations

import argparse

from .arguments import Commands


def add(commands: Commands) -> None:
    study = commands.add_parser("study", help="measure a model")
    what = study.add_subparsers(required=True, metavar="WHAT")
    score = what.add_parser("score", help="the embedded model on desks it has never seen")
    score.add_argument("--model", default="sim_desk")
    score.add_argument("--clips", type=int, default=400)
    score.add_argument("--json", metavar="F")

    def run_score(options: argparse.Namespace) -> int:
        from ..sim.demo import write_json
        from ..studies.score import print_score, score

        result = score(options.model, options.clips)
        print_score(result)
        if options.json:
            write_json(options.json, result)
        return 0

    score.set_defaults(run=run_score)
