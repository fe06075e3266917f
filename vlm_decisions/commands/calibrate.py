"""`vlm-decisions calibrate`: fit questions to what a camera shows."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import Commands, at_least, not_negative, positive
from .sources import add_sources, heads_for, names, recordings_of, refuse_labels, warn_of_scope


def add(commands: Commands) -> None:
    fit = commands.add_parser(
        "calibrate", help="fit scale, bias, enter and exit of questions to recordings or the desk",
        example="--questions questions.yaml --bag door_bag")
    fit.add_argument("--model", default="sim_desk")
    fit.add_argument("--questions", type=Path, required=True, metavar="F", help="YAML file")
    fit.add_argument("--out", type=Path, metavar="F", help="YAML file to write [the same]")
    fit.add_argument("--heads", type=Path, nargs="+", default=[], metavar="F",
                     help="heads (files or folders) that will answer [the package's]")
    fit.add_argument("--clips", type=at_least(6), default=100,
                     help="number of simulated desks, if there are no recordings [%(default)s]")
    fit.add_argument("--skip", type=names, default=[], metavar="ID,ID",
                     help="questions that are not changed")
    fit.add_argument("--patience", type=positive, default=2.0, metavar="S",
                     help="seconds of a wrong answer that cost as much as a missed event "
                     "[%(default)s]")
    fit.add_argument("--flicker", type=positive, default=0.5, metavar="C",
                     help="cost of a change to a wrong answer; a missed event costs 1 "
                     "[%(default)s]")
    fit.add_argument("--tolerance", type=not_negative, default=0.5, metavar="S",
                     help="seconds of a wrong answer that cost nothing [%(default)s]")
    fit.add_argument("--json", metavar="F", help="write the result as JSON")
    add_sources(fit)

    def run(options: argparse.Namespace) -> int:
        from ..engine import load
        from ..files.atomic import write_json
        from ..learn.calibrate import calibrate, print_calibration
        from ..learn.thresholds import Costs

        recordings = recordings_of(options)
        if recordings:
            warn_of_scope(options.model)
        else:
            refuse_labels(options)
        engine = load(options.model)
        result = calibrate(
            options.model, options.questions, options.out or options.questions,
            recordings=recordings, labels_file=options.labels, clips=options.clips,
            heads=heads_for(options, engine), skip=options.skip,
            costs=Costs(options.patience, options.flicker, options.tolerance), cache=options.cache,
            skip_unlabelled=options.skip_unlabelled, engine=engine)
        print_calibration(result)
        if options.json:
            write_json(options.json, result)
        return 0

    fit.set_defaults(run=run)
