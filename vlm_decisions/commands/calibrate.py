"""`vlm-decisions calibrate`: fit questions to what a camera shows."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import Commands


def add(commands: Commands) -> None:
    fit = commands.add_parser("calibrate", help="fit scale and bias of questions to the desk")
    fit.add_argument("--model", default="sim_desk")
    fit.add_argument("--questions", type=Path, required=True, metavar="F")
    fit.add_argument("--out", type=Path, required=True, metavar="F", help="YAML file to write")
    fit.add_argument("--clips", type=int, default=400)
    fit.add_argument("--skip", default="", metavar="ID,ID", help="questions to leave as they are")

    def run(options: argparse.Namespace) -> int:
        from ..training.calibrate import calibrate

        skip = [name for name in options.skip.split(",") if name]
        book = calibrate(options.model, options.questions, options.clips, skip)
        book.save(options.out)
        for question in book:
            print(f"{question.id:<24} scale {question.scale:6.3f}  bias {question.bias:6.3f}")
        return 0

    fit.set_defaults(run=run)
