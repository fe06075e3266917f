"""`vlm-decisions check`: prove what is claimed."""

from __future__ import annotations

import argparse

from .arguments import Commands


def add(commands: Commands) -> None:
    check = commands.add_parser("check", help="prove what is claimed")
    what = check.add_subparsers(required=True, metavar="WHAT")
    exact = what.add_parser("exactness", help="the shared prefix against plain full sequences")
    exact.add_argument("--model", default="sim_desk")
    control = exact.add_mutually_exclusive_group()
    for name, text in (("wrong-pos", "positions start at the token count"),
                       ("stale-state", "a state of another stream or batch size"),
                       ("wrong-window", "one group is missing"),
                       ("split-tokenisation", "a trailing space is merged across the cut")):
        control.add_argument(f"--{name}", dest="control", action="store_const", const=name,
                             help=f"control that must be caught: {text}")

    def run_exact(options: argparse.Namespace) -> int:
        from ..engine.engine import Engine
        from ..studies.exactness import check as check_exactness

        report = check_exactness(Engine.load(options.model), control=options.control)
        for margin in report.margins:
            print(margin)
        if report.refused:
            print(f"refused: {report.refused}")
        wanted = "the control is caught" if options.control else "all ways agree"
        print(f"{'passed' if report.ok else 'FAILED'}: {wanted if report.ok else 'not ' + wanted}")
        return 0 if report.ok else 1

    exact.set_defaults(run=run_exact)
